package streamclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

func logLine(text string) string {
	return `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + text + `"}}`
}

// wantRelated receives a message and compares its bytes and what it is related to.
func (t *clientTest) wantRelated(text string, to jsonrpc.ID) {
	t.Helper()
	m := t.recv()
	if string(m.Bytes()) != text {
		t.Fatalf("received %s\nwant     %s", m.Bytes(), text)
	}
	if m.Related() != to {
		t.Errorf("%s came in the course of %q, want %q", m.Bytes(), m.Related(), to)
	}
}

// B.4: what comes on the stream of a POST is related to its request, also on a
// resumed one; what comes on the standalone stream, to none.
func TestRelated(t *testing.T) {
	ask := `{"jsonrpc":"2.0","id":"s1","method":"sampling/createMessage","params":{}}`
	testClient(t, func(s *fakeServer, o *Options) {
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			switch r.Header.Get(wire.HeaderLastEventID) {
			case "":
				writeSSE(w, sseEvent("", logLine("standalone")))
				<-r.Context().Done()
			case "a":
				writeSSE(w, sseEvent("b", logLine("resumed"))+sseEvent("c", `{"jsonrpc":"2.0","id":"one","result":{}}`))
				writeSSE(w, sseEvent("d", logLine("after")))
			}
			return true
		}
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			switch m.Method() {
			case "tools/call":
				writeSSE(w, sseEvent("", ask)+sseEvent("a", logLine("first")))
			case "tools/list":
				writeJSON(w, `[`+logLine("array")+`,`+result(m, "{}")+`]`)
			case "notifications/x":
				writeSSE(w, sseEvent("", logLine("note")))
			default:
				return false
			}
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.wantRelated(logLine("standalone"), jsonrpc.NullID)
		t.send(request(`"one"`, "tools/call"))
		one := jsonrpc.StringID("one")
		t.wantRelated(ask, one)
		t.wantRelated(logLine("first"), one)
		t.wantRelated(logLine("resumed"), one)
		t.wantRelated(`{"jsonrpc":"2.0","id":"one","result":{}}`, jsonrpc.ID{})
		t.wantRelated(logLine("after"), jsonrpc.NullID)
		t.send(request("2", "tools/list"))
		t.wantRelated(logLine("array"), jsonrpc.IntID(2))
		t.wantRelated(`{"jsonrpc":"2.0","id":2,"result":{}}`, jsonrpc.ID{})
		t.send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		t.wantRelated(logLine("note"), jsonrpc.NullID)
	})
}

// B.4: what comes with the answer to a request of the bridge's own is related
// to none of the client's.
func TestRelatedPrivate(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() != "initialize" || m.ID() == jsonrpc.IntID(0) {
				return false
			}
			s.mu.Lock()
			s.session = "again"
			s.mu.Unlock()
			w.Header().Set(wire.HeaderSession, "again")
			writeSSE(w, sseEvent("", logLine("private"))+sseEvent("", result(m, `{"protocolVersion":"2025-06-18"}`)))
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.server.forget()
		t.send(request("1", "tools/call"))
		t.wantRelated(logLine("private"), jsonrpc.NullID)
		t.wantRelated(`{"jsonrpc":"2.0","id":1,"result":{"echo":"tools/call"}}`, jsonrpc.ID{})
	})
}

func (t *clientTest) wantEnd(want error) {
	t.Helper()
	for range 2 {
		if m, err := bridgetest.Recv(t.Context(), t.conn); err != want {
			t.Fatalf("Recv = %s, %v; want %v", m.Bytes(), err, want)
		}
		if err := t.conn.Send(t.Context(), msg(request("99", "ping"))); err != want {
			t.Errorf("Send = %v, want %v", err, want)
		}
	}
}

// LE5, and NoRenew: the loss of the session is the end, and told as such.
func TestNoRenew(t *testing.T) {
	send := func(t *clientTest, text string) { // unless the stream has found out just before
		t.Helper()
		if err := t.conn.Send(t.Context(), msg(text)); err != nil && err != ErrSessionLost {
			t.Fatal(err)
		}
	}
	lose := map[string]func(t *clientTest){
		"404": func(t *clientTest) {
			t.server.forget()
			send(t, request("2", "tools/list"))
		},
		"400": func(t *clientTest) {
			t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
				refusal(w, 400, -32000, "Bad Request: No valid session ID provided")
				return true
			})
			t.send(request("2", "tools/list"))
		},
		"404 for a notification": func(t *clientTest) {
			t.server.forget()
			send(t, `{"jsonrpc":"2.0","method":"notifications/x"}`)
		},
		"404 for the standalone stream": func(t *clientTest) { t.server.forget() },
	}
	for name, lose := range lose {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				o.NoRenew = true
				s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
					if !s.knows(r) {
						http.NotFound(w, r)
						return true
					}
					writeSSE(w, sseEvent("", logLine("still there"))) // and it ends: to be opened again
					return true
				}
				onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) { <-r.Context().Done() })
			}, func(t *clientTest) {
				t.open()
				t.send(request("1", "tools/call"))
				time.Sleep(time.Minute / 2) // the events wait for Receive
				lose(t)
				time.Sleep(time.Minute)
				for {
					m, err := bridgetest.Recv(t.Context(), t.conn)
					if err == nil && (m.Method() == "notifications/message" || m.IsError()) { // the error is the server's own, if the stream was faster
						continue
					}
					if err != ErrSessionLost {
						t.Fatalf("Recv = %s, %v; want ErrSessionLost", m.Bytes(), err)
					}
					break
				}
				t.wantEnd(ErrSessionLost)
				t.conn.Close(nil)
				t.wantEnd(ErrSessionLost)
				if n := len(t.server.requests("initialize")); n != 1 {
					t.Errorf("%d initializes, want 1", n)
				}
				if n := len(t.server.requests("DELETE")); n != 0 { // LE11
					t.Errorf("%d DELETEs of a session that is gone", n)
				}
			})
		})
	}
}

// What has come before the end is received, and then the end.
func TestNoRenewLastMessages(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) { o.NoRenew = true }, func(t *clientTest) {
		t.open()
		for i := range 10 {
			t.send(request(fmt.Sprint(i+1), "ping"))
		}
		time.Sleep(time.Second)
		t.server.forget()
		t.send(request("11", "ping"))
		time.Sleep(time.Second)
		seen := map[string]bool{}
		for range 10 {
			seen[new(t.recv()).ID().String()] = true
		}
		if len(seen) != 10 {
			t.Errorf("answers for %v", seen)
		}
		t.wantEnd(ErrSessionLost)
	})
}

// NoRenew: a server that is down when the client initializes is left alone
// until the client does so again.
func TestNoRenewDown(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		o.NoRenew = true
		s.down = true
	}, func(t *clientTest) {
		t.send(initializeText)
		t.wantError("0", httpdial.ReasonUnreachable)
		t.server.setDown(false)
		time.Sleep(time.Hour)
		if n := len(t.server.requests("")); n != 0 {
			t.Errorf("the bridge made %d requests by itself", n)
		}
		t.open()
	})
}

// LE13: which answers to initialize mean that this may be no Streamable HTTP server.
func TestReportWrongTransport(t *testing.T) {
	for status, want := range map[int]bool{
		400: true, 404: true, 405: true, 406: true, 410: true, 415: true, 422: true, 426: true,
		401: false, 403: false, 407: false, 408: false, 413: false, 429: false,
		500: false, 501: false, 502: false, 503: false, 302: false,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				o.ReportWrongTransport = true
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					w.WriteHeader(status)
					return true
				}
			}, func(t *clientTest) {
				t.send(initializeText)
				m, err := bridgetest.Recv(t.Context(), t.conn)
				var wrongTransport *WrongTransportError
				if is := errors.As(err, &wrongTransport); is != want {
					t.Fatalf("Recv = %s, %v", m.Bytes(), err)
				}
				if !want {
					if !m.IsError() || m.ID() != jsonrpc.IntID(0) {
						t.Errorf("received %s", m.Bytes())
					}
					return
				}
				if wrongTransport.Fault.Status != status {
					t.Errorf("status %d, want %d", wrongTransport.Fault.Status, status)
				}
				t.wantEnd(err)
			})
		})
	}
}

// LE13: what the caller has to send to the other transport is the initialize
// and what has waited behind it; all else was answered.
func TestWrongTransportLosesNothing(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		o.ReportWrongTransport = true
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "initialize" {
				time.Sleep(10 * time.Second)
				refusal(w, 400, -32600, "no such thing here")
			} else {
				<-r.Context().Done()
			}
			return true
		}
	}, func(t *clientTest) {
		t.send(request("7", "ping")) // a client should not, but may
		t.send(initializeText)
		var wg sync.WaitGroup
		for _, text := range []string{initializedText, request("8", "tools/list"), request("9", "tools/list")} {
			wg.Go(func() {
				var wrongTransport *WrongTransportError
				if err := t.conn.Send(context.Background(), msg(text)); !errors.As(err, &wrongTransport) {
					t.Errorf("Send of %s = %v, want a WrongTransportError", text, err)
				}
			})
		}
		if m := t.recv(); m.ID() != jsonrpc.IntID(7) || !m.IsError() {
			t.Errorf("received %s, want an error for 7", m.Bytes())
		}
		_, err := bridgetest.Recv(t.Context(), t.conn)
		wg.Wait()
		var wrongTransport *WrongTransportError
		if !errors.As(err, &wrongTransport) {
			t.Fatalf("Recv: %v", err)
		}
		want := `{"jsonrpc":"2.0","id":0,"error":{"code":-32600,"message":"no such thing here"}}`
		if got := string(new(wrongTransport.Fault.Response(jsonrpc.IntID(0))).Bytes()); got != want {
			t.Errorf("the answer would have been %s\nwant %s", got, want)
		}
		if n := len(t.server.requests("tools/list")); n != 0 {
			t.Errorf("%d messages behind initialize were sent", n)
		}
	})
}

// LE16: a second initialize does not reach the server, where it would open
// another session, and the session lives on: also one that was renewed
// meanwhile, but not one that is lost. One that is sent before the first was
// answered waits for that.
func TestInitializeTwice(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) { o.ReportWrongTransport = true }, func(t *clientTest) {
		t.open()
		refused := func() {
			t.Helper()
			sent := len(t.server.requests("initialize"))
			t.send(initializeText)
			t.wantError("0", httpdial.ReasonAlreadyInitialized, "begun already")
			t.call("1", "ping")
			synctest.Wait()
			if n, ended := len(t.server.requests("initialize"))-sent, len(t.server.requests("DELETE")); n != 0 || ended != 0 {
				t.Errorf("%d sessions were opened and %d ended", n, ended)
			}
		}
		refused()
		t.server.forget()
		t.call("2", "ping")
		refused()
		t.server.setDown(true)
		t.server.forget()
		t.server.stop()
		t.send(request("3", "ping"))
		t.wantError("3", httpdial.ReasonUnreachable)
		t.server.start()
		t.server.setDown(false)
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "initialize" && m.ID().String() != "0" {
				w.WriteHeader(503) // the bridge's own is refused
				return true
			}
			return false
		})
		t.send(request("4", "ping"))
		t.wantError("4", httpdial.ReasonSessionLost)
		t.open()
		t.call("5", "ping")
		refused()
	})
}

func TestInitializePipelined(t *testing.T) {
	testClient(t, nil, func(t *clientTest) {
		go func() {
			_ = t.conn.Send(t.Context(), msg(strings.Replace(initializeText, `"id":0`, `"id":"second"`, 1)))
		}()
		t.send(initializeText)
		if m := t.recv(); m.IsError() {
			t.Errorf("the first is answered with %s", m.Bytes())
		}
		if m := t.recv(); string(m.Lookup("error", "code")) != "-32600" {
			t.Errorf("the second is answered with %s", m.Bytes())
		}
		if n := len(t.server.requests("initialize")); n != 1 {
			t.Errorf("%d were sent", n)
		}
	})
}
