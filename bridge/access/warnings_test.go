package access

import (
	"testing"
	"testing/synctest"
	"time"
)

// However many requests are refused, a few are worth a warning, and later a few more.
func TestWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w WarningLimiter
		due := func() (n int) {
			for range 1000 {
				if w.Allow() {
					n++
				}
			}
			return n
		}
		if n := due(); n != 10 {
			t.Errorf("%d warnings at first", n)
		}
		time.Sleep(14 * time.Second)
		if n := due(); n != 0 {
			t.Errorf("%d warnings more", n)
		}
		time.Sleep(time.Second)
		if n := due(); n != 10 {
			t.Errorf("%d warnings later", n)
		}
	})
}
