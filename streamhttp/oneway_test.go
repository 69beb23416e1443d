package streamhttp_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// LI6, LI21: the session ends while a batch of notifications waits for the server.
// When that has got a part of it the client is not told to begin anew with all of
// it; when it has got nothing it is.
func TestServerBatchOvertaken(t *testing.T) {
	for name, taken := range map[string]int{"nothing is taken": 0, "some is taken": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, streamhttp.HandlerOptions{})
				u, p := s.open(r25a)
				r := u.post("[" + note + "," + note + "," + note + "]")
				for range taken {
					p.getsText(note)
				}
				u.request("DELETE", "").is(http.StatusNoContent)
				if taken > 0 {
					if body := r.is(http.StatusAccepted); body != "" {
						t.Errorf("the body is %s", body)
					}
				} else {
					r.isError(http.StatusNotFound, -32600, "null")
				}
				u.post("["+note+"]").isError(http.StatusNotFound, -32600, "null")
			})
		})
	}
}
