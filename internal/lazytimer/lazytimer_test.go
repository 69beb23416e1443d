package lazytimer

import (
	"testing"
	"testing/synctest"
	"time"
)

// A Timer goes off at the time that was set last, once, however often it was set
// and cleared before; and not when it was cleared or stopped.
func TestTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make(chan time.Time, 10)
		timer := &Timer{Do: func() { calls <- time.Now() }}
		wants := func(ago ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if len(calls) != len(ago) {
				t.Errorf("%d calls, want %v", len(calls), ago)
			}
			for i := 0; len(calls) > 0; i++ {
				if since := time.Since(<-calls); i < len(ago) && since != ago[i] {
					t.Errorf("called %v ago, want %v", since, ago[i])
				}
			}
		}
		timer.SetAfter(time.Minute)
		time.Sleep(30 * time.Second)
		timer.SetAfter(time.Minute) // later
		time.Sleep(59 * time.Second)
		wants()
		time.Sleep(time.Hour)
		wants(time.Hour - time.Second)

		timer.SetAfter(time.Minute)
		timer.SetAfter(time.Second) // earlier
		time.Sleep(time.Hour)
		wants(time.Hour - time.Second)

		for range 100 {
			timer.SetAfter(time.Minute)
			time.Sleep(59 * time.Second)
			timer.Clear()
		}
		timer.Set(time.Time{})
		time.Sleep(time.Hour)
		wants()

		timer.SetAtLatest(time.Now().Add(time.Minute))
		timer.SetAtLatest(time.Now().Add(time.Hour))
		timer.SetAtLatest(time.Now().Add(time.Second))
		time.Sleep(time.Hour)
		wants(time.Hour - time.Second)

		timer.SetAfter(time.Minute)
		timer.Stop()
		timer.SetAfter(time.Minute)
		time.Sleep(time.Hour)
		wants()
	})
}

// A time in the past is a moment from now, and setting such a time again and again does
// not put it off.
func TestPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var timer Timer
		calls := 0
		timer.Do = func() {
			calls++
			timer.Set(began)
		}
		defer timer.Stop()
		timer.Set(began)
		for range 100 {
			time.Sleep(minWait / 10)
			timer.Set(began)
		}
		synctest.Wait()
		if calls != 10 {
			t.Errorf("%d calls, want 10", calls)
		}
	})
}

// Calls of Do do not overlap, and Stop waits for the one that goes on.
func TestStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var timer Timer
		running, calls := 0, 0
		timer.Do = func() {
			calls++
			if running++; running > 1 {
				t.Error("two calls at a time")
			}
			timer.SetAfter(time.Second) // which is over when this call is
			time.Sleep(10 * time.Second)
			running--
		}
		timer.SetAfter(time.Second)
		time.Sleep(15 * time.Second) // in the second call
		timer.Stop()
		if took := time.Since(began); calls != 2 || took != 21*time.Second+minWait {
			t.Errorf("%d calls, Stop returned after %v", calls, took)
		}
		time.Sleep(time.Hour)
		if calls != 2 {
			t.Error("called after Stop")
		}
		timer.Stop()
	})
}

func BenchmarkPutOff(b *testing.B) {
	timer := Timer{Do: func() {}}
	defer timer.Stop()
	for b.Loop() {
		timer.SetAfter(time.Minute)
		timer.Clear()
	}
}
