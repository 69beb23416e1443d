package observe

import (
	"sync"
	"sync/atomic"
)

// watcherValues is what Watchers keep with a Session or Call, each under a key of its own. The zero value is empty.
type watcherValues struct {
	mu         sync.Mutex
	key, value any         // a key belongs to one Watcher; most often there is one
	more       map[any]any // those of further Watchers
}

// Set keeps a value of a Watcher, Get returns it. They may be called concurrently.
func (k *watcherValues) Set(key, value any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set(key, value)
}

// set is Set with mu held.
func (k *watcherValues) set(key, value any) {
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
func (k *watcherValues) Get(key any) any {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.get(key)
}

// get is Get with mu held.
func (k *watcherValues) get(key any) any {
	if k.key == key {
		return k.value
	}
	return k.more[key]
}

// GetOrMake returns the value that is kept under a key. If there is none, make makes it, with mu held.
func (k *watcherValues) GetOrMake(key any, make func() any) any {
	k.mu.Lock()
	defer k.mu.Unlock()
	value := k.get(key)
	if value == nil {
		value = make()
		k.set(key, value)
	}
	return value
}

// lazyWatcherValues are watcherValues of which there are many that have nothing in them: those take little memory, and no lock.
type lazyWatcherValues struct{ all atomic.Pointer[watcherValues] }

// Set keeps a value of a Watcher, Get returns it. They may be called concurrently.
func (k *lazyWatcherValues) Set(key, value any) {
	if k.all.Load() == nil {
		k.all.CompareAndSwap(nil, new(watcherValues))
	}
	k.all.Load().Set(key, value)
}

// Get returns what Set has kept; nil: nothing.
func (k *lazyWatcherValues) Get(key any) any {
	if all := k.all.Load(); all != nil {
		return all.Get(key)
	}
	return nil
}
