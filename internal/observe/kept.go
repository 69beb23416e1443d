package observe

import "sync/atomic"

// watcherValues is what Watchers keep with a Session or Call, each under a key of its own. There are few keys, and mostly none. The zero
// value is empty. It needs no lock: a list is never changed, only replaced. Its methods may be called concurrently.
type watcherValues struct {
	latest atomic.Pointer[watcherValue] // the list of all values that are kept, the one that was set last in front; nil: there are none
}

// watcherValue is one value that a Watcher keeps.
type watcherValue struct {
	key, value any           // what the Watcher keeps, and under which key
	before     *watcherValue // the value that was kept before, under another key; nil: there is none
}

// Set keeps a value of a Watcher under its key, in place of the one that it has kept there before.
func (k *watcherValues) Set(key, value any) {
	for {
		old := k.latest.Load()
		if k.latest.CompareAndSwap(old, &watcherValue{key, value, old.without(key)}) {
			return
		}
	}
}

// without returns the list v without the value that is kept under a key; nil: nothing else is in it.
func (v *watcherValue) without(key any) *watcherValue {
	switch {
	case v == nil:
		return nil
	case v.key == key:
		return v.before
	}
	if rest := v.before.without(key); rest != v.before {
		return &watcherValue{v.key, v.value, rest}
	}
	return v
}

// find returns the value that the list v has under a key; nil: none.
func (v *watcherValue) find(key any) any {
	for ; v != nil; v = v.before {
		if v.key == key {
			return v.value
		}
	}
	return nil
}

// Get returns what Set or GetOrMake has kept under a key; nil: nothing.
func (k *watcherValues) Get(key any) any { return k.latest.Load().find(key) }

// GetOrMake returns the value that is kept under a key. If there is none, it keeps what make returns, which is not nil. Of several
// that are made at the same time, one is kept, which all callers get.
func (k *watcherValues) GetOrMake(key any, make func() any) any {
	var made any
	for {
		old := k.latest.Load()
		if value := old.find(key); value != nil {
			return value
		}
		if made == nil {
			made = make()
		}
		if k.latest.CompareAndSwap(old, &watcherValue{key, made, old}) {
			return made
		}
	}
}
