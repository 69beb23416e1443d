package trace

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func put(s Sink, from, to int, text string) {
	for i := from; i <= to; i++ {
		s.Put(Append(nil, &Record{Seq: uint64(i), Kind: Note, Reason: text}))
	}
}

// seqs is the numbers of lines; a Gap is how many lines it stands for, negative.
func seqs(t *testing.T, lines [][]byte) (all []int) {
	t.Helper()
	for _, r := range records(t, lines) {
		if r.Kind == Gap {
			all = append(all, -int(r.Lost))
		} else {
			all = append(all, int(r.Seq))
		}
	}
	return all
}

func wants(t *testing.T, have []int, want ...int) {
	t.Helper()
	if fmt.Sprint(have) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", have, want)
	}
}

// A Ring keeps the last lines; who is slow is told how many are gone, and goes on.
func TestRing(t *testing.T) {
	r := NewRing(RingOptions{MaxRecords: 4})
	slow := r.Follow(0)
	put(r, 1, 3, "")
	quick, late := r.Follow(0), r.FollowNew()
	wants(t, seqs(t, quick.Ready(2)), 1, 2)
	wants(t, seqs(t, late.Ready(9)))
	put(r, 4, 7, "")
	wants(t, seqs(t, quick.Ready(9)), -1, 4, 5, 6, 7)
	wants(t, seqs(t, late.Ready(2)), 4, 5)
	at := late.Position()
	put(r, 8, 8, "")
	wants(t, seqs(t, r.Follow(at).Ready(9)), 6, 7, 8)
	wants(t, seqs(t, slow.Ready(9)), -4, 5, 6, 7, 8)
	wants(t, seqs(t, slow.Ready(9)))
	wants(t, seqs(t, r.Follow(999).Ready(9)), 5, 6, 7, 8)
}

// Its memory is bounded, whatever the lines' length; what readers have stays as it is.
func TestRingBytes(t *testing.T) {
	const most = 1 << 20
	r := NewRing(RingOptions{MaxBytes: most})
	f := r.Follow(0)
	put(r, 1, 10, "")
	first := f.Ready(10)
	for i := range 200 {
		put(r, 100+i, 100+i, strings.Repeat("x", i*1000))
		sum := 0
		for _, line := range r.Follow(0).Ready(1e6) {
			sum += len(line)
		}
		if sum > most || i > 100 && sum < most*3/4 {
			t.Fatalf("%d bytes", sum)
		}
	}
	wants(t, seqs(t, first), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	put(r, 999, 999, strings.Repeat("x", most))
	all := seqs(t, r.Follow(0).Ready(1e6))
	wants(t, all[len(all)-1:], -1)
}

// Next waits for lines, and ends with its context.
func TestRingNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(RingOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan [][]byte)
		go func() {
			defer close(got)
			f := r.Follow(0)
			for {
				lines, err := f.Next(ctx, 100)
				if err != nil {
					return
				}
				got <- lines
			}
		}()
		synctest.Wait()
		put(r, 1, 1, "")
		put(r, 2, 2, "") // meanwhile
		wants(t, seqs(t, <-got), 1, 2)
		put(r, 3, 3, "")
		time.Sleep(followPause)
		wants(t, seqs(t, <-got), 3)
		cancel()
		<-got
	})
}
