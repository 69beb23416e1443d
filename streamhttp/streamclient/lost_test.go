package streamclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// holdRenewal makes the server forget its session, and hold back the answer to each
// initialize until release is called.
func (t *clientTest) holdRenewal() (release func()) {
	held := make(chan struct{})
	t.server.forget()
	t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
		if m.Method() == "initialize" {
			<-held
		}
		return false
	})
	return func() { close(held) }
}

// admitted enters a call as TrySend does. The test runs it when it likes: the goroutine of
// a call may have to wait for a processor.
func (t *clientTest) admitted(text string) *call {
	t.Helper()
	call := newCall(t.inner, msg(text))
	if !t.inner.admitNow(call) {
		t.Fatalf("not admitted: %s", text)
	}
	return call
}

// wantEchoes receives n responses, in any order, none of which is an error.
func (t *clientTest) wantEchoes(n int) {
	t.Helper()
	ids := map[jsonrpc.ID]bool{}
	for range n {
		m := t.recv()
		if m.IsError() {
			t.Errorf("received %s", m.Bytes())
		}
		ids[m.ID()] = true
	}
	if len(ids) != n {
		t.Errorf("%d different responses, want %d", len(ids), n)
	}
}

// wantInSessions checks that each request of the method was posted in a session, and that
// there were as many handshakes as told.
func (t *clientTest) wantInSessions(method string, handshakes int) {
	t.Helper()
	for _, r := range t.server.requests(method) {
		if r.header.Get(wire.HeaderSession) == "" {
			t.Errorf("posted without a session: %s", r.body)
		}
	}
	if n := len(t.server.requests("initialize")); n != handshakes {
		t.Errorf("%d times initialize, want %d", n, handshakes)
	}
}

// LE5: a call that was admitted while there was a session is posted while that session is
// being renewed, or after that.
func TestSessionLostBeforePost(t *testing.T) {
	for _, when := range []string{"renewing", "renewed"} {
		t.Run(when, func(t *testing.T) {
			testClient(t, nil, func(t *clientTest) {
				t.open()
				synctest.Wait()
				late := t.admitted(request("1", "tools/call"))
				late.setSent() // so that others need not wait for it
				release := t.holdRenewal()
				t.send(request("2", "tools/call"))
				synctest.Wait()
				if when == "renewed" {
					release()
					t.wantEchoes(1)
				}
				go t.inner.run(late)
				synctest.Wait()
				if when == "renewing" {
					release()
					t.wantEchoes(2)
				} else {
					t.wantEchoes(1)
				}
				t.wantInSessions("tools/call", 2)
			})
		})
	}
}

// LE5, LE14: a request that a busy server is asked again with comes while the session is
// being renewed.
func TestSessionLostWhileBusy(t *testing.T) {
	testClient(t, nil, func(t *clientTest) {
		t.open()
		busy := true
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() != "tools/list" || !busy {
				return false
			}
			busy = false
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})
		t.send(request("1", "tools/list"))
		synctest.Wait()
		release := t.holdRenewal()
		t.send(request("2", "tools/call"))
		time.Sleep(5 * time.Second)
		if n := len(t.server.requests("tools/list")); n != 2 {
			t.Fatalf("the server was asked %d times, want 2", n)
		}
		release()
		t.wantEchoes(2)
		t.wantInSessions("tools/list", 2)
	})
}

// LE5, LE14: a server that says when it can be asked again for a session is not asked before, but is after a minute.
func TestRenewalHeedsRetryAfter(t *testing.T) {
	for said, want := range map[string]time.Duration{"": time.Second, "7": 7 * time.Second, "3600": time.Minute} {
		t.Run(said, func(t *testing.T) {
			testClient(t, nil, func(t *clientTest) {
				t.open()
				var asked []time.Time
				t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					if m.Method() != "initialize" {
						return false
					}
					asked = append(asked, time.Now())
					if len(asked) > 1 {
						return false
					}
					w.Header().Set("Retry-After", said)
					w.WriteHeader(http.StatusServiceUnavailable)
					return true
				})
				t.server.forget()
				t.send(request("1", "tools/call"))
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if len(asked) != 2 {
					t.Fatalf("the server was asked for a session %d times, want 2", len(asked))
				}
				if waited := asked[1].Sub(asked[0]); waited > want || said != "" && waited < want {
					t.Errorf("it was asked again after %v, want %v", waited, want)
				}
			})
		})
	}
}

// LE5: the server forgets the new session as well, while a call of the first one waits for
// its 404: that one joins the second renewal, and both are answered.
func TestSessionLostTwice(t *testing.T) {
	testClient(t, nil, func(t *clientTest) {
		t.open()
		slow := make(chan struct{})
		refuse := func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.ID().String() == "1" && r.Header.Get(wire.HeaderSession) == "session-1" {
				<-slow
				http.NotFound(w, r)
				return true
			}
			return false
		}
		t.server.script(refuse)
		t.server.forget()
		t.send(request("1", "tools/call"))
		t.call("2", "tools/call")
		held := make(chan struct{})
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "initialize" {
				<-held
			}
			return refuse(w, r, m)
		})
		t.server.forget()
		t.send(request("3", "tools/call"))
		synctest.Wait()
		close(slow)
		synctest.Wait()
		close(held)
		t.wantEchoes(2)
		t.wantInSessions("tools/call", 3)
	})
}

// LE5: the new session is lost before those that have waited for it know of it. They wait
// for the next one.
func TestSessionLostAtOnce(t *testing.T) {
	var test *clientTest
	renewals := 0
	testClient(t, func(s *fakeServer, o *Options) {
		o.OnRenewed = func() {
			if renewals++; renewals == 1 {
				s.forget()
				test.inner.renewer.repairSession(test.inner.currentSession())
			}
		}
	}, func(t *clientTest) {
		test = t
		t.open()
		t.server.forget()
		t.call("1", "tools/call")
		t.wantInSessions("tools/call", 3)
	})
}

// LE5: the client begins anew while the bridge tries in vain to do so, and a message of the
// lost session is refused meanwhile. It waits for the client's session.
func TestSessionLostClientInitializes(t *testing.T) {
	testClient(t, nil, func(t *clientTest) {
		t.open()
		synctest.Wait()
		late := t.admitted(request("1", "tools/call"))
		late.setSent()
		t.server.forget()
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() != "initialize" {
				return false
			}
			w.WriteHeader(http.StatusInternalServerError)
			return true
		})
		t.send(request("2", "tools/call"))
		t.wantError("2", httpdial.ReasonSessionLost, "500")
		release := t.holdRenewal()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			t.send(initializeText)
		}()
		synctest.Wait()
		go t.inner.run(late)
		synctest.Wait()
		release()
		for range 2 {
			if m := t.recv(); m.IsError() {
				t.Errorf("received %s", m.Bytes())
			}
		}
		<-sent
		t.wantInSessions("tools/call", 3)
	})
}

// With NoRenew no call is answered once the session is lost, also not one whose 404 comes
// between the loss and the end of the Conn.
func TestSessionLostNoRenewTwice(t *testing.T) {
	log := &lineHook{line: "has forgotten the session"}
	testClient(t, func(s *fakeServer, o *Options) {
		o.NoRenew = true
		o.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Warn})
	}, func(t *clientTest) {
		t.open()
		synctest.Wait()
		late := t.admitted(request("1", "tools/call"))
		late.setSent()
		fault := make(chan *httpdial.Fault, 1)
		log.hook = func() {
			go func() { fault <- t.inner.exchange(late) }()
			synctest.Wait()
		}
		t.server.forget()
		t.send(request("2", "tools/call"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if m, err := bridgetest.Recv(ctx, t.conn); !errors.Is(err, ErrSessionLost) {
			t.Errorf("received %s, %v, want ErrSessionLost", m.Bytes(), err)
		}
		if log.hook != nil {
			t.Fatal("the loss was not logged")
		}
		if f := <-fault; f != nil {
			t.Errorf("the other call is to be answered with %q", f.Text)
		}
		t.wantInSessions("tools/call", 1)
	})
}

// lineHook calls hook once, with the first line that says so.
type lineHook struct {
	line string
	hook func()
}

func (l *lineHook) Write(p []byte) (int, error) {
	if hook := l.hook; hook != nil && bytes.Contains(p, []byte(l.line)) {
		l.hook = nil
		hook()
	}
	return len(p), nil
}

// LE5: with ten calls in flight, whichever of them notices first, all are answered and the
// handshake is made once. Each waits at another place of its way.
func TestSessionLostEverywhere(t *testing.T) {
	testClient(t, nil, func(t *clientTest) {
		t.open()
		synctest.Wait()
		var late []*call
		for i := range 5 {
			call := t.admitted(request(fmt.Sprint(i), "tools/call"))
			call.setSent()
			late = append(late, call)
		}
		release := t.holdRenewal()
		for i := range 5 {
			go t.inner.run(late[i])
			synctest.Wait()
			if i == 3 {
				release()
				synctest.Wait()
			}
		}
		t.wantEchoes(5)
		t.wantInSessions("tools/call", 2)
	})
}
