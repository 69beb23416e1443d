package remote

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/ws"
)

// progressOf makes a request with a progress token while the Conn may be going over, and returns the answer and the tokens of the
// progress that comes before it.
func (c *client) progressOf(id, method, params string) (answer jsonrpc.Message, tokens []string) {
	c.Helper()
	var sent sync.WaitGroup
	defer sent.Wait()
	sent.Go(func() {
		c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `"_meta":{"progressToken":"of ` + id + `"}}}`)
	})
	for {
		m := c.recv()
		if m.Kind() == jsonrpc.Response && m.ID().String() == id {
			return m, tokens
		}
		if m.Method() == "notifications/progress" {
			tokens = append(tokens, m.ProgressToken().String())
		}
	}
}

// Whatever request has somebody sign in, its client is told what it waits for: initialize, and one that comes when the session
// is lost.
func TestProgressOfSignIn(t *testing.T) {
	for name, one := range lockedSites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _, loseSession := one.dial(t, one.locked, patience)
			m, tokens := c.progressOf("0", "initialize", `"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"},`)
			if m.IsError() || strings.Join(tokens, " ") != `"of 0"` {
				t.Fatalf("the answer is %s; told was progress of %v", m.Bytes(), tokens)
			}
			c.send(initializedText)
			c.call("1", "tools/list")
			loseSession()
			m, tokens = c.progressOf("2", "tools/list", "")
			for n := 0; n < 500 && m.IsError(); n++ { // an attempt may just be being made
				httpdial.Pause(t.Context(), nil, 10*time.Millisecond)
				m, tokens = c.progressOf("2", "tools/list", "")
			}
			if m.IsError() || strings.Join(tokens, " ") != `"of 2"` {
				t.Errorf("the answer is %s; told was progress of %v", m.Bytes(), tokens)
			}
		})
	}
}

// Of several requests that wait for a sign-in when the session is lost, each hears so.
func TestProgressOfAllThatWait(t *testing.T) {
	for name, one := range lockedSites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, d, loseSession := one.dial(t, never, patience)
			c.open()
			c.call("1", "tools/list")
			var done atomic.Bool
			d.mu.Lock()
			d.until = done.Load
			d.mu.Unlock()
			loseSession()
			var sent sync.WaitGroup
			defer sent.Wait()
			send := func(id string) {
				sent.Go(func() {
					c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list","params":{"_meta":{"progressToken":` + id + `}}}`)
				})
			}
			send("2")
			send("3")
			told, answers := map[string]bool{}, 0
			for ids := 3; answers < 2; {
				switch m := c.recv(); {
				case m.Method() == "notifications/progress":
					told[m.ProgressToken().String()] = true
					done.Store(len(told) > 1)
				// An attempt was just being made. The other request may have come after it, and have been told already.
				case m.IsError() && (len(told) == 0 || !told[m.ID().String()] && string(m.Lookup("error", "data", "reason")) == `"server_down"`):
					ids++
					httpdial.Pause(t.Context(), nil, 10*time.Millisecond)
					send(strconv.Itoa(ids))
				case m.Kind() == jsonrpc.Response:
					answers++
					if m.IsError() {
						t.Errorf("the answer is %s", m.Bytes())
					}
				}
			}
		})
	}
}

// The progress of a request grows over all that it waits for: here a new session, and then that its own POST is taken.
func TestProgressGrows(t *testing.T) {
	for _, name := range []string{"Streamable HTTP", "POST of HTTP+SSE"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, d, loseSession := lockedSites[name].dial(t, never, patience)
			c.open()
			c.call("1", "tools/list")
			loseSession()
			d.mu.Lock()
			d.later = func(r *http.Request) bool {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				return bytes.Contains(body, []byte(`"tools/list"`))
			}
			d.mu.Unlock()
			for id := 2; ; id++ {
				c.send(`{"jsonrpc":"2.0","id":` + strconv.Itoa(id) + `,"method":"tools/list","params":{"_meta":{"progressToken":1}}}`)
				var told []float64
				m := c.recv()
				for ; m.Kind() != jsonrpc.Response; m = c.recv() {
					if m.Method() == "notifications/progress" {
						n, err := strconv.ParseFloat(string(m.Lookup("params", "progress")), 64)
						bridgetest.Must(t, err)
						told = append(told, n)
					}
				}
				if m.IsError() && len(told) == 0 && id < 500 { // an attempt was just being made
					httpdial.Pause(t.Context(), nil, 10*time.Millisecond)
					continue
				}
				if m.IsError() || len(told) != 2 || told[0] <= 0 || told[1] <= told[0] || told[1] >= 1 {
					t.Errorf("the answer is %s, the progress was %v", m.Bytes(), told)
				}
				return
			}
		})
	}
}

// Nobody is asked to sign in for what the bridge itself sends over a connection that is not there yet, as to find out what the server
// speaks.
func TestUnattendedSend(t *testing.T) {
	h := ws.NewHandler(bridge.HandlerFunc(newSite(t).serve), ws.HandlerOptions{})
	t.Cleanup(func() { h.Close() })
	d := &door{refused: make(chan struct{}, 10), locked: always, next: h}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	c := dial(t, &Dialer{URL: "ws" + strings.TrimPrefix(server.URL, "http"), Options: Options{AuthorizeTimeout: patience,
		Authorize: func(base http.RoundTripper) http.RoundTripper { d.base = base; return d }}})
	bridgetest.Must(t, c.conn.Send(httpdial.Unattended(t.Context()), msg(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)))
	c.wantError("1", httpdial.ReasonAuthRequired)
	if d.opened != 0 {
		t.Error("somebody was asked to sign in")
	}
}
