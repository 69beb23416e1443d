package notes

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// told is a Watcher that keeps the notes.
type told struct {
	mu    sync.Mutex
	codes []string
	notes []observe.Note
}

func (n *told) Message(*observe.Passed) {}

func (n *told) Event(e observe.Event) {
	if e, ok := e.(observe.Note); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.codes = append(n.codes, e.Code)
		n.notes = append(n.notes, e)
	}
}

// wire is the Conn to a server that takes everything, and says in one Receive what it is given.
type wire struct {
	bridge.Conn
	says jsonrpc.Message
}

func (w *wire) Send(context.Context, jsonrpc.Message) error { return nil }
func (w *wire) TrySend(jsonrpc.Message) bool                { return true }

func (w *wire) Receive(ctx context.Context, sink bridge.Sink) error {
	if !sink.TrySend(w.says) {
		return sink.Send(ctx, w.says)
	}
	return nil
}

// scene is one server's session, that somebody watches.
type scene struct {
	t *testing.T
	o *observe.Observer
	s *observe.Session
	w *wire
	c bridge.Conn
}

func newScene(t *testing.T, o *observe.Observer, transport string) *scene {
	s := o.OpenUnannounced("files", "http")
	s.SetServerTransport(transport)
	w := new(wire)
	return &scene{t, o, s, w, s.Conn(w, observe.Upstream)}
}

func (s *scene) parse(text string) jsonrpc.Message {
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// asks sends a request with an id and its members behind that.
func (s *scene) asks(id, rest string) {
	s.c.TrySend(s.parse(`{"jsonrpc":"2.0","id":` + id + `,` + rest + `}`))
}

// answers has the server answer.
func (s *scene) answers(id, rest string) {
	s.w.says = s.parse(`{"jsonrpc":"2.0","id":` + id + `,` + rest + `}`)
	if err := s.c.Receive(s.t.Context(), s.w); err != nil {
		s.t.Fatal(err)
	}
}

// begins is initialize.
func (s *scene) begins(result string) {
	s.asks("0", `"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}`)
	s.answers("0", `"result":`+result)
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`

// http is an exchange with the server; headers are name, value and so on, of the request up to
// "|", then of the reply.
func (s *scene) http(method string, status int, took time.Duration, headers ...string) {
	e := &observe.Exchange{Hop: observe.Upstream, Method: method, Status: status, RequestHeader: http.Header{}, ResponseHeader: http.Header{}, Duration: took, Began: time.Now(), ResponseBytes: 50}
	to := e.RequestHeader
	for len(headers) > 0 {
		if headers[0] == "|" {
			to, headers = e.ResponseHeader, headers[1:]
			continue
		}
		to.Set(headers[0], headers[1])
		headers = headers[2:]
	}
	s.s.Exchange(e)
}

func (s *scene) ends(pid int, lasted time.Duration) {
	s.o.Event(observe.ProcessEnded{Server: "files", PID: pid, Lasted: lasted, Err: errors.New("exit status 1")})
}

// endsAnswered is the end of a process that has answered a request.
func (s *scene) endsAnswered(pid int, lasted time.Duration) {
	s.o.Event(observe.ProcessEnded{Server: "files", Session: s.s, PID: pid, Lasted: lasted, Err: errors.New("exit status 1"), Answered: true})
}

func (s *scene) stops(pid int, steps ...string) {
	for _, step := range steps {
		s.o.Event(observe.ProcessStopping{Server: "files", PID: pid, Step: step})
	}
	s.o.Event(observe.ProcessEnded{Server: "files", PID: pid, StopRequested: true})
}

func (s *scene) noise(reason string) {
	s.o.Event(observe.Noise{Server: "files", PID: 7, Bytes: 20, Reason: reason})
}

func thrice(f func()) {
	for range 3 {
		f()
	}
}

const (
	session = "Mcp-Session-Id"
	typeOf  = "Content-Type"
	events  = "text/event-stream"
)

var rules = []struct {
	name, code, transport string
	fault, healthy        func(s *scene)
}{
	{"ends at once", "C2", "stdio",
		func(s *scene) { s.ends(1, time.Second); s.ends(2, time.Second) },
		func(s *scene) { s.ends(1, time.Second); s.ends(2, time.Hour); s.stops(3, "close stdin") }},
	{"ends at once, then answers", "C2", "stdio", // whatever has become of others before
		func(s *scene) {
			s.endsAnswered(1, time.Second)
			s.ends(2, time.Second)
			s.stops(3, "close stdin")
			s.ends(4, time.Second)
		},
		func(s *scene) {
			thrice(func() { s.endsAnswered(1, time.Second) })
			s.ends(2, time.Second)
			s.endsAnswered(3, time.Second)
			s.ends(4, time.Second)
			s.ends(5, time.Hour)
			s.ends(6, time.Second)
		}},
	{"noise", "C3", "stdio",
		func(s *scene) { s.noise("the line is not a JSON object") },
		func(s *scene) { s.noise("batches are part of protocol version 2025-03-26 only") }},
	{"slow start", "C5", "stdio",
		func(s *scene) { s.slow(5 * time.Second) }, func(s *scene) { s.slow(3 * time.Second) }},
	{"silent", "C7", "stdio",
		func(s *scene) { s.lateMethod("initialize", "1") },
		func(s *scene) { s.lateMethod("tools/call", "1") }},
	{"silent behind text", "C10", "stdio", // whose answer was lost
		func(s *scene) {
			s.noise("text stands before an answer on the line")
			s.lateMethod("initialize", "1")
		},
		func(*scene) {}},
	{"incomplete", "C8", "stdio",
		func(s *scene) { s.begins(`{"protocolVersion":"2025-11-25","capabilities":{}}`) }, func(s *scene) { s.begins(hello) }},
	{"rounded", "C9", "stdio",
		func(s *scene) {
			s.asks("9007199254740993", `"method":"ping"`)
			s.answers("9007199254740992", `"result":{}`)
		},
		func(s *scene) {
			s.asks("9007199254740993", `"method":"ping"`)
			s.answers("9007199254740993", `"result":{}`)
			s.asks("1", `"method":"ping"`)
			s.answers("1.0", `"result":{}`)
		}},
	{"large and unanswered", "C9", "stdio", func(s *scene) { s.late("9007199254740993") }, func(s *scene) { s.late("77") }},
	{"another id", "C9", "stdio",
		func(s *scene) { s.begins(hello); s.asks("1", `"method":"ping"`); s.answers(`"1"`, `"result":{}`) },
		func(s *scene) { // nobody knows what was asked before
			s.asks("1", `"method":"ping"`)
			s.answers("4", `"result":{}`)
		}},
	{"another's response", "H23", "http",
		func(s *scene) { s.begins(hello); s.asks("1", `"method":"ping"`); s.answers("2", `"result":{}`) },
		func(s *scene) { s.begins(hello); s.asks("1", `"method":"ping"`); s.answers("1", `"result":{}`) }},
	{"twice", "H23", "http",
		func(s *scene) { s.begins(hello); s.answers("0", `"result":{}`) },
		func(s *scene) { s.begins(hello); s.begins(hello) }},
	{"UTF-8", "C10", "stdio", func(s *scene) { s.noise("invalid UTF-8 in a string") }, func(*scene) {}},
	{"text in front", "C10", "stdio",
		func(s *scene) { s.noise("text stands before an answer on the line") },
		func(s *scene) { s.noise("parse error: unexpected character at byte 2") }},
	{"too long", "C10", "stdio", func(s *scene) { s.noise("the message is longer than 10 bytes, which is the limit") }, func(*scene) {}},
	{"ignores the end", "C11", "stdio", func(s *scene) { s.stops(1, "close stdin", "terminate") }, func(s *scene) { s.stops(1, "close stdin"); s.stops(1, "terminate") }},
	{"circle", "C13", "stdio",
		func(s *scene) { s.lists("1", `"a"`, `"b"`); s.lists("2", `"b"`, `"b"`) },
		func(s *scene) { s.lists("1", `"a"`, `"b"`); s.lists("2", `"b"`, `"c"`) }},
	{"no method", "C13", "stdio",
		func(s *scene) { s.begins(hello); s.missing("tools/list") },
		func(s *scene) { s.begins(hello); s.missing("prompts/list") }},
	{"web page", "H5", "http",
		func(s *scene) { s.http("POST", 200, 0, "|", typeOf, "text/html; charset=utf-8") },
		func(s *scene) { s.http("POST", 200, 0, "|", typeOf, "application/json; charset=utf-8") }},
	{"replicas", "H7", "http",
		func(s *scene) { thrice(func() { s.http("POST", 404, 0, session, "x") }) },
		func(s *scene) {
			thrice(func() { s.http("POST", 404, 0, session, "x"); time.Sleep(40 * time.Second) })
		}},
	{"not 404", "H8", "http",
		func(s *scene) {
			s.http("POST", 202, 0, session, "x")
			thrice(func() { s.http("POST", 400, 0, session, "x"); s.http("POST", 400, 0, session, "x") })
		},
		func(s *scene) {
			thrice(func() {
				s.http("POST", 400, 0, session, "x")
				s.http("POST", 400, 0, session, "x")
				s.http("POST", 202, 0, session, "x")
			})
		}},
	{"media types", "H10", "http", func(s *scene) { s.http("POST", 406, 0) }, func(s *scene) { s.http("POST", 202, 0) }},
	{"label", "H10", "http",
		func(s *scene) { s.http("POST", 200, 0, "|", typeOf, "text/plain") },
		func(s *scene) { s.http("POST", 200, 0, "|", typeOf, events) }},
	{"compressed", "H11", "http",
		func(s *scene) { s.http("POST", 200, 0, "|", typeOf, events, "Content-Encoding", "gzip") },
		func(s *scene) {
			s.http("POST", 200, 0, "|", typeOf, "application/json", "Content-Encoding", "gzip")
		}},
	{"idle", "H12", "http",
		func(s *scene) { thrice(func() { s.http("GET", 200, time.Minute, session, "x", "|", typeOf, events) }) },
		func(s *scene) {
			for i := range 5 {
				s.http("GET", 200, time.Duration(i)*time.Minute, session, "x", "|", typeOf, events)
			}
		}},
	{"odd GET", "H13", "http",
		func(s *scene) { s.http("GET", 200, 0, session, "x", "|", typeOf, "text/html") },
		func(s *scene) {
			s.http("GET", 405, 0, session, "x")
			s.http("GET", 404, 0, session, "x")
			s.http("GET", 200, 0)
		}},
	{"GET ends", "H13", "http",
		func(s *scene) {
			thrice(func() { s.http("GET", 200, time.Millisecond, session, "x", "|", typeOf, events) })
		},
		func(s *scene) { s.http("GET", 200, time.Millisecond, session, "x", "|", typeOf, events) }},
	{"resume", "H14", "http",
		func(s *scene) { s.http("GET", 400, 0, session, "x", "Last-Event-ID", "4") },
		func(s *scene) {
			s.http("GET", 200, 0, session, "x", "Last-Event-ID", "4", "|", typeOf, events)
		}},
	{"no challenge", "H18", "http", func(s *scene) { s.http("POST", 401, 0) }, func(s *scene) { s.http("POST", 401, 0, "|", "WWW-Authenticate", "Bearer") }},
	{"body", "H19", "http", func(s *scene) { s.http("POST", 413, 0) }, func(s *scene) { s.http("POST", 202, 0) }},
	{"too many", "H20", "http", func(s *scene) { s.http("POST", 429, 0) }, func(s *scene) { s.http("POST", 503, 0) }},
	{"DELETE fails", "H25", "http", func(s *scene) { s.http("DELETE", 500, 0) }, func(s *scene) { s.http("DELETE", 204, 0) }},
	{"no DELETE", "H25", "http", func(s *scene) { s.http("DELETE", 405, 0) }, func(s *scene) { s.http("DELETE", 404, 0) }},
}

func (s *scene) slow(start time.Duration) {
	s.asks("0", `"method":"initialize"`)
	time.Sleep(start)
	s.answers("0", `"result":`+hello)
}

func (s *scene) late(id string) { s.lateMethod("ping", id) }

func (s *scene) lateMethod(method, id string) {
	parsed, _ := jsonrpc.ParseID([]byte(id))
	s.o.Event(observe.CallLate{Server: "files", Session: s.s, Method: method, ID: parsed, Since: time.Now()})
}

// A remote server that does not answer initialize is no command: C7 is not about it.
func TestRemoteIsSilent(t *testing.T) {
	var o observe.Observer
	var n told
	defer o.Watch(&n)()
	defer Watch(&o)()
	if newScene(t, &o, "http").lateMethod("initialize", "1"); len(n.codes) > 0 {
		t.Errorf("notes %+v", n.notes)
	}
}

// A server that clients share never gets their ids: what takes long is not for these.
func TestSharedServerGetsNoLargeIDs(t *testing.T) {
	var o observe.Observer
	var n told
	defer o.Watch(&n)()
	defer Watch(&o)()
	id, _ := jsonrpc.ParseID([]byte("9007199254740993"))
	for _, s := range []*observe.Session{nil, o.OpenSession("files", "http")} {
		o.Event(observe.CallLate{Server: "files", Session: s, Method: "tools/call", ID: id, Since: time.Now()})
	}
	if len(n.codes) > 0 {
		t.Errorf("notes %+v", n.notes)
	}
}

func (s *scene) lists(id, cursor, next string) {
	s.asks(id, `"method":"tools/list","params":{"cursor":`+cursor+`}`)
	s.answers(id, `"result":{"tools":[],"nextCursor":`+next+`}`)
}

func (s *scene) missing(method string) {
	s.asks("5", `"method":"`+method+`"`)
	s.answers("5", `"error":{"code":-32601,"message":"no"}`)
}

// Each fault is named, once, and its healthy twin is not.
func TestRules(t *testing.T) {
	for _, rule := range rules {
		for _, faulty := range []bool{true, false} {
			t.Run(rule.name+map[bool]string{true: "", false: ", healthy"}[faulty], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var o observe.Observer
					var n told
					defer o.Watch(&n)()
					defer Watch(&o)()
					s := newScene(t, &o, rule.transport)
					if !faulty {
						if rule.healthy(s); len(n.codes) > 0 {
							t.Errorf("notes %+v of a healthy server", n.notes)
						}
						return
					}
					rule.fault(s)
					rule.fault(s)
					if !slices.Equal(n.codes, []string{rule.code}) || n.notes[0].Server != "files" || !strings.Contains(n.notes[0].Text, "). ") {
						t.Errorf("notes %+v, want one %s", n.notes, rule.code)
					}
				})
			})
		}
	}
}

// Who reads of noise in passing runs the server through the bridge already, and has not seen the text.
func TestNoiseSaysWhatToDo(t *testing.T) {
	var o observe.Observer
	var n told
	defer o.WatchEvents(&n)()
	defer Watch(&o)()
	newScene(t, &o, "stdio").noise("the line is not a JSON object")
	if len(n.notes) != 1 || strings.Contains(n.notes[0].Text, "run the server through the bridge") || !strings.Contains(n.notes[0].Text, "mcp-bridge doctor -- COMMAND") {
		t.Errorf("notes %+v", n.notes)
	}
}

// A fault is told of again after an hour, and of another server at once.
func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		var n told
		defer o.WatchEvents(&n)()
		defer Watch(&o)()
		s := newScene(t, &o, "stdio")
		s.noise("the line is not a JSON object")
		time.Sleep(repeatAfter - time.Minute)
		s.noise("the line is not a JSON object")
		time.Sleep(time.Minute)
		s.noise("the line is not a JSON object")
		o.Event(observe.Noise{Server: "other", Reason: "the line is not a JSON object"})
		if len(n.codes) != 3 {
			t.Errorf("notes %+v, want 3", n.notes)
		}
	})
}

// While nobody else watches messages, they are not looked at.
func TestAlone(t *testing.T) {
	var o observe.Observer
	var n told
	defer o.WatchEvents(&n)()
	defer Watch(&o)()
	if o.IsWatched() || o.WantsExchanges() {
		t.Error("messages or exchanges are observed for nobody")
	}
	stop := o.Watch(&told{})
	newScene(t, &o, "stdio").begins(`{}`)
	stop()
	newScene(t, &o, "stdio").begins(`{}`)
	if o.IsWatched() || !slices.Equal(n.codes, []string{"C8"}) {
		t.Errorf("on %v, notes %+v, want C8 once", o.IsWatched(), n.notes)
	}
}

// What was sent while nobody watched may be answered when somebody does again: that is no fault.
func TestWatchedAgain(t *testing.T) {
	var o observe.Observer
	var n told
	defer o.WatchEvents(&n)()
	defer Watch(&o)()
	s := newScene(t, &o, "stdio")
	stop := o.Watch(&told{})
	s.begins(hello)
	stop()
	s.asks("1", `"method":"tools/call"`)
	defer o.Watch(&told{})()
	s.asks("2", `"method":"ping"`)
	s.answers("1", `"result":{}`)
	if len(n.notes) > 0 {
		t.Errorf("notes %+v of a healthy server", n.notes)
	}
}

// What is remembered stays bounded, however many servers, processes and requests there are.
func TestBounded(t *testing.T) {
	var o observe.Observer
	w := &watcher{observer: &o, reported: map[faultKey]time.Time{}, stopSteps: map[int]string{}, earlyExits: map[string]int{}}
	defer o.Watch(w)()
	s := newScene(t, &o, "stdio")
	for i := range 3 * maxRemembered {
		name := strconv.Itoa(i)
		o.Event(observe.Noise{Server: name, Reason: "the line is not a JSON object"})
		o.Event(observe.ProcessStopping{PID: i, Step: "close stdin"})
		o.Event(observe.ProcessEnded{Server: name, PID: -1})
		s.asks(name, `"method":"tools/list","params":{"cursor":"`+strings.Repeat("c", 10_000)+`"}`)
		s.answers(name, `"result":{}`)
		s.http("POST", 404, 0, session, name)
		s.http("GET", 200, 0, session, name, "|", typeOf, events)
	}
	c := conversationOf(s.s)
	if len(w.reported) > maxRemembered || len(w.stopSteps) > maxRemembered || len(w.earlyExits) > maxRemembered || len(c.replyHistory.sessionLosses) > minRepeats || len(c.replyHistory.streamDurations) > minRepeats {
		t.Errorf("%d faults, %d processes, %d servers, %d and %d replies are kept", len(w.reported), len(w.stopSteps), len(w.earlyExits), len(c.replyHistory.sessionLosses), len(c.replyHistory.streamDurations))
	}
}
