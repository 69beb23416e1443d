package tests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// isolations are the modes in which there are sessions.
var isolations = []string{"auto", "session", "principal", "shared"}

// tenants starts a bridge for two principals in front of the fixture, which
// speaks as kind says.
func tenants(t testing.TB, kind string, flags ...string) (srv *server, ann, bob *site) {
	t.Helper()
	b := &brain{target: []string{"--", childBin, "-speak", kind}, access: kind == "legacy"}
	return share(t, b, flags...)
}

// eachTenancy runs a test for each kind of server and each isolation mode.
func eachTenancy(t *testing.T, test func(t *testing.T, srv *server, ann, bob *site)) {
	t.Helper()
	for _, kind := range []string{"legacy", "modern"} {
		for _, isolation := range isolations {
			t.Run(kind+" server, "+isolation, func(t *testing.T) {
				t.Parallel()
				srv, ann, bob := tenants(t, kind, "--isolation", isolation)
				test(t, srv, ann, bob)
			})
		}
	}
}

func toolCall(id, name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name, arguments)
}

// TestForeignSession: LI25, SS4, whichever clients share a server. To everybody
// but its owner a session does not exist, whatever is sent to it; the ids of one
// transport mean nothing on another; and the owner notices nothing.
func TestForeignSession(t *testing.T) {
	t.Parallel()
	eachTenancy(t, func(t *testing.T, _ *server, ann, bob *site) {
		own, err := ann.openAs(within(t, harness.Patience), "mcp", "2025-03-26")
		bridgetest.Must(t, err)
		t.Cleanup(own.close)
		session := own.(*httpTalker).headers()
		events := ann.mustOpen(t, "sse").(*sseTalker)
		resume := session.Clone()
		resume.Set("Last-Event-ID", "1-1")
		for what, r := range map[string]struct {
			method, path, body string
			header             http.Header
		}{
			"request":          {"POST", "/mcp", ping, session},
			"notification":     {"POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, session},
			"batch":            {"POST", "/mcp", "[" + ping + "]", session},
			"initialize":       {"POST", "/mcp", initialize("2025-06-18"), session},
			"stream":           {"GET", "/mcp", "", session},
			"resumption":       {"GET", "/mcp", "", resume},
			"end":              {"DELETE", "/mcp", "", session},
			"HTTP+SSE request": {"POST", events.post, ping, nil},
		} {
			if resp := bob.ask(t, r.method, r.path, r.body, r.header); resp.status != http.StatusNotFound {
				t.Errorf("%s: %v, want 404", what, resp)
			}
		}
		// An id is one of its transport only, for its owner too.
		_, id, _ := strings.Cut(events.post, "sessionId=")
		if resp := ann.ask(t, "POST", "/mcp", ping, http.Header{"Mcp-Session-Id": {id}}); resp.status != http.StatusNotFound {
			t.Errorf("the id of an HTTP+SSE session at /mcp: %v", resp)
		}
		if resp := ann.ask(t, "POST", "/message?sessionId="+session.Get("Mcp-Session-Id"), ping, nil); resp.status != http.StatusNotFound {
			t.Errorf("the id of a Streamable HTTP session at /message: %v", resp)
		}
		mustAnswer(t, own, ping)
		mustAnswer(t, events, ping)
	})
}

// TestForeignEvents: LI17, LI18. Last-Event-ID finds what the session itself has
// sent and nothing else: not what another session has under the same id, and
// nothing by an id that the bridge never wrote.
func TestForeignEvents(t *testing.T) {
	t.Parallel()
	_, ann, bob := tenants(t, "legacy")
	own, other := ann.mustOpen(t, "mcp").(*httpTalker), bob.mustOpen(t, "mcp").(*httpTalker)
	ctx := within(t, harness.Patience)
	resp, err := own.request(ctx, http.MethodPost, "/mcp", toolCall("1", "slow", `{"ms":300,"n":3},"_meta":{"progressToken":"secret"}`), own.headers())
	bridgetest.Must(t, err)
	in := newStream(resp)
	var ids []string
	for {
		e, err := in.next()
		if err != nil {
			break
		}
		if e.id != "" {
			ids = append(ids, e.id)
		}
	}
	resp.Body.Close()
	if len(ids) < 3 {
		t.Fatalf("%d events have ids: this proves nothing", len(ids))
	}
	for stream := range 6 {
		for n := range 4 {
			ids = append(ids, fmt.Sprint(stream, "-", n), fmt.Sprint(stream, "/", n), fmt.Sprint(stream, ".", n))
		}
	}
	ids = append(ids, "-1", "+1", "0x1", "1-", "-", "99999999999999999999", "1-99999999999999999999", "1--1", "1-+1", "0-0x1", strings.Repeat("9", 4000), "\u00e9")
	for _, id := range ids {
		h := other.headers()
		h.Set("Last-Event-ID", id)
		h.Set("Accept", "text/event-stream")
		if resp := bob.ask(t, http.MethodGet, "/mcp", "", h); resp.status != http.StatusBadRequest || strings.Contains(resp.body, "secret") {
			t.Errorf("Last-Event-ID %.50q of another session: %v, want 400", id, resp)
		}
	}
}

// TestForeignCancellation: J12. A call is cancelled by its own session only,
// although others have calls with the same id, and share its server.
func TestForeignCancellation(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		for _, isolation := range isolations {
			t.Run(fmt.Sprintf("modern server %t, %s", modern, isolation), func(t *testing.T) {
				t.Parallel()
				b := newBrain(t, modern)
				b.access = modern == (isolation == "auto")
				_, ann, bob := share(t, b, "--isolation", isolation)
				ctx := within(t, harness.Patience)
				victim := newGuest("victim", ann, false, "ws")
				bridgetest.Must(t, victim.open(ctx))
				t.Cleanup(victim.close)
				bridgetest.Must(t, victim.talker.notify(ctx, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"who":"victim","n":1,"do":"hang"}}}`))
				bridgetest.Must(t, b.hears(ctx, "victim/1", b.calls))
				for _, over := range transports {
					c := bob.mustOpen(t, over)
					for id := range 31 {
						if err := c.notify(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)); err != nil {
							t.Fatal(over, err)
						}
					}
					// What was sent before it has been dealt with.
					answer, err := c.exchange(ctx, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","arguments":{"who":"`+over+`","n":1,"do":"echo"}}}`, nil)
					if err != nil || !strings.Contains(answer, `"who":"`+over+`"`) {
						t.Fatalf("%s: %v %s", over, err, answer)
					}
				}
				b.mu.Lock()
				stopped := b.stopped["victim/1"]
				b.mu.Unlock()
				if stopped != 0 {
					t.Error("the call was cancelled from another session")
				}
				// Its own session can.
				bridgetest.Must(t, victim.talker.notify(ctx, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`))
				if err := b.hears(ctx, "victim/1", b.stopped); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestForeignSubscription: D.2. What one client of a shared server unsubscribes
// from, as often as it likes, another goes on hearing of; the end of a session
// leaves that of another alone.
func TestForeignSubscription(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		t.Run(fmt.Sprintf("modern server %t", modern), func(t *testing.T) {
			t.Parallel()
			b := newBrain(t, modern)
			b.access = modern
			_, ann, bob := share(t, b, "--isolation", "shared")
			ctx := within(t, harness.Patience)
			listener := newGuest("listener", ann, false, "ws")
			bridgetest.Must(t, listener.open(ctx))
			t.Cleanup(listener.close)
			b.await(t, "the subscription", func() bool { return b.wanted(listener.uri()) })
			for _, over := range transports {
				c := bob.mustOpen(t, over)
				for _, method := range []string{"subscribe", "unsubscribe", "unsubscribe", "unsubscribe"} {
					if _, err := c.exchange(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/%s","params":{"uri":%q}}`, method, listener.uri()), nil); err != nil {
						t.Fatal(over, method, err)
					}
				}
				c.close()
				before := listener.updates()
				b.await(t, "the subscription that is left", func() bool { return b.wanted(listener.uri()) })
				b.touch(listener.uri())
				if err := listener.caughtUp(ctx, before+1); err != nil {
					t.Errorf("after %s: %v", over, err)
				}
			}
			if _, err := listener.call(ctx, "echo"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLastWordsAreNotShared: D.2. What a shared process says on stderr as it
// dies is in the log only: it may be about one client, and others hear of the end too.
func TestLastWordsAreNotShared(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"legacy", "modern"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv, ann, bob := tenants(t, kind, "--isolation", "shared")
			ctx := within(t, harness.Patience)
			for _, over := range transports {
				victim, culprit := bob.mustOpen(t, over), ann.mustOpen(t, over)
				heard := make(chan string, 1)
				started := make(chan struct{}, 10)
				go func() {
					answer, err := victim.exchange(ctx, toolCall("1", "slow", `{"ms":60000,"n":60000},"_meta":{"progressToken":"p"}`), func(string) {
						select {
						case started <- struct{}{}:
						default:
						}
					})
					if err != nil {
						answer = err.Error()
					}
					heard <- answer
				}()
				select {
				case <-started:
				case <-ctx.Done():
					t.Fatal("the call never began")
				}
				answer, err := culprit.exchange(ctx, toolCall("1", "crash", `{"code":3}`), nil)
				if err != nil || !strings.Contains(answer, `"error"`) || strings.Contains(answer, "as was asked for") {
					t.Errorf("%s: the call that crashed it: %v %s", over, err, answer)
				}
				if answer := <-heard; !strings.Contains(answer, `"error"`) || strings.Contains(answer, "as was asked for") {
					t.Errorf("%s: the other call: %s", over, answer)
				}
			}
			if !strings.Contains(srv.Log(), "as was asked for") {
				t.Error("the log does not have the last words")
			}
		})
	}
}

// TestForeignProcess: D.1. Modern clients of two principals never share a
// process of an older server, which knows one client only, but where that was asked for.
func TestForeignProcess(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"auto", "session", "principal", "request"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			_, ann, bob := tenants(t, "legacy", "--isolation", isolation)
			pid := func(s *site) string {
				t.Helper()
				c := &modernTalker{s}
				answer := mustAnswer(t, c, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"seen","arguments":{},"_meta":{%q:%q,%q:{}}}}`, metaVersion, modernVersion, metaCaps))
				_, rest, ok := strings.Cut(answer, `"pid":`)
				if !ok {
					t.Fatalf("seen was answered with %s", answer)
				}
				n, _, _ := strings.Cut(rest, ",")
				return n
			}
			if a, b := pid(ann), pid(bob); a == b {
				t.Errorf("both are served by process %s", a)
			}
		})
	}
}

// TestForeignState: A6. Whatever the server, and whichever clients share it: the requestState that one person was given is of no use to
// another, over no transport, and of use to the first one afterwards.
func TestForeignState(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{true, false} {
		for _, isolation := range isolations {
			if !modern && isolation == "shared" {
				continue // such a server can ask nobody
			}
			t.Run(fmt.Sprintf("modern server %t, %s", modern, isolation), func(t *testing.T) {
				t.Parallel()
				b := newBrain(t, modern)
				b.access = true
				_, ann, bob := share(t, b, "--isolation", isolation)
				ctx := within(t, harness.Patience)
				open := func(name string, s *site, over string) *slot {
					g := newGuest(name, s, true, over)
					g.caps = `{"roots":{},"sampling":{}}`
					bridgetest.Must(t, g.open(ctx))
					t.Cleanup(g.close)
					return g
				}
				mine := open("mine", ann, "mcp")
				retry := askAndRetry(t, ctx, mine)
				for n, over := range []string{"mcp", "ws"} {
					if answer := retry(open("other"+over, bob, over), 50+n); !strings.Contains(answer, `"code":-32602`) {
						t.Errorf("over %s another person's retry was answered with %s", over, answer)
					}
				}
				if answer := retry(mine, 60); strings.Contains(answer, `"error"`) {
					t.Errorf("the retry was answered with %s", answer)
				}
			})
		}
	}
}
