package redact

import (
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

const (
	maxLearnedValues = 256 // how many values are kept
	minLearnedBytes  = 8   // the length of the shortest one
)

// learnedSecrets are the values that were taken out because of their names: a server may write what it was given into its
// log, or answer with it. Its methods may be called concurrently.
type learnedSecrets struct {
	mu           sync.Mutex                 // of what follows; set is read without it
	known        map[string]bool            // the values in set
	nextReplaced int                        // index of the value that makes room next
	set          atomic.Pointer[learnedSet] // nil: it is empty
}

// learnedSet are the values at one time. It is immutable.
type learnedSet struct {
	values       [][]byte
	prefilter    *prefilter
	hasEscapable bool // as in Redactor
}

// add adds values, but for short ones and those without a digit or a non-ASCII byte: they may be words. The oldest values make room.
func (l *learnedSecrets) add(values [][]byte) {
	for _, v := range values {
		if len(v) < minLearnedBytes || !slices.ContainsFunc(v, func(c byte) bool { return c >= '0' && c <= '9' || c >= utf8.RuneSelf }) {
			continue
		}
		l.mu.Lock()
		if !l.known[string(v)] {
			l.addLocked(slices.Clone(v))
		}
		l.mu.Unlock()
	}
}

// addLocked adds a value. It is called with mu held.
func (l *learnedSecrets) addLocked(v []byte) {
	var all [][]byte
	if old := l.set.Load(); old != nil {
		all = slices.Clone(old.values)
	} else {
		l.known = map[string]bool{}
	}
	if len(all) < maxLearnedValues {
		all = append(all, v)
	} else {
		delete(l.known, string(all[l.nextReplaced]))
		all[l.nextReplaced] = v
		l.nextReplaced = (l.nextReplaced + 1) % maxLearnedValues
	}
	l.known[string(v)] = true
	l.set.Store(&learnedSet{values: all, prefilter: newPrefilter(all), hasEscapable: slices.ContainsFunc(all, isEscapable)})
}

// isEscapable reports whether a value has characters that every encoder of JSON may escape.
func isEscapable(v []byte) bool {
	return slices.ContainsFunc(v, func(c byte) bool { return c < 0x20 || c == '"' || c == '\\' || c == '/' })
}

// valuesMaybeIn returns the values if one of them may stand in text; nil: none does.
func (l *learnedSecrets) valuesMaybeIn(text []byte) [][]byte {
	if set := l.set.Load(); set != nil && set.prefilter.mayBeIn(text) {
		return set.values
	}
	return nil
}

// mayBeInName reports whether one of the values may stand in a short text.
func (l *learnedSecrets) mayBeInName(s string) bool {
	set := l.set.Load()
	return set != nil && set.prefilter.mayBeInName(s)
}

// hasEscapable reports whether one of the values has characters that every encoder of JSON may escape.
func (l *learnedSecrets) hasEscapable() bool {
	set := l.set.Load()
	return set != nil && set.hasEscapable
}
