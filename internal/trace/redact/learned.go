package redact

import (
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

const (
	maxLearnedValues = 256 // how many learned values are kept at most
	minLearnedBytes  = 8   // the length of the shortest value that is learned, in bytes
)

// learnedSecrets are strings that were taken out of messages because of a name or a path, and are looked for in all that
// follows: a server may write what it was given into its log, or answer with it. Its methods may be called concurrently.
type learnedSecrets struct {
	mu           sync.Mutex                 // guards known and nextReplaced, and is held while set changes
	known        map[string]bool            // the values that set has
	nextReplaced int                        // index in set of the value in whose place the next one comes, once set is full
	set          atomic.Pointer[learnedSet] // the values; nil: none was learned
}

// learnedSet has all values of learnedSecrets at one time. It is immutable: with each new value, another learnedSet
// comes in its place.
type learnedSet struct {
	values       [][]byte   // the values, decoded from JSON; at most maxLearnedValues
	prefilter    *prefilter // finds out that none of values stands in a text
	hasEscapable bool       // isEscapable holds for one of values
}

// add learns values, but for short ones and those without a digit or a non-ASCII byte: they may be words. Once there are
// maxLearnedValues, the oldest ones make room.
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

// addLocked learns a value that is not known, and forgets the oldest one if there are too many. It is called with mu held.
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

// isEscapable reports whether a value has a character that JSON encoders escape, or may escape: a quote, a backslash, a slash
// or a control character. Such a value may stand in JSON in another spelling.
func isEscapable(v []byte) bool {
	return slices.ContainsFunc(v, func(c byte) bool { return c < 0x20 || c == '"' || c == '\\' || c == '/' })
}

// valuesMaybeIn returns all learned values if one of them may stand in text; nil: none does.
func (l *learnedSecrets) valuesMaybeIn(text []byte) [][]byte {
	if set := l.set.Load(); set != nil && set.prefilter.mayBeIn(text) {
		return set.values
	}
	return nil
}

// mayBeInName reports whether one of the learned values may stand in a short text. It is false only if that is sure.
func (l *learnedSecrets) mayBeInName(s string) bool {
	set := l.set.Load()
	return set != nil && set.prefilter.mayBeInName(s)
}

// hasEscapable reports whether isEscapable holds for one of the learned values.
func (l *learnedSecrets) hasEscapable() bool {
	set := l.set.Load()
	return set != nil && set.hasEscapable
}
