package budget_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
)

const mib = 1 << 20

// Who holds much leaves at least as much to the others, and what they leave to
// each other is never nothing.
func TestFairness(t *testing.T) {
	b := budget.New(64 * mib)
	most := func(party string) (n int) {
		for b.Share(party).Take(mib) {
			n++
		}
		return n
	}
	if n := most("a"); n < 31 || n > 32 {
		t.Errorf("alone a party may have %d MiB of 64", n)
	}
	if n := most("b"); n < 14 || n > 16 {
		t.Errorf("the next may have %d MiB of the 32 that are left", n)
	}
	if n := most("a"); n != 0 {
		t.Errorf("who has half gets %d MiB more", n)
	}
	for i := range 20 {
		most(fmt.Sprint(i))
	}
	small := b.Share("late")
	if !small.Take(budget.SmallShare) {
		t.Error("a small message does not pass although the rest is kept back for it")
	}
	if small.Take(mib) {
		t.Error("so does one that is larger")
	}
}

// A message of the greatest size fits when nobody holds anything, in twice its
// size: it is copied once. That holds for small limits as well.
func TestForMessages(t *testing.T) {
	for _, size := range []int{1, 4 << 10, mib, 64 * mib} {
		s := budget.ForMessages(size).Share("a")
		if !s.Take(size+64<<10) || !s.Take(size) {
			t.Errorf("%d bytes do not fit", size)
		}
	}
	var none *budget.Budget
	for _, b := range []*budget.Budget{none, budget.New(-1)} {
		s := b.Share("a")
		if !s.Take(1 << 40) {
			t.Error("there is a limit")
		}
		s.Release(1)
		s.ReleaseAll()
		if n := b.Taken(); n != 0 || b.Total() != -1 {
			t.Errorf("%d bytes are taken of %d", n, b.Total())
		}
	}
	if s := (*budget.Share)(nil); !s.Take(1) || s.Held() != 0 {
		t.Error("no Share has a limit")
	}
}

// What is given back is there for others, all of it in the end.
func TestGive(t *testing.T) {
	b := budget.New(8 * mib)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			s := b.Share(fmt.Sprint(i % 3))
			defer s.ReleaseAll()
			for range 2000 {
				if n := random.IntN(100_000); random.IntN(2) == 0 {
					s.Take(n)
				} else if held := s.Held(); held > 0 {
					s.Release(random.IntN(held + 1))
				}
				if n := b.Taken(); n > 10*mib {
					t.Errorf("%d bytes are taken", n)
				}
			}
		})
	}
	wg.Wait()
	if n := b.Taken(); n != 0 {
		t.Errorf("%d bytes are taken by nobody", n)
	}
	s := b.Share("")
	s.Take(4*mib - budget.SmallShare)
	s.Release(3 * mib)
	if n := b.Taken(); n > mib+budget.SmallShare {
		t.Errorf("%d bytes are counted for one MiB", n)
	}
	s.ReleaseAll()
}

// What is little costs no lock, and nothing on the heap.
func TestFree(t *testing.T) {
	b := budget.New(0)
	s := b.Share("a")
	if n := testing.AllocsPerRun(100, func() { s.Take(budget.UncountedBytes); s.Release(budget.UncountedBytes) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s.Take(budget.UncountedBytes + 1) {
		t.Error("it is not counted")
	}
}
