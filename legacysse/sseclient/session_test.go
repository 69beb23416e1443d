package sseclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// SS7: when the stream ends, calls fail, what the server asked is withdrawn,
// and a new session takes over, with what the old one knew.
func TestSessionLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		for i, text := range []string{
			`{"jsonrpc":"2.0","id":%d,"method":"logging/setLevel","params":{"level":"info"}}`,
			`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"a"}}`,
			`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"b"}}`,
			`{"jsonrpc":"2.0","id":%d,"method":"resources/unsubscribe","params":{"uri":"b"}}`,
		} {
			u.sends(fmt.Sprintf(text, 100+i))
			f.posted()
			s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, 100+i))
			u.gets()
		}
		u.sends(callText)
		f.wantPost(callText)
		ask := `{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}`
		s.say(ask)
		u.getsText(ask)
		s.end()
		u.getsError("1", "connection_lost")
		if m := u.gets(); m.Method() != "notifications/cancelled" || m.CancelledID().String() != "1" {
			t.Errorf("the client got %s, want a cancellation", m.Bytes())
		}
		u.sends(`{"jsonrpc":"2.0","id":1,"result":{}}`, callText, note) // in vain
		u.getsError("1", "server_down")

		time.Sleep(defaultReconnectDelay - time.Millisecond)
		f.stream(1)
		time.Sleep(time.Millisecond)
		s = f.stream(2)
		u.reinitialized(s)
		for range 2 {
			p := f.posted()
			m := msg(p.text)
			switch string(m.Params()) {
			case `{"level":"info"}`, `{"uri":"a"}`:
			default:
				t.Errorf("posted %s", p.text)
			}
			s.say(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"result":{}}`)
		}
		f.wantNoPost()
		u.sends(callText)
		if p := f.posted(); p.text != callText || p.path != "/message?s=1" {
			t.Errorf("posted %s to %s", p.text, p.path)
		}
		answer := `{"jsonrpc":"2.0","id":1,"result":{}}`
		s.say(answer)
		u.getsText(answer)
		u.getsNothing()
	})
}

// The new session's requests are told from those of the old one, which count
// from the start as well.
func TestAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		ask := `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`
		s.say(ask)
		u.getsText(ask)
		s.end()
		u.gets() // the cancellation
		time.Sleep(defaultReconnectDelay)
		s = f.stream(2)
		u.reinitialized(s)
		s.say(ask)
		again := u.gets()
		if again.ID().String() == "1" || again.Method() != "roots/list" {
			t.Errorf("the client got %s", again.Bytes())
		}
		u.sends(`{"jsonrpc":"2.0","id":1,"result":{"late":1}}`)
		f.wantNoPost()
		u.sends(`{"jsonrpc":"2.0","id":` + again.ID().String() + `,"result":{"new":1}}`)
		f.wantPost(`{"jsonrpc":"2.0","id":1,"result":{"new":1}}`)
		s.say(ask)
		u.getsText(ask)
		s.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		u.gets()
	})
}

// The wait before the stream is opened again is what the server has said, or a
// second, and grows while that is in vain.
func TestReconnectDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		s.out <- "retry: 3000\n\n"
		time.Sleep(steadyAfter)
		s.end()
		time.Sleep(3*time.Second - time.Millisecond)
		f.stream(1)
		f.set(func() {
			f.onGET = func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(503); return true }
		})
		time.Sleep(time.Millisecond)
		f.stream(1)
		asked := func() int { f.mu.Lock(); defer f.mu.Unlock(); return f.asked }
		before := asked()
		time.Sleep(10 * time.Minute)
		if n := asked() - before; n < 20 || n > 40 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		u.sends(callText)
		if m := u.getsError("1", "server_down"); !strings.Contains(string(m.Bytes()), "503") {
			t.Errorf("%s", m.Bytes())
		}
		f.set(func() { f.onGET = nil })
		time.Sleep(maxBackoff)
		u.reinitialized(f.stream(2))
	})
}

// SS7: a retry of 0 means at once, which is not the same as none.
func TestReconnectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		s.out <- "retry: 0\n\n"
		synctest.Wait()
		s.end()
		time.Sleep(minReconnectDelay)
		u.reinitialized(f.stream(2))
	})
}

// The wait grows as well where the server takes every session and drops it.
func TestReconnectInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		u.initializes("2024-11-05").end()
		for n := 2; n < 6; n++ {
			for time.Sleep(defaultReconnectDelay); ; time.Sleep(time.Second) {
				synctest.Wait()
				f.mu.Lock()
				there := len(f.streams)
				f.mu.Unlock()
				if there == n {
					break
				}
			}
			s := f.stream(n)
			u.reinitialized(s)
			s.end()
		}
		time.Sleep(defaultReconnectDelay * 3)
		f.stream(5)
	})
}

// With NoRenew the end of the stream is the end.
func TestNoRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{NoRenew: true})
		s := u.initializes("2024-11-05")
		u.sends(callText)
		s.say(note)
		s.end()
		u.getsText(note)
		u.getsError("1", "connection_lost")
		for range 2 {
			if _, err := bridgetest.Recv(t.Context(), u); err != ErrSessionLost {
				t.Errorf("Recv = %v, want %v", err, ErrSessionLost)
			}
		}
		if err := u.Send(t.Context(), msg(note)); err != ErrSessionLost {
			t.Errorf("Send = %v, want %v", err, ErrSessionLost)
		}
		time.Sleep(time.Hour)
		f.stream(1)
	})
}

// LE13: what is no HTTP+SSE server is told from one that does not want us.
func TestWrongTransport(t *testing.T) {
	answer := func(status int, mediaType, body string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", mediaType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	silent := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
	for _, c := range []struct {
		name      string
		onGET     func(w http.ResponseWriter, r *http.Request) bool
		status    int // of the WrongTransportError; 0: it is none
		reason    string
		text      string
		transient bool
	}{
		{"not found", answer(404, "text/html", "<html>"), 404, "http_status", "404 Not Found", false},
		{"method not allowed", answer(405, "", ""), 405, "http_status", "Streamable HTTP", false},
		{"bad request", answer(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}`), 400, "http_status", "400 Bad Request", false},
		{"a page", answer(200, "text/html", "<html>"), 200, "not_mcp", "text/html", false},
		{"no endpoint", silent, 200, "not_mcp", "in time", false},
		{"the end", answer(200, "text/event-stream", "data: {}\n\n"), 200, "not_mcp", "without an endpoint event", false},
		{"unauthorized", answer(401, "", ""), 0, "authorization_required", "--header", false},
		{"forbidden", answer(403, "", ""), 0, "forbidden", "", false},
		{"busy", answer(429, "", ""), 0, "http_status", "tried again", true},
		{"down", answer(502, "", ""), 0, "http_status", "tried again", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.onGET = c.onGET
				u := f.dial(Options{})
				u.sends(initializeText)
				time.Sleep(defaultEndpointTimeout)
				if m := u.getsError("0", c.reason); !strings.Contains(string(m.Bytes()), c.text) {
					t.Errorf("%s, want %q", m.Bytes(), c.text)
				}
				f.wantNoPost()
				f.set(func() { f.onGET = nil })
				time.Sleep(time.Minute)
				if c.transient { // the bridge goes on trying
					u.reinitialized(f.stream(1))
				} else { // the client may
					u.initializes("2024-11-05")
				}

				f.set(func() { f.onGET = c.onGET })
				u = f.dial(Options{ReportWrongTransport: true})
				u.sends(initializeText)
				if c.status != 0 && c.name == "no endpoint" {
					behind := make(chan error)
					go func() { behind <- u.Send(t.Context(), msg(note)) }()
					defer func() {
						if err := <-behind; err == nil {
							t.Error("Send behind initialize gave no error")
						}
					}()
				}
				time.Sleep(defaultEndpointTimeout)
				if c.status == 0 {
					u.getsError("0", c.reason)
					return
				}
				_, err := bridgetest.Recv(t.Context(), u)
				wrongTransport, ok := errors.AsType[*WrongTransportError](err)
				if !ok || wrongTransport.Status != c.status || !strings.Contains(wrongTransport.Text, c.text) ||
					len(wrongTransport.Unsent) != 1 || string(wrongTransport.Unsent[0].Bytes()) != initializeText {
					t.Errorf("Recv = %#v", err)
				}
				if err := u.Send(t.Context(), msg(note)); err != wrongTransport {
					t.Errorf("Send = %v", err)
				}
			})
		})
	}
}

// A server that is down answers initialize with an error, and is there for
// the client once it is up.
func TestServerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		down := true
		f.rt.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if down {
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}
			return f.net.Dial(ctx, network, addr)
		}
		u := f.dial(Options{})
		u.sends(initializeText)
		u.getsError("0", "unreachable")
		u.sends(callText)
		u.getsError("1", "server_down")
		down = false
		u.sends(initializeText) // the client's own attempt is made at once
		s := f.stream(1)
		f.wantPost(initializeText)
		answer := `{"jsonrpc":"2.0","id":0,"result":` + string(initializeResult("2024-11-05")) + `}`
		s.say(answer)
		u.getsText(answer)
		u.sends(initializedText)
		f.wantPost(initializedText)
	})
}

// A client may begin without initialize: then only the stream is opened.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		probe := `{"jsonrpc":"2.0","id":"p","method":"server/discover"}`
		u.sends(note) // nobody to tell
		u.sends(probe)
		s := f.stream(1)
		f.wantPost(probe)
		answer := `{"jsonrpc":"2.0","id":"p","error":{"code":-32601,"message":"no"}}`
		s.say(answer)
		u.getsText(answer)
		u.initializes("2024-11-05")
		s.end()
		time.Sleep(defaultReconnectDelay)
		u.reinitialized(f.stream(2))
	})
}

// A request that is cancelled before there is a stream is not sent.
func TestCancelledEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.first = func(int) string { return ": wait\n\n" }
		u := f.dial(Options{})
		u.sends(callText, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		f.stream(1).out <- "event: endpoint\ndata: /m\n\n"
		f.wantNoPost()
		u.sends(initializeText)
		f.wantPost(initializeText)
	})
}

// A server that has forgotten the session gets a new one, although its stream
// seems to live.
func TestForgotten(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
	}{
		{404, "Session not found"}, {404, ""}, {400, "No transport found for sessionId"},
		{400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"Invalid session ID"}}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			u := f.dial(Options{})
			s := u.initializes("2024-11-05")
			f.set(func() {
				f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
					if r.URL.Query().Get("s") != "0" {
						return false
					}
					w.WriteHeader(c.status)
					_, _ = io.WriteString(w, c.body)
					return true
				}
			})
			u.sends(callText)
			f.wantPost(callText)
			if m := u.gets(); !m.IsError() || m.ID().String() != "1" {
				t.Errorf("%s", m.Bytes())
			}
			<-s.over
			time.Sleep(defaultReconnectDelay)
			u.reinitialized(f.stream(2))
			u.sends(callText)
			f.wantPost(callText)
		})
	}
}

// A server that refuses to initialize is asked again, and in the end by the
// client itself; one that never accepted the client is not.
func TestInitializeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		u.sends(initializeText)
		s := f.stream(1)
		f.wantPost(initializeText)
		no := `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}`
		s.say(no)
		u.getsText(no)
		s.end()
		time.Sleep(time.Hour)
		f.stream(1)

		f = newFake(t)
		u = f.dial(Options{})
		u.initializes("2024-11-05").end()
		time.Sleep(defaultReconnectDelay)
		s = f.stream(2)
		p := f.posted()
		s.say(`{"jsonrpc":"2.0","id":` + new(msg(p.text)).ID().String() + `,"error":{"code":1,"message":"secret"}}`)
		<-s.over
		u.sends(callText)
		if m := u.getsError("1", "server_down"); !strings.Contains(string(m.Bytes()), "refused to initialize") || strings.Contains(string(m.Bytes()), "secret") {
			t.Errorf("%s", m.Bytes())
		}
		time.Sleep(time.Minute)
		if synctest.Wait(); len(f.streams) < 3 {
			t.Error("not tried again")
		}
	})
}
