package sockstate

import (
	"testing"
	"testing/synctest"
	"time"
)

// An alarm goes off at the time that was set last, once, however often it was set
// and cleared before; and not when it was cleared or stopped.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rang := make(chan time.Time, 10)
		a := NewAlarm(func() { rang <- time.Now() })
		wants := func(ago ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if len(rang) != len(ago) {
				t.Errorf("rang %d times, want %v", len(rang), ago)
			}
			for i := 0; len(rang) > 0; i++ {
				if since := time.Since(<-rang); i < len(ago) && since != ago[i] {
					t.Errorf("rang %v ago, want %v", since, ago[i])
				}
			}
		}
		a.Set(time.Minute)
		time.Sleep(30 * time.Second)
		a.Set(time.Minute) // later
		time.Sleep(59 * time.Second)
		wants()
		time.Sleep(time.Hour)
		wants(time.Hour - time.Second)

		a.Set(time.Minute)
		a.Set(time.Second) // earlier
		time.Sleep(time.Hour)
		wants(time.Hour - time.Second)

		for range 100 {
			a.Set(time.Minute)
			time.Sleep(59 * time.Second)
			a.Clear()
		}
		time.Sleep(time.Hour)
		wants()

		a.Set(time.Minute)
		a.Stop()
		time.Sleep(time.Hour)
		wants()
	})
}
