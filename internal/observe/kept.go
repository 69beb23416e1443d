package observe

import (
	"sync"
	"sync/atomic"
)

// kept is what Watchers keep with something. The zero value is empty.
type kept struct {
	mu         sync.Mutex
	key, value any // a key belongs to one Watcher; most often there is one
	more       map[any]any
}

// Set keeps a value of a Watcher, Get returns it. They may be called concurrently.
func (k *kept) Set(key, value any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(key, value)
}

func (k *kept) set(key, value any) {
	if k.key == nil || k.key == key {
		k.key, k.value = key, value
		return
	}
	if k.more == nil {
		k.more = make(map[any]any, 1)
	}
	k.more[key] = value
}

// Get returns what Set has kept; nil: nothing.
func (k *kept) Get(key any) any {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.get(key)
}

func (k *kept) get(key any) any {
	if k.key == key {
		return k.value
	}
	return k.more[key]
}

// Keep returns what is kept under a key, which make makes if there is nothing.
func (k *kept) Keep(key any, make func() any) any {
	k.mu.Lock()
	defer k.mu.Unlock()
	value := k.get(key)
	if value == nil {
		value = make()
		k.set(key, value)
	}
	return value
}

// rarelyKept is kept of which there are many that have nothing in them: those take little memory, and no lock.
type rarelyKept struct{ all atomic.Pointer[kept] }

// Set keeps a value of a Watcher, Get returns it. They may be called concurrently.
func (k *rarelyKept) Set(key, value any) {
	if k.all.Load() == nil {
		k.all.CompareAndSwap(nil, new(kept))
	}
	k.all.Load().Set(key, value)
}

// Get returns what Set has kept; nil: nothing.
func (k *rarelyKept) Get(key any) any {
	if all := k.all.Load(); all != nil {
		return all.Get(key)
	}
	return nil
}
