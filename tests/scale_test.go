package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// busy checks that an error is the answer to one client too many: 503, or where
// the connection is there already an error of JSON-RPC.
func busy(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), `"reason":"busy"`) {
		return
	}
	if r, ok := errors.AsType[*refusal](err); !ok || r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("%s: %v, want 503 with Retry-After", what, err)
	}
}

// TestServeEachRequestAlone: LI23 for --isolation request. No session is ever
// mentioned, each request has a process of its own, that ends with it, and the
// bridge greets that in the revision that the client names.
func TestServeEachRequestAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record, pids := filepath.Join(dir, "stdin"), filepath.Join(dir, "pids")
	s := serve(t, []string{"--isolation", "request"}, "-record", record, "-pids", pids).site()
	post := func(body string, header http.Header) []string {
		t.Helper()
		resp, err := s.request(t.Context(), http.MethodPost, "/mcp", body, header)
		bridgetest.Must(t, err)
		if id := resp.Header.Values("Mcp-Session-Id"); len(id) > 0 {
			t.Errorf("the reply to %.60s names the session %q", body, id)
		}
		msgs, err := messages(resp)
		bridgetest.Must(t, err)
		return msgs
	}
	if got := post(initialize("2025-06-18"), nil); len(got) != 1 || !strings.Contains(got[0], `"id":"init","result":{"protocolVersion":"2025-06-18"`) {
		t.Errorf("initialize was answered with %q", got)
	}
	if resp := s.ask(t, http.MethodPost, "/mcp", initialized, nil); resp.status != http.StatusAccepted || resp.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("notifications/initialized: %v", resp)
	}
	seen := map[string]bool{}
	for range 3 {
		seen[post(`{"jsonrpc":"2.0","id":1,"method":"pid"}`, nil)[0]] = true
	}
	if len(seen) != 3 {
		t.Errorf("three requests were answered by %v, want three processes", seen)
	}
	version := http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}
	checkProgress(t, post(progressCall("4", "progress", 500), version), "4", 500)
	if read := harness.ReadFile(t, record); !strings.Contains(read, `"protocolVersion":"2025-11-25"`) {
		t.Errorf("no server was greeted in the client's revision: %q", read)
	}
	if got, want := post(`{"jsonrpc":"2.0","id":5,"method":"echo","params":`+tricky+`}`, nil)[0], `{"jsonrpc":"2.0","id":5,"result":`+tricky+`}`; got != want {
		t.Errorf("the answer is\n%s, want\n%s", got, want)
	}
	// What the server asks cannot be answered by anybody.
	got := post(`{"jsonrpc":"2.0","id":6,"method":"ask","params":{"method":"sampling/createMessage","params":{}}}`, nil)
	if len(got) != 1 || !strings.Contains(got[0], `"id":6,"result":{`) || !strings.Contains(got[0], `"error"`) {
		t.Errorf("a server that asks: %q, want the error that it got", got)
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if resp := s.ask(t, method, "/mcp", "", nil); resp.status != http.StatusMethodNotAllowed || !strings.Contains(resp.header.Get("Allow"), "POST") {
			t.Errorf("%s: %v, Allow %q, want 405", method, resp, resp.header.Get("Allow"))
		}
	}
	harness.WaitUntil(t, "every process to have ended", func() bool { return processesGone(t, pids) })
}

// TestServeRequestsAtOnce: with --isolation request one request does not wait
// for another; with one process allowed it does, in a queue of which the end
// is 503; and who gives up leaves neither process nor place behind.
func TestServeRequestsAtOnce(t *testing.T) {
	t.Parallel()
	record := filepath.Join(t.TempDir(), "stdin")
	free := serve(t, []string{"--isolation", "request"}, "-record", record).site()
	ctx, giveUp := context.WithCancel(t.Context())
	hang(ctx, free)
	waitFile(t, record, func(s string) bool { return strings.Contains(s, `"hang"`) })
	mustAnswer(t, &httpTalker{site: free}, ping)
	giveUp()

	record = filepath.Join(t.TempDir(), "stdin")
	one := serve(t, []string{"--isolation", "request", "--max-children", "1", "--queue", "1", "--queue-timeout", "10m"}, "-record", record).site()
	ctx, giveUp = context.WithCancel(t.Context())
	hang(ctx, one)
	waitFile(t, record, func(s string) bool { return strings.Contains(s, `"hang"`) })
	// Of two, one finds the queue full, and the other waits.
	results := make(chan error, 2)
	for range 2 {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
			defer cancel()
			_, err := (&httpTalker{site: one}).exchange(ctx, ping, nil)
			results <- err
		}()
	}
	busy(t, "with a full queue", recv(t, results))
	giveUp()
	if err := recv(t, results); err != nil {
		t.Errorf("the request in the queue, when the process before it has ended: %v", err)
	}
	mustAnswer(t, &httpTalker{site: one}, ping)

	record = filepath.Join(t.TempDir(), "stdin")
	hasty := serve(t, []string{"--isolation", "request", "--max-children", "1", "--queue-timeout", "100ms"}, "-record", record).site()
	hang(t.Context(), hasty)
	waitFile(t, record, func(s string) bool { return strings.Contains(s, `"hang"`) })
	_, err := (&httpTalker{site: hasty}).exchange(t.Context(), ping, nil)
	busy(t, "after --queue-timeout", err)
}

// hang sends a request that is never answered, until ctx is done.
func hang(ctx context.Context, s *site) {
	go func() {
		if resp, err := s.request(ctx, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"hang"}`, nil); err == nil {
			messages(resp)
		}
	}()
}

// TestServeMaxChildren: the processes of sessions are counted over all
// transports. One too many is told so in answer to its first message (503 with
// Retry-After where that opens the session), or waits, as --queue says, until
// another session has ended.
func TestServeMaxChildren(t *testing.T) {
	t.Parallel()
	for _, taken := range transports {
		t.Run(taken, func(t *testing.T) {
			t.Parallel()
			s := serve(t, append([]string{"--max-children", "1", "--queue", "0"}, hurry...)).site()
			c := s.mustOpen(t, taken)
			for _, transport := range transports {
				_, err := s.open(t.Context(), transport)
				busy(t, transport+" beside a session over "+taken, err)
			}
			mustAnswer(t, c, ping)
			c.close()
			harness.WaitUntil(t, "a free place", func() bool {
				next, err := s.open(t.Context(), taken)
				if err != nil {
					busy(t, "while there is no place", err)
					return false
				}
				next.close()
				return true
			})

			s = serve(t, append([]string{"--max-children", "1", "--queue", "3", "--queue-timeout", "10m"}, hurry...)).site()
			c = s.mustOpen(t, taken)
			in := make(chan error, len(transports))
			for _, transport := range transports {
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
					defer cancel()
					next, err := s.open(ctx, transport)
					if err == nil {
						next.close() // for the next one
					}
					in <- err
				}()
			}
			mustAnswer(t, c, ping)
			c.close()
			for range transports {
				if err := recv(t, in); err != nil {
					t.Errorf("a client in the queue: %v", err)
				}
			}
		})
	}
}

// TestServeMaxChildrenTotal: two servers share the places that there are for
// all; the limit of the file wins over the flag.
func TestServeMaxChildrenTotal(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "servers.json")
	server := fmt.Sprintf(`{"command":%s,"mcp-bridge":{"stdinWait":"300ms","termWait":"300ms"}}`, quote(childBin))
	writeFile(t, config, `{"mcpServers":{"a":`+server+`,"b":`+server+`},"mcp-bridge":{"maxChildrenTotal":2}}`)
	s := serveArgv(t, nil, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--max-children-total", "1", "--config", config)
	front := newSite(t, "http://"+s.host())
	first := front.at("/servers/a").mustOpen(t, "mcp")
	front.at("/servers/b").mustOpen(t, "ws")
	third := make(chan error, 1)
	go func() {
		c, err := front.at("/servers/b").open(t.Context(), "sse")
		if err == nil {
			c.close()
		}
		third <- err
	}()
	mustAnswer(t, first, ping)
	select {
	case err := <-third:
		t.Errorf("a third session of two: %v", err)
	default:
	}
	first.close()
	if err := recv(t, third); err != nil {
		t.Errorf("a session of the other server, when one has ended: %v", err)
	}
}
