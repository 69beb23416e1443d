package legacyclient

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Options are the options of New. The zero value works.
type Options struct {
	// InputTimeout is how long the client may take to answer what the server
	// asks of it in the course of a call; 0: 10 minutes (C.4.6).
	InputTimeout time.Duration

	// DefaultLogLevel is what calls ask the server to log at least, until the
	// client sets a level, whether or not it says that it can log; none of
	// LogLevels: info (C.2).
	DefaultLogLevel string

	// ServerInfo, raw JSON, is who the server is said to be if it does not tell;
	// nil: the bridge.
	ServerInfo []byte
}

const (
	defaultInputTimeout = 10 * time.Minute

	// What a client may send while initialize waits for the server.
	maxQueued      = 10_000   // messages
	maxQueuedBytes = 16 << 20 // of them all
)

// New returns the Filter that lets one client of revisions 2024-11-05
// to 2025-11-25 talk to a server of 2026-07-28 (C.2, C.4.6). One
// Filter is one session, from initialize on. Its requests to the server have
// ids of their own, 1 and up, never used twice (J2); progress tokens stay.
// A message for the client is Related to the client's request in whose course
// it comes, or to NullID.
func New(o Options) era.Filter {
	if o.InputTimeout <= 0 {
		o.InputTimeout = defaultInputTimeout
	}
	if !slices.Contains(era.LogLevels, o.DefaultLogLevel) {
		o.DefaultLogLevel = "info"
	}
	return &filter{
		opts:     o,
		level:    -1,
		calls:    map[jsonrpc.ID]*call{},
		owed:     map[jsonrpc.ID]*call{},
		asks:     map[jsonrpc.ID]*ask{},
		wrapped:  map[string]bool{},
		randomID: rand.Text,
	}
}

// filter is one session. The phases of its life: fresh, discovering
// (initialize waits for server/discover), ready.
type filter struct {
	opts Options

	phase       phase
	initialize  jsonrpc.Message // that waits for the server's answer
	discover    jsonrpc.ID      // the request to the server that initialize has become
	insisted    bool            // it was sent twice
	queued      []jsonrpc.Message
	queuedBytes int

	version  string           // negotiated
	declared declared         // what the client can do
	server   advertised       // what the server can do
	level    int              // index in LogLevels that the client has set; -1: none
	meta     jsonrpc.Fragment // of the _meta of every call: precomputed, only spliced in
	bareMeta []byte           // the same without the log level; raw, with its braces
	wrapped  map[string]bool  // tools whose output schema was wrapped when the client saw it

	lastID  int64                // towards the server
	lastAsk int64                // towards the client
	calls   map[jsonrpc.ID]*call // at the server, by the id there
	owed    map[jsonrpc.ID]*call // by the client's id
	asks    map[jsonrpc.ID]*ask  // questions to the client that are open
	waiting []*call              // that have a deadline, in no order
	listen  listener

	randomID func() string
}

type phase int

const (
	fresh phase = iota
	discovering
	ready
)

func (f *filter) Start(time.Time, *era.Out) {}

func (f *filter) FromClient(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Kind() {
	case jsonrpc.Request:
		f.request(now, m, out)
	case jsonrpc.Notification:
		f.notification(now, m, out)
	case jsonrpc.Response:
		f.answered(now, m, out)
	}
}

// request takes a request of the client.
func (f *filter) request(now time.Time, m jsonrpc.Message, out *era.Out) {
	method := m.Method()
	switch {
	case method == "ping": // never forwarded, in no phase (C.2)
		f.reply(m.ID(), nil, out)
	case method == "initialize":
		f.begin(m, out)
	case f.phase == fresh:
		f.refuse(m.ID(), jsonrpc.CodeInvalidRequest, "the session has not begun: send initialize first", nil, out)
	case f.phase == discovering:
		f.queue(m, out)
	default:
		f.serve(now, m, method, out)
	}
}

// queue keeps a message that came while initialize waits for the server: a
// client in a pipe of a shell does not wait.
func (f *filter) queue(m jsonrpc.Message, out *era.Out) {
	if size := f.queuedBytes + m.Size(); len(f.queued) < maxQueued && size <= maxQueuedBytes {
		f.queued, f.queuedBytes = append(f.queued, m), size
		return
	}
	if m.Kind() == jsonrpc.Request {
		f.refuse(m.ID(), jsonrpc.CodeInternalError, "too many requests before the answer to initialize", shape.Reason("busy"), out)
		return
	}
	out.Drop(m, "too many messages before the answer to initialize")
}

// unqueue takes a cancelled request out of the queue. Initialize itself cannot be
// cancelled (J11).
func (f *filter) unqueue(cancel jsonrpc.Message, out *era.Out) {
	before := len(f.queued)
	f.queued = slices.DeleteFunc(f.queued, func(m jsonrpc.Message) bool {
		meant := m.Kind() == jsonrpc.Request && m.ID().Equivalent(cancel.RequestID())
		if meant {
			f.queuedBytes -= m.Size()
		}
		return meant
	})
	if len(f.queued) == before {
		out.Drop(cancel, "it names no request in flight")
	}
}

// serve takes a request of a session that has begun.
func (f *filter) serve(now time.Time, m jsonrpc.Message, method string, out *era.Out) {
	id := m.ID()
	if f.inFlight(id) { // J3
		f.refuse(id, jsonrpc.CodeInvalidRequest, "the id is that of another request in flight", nil, out)
		return
	}
	switch method {
	case "logging/setLevel":
		f.setLevel(m, out)
	case "resources/subscribe":
		f.subscribe(now, m, out)
	case "resources/unsubscribe":
		f.unsubscribe(now, m, out)
	case "server/discover", "subscriptions/listen":
		f.refuse(id, jsonrpc.CodeMethodNotFound, "there is no method "+method+" in "+f.version, nil, out)
	default:
		if strings.HasPrefix(method, "tasks/") || era.IsRemovedMethod(method) {
			f.refuse(id, jsonrpc.CodeMethodNotFound, "the server has no method "+method, nil, out)
			return
		}
		f.forward(m, method, out)
	}
}

func (f *filter) inFlight(id jsonrpc.ID) bool {
	_, used := f.owed[id]
	return used || slices.ContainsFunc(f.listen.waiters, func(w waiter) bool { return w.id == id })
}

// notification takes a notification of the client.
func (f *filter) notification(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch f.phase {
	case fresh:
		out.Drop(m, "the session has not begun")
		return
	case discovering:
		if m.Method() == "notifications/cancelled" {
			f.unqueue(m, out)
		} else {
			f.queue(m, out)
		}
		return
	}
	switch method := m.Method(); method {
	case "notifications/initialized":
		f.initialized(now, out)
	case "notifications/cancelled":
		f.cancelled(now, m, out)
	case "notifications/roots/list_changed", "notifications/progress", "notifications/tasks/status":
		out.Drop(m, "2026-07-28 has no "+method+" from clients")
	default:
		out.Server(m) // an extension's (J6)
	}
}

// FromServer takes a message of the server.
func (f *filter) FromServer(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Kind() {
	case jsonrpc.Response:
		f.response(now, m, out)
	case jsonrpc.Notification:
		f.fromServer(now, m, out)
	case jsonrpc.Request: // 2026-07-28 has none, but ping is harmless (C.2)
		if m.Method() == "ping" {
			out.Server(jsonrpc.NewResult(m.ID(), nil))
			return
		}
		out.Drop(m, "servers of 2026-07-28 send no requests")
		out.Server(era.NotFound(m.Method()).Response(m.ID()))
	}
}

// response takes an answer of the server.
func (f *filter) response(now time.Time, m jsonrpc.Message, out *era.Out) {
	id, c, ok := jsonrpc.Find(f.calls, m.ID())
	switch {
	case ok:
		delete(f.calls, id)
		c.upstream = jsonrpc.ID{}
		if m.IsError() {
			f.failed(c, m, out)
		} else {
			f.completed(now, c, m, out)
		}
	case f.phase == discovering && f.discover.Equivalent(m.ID()):
		f.discovered(now, m, out)
	default:
		if !f.listenEnded(now, m.ID(), m, out) {
			out.Drop(m, "nobody waits for this answer") // J12
		}
	}
}

// fromServer takes a notification of the server.
func (f *filter) fromServer(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch method := m.Method(); method {
	case "notifications/progress":
		f.progress(m, out)
	case "notifications/message":
		f.logMessage(m, out)
	case "notifications/subscriptions/acknowledged":
		f.acknowledged(now, m, out)
	case "notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/list_changed", "notifications/resources/updated":
		f.changed(m, method, out)
	case "notifications/cancelled": // servers only end a listen with it (ST13)
		if !f.listenEnded(now, m.RequestID(), jsonrpc.Message{}, out) {
			out.Drop(m, "it names no open request")
		}
	case "notifications/elicitation/complete", "notifications/tasks", "notifications/tasks/status":
		out.Drop(m, "nothing that the client knows of")
	default:
		f.relay(m, out)
	}
}

func (f *filter) Due() time.Time {
	due := f.listen.due()
	for _, c := range f.waiting {
		due = earlier(due, c.due)
	}
	return due
}

// earlier returns the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (f *filter) Tick(now time.Time, out *era.Out) {
	for _, c := range slices.Clone(f.waiting) {
		if !c.due.After(now) {
			f.callDue(c, out)
		}
	}
	f.listenDue(now, out)
}

func (f *filter) ServerEnded(_ time.Time, err error, out *era.Out) {
	text := "the server has ended"
	if err != nil {
		text += ": " + err.Error()
	}
	data := shape.Reason("server_ended")
	if f.phase == discovering {
		f.refuse(f.initialize.ID(), jsonrpc.CodeInternalError, text, data, out)
	}
	for _, m := range f.queued {
		if m.Kind() == jsonrpc.Request {
			f.refuse(m.ID(), jsonrpc.CodeInternalError, text, data, out)
		}
	}
	for _, c := range f.owed {
		f.withdraw(c, nil, out)
		f.refuse(c.id, jsonrpc.CodeInternalError, text, data, out)
	}
	for _, w := range f.listen.waiters {
		f.refuse(w.id, jsonrpc.CodeInternalError, text, data, out)
	}
	f.phase, f.queued, f.listen = fresh, nil, listener{}
	clear(f.owed)
	clear(f.calls)
}

// reply answers a request of the client; nil is {}.
func (f *filter) reply(id jsonrpc.ID, result []byte, out *era.Out) {
	out.Client(jsonrpc.NewResult(id, result).WithRelated(id))
}

// refuse answers a request of the client with an error.
func (f *filter) refuse(id jsonrpc.ID, code int, text string, data []byte, out *era.Out) {
	out.Client(jsonrpc.NewError(id, code, text, data).WithRelated(id))
}
