package streamclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// LE5: the server forgets the session; the client notices nothing.
func TestSessionLost(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter){
		"404":           nil,
		"404 plain":     func(w http.ResponseWriter) { http.NotFound(w, nil) },
		"400 session":   func(w http.ResponseWriter) { refusal(w, 400, -32000, "Bad Request: No valid session ID provided") },
		"400 restarted": func(w http.ResponseWriter) { refusal(w, 400, -32000, "Bad Request: Server not initialized") },
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					if refuse != nil && r.Header.Get(wire.HeaderSession) != "" && !s.knows(r) {
						refuse(w)
						return true
					}
					return false
				}
				s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
					writeSSE(w, "id: "+r.Header.Get(wire.HeaderSession)+"\ndata:\n\n")
					<-r.Context().Done()
					return true
				}
			}, func(t *clientTest) {
				t.open()
				for i, m := range []string{
					`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"a:1"}}`,
					`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"a:2","x":1.0}}`,
					`{"jsonrpc":"2.0","id":%d,"method":"resources/unsubscribe","params":{"uri":"a:1"}}`,
					`{"jsonrpc":"2.0","id":%d,"method":"logging/setLevel","params":{"level":"info"}}`,
				} {
					t.send(fmt.Sprintf(m, 10+i))
					t.recv()
				}
				synctest.Wait()
				t.server.forget()
				before := len(t.server.requests(""))
				t.call("1", "tools/call")
				synctest.Wait()
				t.wantNothing(time.Minute)

				var got []string
				for _, r := range t.server.requests("")[before:] {
					what := r.msg.Method()
					if r.method == "GET" {
						what = "GET"
						if id := r.header.Get("Last-Event-Id"); id != "" {
							t.Errorf("the new session's GET asks for event %q of the old one", id)
						}
					}
					got = append(got, what+" "+r.header.Get(wire.HeaderSession))
					switch what {
					case "initialize":
						rest := initializeText[strings.Index(initializeText, `,"method"`):]
						if !strings.HasSuffix(r.body, rest) || r.msg.ID().String() == "0" {
							t.Errorf("initialize again: %s", r.body)
						}
					case "notifications/initialized":
						if r.body != initializedText {
							t.Errorf("initialized again: %s", r.body)
						}
					case "resources/subscribe":
						if !strings.HasSuffix(r.body, `"params":{"uri":"a:2","x":1.0}}`) {
							t.Errorf("subscribed again: %s", r.body)
						}
					}
				}
				slices.Sort(got[3:]) // GET and what is restored go side by side
				want := "tools/call session-1, initialize , notifications/initialized session-2, " +
					"GET session-2, logging/setLevel session-2, resources/subscribe session-2, tools/call session-2"
				if strings.Join(got, ", ") != want {
					t.Errorf("requests: %s\nwant:     %s", strings.Join(got, ", "), want)
				}
			})
		})
	}
}

func refusal(w http.ResponseWriter, status, code int, text string) {
	w.Header().Set("Content-Type", wire.TypeJSON)
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, code, text)
}

// A 400 that only mentions a session is an error like any other: the session
// lives on.
func TestSessionMentioned(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
			refusal(w, 400, -32000, "the browser session is not initialized")
		})
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		if m := t.recv(); !m.IsError() || string(m.Lookup("error", "code")) != "-32000" {
			t.Errorf("received %s", m.Bytes())
		}
		t.call("2", "ping")
		if n := len(t.server.requests("initialize")); n != 1 {
			t.Errorf("%d times initialize, want 1", n)
		}
	})
}

// A session that an initialize has begun in vain is ended on both sides.
func TestInitializeRefusedWithSession(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			w.Header().Set(wire.HeaderSession, "begun")
			writeJSON(w, `{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}`)
			return true
		}
	}, func(t *clientTest) {
		c := t.inner
		call := newCall(c, msg(initializeText))
		c.tryAdmit(call)
		c.run(call)
		if call.newSession == nil || call.newSession.ctx.Err() == nil {
			t.Error("the context of the session is left behind")
		}
		if n := len(t.server.requests("DELETE")); n != 1 {
			t.Errorf("%d DELETEs, want 1", n)
		}
	})
}

// A request of the bridge's own that was answered counts as answered, even if
// its time is up in the same moment; and the client cannot cancel it.
func TestAsk(t *testing.T) {
	ask := func(t *clientTest, cancelled bool) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := t.inner
		c.target.Transport = roundTripFunc(func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			m := msg(string(body))
			if cancelled {
				note := newCall(c, msg(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+m.ID().String()+`}}`))
				defer note.cancel()
				c.tryAdmit(note)
			}
			answer := result(m, "{}")
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {wire.TypeJSON}}, ContentLength: int64(len(answer)),
				Body: &closeFunc{strings.NewReader(answer), func() { cancel(); synctest.Wait() }}}, nil
		})
		if call, fault := c.ask(ctx, msg(request("1", "logging/setLevel")), nil); fault != nil || call.reply.Kind() != jsonrpc.Response {
			t.Fatalf("fault %v, reply %s", fault, call.reply.Bytes())
		}
	}
	testClient(t, nil, func(t *clientTest) {
		for range 50 {
			ask(t, false)
		}
		ask(t, true)
	})
}

type roundTripFunc func(r *http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type closeFunc struct {
	io.Reader
	close func()
}

func (c *closeFunc) Close() error { c.close(); return nil }

// LE5: many notice at once, one initialize.
func TestSessionLostOnce(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			time.Sleep(100 * time.Millisecond)
			return false
		}
	}, func(t *clientTest) {
		t.open()
		t.server.forget()
		for i := range 20 {
			t.send(request(fmt.Sprint(i), "tools/call"))
		}
		for range 20 {
			if m := t.recv(); m.IsError() {
				t.Errorf("received %s", m.Bytes())
			}
		}
		if n := len(t.server.requests("initialize")); n != 2 {
			t.Errorf("%d initializes, want 2", n)
		}
	})
}

// LE5: the standalone stream tells of the loss too, before any request.
func TestSessionLostOnGet(t *testing.T) {
	gone := make(chan struct{})
	testClient(t, func(s *fakeServer, o *Options) {
		gone = make(chan struct{})
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			if !s.knows(r) {
				http.NotFound(w, r)
				return true
			}
			writeSSE(w, ": open\n\n")
			select {
			case <-gone:
			case <-r.Context().Done():
			}
			return true
		}
	}, func(t *clientTest) {
		t.open()
		synctest.Wait()
		t.server.forget()
		close(gone)
		time.Sleep(10 * time.Second)
		if n := len(t.server.requests("initialize")); n != 2 {
			t.Errorf("%d initializes, want 2", n)
		}
		t.call("1", "ping")
	})
}

// LE5: a server that never keeps a session gives one error per request, and
// each costs one initialize at most.
func TestSessionNeverKept(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Kind() == jsonrpc.Request && m.Method() != "initialize" {
				http.NotFound(w, r)
				return true
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		t.wantError("1", httpdial.ReasonHTTPStatus, "404")
		time.Sleep(time.Hour)
		if n := len(t.server.requests("initialize")); n != 2 {
			t.Errorf("%d initializes, want 2", n)
		}
		if n := len(t.server.requests("tools/call")); n != 2 {
			t.Errorf("%d calls, want 2", n)
		}
	})
}

// LE5: the server forgets the session and cannot give a new one for a while.
func TestSessionLostServerDown(t *testing.T) {
	testClient(t, nil, func(t *clientTest) {
		t.open()
		t.server.forget()
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "initialize" {
				w.WriteHeader(500)
				return true
			}
			return false
		})
		t.send(request("1", "tools/call"))
		t.wantError("1", httpdial.ReasonSessionLost, "500")
		t.send(request("2", "tools/call"))
		t.wantError("2", httpdial.ReasonServerDown, "500", "next attempt")
		t.server.script(nil)
		time.Sleep(time.Minute)
		t.call("3", "tools/call")
		if n := len(t.server.requests("tools/call")); n != 2 {
			t.Errorf("%d calls reached the server, want the first and the last", n)
		}
	})
}

// LE6: without a session there is none to lose.
func TestStateless404(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.stateless = true
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/call" {
				refusal(w, 404, -32001, "Session not found")
				return true
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		t.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}`)
		t.call("2", "ping")
		if n := len(t.server.requests("initialize")); n != 1 {
			t.Errorf("%d initializes, want 1", n)
		}
		for _, r := range t.server.requests("") {
			if r.header["Mcp-Session-Id"] != nil {
				t.Errorf("%s with a session id", r.body)
			}
		}
	})
}

// F1: a 404 that speaks of the method is not about the session.
func TestMethodNotFound(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "x/y" {
				refusal(w, 404, -32601, "Method not found")
				return true
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "x/y"))
		t.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}`)
		if n := len(t.server.requests("initialize")); n != 1 {
			t.Errorf("%d initializes, want 1", n)
		}
	})
}

// LE3: a session id that changes in mid-session is ignored.
func TestSessionIDChanges(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() != "initialize" {
				w.Header().Set("Mcp-Session-Id", "other")
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		t.call("1", "ping")
		t.call("2", "ping")
		if n := len(t.server.requests("initialize")); n != 1 {
			t.Errorf("%d initializes, want 1", n)
		}
	})
}

func TestSessionIDInvalid(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			w.Header().Set("Mcp-Session-Id", "with space")
			writeJSON(w, result(m, "{}"))
			return true
		}
	}, func(t *clientTest) {
		t.send(initializeText)
		t.wantError("0", httpdial.ReasonInvalidMessage, "session id")
	})
}

// The server is down at the start: errors at once, attempts in the background,
// and all is well once it is up.
func TestServerDownAtStart(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) { s.down = true }, func(t *clientTest) {
		start := time.Now()
		t.send(initializeText)
		t.wantError("0", httpdial.ReasonUnreachable, "connection refused", "http://fake.test: ", "tried again")
		t.send(initializedText)
		t.send(request("1", "tools/list"))
		t.wantError("1", httpdial.ReasonServerDown, "connection refused", "next attempt is in")
		if d := time.Since(start); d != 0 {
			t.Errorf("the errors took %v", d)
		}
		time.Sleep(10 * time.Minute)
		t.send(request("2", "tools/call"))
		t.wantError("2", httpdial.ReasonServerDown)
		if n := t.server.dials; n < 20 || n > 50 {
			t.Errorf("%d attempts in 10 minutes, want some 20 to 50", n)
		}
		t.server.setDown(false)
		time.Sleep(31 * time.Second)
		t.call("3", "tools/call")
		got := t.server.requests("POST")
		if len(got) != 3 || got[0].msg.Method() != "initialize" || got[1].body != initializedText {
			t.Errorf("the server got %v", got)
		}
	})
}

// The server is told notifications/initialized once, by the bridge or by the client.
func TestInitializedOnce(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) { s.down = true }, func(t *clientTest) {
		t.send(initializeText)
		t.wantError("0", httpdial.ReasonUnreachable)
		t.server.setDown(false)
		time.Sleep(time.Second)
		t.send(initializedText)
		t.call("1", "ping")
		if n := len(t.server.requests("notifications/initialized")); n != 1 {
			t.Errorf("it was told %d times", n)
		}
	})
}

// A client that initializes again after the bridge has done so gets a session
// of its own, and the bridge's is ended.
func TestInitializeAgain(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) { s.down = true }, func(t *clientTest) {
		t.send(initializeText)
		t.wantError("0", httpdial.ReasonUnreachable)
		t.server.setDown(false)
		time.Sleep(time.Second)
		t.open()
		t.call("1", "ping")
		synctest.Wait()
		var got []string
		for _, r := range t.server.requests("") {
			got = append(got, r.method+" "+r.msg.Method()+" "+r.header.Get(wire.HeaderSession))
		}
		for _, want := range []string{"POST initialize ", "DELETE  session-1", "POST notifications/initialized session-2", "POST ping session-2"} {
			if !slices.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
	})
}

// A client that initializes again while the bridge waits need not wait.
func TestInitializeAgainWhileDown(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) { s.down = true }, func(t *clientTest) {
		t.send(initializeText)
		t.wantError("0", httpdial.ReasonUnreachable)
		time.Sleep(time.Hour)
		t.server.setDown(false)
		t.open()
		t.call("1", "ping")
		time.Sleep(time.Minute)
		if n := len(t.server.requests("initialize")); n != 1 {
			t.Errorf("%d initializes, want 1", n)
		}
	})
}

// What will not pass by itself is not tried again in the background.
func TestInitializeRefused(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			w.WriteHeader(401)
			return true
		}
	}, func(t *clientTest) {
		t.send(initializeText)
		t.wantError("0", httpdial.ReasonAuthRequired, "--header")
		time.Sleep(time.Hour)
		if n := len(t.server.requests("initialize")); n != 1 {
			t.Errorf("%d initializes, want 1", n)
		}
	})
}

// Nothing else may be sent before initialize is answered, so a server that
// never answers it must not block the client for ever.
func TestInitializeTimeout(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		o.InitializeTimeout = 5 * time.Second
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if len(s.requests("initialize")) == 1 {
				<-r.Context().Done()
				return true
			}
			return false
		}
	}, func(t *clientTest) {
		start := time.Now()
		t.send(initializeText)
		t.send(request("1", "ping"))
		t.wantError("0", httpdial.ReasonTimeout)
		t.wantError("1", httpdial.ReasonServerDown)
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("it took %v", d)
		}
		time.Sleep(time.Second)
		t.call("2", "ping")
	})
}

// A request of a server that restarts must not be answered by what the client
// says to the request with the same id from before.
func TestServerRequestIDs(t *testing.T) {
	end := make(chan bool)
	testClient(t, func(s *fakeServer, o *Options) {
		end = make(chan bool)
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			if !s.knows(r) {
				http.NotFound(w, r)
				return true
			}
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}`))
			select {
			case <-end:
			case <-r.Context().Done():
			}
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.want(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}`)
		t.server.forget()
		end <- true
		m := t.recv()
		if m.Method() != "notifications/cancelled" || m.CancelledID().String() != "0" {
			t.Errorf("received %s, want the first request cancelled", m.Bytes())
		}
		m = t.recv()
		if m.Method() != "elicitation/create" || m.ID().String() == "0" {
			t.Fatalf("received %s, want a request with another id", m.Bytes())
		}
		t.send(`{"jsonrpc":"2.0","id":0,"result":{"action":"old"}}`)
		t.send(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"result":{"action":"new"}}`)
		t.call("1", "ping")
		synctest.Wait()
		var answers []string
		for _, r := range t.server.requests("POST") {
			if r.msg.Kind() == jsonrpc.Response {
				answers = append(answers, r.body)
			}
		}
		if len(answers) != 1 || answers[0] != `{"jsonrpc":"2.0","id":0,"result":{"action":"new"}}` {
			t.Errorf("the server got %q", answers)
		}
	})
}

// A server may cancel a request whose id was changed on the way.
func TestServerCancels(t *testing.T) {
	next := make(chan string)
	testClient(t, func(s *fakeServer, o *Options) {
		next = make(chan string)
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			if !s.knows(r) {
				http.NotFound(w, r)
				return true
			}
			writeSSE(w, ": open\n\n")
			for text := range next {
				if text == "end" {
					return true
				}
				writeSSE(w, sseEvent("", text))
			}
			return true
		}
	}, func(t *clientTest) {
		const ask = `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`
		t.open()
		next <- ask
		t.want(ask)
		t.server.forget()
		next <- "end"
		t.recv() // the withdrawal
		next <- ask
		id := new(t.recv()).ID()
		next <- `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`
		t.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id.String() + `}}`)
		close(next)
	})
}

// LE11: a session that the server has forgotten gets no DELETE.
func TestNoDeleteAfterLoss(t *testing.T) {
	testClient(t, nil, func(t *clientTest) {
		t.open()
		t.server.forget()
		t.server.script(func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "initialize" {
				w.WriteHeader(503)
				return true
			}
			return false
		})
		t.send(request("1", "ping"))
		t.wantError("1", httpdial.ReasonSessionLost)
		t.conn.Close(nil)
		if n := len(t.server.requests("DELETE")); n != 0 {
			t.Errorf("%d DELETEs", n)
		}
	})
}

// An initialize that is cut off in the middle leaves no session at the server.
func TestCloseDuringInitialize(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			w.Header().Set("Mcp-Session-Id", "half")
			writeSSE(w, ": wait\n\n")
			<-r.Context().Done()
			return true
		}
	}, func(t *clientTest) {
		t.send(initializeText)
		synctest.Wait()
		t.conn.Close(nil)
		if got := t.server.requests("DELETE"); len(got) != 1 || got[0].header.Get("Mcp-Session-Id") != "half" {
			t.Errorf("DELETEs: %v", got)
		}
	})
}
