package ws

import (
	"testing"
	"testing/synctest"
	"time"
)

// An alarm goes off at the time that was set last, once, however often it was set
// and cleared before; and not when it was cleared or stopped.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var rang []time.Duration
		a := newAlarm(func() { rang = append(rang, time.Since(start)) })
		wants := func(want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if len(rang) != len(want) || len(want) > 0 && rang[0] != want[0] {
				t.Errorf("rang at %v, want %v", rang, want)
			}
			rang, start = nil, time.Now()
		}
		a.set(time.Minute)
		time.Sleep(30 * time.Second)
		a.set(time.Minute) // later
		time.Sleep(59 * time.Second)
		wants()
		time.Sleep(time.Hour)
		wants(time.Second)

		a.set(time.Minute)
		a.set(time.Second) // earlier
		time.Sleep(time.Hour)
		wants(time.Second)

		for range 100 {
			a.set(time.Minute)
			time.Sleep(59 * time.Second)
			a.clear()
		}
		time.Sleep(time.Hour)
		wants()

		a.set(time.Minute)
		a.stop()
		time.Sleep(time.Hour)
		wants()
	})
}
