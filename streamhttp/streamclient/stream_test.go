package streamclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// onCall scripts the answer to tools/call.
func onCall(s *fakeServer, f func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message)) {
	s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
		if m.Method() != "tools/call" {
			return false
		}
		f(w, r, m)
		return true
	}
}

// resumes scripts the answers to GETs with Last-Event-ID, in order; others get 405.
func resumes(s *fakeServer, scripts ...func(w http.ResponseWriter, r *http.Request)) {
	n := 0
	s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Last-Event-Id") == "" || n >= len(scripts) {
			return false
		}
		n++
		scripts[n-1](w, r)
		return true
	}
}

const answer1 = `{"jsonrpc":"2.0","id":1,"result":{}}`

func status(code int) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) }
}

func events(text string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) { writeSSE(w, text) }
}

// cutHead answers with the beginning of a reply, and then the connection ends.
func cutHead(head string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, head)
		_ = conn.Close()
	}
}

// LE7, LE8: a stream that ends before the response is resumed, exactly when
// the server has said, as often as it takes, from where it ended.
func TestResume(t *testing.T) {
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}`
	for name, c := range map[string]struct {
		first   string
		scripts []func(w http.ResponseWriter, r *http.Request)
		ids     []string
		waits   []time.Duration
		want    []string
	}{
		"retry is exact": {"id: a\nretry: 507\ndata:\n\n",
			[]func(http.ResponseWriter, *http.Request){events(sseEvent("b", answer1))},
			[]string{"a"}, []time.Duration{507 * time.Millisecond}, []string{answer1}},
		"one second by default": {sseEvent("a", log),
			[]func(http.ResponseWriter, *http.Request){events(sseEvent("b", answer1))},
			[]string{"a"}, []time.Duration{time.Second}, []string{log, answer1}},
		"newer ids and retries count": {"id: a\nretry: 100\ndata:\n\n",
			[]func(http.ResponseWriter, *http.Request){
				events("id: b\nretry: 200\ndata: " + log + "\n\n"),
				events("retry: 300\n\n"),
				events(": nothing\n\nid: c\ndata:\n\n" + sseEvent("", log)),
				events(sseEvent("", answer1))},
			[]string{"a", "b", "b", "c"}, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond},
			[]string{log, log, answer1}},
		"busy": {"id: a\nretry: 1000\ndata:\n\n",
			[]func(http.ResponseWriter, *http.Request){status(503), status(500), events(sseEvent("b", answer1))},
			[]string{"a", "a", "a"}, nil, []string{answer1}},
		"cut in the head of the reply": {"id: a\nretry: 1000\ndata:\n\n",
			[]func(http.ResponseWriter, *http.Request){cutHead("HTTP/1.1 20"), cutHead("HTTP/1.1 200 OK\r\nContent-Ty"), events(sseEvent("b", answer1))},
			[]string{"a", "a", "a"}, nil, []string{answer1}},
		"retry of zero": {"id: a\nretry: 0\ndata:\n\n",
			[]func(http.ResponseWriter, *http.Request){events(sseEvent("b", answer1))},
			[]string{"a"}, []time.Duration{10 * time.Millisecond}, []string{answer1}},
		"JSON": {sseEvent("a", log),
			[]func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, r *http.Request) { writeJSON(w, answer1) }},
			[]string{"a"}, nil, []string{log, answer1}},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) { writeSSE(w, c.first) })
				resumes(s, c.scripts...)
			}, func(t *clientTest) {
				t.open()
				synctest.Wait()
				start := time.Now()
				t.send(request("1", "tools/call"))
				for _, want := range c.want {
					t.want(want)
				}
				synctest.Wait()
				gets := t.server.requests("GET")[1:]
				if len(gets) != len(c.ids) {
					t.Fatalf("%d resumptions, want %d", len(gets), len(c.ids))
				}
				for i, get := range gets {
					if got := get.header.Get("Last-Event-Id"); got != c.ids[i] {
						t.Errorf("resumption %d asks for what follows %q, want %q", i, got, c.ids[i])
					}
					if get.header.Get(wire.HeaderSession) != "session-1" || get.header.Get(wire.HeaderVersion) == "" {
						t.Errorf("resumption %d without session or version: %v", i, get.header)
					}
					if d := get.at.Sub(start); c.waits != nil && d != c.waits[i] {
						t.Errorf("resumption %d after %v, want %v", i, d, c.waits[i])
					}
					start = get.at
				}
				if n := len(t.server.requests("tools/call")); n != 1 {
					t.Errorf("the call was sent %d times", n)
				}
			})
		})
	}
}

// LE7: what cannot be resumed is an error, and is never sent again.
func TestResumeFails(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/x"}`
	for name, c := range map[string]struct {
		first   string
		scripts []func(w http.ResponseWriter, r *http.Request)
		reason  string
		most    time.Duration
	}{
		"no id":                            {sseEvent("", note), nil, httpdial.ReasonConnectionLost, 0},
		"nothing":                          {"", nil, httpdial.ReasonConnectionLost, 0},
		"400":                              {sseEvent("a", ""), []func(http.ResponseWriter, *http.Request){status(400)}, httpdial.ReasonResultLost, time.Second},
		"404":                              {sseEvent("a", ""), []func(http.ResponseWriter, *http.Request){status(404)}, httpdial.ReasonResultLost, time.Second},
		"405":                              {sseEvent("a", ""), nil, httpdial.ReasonResultLost, time.Second},
		"200 HTML":                         {sseEvent("a", ""), []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") }}, httpdial.ReasonResultLost, time.Second},
		"empty for ever":                   {sseEvent("a", ""), repeat(20, events("")), httpdial.ReasonResultLost, 17 * time.Second},
		"retry 0 for ever, without events": {sseEvent("a", ""), repeat(1000, events("retry: 0\n\n")), httpdial.ReasonResultLost, 17 * time.Second},
		"retry 0 for ever, without data":   {"id: a\nretry: 0\ndata:\n\n", repeat(1000, events("id: a\nretry: 0\ndata:\n\n")), httpdial.ReasonResultLost, 17 * time.Second},
		"retry 0, the same events for ever": {"retry: 0\n" + sseEvent("a", note) + sseEvent("b", note),
			repeat(1000, events("retry: 0\n"+sseEvent("a", note)+sseEvent("b", note))), httpdial.ReasonResultLost, 17 * time.Second},
		"the same events for ever": {sseEvent("a", note) + sseEvent("b", note),
			repeat(1000, events(sseEvent("a", note)+sseEvent("b", note))), httpdial.ReasonResultLost, 17 * time.Second},
		"retry 500, the same events for ever": {"retry: 500\n" + sseEvent("a", note) + sseEvent("b", note),
			repeat(1000, events(sseEvent("a", note)+sseEvent("b", note))), httpdial.ReasonResultLost, 17 * time.Second},
		"404 after 500": {sseEvent("a", ""), []func(http.ResponseWriter, *http.Request){status(500), status(404)}, httpdial.ReasonResultLost, 3 * time.Second},
		"501":           {sseEvent("a", ""), repeat(20, status(501)), httpdial.ReasonResultLost, time.Second},
		"500 for ever":  {sseEvent("a", ""), repeat(20, status(500)), httpdial.ReasonResultLost, 17 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) { writeSSE(w, c.first) })
				resumes(s, c.scripts...)
			}, func(t *clientTest) {
				t.open()
				start := time.Now()
				t.send(request("1", "tools/call"))
				m := t.recv()
				for m.Kind() == jsonrpc.Notification {
					m = t.recv()
				}
				if got := string(m.Lookup("error", "data", "reason")); got != `"`+c.reason+`"` || m.ID().String() != "1" {
					t.Errorf("received %s, want reason %s", m.Bytes(), c.reason)
				}
				if n := len(t.server.requests("GET")); n > 10 {
					t.Errorf("%d GETs", n)
				}
				if d := time.Since(start); d > c.most {
					t.Errorf("after %v, want at most %v", d, c.most)
				}
				t.call("2", "ping")
				if n := len(t.server.requests("tools/call")); n != 1 {
					t.Errorf("the call was sent %d times", n)
				}
			})
		})
	}
}

// LE7: the server is gone, or takes connections and says nothing, after the stream
// of a call has ended: 15 s after the first attempt to resume it, or as long as
// the options say, the call is answered with an error. An event in between, also
// one without data, starts the time anew.
func TestResumeTimeout(t *testing.T) {
	silent := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, c := range map[string]struct {
		limit   time.Duration // 0: the default
		first   string
		scripts []func(w http.ResponseWriter, r *http.Request)
		gone    bool // connections are refused afterwards
		want    time.Duration
	}{
		"killed":             {0, sseEvent("a", ""), nil, true, 16 * time.Second},
		"killed, one second": {time.Second, sseEvent("a", ""), nil, true, 2 * time.Second},
		"silent":             {0, sseEvent("a", ""), repeat(9, silent), false, 16 * time.Second},
		"retry first":        {0, "id: a\nretry: 40000\ndata:\n\n", nil, true, 55 * time.Second},
		"progress between": {0, sseEvent("a", ""), []func(http.ResponseWriter, *http.Request){status(500), status(500),
			events("id: b\nretry: 100\ndata:\n\n")}, true, 23 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				o.ResumeTimeout = c.limit
				onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) { writeSSE(w, c.first) })
				resumes(s, append(c.scripts, repeat(9, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })...)...)
			}, func(t *clientTest) {
				t.open()
				start := time.Now()
				t.send(request("1", "tools/call"))
				if c.gone && c.scripts == nil {
					synctest.Wait()
					t.server.stop()
				}
				t.wantError("1", httpdial.ReasonResultLost, "result is lost")
				if d := time.Since(start); d < c.want-2*time.Second || d > c.want {
					t.Errorf("the error came after %v, want %v", d, c.want)
				}
			})
		})
	}
}

// LE10, LE7: a server that has accepted a call and dies before it answers it on
// the standalone stream leaves the call no longer without an answer.
func TestAcceptedAndKilled(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) { w.WriteHeader(202) })
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			writeSSE(w, ": open\n\n")
			<-r.Context().Done()
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		synctest.Wait()
		start := time.Now()
		t.server.stop()
		t.wantError("1", httpdial.ReasonResultLost, "result is lost")
		if d := time.Since(start); d > 20*time.Second {
			t.Errorf("the error came after %v", d)
		}
	})
}

func repeat(n int, f func(w http.ResponseWriter, r *http.Request)) (fs []func(w http.ResponseWriter, r *http.Request)) {
	for range n {
		fs = append(fs, f)
	}
	return fs
}

// LE7: a server that polls its client for long is no failure.
func TestResumeLong(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
			writeSSE(w, "id: a\nretry: 500\ndata:\n\n")
		})
		resumes(s, append(repeat(1000, events("id: a\ndata:\n\n")), events(sseEvent("b", answer1)))...)
	}, func(t *clientTest) {
		t.open()
		start := time.Now()
		t.send(request("1", "tools/call"))
		t.want(answer1)
		if d := time.Since(start); d != 1001*500*time.Millisecond {
			t.Errorf("it took %v", d)
		}
	})
}

// LE8: bad data in an event fails that stream's call only.
func TestBadEvent(t *testing.T) {
	for name, c := range map[string]struct{ data, reason string }{
		"no JSON":     {"{oops", httpdial.ReasonInvalidMessage},
		"no message":  {`{"jsonrpc":"2.0"}`, httpdial.ReasonInvalidMessage},
		"too large":   {`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 5000) + `"}`, httpdial.ReasonTooLarge},
		"empty array": {"[]", httpdial.ReasonInvalidMessage},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			testClient(t, func(s *fakeServer, o *Options) {
				release = make(chan struct{})
				o.MaxMessageSize = 4000
				onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
					if m.ID().String() == "1" {
						writeSSE(w, sseEvent("a", c.data))
						<-r.Context().Done()
						return
					}
					writeSSE(w, ": wait\n\n")
					<-release
					writeSSE(w, sseEvent("", result(m, "{}")))
				})
			}, func(t *clientTest) {
				t.open()
				t.send(request("2", "tools/call"))
				t.send(request("1", "tools/call"))
				t.wantError("1", c.reason)
				close(release)
				t.want(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			})
		})
	}
}

// LE8, LE9: on the standalone stream bad events are dropped, and it goes on.
func TestBadEventOnGet(t *testing.T) {
	const good = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	testClient(t, func(s *fakeServer, o *Options) {
		o.MaxMessageSize = 4000
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			writeSSE(w, sseEvent("1", "{oops")+sseEvent("2", strings.Repeat("x", 5000))+sseEvent("3", good))
			<-r.Context().Done()
			return true
		}
	}, func(t *clientTest) {
		t.open()
		t.want(good)
	})
}

// LE9: what GET may meet; the session works in any case.
func TestNoStandaloneStream(t *testing.T) {
	for name, c := range map[string]struct {
		reply func(w http.ResponseWriter, r *http.Request)
		gets  int
	}{
		"405":  {status(405), 1},
		"404":  {status(404), 1},
		"401":  {status(401), 1},
		"400":  {status(400), 1},
		"501":  {status(501), 1},
		"204":  {status(204), 1},
		"HTML": {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") }, 1},
		"302":  {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, 1},
		"500":  {status(500), 0},
		"429":  {status(429), 0},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				s.onGet = func(w http.ResponseWriter, r *http.Request) bool { c.reply(w, r); return true }
			}, func(t *clientTest) {
				t.open()
				t.call("1", "ping")
				time.Sleep(time.Hour)
				t.call("2", "ping")
				n := len(t.server.requests("GET"))
				if c.gets != 0 && n != c.gets || n > 200 {
					t.Errorf("%d GETs", n)
				}
				if n := len(t.server.requests("initialize")); n != 1 {
					t.Errorf("%d initializes, want 1", n)
				}
			})
		})
	}
}

// LE9: the standalone stream is opened again, from the last event if there
// were ids, and in the server's time; it outlives a restart of the server, and a reply
// that is cut off in its head.
func TestStandaloneStreamReconnects(t *testing.T) {
	n := 0
	testClient(t, func(s *fakeServer, o *Options) {
		n = 0
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
			n++
			text := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%d %s"}}`, n, r.Header.Get("Last-Event-Id"))
			switch n {
			case 1:
				writeSSE(w, sseEvent("", text))
			case 2:
				writeSSE(w, "retry: 2500\n"+sseEvent("e2", text))
			case 3:
				writeSSE(w, sseEvent("", text))
				s.stop()
			case 4:
				cutHead("HTTP/1.1 200 OK\r\nContent-Ty")(w, r)
			case 5:
				writeSSE(w, sseEvent("", text))
				<-r.Context().Done()
			}
			return true
		}
	}, func(t *clientTest) {
		t.open()
		start := time.Now()
		for i, want := range []struct {
			text string
			at   time.Duration
		}{{"1 ", 0}, {"2 ", time.Second}, {"3 e2", 3500 * time.Millisecond}} {
			if m := t.recv(); string(m.Lookup("params", "data")) != `"`+want.text+`"` {
				t.Errorf("message %d: %s, want %q", i, m.Bytes(), want.text)
			}
			if d := time.Since(start); d != want.at {
				t.Errorf("message %d after %v, want %v", i, d, want.at)
			}
		}
		time.Sleep(10 * time.Minute)
		t.server.start()
		t.server.setDown(false)
		m := t.recv()
		if string(m.Lookup("params", "data")) != `"5 e2"` {
			t.Errorf("after the restart: %s", m.Bytes())
		}
		t.call("1", "ping")
	})
}

// A server that wants the standalone stream to be opened again at once, for
// nothing, does not get more than a handful of GETs.
func TestStandaloneStreamHotLoop(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		most int // GETs in two seconds
	}{
		"no event": {"retry: 0\n\n", 10},
		"no data":  {"id: a\nretry: 0\ndata:\n\n", 10},
		"data":     {"retry: 0\n" + sseEvent("a", `{"jsonrpc":"2.0","method":"notifications/x"}`), 201},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
					if len(s.requests("GET")) < 10_000 { // ends the loop of a client without a limit
						writeSSE(w, c.text)
						return true
					}
					return false
				}
			}, func(t *clientTest) {
				t.open()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				for {
					if _, err := bridgetest.Recv(ctx, t.conn); err != nil {
						break
					}
				}
				if n := len(t.server.requests("GET")); n < 2 || n > c.most {
					t.Errorf("%d GETs, want 2 to %d", n, c.most)
				}
			})
		})
	}
}

// LE10: the response comes on the standalone stream, after a 202 or while the
// POST's own stream is open, which is then ended.
func TestAnswerOnGet(t *testing.T) {
	for name, reply := range map[string]func(w http.ResponseWriter, r *http.Request){
		"202":        status(202),
		"204":        status(204),
		"own stream": func(w http.ResponseWriter, r *http.Request) { writeSSE(w, ": hm\n\n"); <-r.Context().Done() },
		"no reply":   func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			calls := make(chan jsonrpc.Message, 1)
			ended := make(chan struct{})
			testClient(t, func(s *fakeServer, o *Options) {
				calls = make(chan jsonrpc.Message, 1)
				ended = make(chan struct{})
				onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
					calls <- m
					reply(w, r)
					close(ended)
				})
				s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
					writeSSE(w, ": open\n\n")
					m := <-calls
					time.Sleep(time.Second)
					writeSSE(w, sseEvent("", result(m, "{}")))
					<-r.Context().Done()
					return true
				}
			}, func(t *clientTest) {
				t.open()
				t.send(request("1", "tools/call"))
				t.want(answer1)
				<-ended
				t.call("2", "ping")
			})
		})
	}
}

// LE10: a 202 for a request, where there is no other stream for the response.
func TestAcceptedForNothing(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) { w.WriteHeader(202) })
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		t.wantError("1", httpdial.ReasonNoAnswer, "202")
	})
}

// A server that leaves the stream open after the response cannot keep it.
func TestStreamLingers(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		o.MaxInFlight = 1
		onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
			writeSSE(w, sseEvent("a", result(m, "{}")))
			<-r.Context().Done()
		})
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		t.want(answer1)
		start := time.Now()
		t.call("2", "ping")
		if d := time.Since(start); d > time.Second {
			t.Errorf("the next request had to wait %v", d)
		}
		if n := len(t.server.requests("GET")); n != 1 {
			t.Errorf("%d GETs: an answered call was resumed", n)
		}
	})
}

// 20,000 notifications and the response, in order.
func TestManyNotifications(t *testing.T) {
	const n = 20000
	testClient(t, func(s *fakeServer, o *Options) {
		onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
			w.Header().Set("Content-Type", wire.TypeSSE)
			for i := range n {
				io.WriteString(w, sseEvent("", fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, i)))
			}
			io.WriteString(w, sseEvent("", result(m, "{}")))
		})
	}, func(t *clientTest) {
		t.open()
		t.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1}}}`)
		for i := range n {
			if m := t.recv(); string(m.Lookup("params", "progress")) != fmt.Sprint(i) {
				t.Fatalf("received %s, want progress %d", m.Bytes(), i)
			}
		}
		t.want(answer1)
	})
}

// LE9: what follows initialized waits for the standalone stream, but not long.
func TestSlowStandaloneStream(t *testing.T) {
	testClient(t, func(s *fakeServer, o *Options) {
		s.onGet = func(w http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
	}, func(t *clientTest) {
		start := time.Now()
		t.open()
		t.call("1", "ping")
		if d := time.Since(start); d != listenTimeout {
			t.Errorf("the first call was answered after %v, want %v", d, listenTimeout)
		}
	})
}

// The client over HTTP/2, where all streams share a connection.
func TestHTTP2(t *testing.T) {
	s := &fakeServer{t: t}
	asked := make(chan jsonrpc.Message, 1)
	onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
		if r.ProtoMajor != 2 {
			t.Errorf("the call came over %s", r.Proto)
		}
		writeSSE(w, sseEvent("a", `{"jsonrpc":"2.0","method":"notifications/x"}`))
		asked <- m
		panic(http.ErrAbortHandler)
	})
	s.onGet = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Last-Event-Id") == "a" {
			writeSSE(w, sseEvent("b", result(<-asked, "{}")))
			return true
		}
		writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/y"}`))
		<-r.Context().Done()
		return true
	}
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	conn, err := (&Client{URL: server.URL, Options: Options{Transport: server.Client().Transport}}).Dial(t.Context())
	bridgetest.Must(t, err)
	ct := &clientTest{T: t, server: s, conn: conn}
	ct.open()
	ct.want(`{"jsonrpc":"2.0","method":"notifications/y"}`)
	ct.send(request("1", "tools/call"))
	ct.want(`{"jsonrpc":"2.0","method":"notifications/x"}`)
	ct.want(answer1)
	conn.Close(nil)
	if n := len(s.requests("DELETE")); n != 1 {
		t.Errorf("%d DELETEs", n)
	}
}

// recorder is an http.RoundTripper that notes the contexts of resumptions.
type recorder struct {
	http.RoundTripper
	mu       sync.Mutex
	contexts []context.Context
}

func (a *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Last-Event-Id") != "" {
		a.mu.Lock()
		a.contexts = append(a.contexts, r.Context())
		a.mu.Unlock()
	}
	return a.RoundTripper.RoundTrip(r)
}

// LE7: a call may be polled for hours. Nothing is left of a resumption that has ended.
func TestResumeLeavesNothing(t *testing.T) {
	transport := &recorder{}
	testClient(t, func(s *fakeServer, o *Options) {
		transport.RoundTripper, o.Transport = o.Transport, transport
		onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
			writeSSE(w, "id: a\nretry: 300\ndata:\n\n")
		})
		resumes(s, events("id: b\ndata:\n\n"), status(503), events("id: c\ndata:\n\n"), func(w http.ResponseWriter, r *http.Request) {
			transport.mu.Lock()
			defer transport.mu.Unlock()
			for i, ctx := range transport.contexts[:3] {
				if ctx.Err() == nil {
					t.Errorf("the context of resumption %d is still there", i)
				}
			}
			writeSSE(w, sseEvent("d", answer1))
		})
	}, func(t *clientTest) {
		t.open()
		t.send(request("1", "tools/call"))
		t.want(answer1)
	})
}

// An event id that no header can carry is none: asking for it would never work
// (LE7). And a server cannot make a call wait for as long as it likes.
func TestCursorLimits(t *testing.T) {
	for id, want := range map[string]bool{"1_2": true, "\u00e9": true, "a\x01": false, "\x7f": false, "\xff": false} {
		if got := isSendable(id); got != want {
			t.Errorf("isSendable(%q) = %v", id, got)
		}
	}
	c := resumePoint{retry: 24 * time.Hour, hasRetry: true}
	if got := c.nextDelay(); got != maxServerRetry {
		t.Errorf("a retry of a day waits %v", got)
	}
}
