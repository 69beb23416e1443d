package streamhttp

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// inProgress returns exchanges among which nobody looks around, and what adds one of a party.
func inProgress(t testing.TB) (x *exchanges, add func(party string, max int) (*exchange, error)) {
	x = new(exchanges)
	x.timer.Do = func() {}
	t.Cleanup(x.timer.Stop)
	return x, func(party string, max int) (*exchange, error) {
		e := new(exchange)
		e.party.Store(&party)
		return e, x.add(e, max)
	}
}

// A party has no more requests in progress than it leaves to others, also after many have
// come and gone.
func TestExchangesShares(t *testing.T) {
	const max = 40
	x, add := inProgress(t)
	random := rand.New(rand.NewPCG(1, 2))
	there := make(map[*exchange]string)
	own := make(map[string]int)
	for i := range 20_000 {
		if i/1000%2 == 1 && len(there) > 0 { // fewer from now on
			for e, party := range there {
				x.remove(e)
				delete(there, e)
				own[party]--
				break
			}
		}
		party := fmt.Sprint(random.IntN(3))
		free := max - len(there)
		want := free > max/2 || free > 0 && own[party] <= free
		e, err := add(party, max)
		if (err == nil) != want {
			t.Fatalf("%d: a party with %d of %d is told %v", i, own[party], len(there), err)
		}
		if err == nil {
			there[e] = party
			own[party]++
		}
		if random.IntN(3) > 0 {
			for e, party := range there {
				x.remove(e)
				delete(there, e)
				own[party]--
				break
			}
		}
	}
}

// BenchmarkExchangesCrowded is one request of 2026-07-28 beside many that are open.
func BenchmarkExchangesCrowded(b *testing.B) {
	x, add := inProgress(b)
	for i := range 11_000 {
		if _, err := add(fmt.Sprint(i%100), 20_000); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		e, err := add("another", 20_000)
		if err != nil {
			b.Fatal(err)
		}
		x.remove(e)
	}
}
