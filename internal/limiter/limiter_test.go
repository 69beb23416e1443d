package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// tenant is a Holder that a test moves.
type tenant struct {
	mu    sync.Mutex
	use   Use
	since time.Time
	told  func() // by Reclaim
	count int
}

func (h *tenant) Use() (Use, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.use, h.since
}

func (h *tenant) Reclaim() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.use == Busy {
		return false
	}
	h.use = Busy // it is on its way out
	h.count++
	if h.told != nil {
		h.told()
	}
	return true
}

func (h *tenant) set(use Use) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.use, h.since = use, time.Now()
}

// site is a Limiter with what a test does to it.
type site struct {
	*testing.T
	l    *Limiter
	ctx  context.Context
	wait time.Duration // how long may be waited for a place
}

func newSite(t *testing.T, o Options, wait time.Duration) *site {
	return &site{t, New(o), t.Context(), wait}
}

// take wants a place at once.
func (s *site) take(party string, h Holder) *Place {
	s.Helper()
	p, err := s.l.Acquire(s.ctx, party, h, s.wait)
	if err != nil {
		s.Fatalf("%s: %v", party, err)
	}
	return p
}

// idle wants a place at once for something that nobody uses after that, and
// gives it back as soon as it is told to.
func (s *site) idle(party string, use Use) *tenant {
	s.Helper()
	h := &tenant{}
	p := s.take(party, h)
	h.told = p.Release
	h.set(use)
	time.Sleep(time.Millisecond) // the next one is younger
	return h
}

type outcome struct {
	party string
	place *Place
	err   error
}

// ask asks, and says what has come of it when that is known.
func (s *site) ask(party string, to chan<- outcome) {
	go func() {
		p, err := s.l.Acquire(s.ctx, party, nil, s.wait)
		to <- outcome{party, p, err}
	}()
	synctest.Wait()
}

// One party alone may have all places; more than that is refused at once where
// nobody may wait.
func TestOneAlone(t *testing.T) {
	s := newSite(t, Options{Max: 4}, time.Minute)
	var all []*Place
	for range 4 {
		all = append(all, s.take("a", &tenant{use: Idle}))
	}
	if _, err := s.l.Acquire(t.Context(), "a", nil, s.wait); err != ErrFull {
		t.Errorf("a fifth of four: %v", err)
	}
	for _, p := range all {
		p.Release()
		p.Release() // which is no place more
	}
	if n := s.l.Taken(); n != 0 || len(s.l.parties) != 0 {
		t.Errorf("%d places are taken, %d parties known, when all are given back", n, len(s.l.parties))
	}
}

// Who holds most gives up what has been idle longest, down to equal parts and no
// further, and never what is busy.
func TestReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Options{Max: 4}, time.Second)
		busy := &tenant{}
		s.take("a", busy)
		var idle []*tenant
		for range 3 {
			idle = append(idle, s.idle("a", Idle))
		}
		idle[0].set(Idle) // it was used meanwhile
		begun := time.Now()
		s.take("b", nil)
		s.take("b", nil)
		if d := time.Since(begun); d > 0 {
			t.Errorf("the places came after %v", d)
		}
		if idle[0].count != 0 || idle[1].count != 1 || idle[2].count != 1 || busy.count != 0 {
			t.Errorf("given up: %d %d %d, and %d of what is busy", idle[0].count, idle[1].count, idle[2].count, busy.count)
		}
		if _, err := s.l.Acquire(t.Context(), "b", nil, s.wait); err != ErrFull {
			t.Errorf("more than an equal part: %v", err)
		}
	})
}

// Who has to wait gets what comes out of use meanwhile.
func TestReclaimLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Options{Max: 2}, time.Minute)
		one, two := &tenant{}, &tenant{}
		p := s.take("a", one)
		s.take("a", two)
		one.told = p.Release
		in := make(chan outcome, 1)
		s.ask("b", in)
		time.Sleep(10 * time.Second)
		if len(in) > 0 {
			t.Fatal("b got a place of what is busy")
		}
		one.set(Idle)
		time.Sleep(reclaimInterval)
		synctest.Wait()
		if len(in) == 0 || (<-in).err != nil {
			t.Error("b did not get what is idle")
		}
	})
}

// What is too little for all goes round, but not so quickly that nobody gets
// anything done.
func TestFewerPlacesThanParties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Options{Max: 1, Queue: 10}, time.Minute)
		a := s.idle("a", Idle)
		begun := time.Now()
		b := s.idle("b", Idle)
		if d := time.Since(begun); a.count != 1 || d < settleTime/2 || d > settleTime+time.Second {
			t.Errorf("b was served after %v", d)
		}
		s.take("a", nil)
		if b.count != 1 {
			t.Error("a was served, and b still has the place")
		}
	})
}

// A place that nobody uses is given up for everybody, by who holds it first.
func TestSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Options{Max: 3}, 0)
		other := s.idle("b", Spare)
		own := s.idle("a", Spare)
		s.take("a", nil)
		s.take("a", nil)
		if synctest.Wait(); own.count != 1 || other.count != 0 {
			t.Errorf("own: %d, of another: %d", own.count, other.count)
		}
		if _, err := s.l.Acquire(t.Context(), "a", nil, s.wait); err != ErrFull {
			t.Errorf("who has more than its part takes what another has just used: %v", err)
		}
		time.Sleep(settleTime)
		s.take("a", nil)
		if other.count != 1 {
			t.Error("what nobody has used for long is kept")
		}
	})
}

// A queue that one party has filled takes in others, who are served first.
func TestQueueShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Options{Max: 2, Queue: 4}, time.Minute)
		one, two := s.take("a", nil), s.take("a", nil)
		in := make(chan outcome, 20)
		for range 4 {
			s.ask("a", in)
		}
		s.ask("a", in)
		if o := <-in; o.err != ErrFull {
			t.Errorf("a's fifth: %v", o.err)
		}
		for range 3 { // one has its place in any case
			s.ask("b", in)
		}
		for range 2 {
			if o := <-in; o.party != "a" || o.err != ErrFull {
				t.Errorf("%s is refused: %v", o.party, o.err)
			}
		}
		s.ask("b", in)
		if o := <-in; o.party != "b" || o.err != ErrFull {
			t.Errorf("more than an equal part of the queue: %s, %v", o.party, o.err)
		}
		one.Release()
		first := <-in
		two.Release()
		second := <-in
		if first.party != "b" || second.party != "a" && second.party != "b" {
			t.Errorf("served: %s, %s", first.party, second.party)
		}
		first.place.Release()
		second.place.Release()
	})
}

// Who is served first: the party that holds fewest, and in turns among equals.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Options{Max: 3, Queue: 100}, time.Hour)
		held := []*Place{s.take("a", nil), s.take("a", nil), s.take("b", nil)}
		in := make(chan outcome, 20)
		for _, party := range []string{"a", "a", "a", "b", "b", "b", "c", "c", "c"} {
			s.ask(party, in)
		}
		got := ""
		for _, p := range held {
			p.Release()
			synctest.Wait()
			o := <-in
			got += o.party
			held = append(held, o.place)
		}
		if got != "cab" { // each time it is the only one that holds none
			t.Errorf("served: %s", got)
		}
		for n := 0; n < 6; n++ {
			held[3+n].Release()
			o := <-in
			held = append(held, o.place)
		}
		for _, p := range held {
			p.Release()
		}
	})
}

// Who gives up leaves nothing behind, also at the very moment when its place comes.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Max: 1, Queue: 9})
		p, _ := l.Acquire(t.Context(), "a", nil, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		go func() { _, err := l.Acquire(ctx, "b", nil, time.Minute); errs <- err }()
		synctest.Wait()
		cancel()
		p.Release()
		if err := <-errs; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		} else if err != nil && (l.Taken() != 0 || len(l.parties) != 0) {
			t.Errorf("left behind: %d", l.Taken())
		}
		l = New(Options{Max: 1, Queue: 9})
		p, _ = l.Acquire(t.Context(), "a", nil, time.Minute)
		begun := time.Now()
		if _, err := l.Acquire(t.Context(), "b", nil, time.Minute); err != ErrLate || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		p.Release()
		if l.Taken() != 0 || len(l.parties) != 0 || l.waiting != 0 {
			t.Error("something is left behind")
		}
	})
}

// More places let in who waits; fewer take nothing away; none is no bound.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Options{Max: 1, Queue: 9}, time.Hour)
		held := []*Place{s.take("a", nil)}
		in := make(chan outcome, 9)
		for range 3 {
			s.ask("a", in)
		}
		s.l.Resize(2)
		held = append(held, (<-in).place)
		s.l.Resize(1)
		held[0].Release()
		if synctest.Wait(); len(in) > 0 {
			t.Error("one more than may be was let in")
		}
		s.l.Resize(0)
		for range 2 {
			(<-in).place.Release()
		}
		held[1].Release()
		if n := s.l.Taken(); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

// model checks a Limiter while many parties use it.
type model struct {
	t      *testing.T
	l      *Limiter
	o      Options
	rnd    *rand.Rand
	mu     sync.Mutex
	served map[string]int
	wg     sync.WaitGroup
}

// check says what must hold whenever nothing moves.
func (m *model) check() {
	m.t.Helper()
	l := m.l
	l.mu.Lock()
	defer l.mu.Unlock()
	held, waits, leaving := 0, 0, 0
	for name, p := range l.parties {
		if p.held < 0 || p.reclaimedPlaces < 0 || p.reclaimedPlaces > p.held || p.held+len(p.waiting) == 0 || p.name != name {
			m.t.Errorf("%s holds %d, of which %d leave, and %d wait", name, p.held, p.reclaimedPlaces, len(p.waiting))
		}
		held += p.held
		waits += len(p.waiting)
		leaving += p.reclaimedPlaces
	}
	switch {
	case held != len(l.places) || waits != l.waiting || leaving != l.reclaimedPlaces:
		m.t.Errorf("books: %d of %d places, %d of %d wait, %d of %d leave", held, len(l.places), waits, l.waiting, leaving, l.reclaimedPlaces)
	case held > m.o.Max:
		m.t.Errorf("%d places of %d", held, m.o.Max)
	case waits > 0 && held < m.o.Max:
		m.t.Errorf("%d wait while %d places are free", waits, m.o.Max-held)
	case waits > m.o.Queue+3*m.o.Max: // some were due an equal part when there were fewer parties
		m.t.Errorf("%d wait, of %d", waits, m.o.Queue)
	}
}

// modelWait is how long a client of the model may wait for a place.
const modelWait = 15 * time.Second

// client asks again and again for a place, and uses it for a while: mostly it is
// busy first, then idle, and goes when it is told to.
func (m *model) client(party string, seed uint64, times int) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	short := func(most time.Duration) time.Duration { return time.Duration(rnd.Int64N(int64(most))) }
	for range times {
		ctx, cancel := context.WithCancel(m.t.Context())
		if rnd.IntN(10) == 0 {
			time.AfterFunc(short(time.Second), cancel)
		}
		told := make(chan struct{}, 1)
		h := &tenant{told: func() { told <- struct{}{} }}
		begun := time.Now()
		p, err := m.l.Acquire(ctx, party, h, modelWait)
		if d := time.Since(begun); d > modelWait {
			m.t.Errorf("%s has waited %v", party, d)
		}
		if err == nil {
			m.mu.Lock()
			m.served[party]++
			m.mu.Unlock()
			time.Sleep(short(time.Second))
			h.set(Use(rnd.IntN(3)))
			select {
			case <-told:
				time.Sleep(short(100 * time.Millisecond))
			case <-time.After(short(20 * time.Second)):
			}
			p.Release()
		}
		cancel()
		time.Sleep(short(time.Second))
	}
}

// TestModel: whatever parties do, there are never more places taken than there
// are, none is lost, nobody waits for longer than it may or while one is free,
// and no party starves beside a greedy one.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				m := &model{t: t, rnd: rnd, served: map[string]int{}}
				m.o = Options{Max: 1 + rnd.IntN(8), Queue: rnd.IntN(6)}
				m.l = New(m.o)
				parties := 1 + rnd.IntN(4)
				for n := range parties {
					clients := 1
					if n == 0 {
						clients = 30 // the greedy one
					}
					for c := range clients {
						m.wg.Go(func() { m.client(fmt.Sprint(n), seed*1000+uint64(n*100+c), 20) })
					}
				}
				over := make(chan struct{})
				go func() { m.wg.Wait(); close(over) }()
				for {
					synctest.Wait()
					m.check()
					select {
					case <-over:
						if m.l.Taken() != 0 || len(m.l.parties) != 0 || m.l.waiting != 0 || m.l.reclaimedPlaces != 0 {
							t.Errorf("left behind: %d places, %d parties, %d wait, %d leave", m.l.Taken(), len(m.l.parties), m.l.waiting, m.l.reclaimedPlaces)
						}
						for n := range parties { // it gives up one of ten times itself
							if got := m.served[fmt.Sprint(n)]; n > 0 && m.o.Max >= parties && got < 15 {
								t.Errorf("party %d of %d was served %d times of 20 (max %d, queue %d)", n, parties, got, m.o.Max, m.o.Queue)
							}
						}
						return
					case <-time.After(37 * time.Millisecond):
					}
				}
			})
		})
	}
}

func BenchmarkAcquire(b *testing.B) {
	l := New(Options{Max: 1000})
	b.ReportAllocs()
	for b.Loop() {
		p, _ := l.Acquire(b.Context(), "peer 127.0.0.1", nil, 0)
		p.Release()
	}
}
