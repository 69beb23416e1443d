// Package budget bounds the memory that clients make the bridge hold, and shares
// it out among them, so that one client leaves something to the next.
package budget

import "sync"

// Sizes, in bytes.
const (
	// UncountedBytes is how many bytes of each Share the Budget does not count. Of a Share that holds more, it counts
	// only what goes beyond. UncountedBytes is little beside what a connection takes anyway, and most messages are no
	// longer.
	UncountedBytes = 16 << 10

	// SmallShare is how much a Share may hold in all and still take of the part of a Budget that is kept back for
	// small ones: so the first messages of a client still pass when large ones have used the Budget up.
	SmallShare = 64 << 10

	// baseBytes is the part of TotalFor that does not depend on the size of messages.
	baseBytes = 16 << 20

	countStep = 16 << 10 // the Budget is asked for, and given back, multiples of this
)

// Budget is an amount of memory that any number of parties share: principals,
// or where clients come from. A party may hold no more than it leaves to the
// others: alone, half; when that is taken, the next may have half of what is
// left, and so on. A quarter more is kept back for Shares that have come to no
// more than SmallShare. Any number of goroutines may use it. nil has no limit.
type Budget struct {
	mu           sync.Mutex       // guards total, taken and takenByParty
	total        int64            // how many bytes there are, without the quarter that is kept back; negative: no limit
	taken        int64            // how many bytes all parties have together
	takenByParty map[string]int64 // how many bytes each party has; a party that has none is not in it
}

// New returns a Budget of total bytes, beside which it has the quarter that is kept back for small Shares; with a negative total
// there is no limit. 0: a Share may hold no more than UncountedBytes.
func New(total int64) *Budget {
	return &Budget{total: total, takenByParty: make(map[string]int64)}
}

// ForMessages returns a Budget for messages of up to size bytes, with the total of TotalFor.
func ForMessages(size int) *Budget { return New(TotalFor(size)) }

// TotalFor returns how many bytes a Budget for messages of up to size bytes should have: four times that, and
// baseBytes. One such message, with the copy that is made of it, always fits when nobody holds anything.
func TotalFor(size int) int64 { return 4*int64(size) + baseBytes }

// Resize makes the Budget one of total bytes, as New does. What is held stays held, even if it is more.
// A nil Budget cannot be resized.
func (b *Budget) Resize(total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total = total
}

// Total returns how many bytes the Budget has, without the quarter that is kept back; negative, as for a nil Budget: no limit.
func (b *Budget) Total() int64 {
	if b == nil {
		return -1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// Taken returns how many bytes all parties hold now, as far as they are counted; 0 for a nil Budget.
func (b *Budget) Taken() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}

// Share returns a Share for a message, or a conversation, of party. It holds nothing yet.
func (b *Budget) Share(party string) *Share { return &Share{budget: b, party: party} }

// take takes n bytes for a party; false: it may not have so many. small: they may come from the quarter that is kept
// back for small Shares.
func (b *Budget) take(party string, n int64, small bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	limit := b.total
	if small {
		limit += limit / 4
	}
	if held := b.takenByParty[party]; b.total >= 0 && held+n > limit-b.taken-n {
		return false
	}
	b.taken += n
	b.takenByParty[party] += n
	return true
}

// release gives n bytes of a party back.
func (b *Budget) release(party string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.takenByParty[party] -= n; b.takenByParty[party] == 0 {
		delete(b.takenByParty, party)
	}
}

// Share is what one message, or one conversation, holds of a Budget. It is used by one goroutine at a time, which must
// call ReleaseAll at the end. A nil Share has no limit. Most hold so little that no lock is taken.
type Share struct {
	budget  *Budget // the Budget that the bytes are taken from; nil: no limit
	party   string  // the party that holds the bytes
	held    int64   // how many bytes the Share holds; 0 if budget is nil
	counted int64   // how many of the bytes that are held the Budget counts: multiples of countStep
}

// Take takes n bytes more; false: there is no room for them, and nothing has changed.
func (s *Share) Take(n int) bool {
	if s == nil || s.budget == nil {
		return true
	}
	held := s.held + int64(n)
	if need := held - UncountedBytes - s.counted; need > 0 {
		need = (need + countStep - 1) / countStep * countStep
		if !s.budget.take(s.party, need, held <= SmallShare) {
			return false
		}
		s.counted += need
	}
	s.held = held
	return true
}

// Release gives back n of the bytes that the Share holds. It panics if n is more than that.
func (s *Share) Release(n int) {
	if s == nil || s.budget == nil || n == 0 {
		return
	}
	s.held -= int64(n)
	if s.held < 0 {
		panic("budget: more is given back than was taken")
	}
	// One countStep stays, for who takes and gives in turn.
	spare := s.counted - max(0, s.held-UncountedBytes)
	if spare = (spare/countStep - 1) * countStep; spare > 0 {
		s.counted -= spare
		s.budget.release(s.party, spare)
	}
}

// ResizeTo takes or gives back bytes so that n are held; false: there is no room for so many, and nothing has changed.
func (s *Share) ResizeTo(n int) bool {
	if s == nil || int64(n) >= s.held {
		return s == nil || s.Take(n-int(s.held))
	}
	s.Release(int(s.held) - n)
	return true
}

// ReleaseAll gives back all that is held. It may be called more than once.
func (s *Share) ReleaseAll() {
	if s == nil || s.budget == nil {
		return
	}
	if s.counted > 0 {
		s.budget.release(s.party, s.counted)
	}
	s.held, s.counted = 0, 0
}

// Held returns how many bytes are held; 0 for a nil Share, and for one of a nil Budget.
func (s *Share) Held() int {
	if s == nil {
		return 0
	}
	return int(s.held)
}
