package probe

import (
	"testing"
	"time"
)

// The text says what was tried: a server that took all the time for the one
// question was not asked the other, and one that is connected to was not started.
func TestSilence(t *testing.T) {
	for want, e := range map[string]silentError{
		"the server is connected but has answered neither server/discover within 3s nor initialize within 27s": {discover: 3 * time.Second, initialize: 26999 * time.Millisecond},
		"the server was started but has not answered server/discover within 250ms":                             {command: true, discover: 250100 * time.Microsecond},
	} {
		if e.Error() != want {
			t.Errorf("%q, want %q", e.Error(), want)
		}
	}
}
