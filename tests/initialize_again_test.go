package tests

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// TestInitializeAgain: LE16, LI22. A client that sends initialize a second time
// in its session is refused, and the session goes on, with the same process at
// its other end: over every transport to a remote server, and over every
// transport of the client.
func TestInitializeAgain(t *testing.T) {
	t.Parallel()
	remote := serve(t, nil).site()
	const pid = `{"jsonrpc":"2.0","id":"pid","method":"pid"}`
	check := func(t *testing.T, c talker) {
		t.Helper()
		before := mustAnswer(t, c, pid)
		answer, err := c.exchange(within(t, harness.Patience), initialize("2025-06-18"), nil)
		if no, ok := errors.AsType[*refusal](err); ok && no.status == http.StatusBadRequest {
			answer = no.body
		}
		if id, code, _ := errorOf(t, answer); id != `"init"` || code != -32600 {
			t.Errorf("the second initialize is answered with %s (%v), want -32600", answer, err)
		}
		if after := mustAnswer(t, c, pid); after != before {
			t.Errorf("the session's process was %s and is %s", before, after)
		}
	}
	for _, far := range transports {
		t.Run(far, func(t *testing.T) {
			t.Parallel()
			url := remote.base + "/" + far
			if far == "ws" {
				url = "ws" + strings.TrimPrefix(url, "http")
			}
			front := serveURL(t, url).site()
			for _, near := range transports {
				check(t, front.mustOpen(t, near))
			}
			c, err := greet(within(t, harness.Patience), stdioTalker{connect(t, url)}, "2025-06-18")
			if err != nil {
				t.Fatal(err)
			}
			check(t, c)
		})
	}
}
