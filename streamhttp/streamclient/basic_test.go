package streamclient

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// LE1, LE3, LE4, LE11: what is on every request, and what is not.
func TestHeaders(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		o.Header = http.Header{"x-custom": {"v"}, "Mcp-Session-Id": {"forged"}, "Accept": {"text/html"}, "Host": {"other.test"}}
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Host != "other.test" {
				t.Errorf("Host %q", r.Host)
			}
			writeSSE(w, ": open\n\n")
			<-r.Context().Done()
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.call("1", "tools/list")
		synctest.Wait()
		t.conn.Close(nil)
		all := t.server.requests("")
		var kinds []string
		for i, r := range all {
			kinds = append(kinds, r.method)
			h := r.header
			if h.Get("X-Custom") != "v" || h.Get("Authorization") != "Basic dXNlcjpwYXNz" || h.Get("User-Agent") == "" {
				t.Errorf("%s without the headers that all need: %v", r.method, h)
			}
			session, version := h["Mcp-Session-Id"], h["Mcp-Protocol-Version"]
			if i == 0 && (session != nil || version != nil) {
				t.Errorf("initialize with session %v, version %v", session, version)
			}
			if i > 0 && (len(session) != 1 || session[0] != "session-1" || len(version) != 1 || version[0] != "2025-06-18") {
				t.Errorf("%s %d with session %v, version %v", r.method, i, session, version)
			}
			switch r.method {
			case "POST":
				if h.Get("Accept") != "application/json, text/event-stream" || h.Get("Content-Type") != "application/json" {
					t.Errorf("POST with Accept %q, Content-Type %q", h.Get("Accept"), h.Get("Content-Type"))
				}
			case "GET":
				if h.Get("Accept") != "text/event-stream" {
					t.Errorf("GET with Accept %q", h.Get("Accept"))
				}
			}
		}
		if got := strings.Join(kinds, " "); got != "POST POST GET POST DELETE" {
			t.Errorf("requests: %s", got)
		}
	})
}

// LE2: every way to answer that is seen in the field.
func TestReplies(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{"n":9007199254740993,"f":1.0,"e":1e400,"s":"\u00e9\/ 👩‍👧"}}`
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}`
	for name, c := range map[string]struct {
		reply func(w http.ResponseWriter)
		want  []string
	}{
		"JSON": {func(w http.ResponseWriter) { writeJSON(w, answer) }, []string{answer}},
		"JSON, chunked": {func(w http.ResponseWriter) {
			writeJSON(w, answer[:20])
			w.(http.Flusher).Flush()
			io.WriteString(w, answer[20:])
		}, []string{answer}},
		"JSON, charset": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "Application/JSON; charset=utf-8")
			io.WriteString(w, answer)
		}, []string{answer}},
		"no type":   {func(w http.ResponseWriter) { w.Header()["Content-Type"] = nil; io.WriteString(w, answer) }, []string{answer}},
		"array":     {func(w http.ResponseWriter) { writeJSON(w, "["+log+","+answer+"]") }, []string{log, answer}},
		"SSE":       {func(w http.ResponseWriter) { writeSSE(w, sseEvent("", log)+sseEvent("", answer)) }, []string{log, answer}},
		"SSE array": {func(w http.ResponseWriter) { writeSSE(w, sseEvent("", "["+log+","+answer+"]")) }, []string{log, answer}},
		"SSE, CRLF, BOM, comments, priming, prime, names": {func(w http.ResponseWriter) {
			writeSSE(w, "\ufeff: hi\r\n\r\nid: 1\r\ndata:\r\n\r\nevent: prime\r\nid: 2\r\ndata: x\r\n\r\nevent: message\r\ndata: "+log+"\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata:\"id\":1,\"result\":{}}\r\n\r\n")
		}, []string{log, "{\"jsonrpc\":\"2.0\",\n\"id\":1,\"result\":{}}"}}, // LE8
		"id spelled otherwise": {func(w http.ResponseWriter) { writeJSON(w, `{"id":1.0,"jsonrpc":"2.0","result":{}}`) },
			[]string{`{"id":1,"jsonrpc":"2.0","result":{}}`}},
		"error with null id": {func(w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"no"}}`)
		}, []string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`}},
		"error without id": {func(w http.ResponseWriter) {
			writeJSON(w, `{"jsonrpc":"2.0","error":{"code":-32602,"message":"no"}}`)
		}, []string{`{"id":1,"jsonrpc":"2.0","error":{"code":-32602,"message":"no"}}`}},
		"answer twice": {func(w http.ResponseWriter) { writeSSE(w, sseEvent("", answer)+sseEvent("", answer)) }, []string{answer}},
		"progress after the answer (J13)": {func(w http.ResponseWriter) {
			writeSSE(w, sseEvent("", answer)+sseEvent("", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`)+sseEvent("", log))
		}, []string{answer, log}},
		"array, as many as there may be": {func(w http.ResponseWriter) {
			writeJSON(w, "["+strings.Repeat(log+",", jsonrpc.MaxServerBatch-1)+answer+"]")
		},
			append(slices.Repeat([]string{log}, jsonrpc.MaxServerBatch-1), answer)},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					if m.Method() == "tools/call" {
						c.reply(w)
						return true
					}
					return false
				}
			}, func(t *clientTest) {
				t.open()
				t.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"p"}}}`)
				for _, want := range c.want {
					t.want(want)
				}
				t.wantNothing(time.Minute)
				t.call("2", "ping")
			})
		})
	}
}

// LE2: a notification that is accepted in a way of its own.
func TestNotificationReplies(t *testing.T) {
	for name, reply := range map[string]func(w http.ResponseWriter){
		"202":       func(w http.ResponseWriter) { w.WriteHeader(202) },
		"200 empty": func(w http.ResponseWriter) { w.WriteHeader(200) },
		"204":       func(w http.ResponseWriter) { w.WriteHeader(204) },
		"null":      func(w http.ResponseWriter) { writeJSON(w, "null") },
		"text":      func(w http.ResponseWriter) { io.WriteString(w, "Accepted") },
		"empty SSE": func(w http.ResponseWriter) { writeSSE(w, "") },
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					if m.Kind() == jsonrpc.Notification {
						reply(w)
						return true
					}
					return false
				}
			}, func(t *clientTest) {
				t.open()
				t.call("1", "ping")
				synctest.Wait()
				if n := len(t.server.requests("GET")); n != 1 {
					t.Errorf("%d GETs after initialized, want 1", n)
				}
				t.wantNothing(time.Minute)
			})
		})
	}
}

// A client may send everything at once; the server must get it in order, with
// the session that the first reply brings.
func TestPipelined(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "initialize" || m.Kind() == jsonrpc.Notification {
				time.Sleep(300 * time.Millisecond)
			}
			return false
		}
	}, func(t *clientTest) {
		t.send(initializeText)
		t.send(initializedText)
		t.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		t.send(request(`"a"`, "tools/list"))
		t.want(initializeReply)
		t.want(`{"jsonrpc":"2.0","id":"a","result":{"echo":"tools/list"}}`)
		var got []string
		for _, r := range t.server.requests("POST") {
			got = append(got, r.msg.Method())
		}
		want := "initialize notifications/initialized notifications/roots/list_changed tools/list"
		if strings.Join(got, " ") != want {
			t.Errorf("the server got %v", got)
		}
	})
}

// A notification that the server takes its time to accept holds up what
// follows, but not for ever.
func TestSlowNotification(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "notifications/slow" {
				time.Sleep(10 * time.Second)
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		start := time.Now()
		t.send(`{"jsonrpc":"2.0","method":"notifications/slow"}`)
		if d := time.Since(start); d != time.Second {
			t.Errorf("Send waited %v, want 1s", d)
		}
		t.call("1", "ping")
		if d := time.Since(start); d != time.Second {
			t.Errorf("the call took until %v, want 1s", d)
		}
	})
}

// A request over MaxInFlight is answered with an error at once, and disturbs
// neither the others nor what follows it.
func TestMaxInFlight(t *testing.T) {
	release := make(chan struct{})
	testClient(t, func(s *fakeServer, o *Options) {
		release = make(chan struct{})
		o.MaxInFlight = 2
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/call" {
				<-release
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		start := time.Now()
		t.send(request("1", "tools/call"))
		t.send(request("2", "tools/call"))
		t.send(request("3", "tools/call"))
		m := t.wantError("3", httpdial.ReasonTooManyRequests, "too many requests in progress")
		if code := string(m.Lookup("error", "code")); code != "-32603" {
			t.Errorf("code %s", code)
		}
		t.send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		t.send(`{"jsonrpc":"2.0","id":7,"result":{}}`)
		if d := time.Since(start); d != 0 {
			t.Errorf("it took %v", d)
		}
		close(release)
		t.recv()
		t.recv()
		for i := range 10 { // an answer makes room at once
			t.call(fmt.Sprint(10+i), "ping")
		}
		if n := len(t.server.requests("tools/call")); n != 2 {
			t.Errorf("%d calls reached the server, want 2", n)
		}
	})
}

// Calls that ask the client something need its responses to end: these pass,
// although there are as many calls as there may be, and more are made.
func TestMaxInFlightElicit(t *testing.T) {
	var answered map[string]chan struct{}
	testClient(t, func(s *fakeServer, o *Options) {
		o.MaxInFlight = 2
		answered = map[string]chan struct{}{`"e1"`: make(chan struct{}), `"e2"`: make(chan struct{})}
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			switch {
			case m.Kind() == jsonrpc.Response:
				close(answered[m.ID().String()])
			case m.Method() == "tools/call":
				id := `"e` + m.ID().String() + `"`
				writeSSE(w, sseEvent("", request(id, "elicitation/create")))
				<-answered[id]
				writeSSE(w, sseEvent("", result(m, "{}")))
				return true
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, text := range []string{
			request("1", "tools/call"), request("2", "tools/call"), request("3", "tools/call"),
			`{"jsonrpc":"2.0","id":"e1","result":{}}`, `{"jsonrpc":"2.0","id":"e2","result":{}}`,
		} {
			synctest.Wait()
			if err := t.conn.Send(ctx, msg(text)); err != nil {
				t.Fatalf("Send(%s): %v", text, err)
			}
		}
		got := map[string]int{}
		for range 5 {
			m := t.recv()
			got[fmt.Sprint(m.ID(), " ", m.IsError())]++
		}
		for _, want := range []string{`"e1" false`, `"e2" false`, "1 false", "2 false", "3 true"} {
			if got[want] != 1 {
				t.Errorf("received %v, want one %s", got, want)
			}
		}
	})
}

// Calls that were cancelled make room at once.
func TestMaxInFlightCancelled(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		o.MaxInFlight = 1
		onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) { <-r.Context().Done() })
	}, func(t *clientTest) {
		t.open()
		for i := range 10 {
			t.send(request(fmt.Sprint(i), "tools/call"))
			t.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i))
		}
		t.call("10", "ping")
	})
}

// A client that does not read costs bounded memory: the server is not read.
func TestBackPressure(t *testing.T) {
	written := 0
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() != "tools/call" {
				return false
			}
			line := sseEvent("", `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`+strings.Repeat("x", 1000)+`"}}`)
			for written < 10000 {
				writeSSE(w, line)
				written++
			}
			writeSSE(w, sseEvent("", result(m, "{}")))
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		synctest.Wait()
		if written > 500 {
			t.Errorf("%d messages were taken though nobody reads", written)
		}
		for range 10000 {
			if m := t.recv(); m.Kind() != jsonrpc.Notification {
				t.Fatalf("received %s before all notifications", m.Bytes())
			}
		}
		t.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestDuplicateID(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/call" {
				time.Sleep(time.Second)
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		if err := t.conn.Send(t.Context(), msg(request("1", "ping"))); err == nil {
			t.Error("a second request with the id of one in progress was taken")
		}
		t.want(`{"jsonrpc":"2.0","id":1,"result":{"echo":"tools/call"}}`)
		t.call("1", "ping")
	})
}

// LE12, J12: a cancellation is a notification; what the server still says to
// the call is dropped, and its stream is ended.
func TestCancel(t *testing.T) {
	ended := make(chan time.Time, 1)
	testClient(t, func(s *fakeServer, o *Options) {
		ended = make(chan time.Time, 1)
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() != "tools/call" {
				return false
			}
			writeSSE(w, ": begun\n\n")
			time.Sleep(1500 * time.Millisecond)
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}`))
			writeSSE(w, sseEvent("", result(m, "{}")))
			<-r.Context().Done()
			ended <- time.Now()
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":5}}}`)
		time.Sleep(time.Second)
		start := time.Now()
		const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}}`
		t.send(cancelled)
		t.wantNothing(time.Minute)
		if d := (<-ended).Sub(start); d > 3*time.Second {
			t.Errorf("the stream was ended after %v", d)
		}
		got := t.server.requests("notifications/cancelled")
		if len(got) != 1 || got[0].body != cancelled {
			t.Errorf("the server got %v", got)
		}
		t.call("2", "ping")
	})
}

// LE12: the stream of a cancelled call is ended though the server stays silent.
func TestCancelSilent(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		o.MaxInFlight = 1
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/call" {
				<-r.Context().Done()
				return true
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		t.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		t.call("2", "ping") // when the first one is out of the way
		t.wantNothing(time.Minute)
	})
}

// LE12: the stream of a cancelled call is not ended before the server has accepted the cancellation, if that does not take
// for ever: without it, a stream that ends is no cancellation.
func TestCancelSlowly(t *testing.T) {
	const mayTake = 10 * time.Second
	for _, takes := range []time.Duration{mayTake / 2, time.Hour} {
		ended, accepted := make(chan time.Time, 1), make(chan time.Time, 1)
		testClient(t, func(s *fakeServer, o *Options) {
			s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
				switch m.Method() {
				case "tools/call":
					<-r.Context().Done()
					ended <- time.Now()
					return true
				case "notifications/cancelled":
					time.Sleep(takes)
					accepted <- time.Now()
				}
				return false
			}
		}, func(t *clientTest) {
			t.open()
			t.send(request("1", "tools/call"))
			start := time.Now()
			t.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			t.wantNothing(time.Minute)
			end := <-ended
			if takes > mayTake {
				if d := end.Sub(start); d != mayTake {
					t.Errorf("the stream was ended after %v, want %v", d, mayTake)
				}
			} else if d := end.Sub(<-accepted); d <= 0 || d > 3*time.Second {
				t.Errorf("the stream was ended %v after the cancellation was accepted", d)
			}
		})
	}
}

// No message overtakes the one ahead of it on the way out.
func TestOrder(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.stateless = true
		first := true
		o.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if first {
				first = false
				time.Sleep(time.Second)
			}
			return s.dial(ctx, network, addr)
		}
	}, func(t *clientTest) {
		t.send(request("1", "tools/call"))
		synctest.Wait()
		start := time.Now()
		t.send(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		// Which of two connections a server reads first is up to the server,
		// but the request had to be written before.
		if d := t.server.requests("notifications/x")[0].at.Sub(start); d != time.Second {
			t.Errorf("the notification arrived after %v, want it to wait for the request", d)
		}
		t.recv()
	})
}

// A request that the server leaves unread holds up what follows, its own
// cancellation in the first place, but not for ever.
func TestUnreadRequest(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onRaw = func(w http.ResponseWriter, r *http.Request) bool {
			if r.ContentLength < 100_000 {
				return false
			}
			time.Sleep(time.Hour)
			return true
		}
	}, func(t *clientTest) {
		t.open()
		start := time.Now()
		t.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"` + strings.Repeat("x", 200_000) + `"}}`)
		t.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		t.call("2", "ping")
		if d := time.Since(start); d != time.Second {
			t.Errorf("the next call was answered after %v, want 1s", d)
		}
		if n := len(t.server.requests("notifications/cancelled")); n != 1 {
			t.Errorf("%d cancellations reached the server, want 1", n)
		}
	})
}

// J11: initialize is never cancelled.
func TestCancelInitialize(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "initialize" {
				time.Sleep(time.Second)
			}
			return false
		}
	}, func(t *clientTest) {
		t.send(initializeText)
		t.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`)
		t.want(initializeReply)
		t.call("1", "ping")
		if n := len(t.server.requests("notifications/cancelled")); n != 0 {
			t.Errorf("%d cancellations reached the server", n)
		}
	})
}

// LE15: requests of the server, on the stream of a POST and on the standalone
// one, are answered by POSTs.
func TestServerRequests(t *testing.T) {
	answered := make(chan string, 2)
	testClient(t, func(s *fakeServer, o *Options) {
		answered = make(chan string, 2)
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			switch {
			case m.Kind() == jsonrpc.Response:
				w.WriteHeader(202)
				answered <- string(m.Bytes())
				return true
			case m.Method() == "tools/call":
				writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}`))
				<-answered
				writeSSE(w, sseEvent("", result(m, "{}")))
				return true
			}
			return false
		}
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","id":"x","method":"roots/list"}`))
			<-r.Context().Done()
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.want(`{"jsonrpc":"2.0","id":"x","method":"roots/list"}`)
		t.send(`{"jsonrpc":"2.0","id":"x","result":{"roots":[]}}`)
		if got := <-answered; got != `{"jsonrpc":"2.0","id":"x","result":{"roots":[]}}` {
			t.Errorf("the server got %s", got)
		}
		t.send(request("1", "tools/call"))
		t.want(`{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}`)
		t.send(`{"jsonrpc":"2.0","id":0,"result":{"action":"accept"}}`)
		t.want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

// LE15: an answer that the network has lost is posted again, as is one that the server was too
// busy for. One that the server has refused is not.
func TestAnswersArePostedAgain(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":"x","result":{"roots":[]}}`
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, c := range map[string]struct {
		replies []func(http.ResponseWriter, *http.Request) // to the POSTs; then there is none
		least   int                                        // POSTs
		most    int                                        // chance has a part in the pauses
	}{
		"lost":          {[]func(http.ResponseWriter, *http.Request){abort, cutHead("HTTP/1.1 2"), status(202)}, 3, 3},
		"busy":          {[]func(http.ResponseWriter, *http.Request){status(503), status(202)}, 2, 2},
		"refused":       {[]func(http.ResponseWriter, *http.Request){status(400)}, 1, 1},
		"fails":         {[]func(http.ResponseWriter, *http.Request){status(500)}, 1, 1},
		"lost for ever": {repeat(99, abort), 8, 12},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				posts := 0
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					if m.Kind() != jsonrpc.Response {
						return false
					}
					posts++
					c.replies[posts-1](w, r)
					return true
				}
				s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
					writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","id":"x","method":"roots/list"}`))
					<-r.Context().Done()
					return true
				}
			}, func(t *clientTest) {
				t.open()
				t.want(`{"jsonrpc":"2.0","id":"x","method":"roots/list"}`)
				t.send(answer)
				start := time.Now()
				t.call("1", "ping")
				if d := time.Since(start); d != 0 {
					t.Errorf("what follows the answer has waited for %v", d)
				}
				time.Sleep(2 * time.Minute)
				n := 0
				for _, r := range t.server.requests("POST") {
					if r.msg.Kind() == jsonrpc.Response {
						n++
					}
				}
				if n < c.least || n > c.most {
					t.Errorf("the answer was posted %d times, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}

// Answers that cannot be posted keep nothing else from being sent, however many they are.
func TestLostAnswersHoldNothingUp(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Kind() == jsonrpc.Response {
				panic(http.ErrAbortHandler)
			}
			return false
		}
	}, func(t *clientTest) {
		t.open()
		start := time.Now()
		for i := range 2 * maxOneWay {
			t.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
		}
		t.call("1", "ping")
		if d := time.Since(start); d > time.Second {
			t.Errorf("a request behind them has waited for %v", d)
		}
	})
}

// A server may ask something, here ping, before it answers initialize.
func TestPingDuringInitialize(t *testing.T) {
	ponged := make(chan http.Header, 1)
	testClient(t, func(s *fakeServer, o *Options) {
		ponged = make(chan http.Header, 1)
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			switch {
			case m.Kind() == jsonrpc.Response:
				w.WriteHeader(202)
				ponged <- r.Header
				return true
			case m.Method() == "initialize":
				w.Header().Set("Mcp-Session-Id", "early")
				writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","id":9,"method":"ping"}`))
				if h := <-ponged; h.Get("Mcp-Session-Id") != "early" {
					t.Errorf("pong with session %q", h.Get("Mcp-Session-Id"))
				}
				writeSSE(w, sseEvent("", result(m, "{}")))
				return true
			}
			return false
		}
	}, func(t *clientTest) {
		t.send(initializeText)
		t.want(`{"jsonrpc":"2.0","id":9,"method":"ping"}`)
		t.send(`{"jsonrpc":"2.0","id":9,"result":{}}`)
		t.want(`{"jsonrpc":"2.0","id":0,"result":{}}`)
	})
}

// LE11: what DELETE may meet.
func TestDelete(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(s *fakeServer)
		delete int
		most   time.Duration
	}{
		"405": {func(s *fakeServer) {
			s.onDelete = func(w http.ResponseWriter, r *http.Request) bool { w.WriteHeader(405); return true }
		}, 1, 0},
		"stateless": {func(s *fakeServer) { s.stateless = true }, 0, 0},
		"silent": {func(s *fakeServer) {
			s.onDelete = func(w http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
		}, 1, 2 * time.Second},
		"204": {func(s *fakeServer) {}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) { c.set(s) }, func(t *clientTest) {
				t.open()
				synctest.Wait()
				start := time.Now()
				t.conn.Close(nil)
				if d := time.Since(start); d != c.most {
					t.Errorf("Close took %v, want %v", d, c.most)
				}
				if n := len(t.server.requests("DELETE")); n != c.delete {
					t.Errorf("%d DELETEs, want %d", n, c.delete)
				}
			})
		})
	}
}

// Close cuts off what is in progress and ends Send and Receive.
func TestCloseUnblocks(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "initialize" {
				<-r.Context().Done()
				return true
			}
			return false
		}
	}, func(t *clientTest) {
		t.send(initializeText)
		errs := make(chan error, 2)
		go func() { errs <- t.conn.Send(t.Context(), msg(request("2", "tools/call"))) }()
		go func() { _, err := bridgetest.Recv(t.Context(), t.conn); errs <- err }()
		synctest.Wait()
		t.conn.Close(nil)
		for range 2 {
			if err := <-errs; err == nil {
				t.Error("no error after Close")
			}
		}
	})
}
