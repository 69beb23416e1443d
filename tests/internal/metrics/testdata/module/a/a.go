// Package a has one of each kind that is counted.
package a

import (
	"context"
	"sync"
	"time"
)

const One, two = 1, 2

var (
	Three = 3
	_     = two
)

// Four has a doc comment that does not count as a line of it.
func Four(wg *sync.WaitGroup) {
	go func() {
		wg.Go(func() {})
	}()
}

type Pair[K, V any] struct {
	Key, left K
	V         V
	*sync.Mutex
}

func (p *Pair[K, V]) Set() { time.AfterFunc(0, nil) }

func (p Pair[K, V]) get(ctx context.Context) {
	type local struct{ a, b, c, d, e int }
	time.NewTimer(1)
	time.NewTicker(1)
	context.AfterFunc(ctx, nil)
	time.After(1)
	new(local).Go("a game, no goroutine")
}

type hidden struct{ a int }

func (hidden) Exported() {}
