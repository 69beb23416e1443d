package redact

import (
	"slices"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

const (
	maxLearned = 256 // values
	minLearned = 8   // bytes long
)

// learned is the values that were taken out because of their names. A server may write into its
// log what it was given, and answer with it. Its methods may be called concurrently.
type learned struct {
	mu    sync.Mutex
	known map[string]bool
	next  int
	set   atomic.Pointer[learnedSet] // nil: it is empty
}

// learnedSet is immutable.
type learnedSet struct {
	values    [][]byte
	prefilter *prefilter
	special   bool // as in Redactor
}

// add adds values, unless they may be words that stand in many texts. The oldest ones make room.
func (l *learned) add(values [][]byte) {
	for _, v := range values {
		if len(v) < minLearned || !slices.ContainsFunc(v, func(c byte) bool { return c >= '0' && c <= '9' || c >= utf8.RuneSelf }) {
			continue
		}
		l.mu.Lock()
		if !l.known[string(v)] {
			l.put(slices.Clone(v))
		}
		l.mu.Unlock()
	}
}

// put adds a value. It is called with mu held.
func (l *learned) put(v []byte) {
	var all [][]byte
	if old := l.set.Load(); old != nil {
		all = slices.Clone(old.values)
	} else {
		l.known = map[string]bool{}
	}
	if len(all) < maxLearned {
		all = append(all, v)
	} else {
		delete(l.known, string(all[l.next]))
		all[l.next] = v
		l.next = (l.next + 1) % maxLearned
	}
	l.known[string(v)] = true
	l.set.Store(&learnedSet{values: all, prefilter: newPrefilter(all), special: slices.ContainsFunc(all, isSpecial)})
}

// isSpecial reports whether a value has characters that every encoder of JSON may escape.
func isSpecial(v []byte) bool {
	return slices.ContainsFunc(v, func(c byte) bool { return c < 0x20 || c == '"' || c == '\\' || c == '/' })
}

// in returns the values if one of them may stand in text; nil: none does.
func (l *learned) in(text []byte) [][]byte {
	if set := l.set.Load(); set != nil && set.prefilter.mayBeIn(text) {
		return set.values
	}
	return nil
}

// mayBeInName reports whether one of the values may stand in a short text.
func (l *learned) mayBeInName(s string) bool {
	set := l.set.Load()
	return set != nil && set.prefilter.mayBeInName(s)
}

// isSpecial reports whether one of the values is.
func (l *learned) isSpecial() bool {
	set := l.set.Load()
	return set != nil && set.special
}
