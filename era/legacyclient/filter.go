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
	// InputTimeout is how long the client may take to answer the input requests that the
	// server sends at a time during a call. 0 or less: 10 minutes (C.4.6).
	InputTimeout time.Duration

	// DefaultLogLevel is the log level of calls until the client sets one, whatever
	// the server says about logging. If it is not one of LogLevels: info (C.2).
	DefaultLogLevel string

	// ServerInfo is raw JSON: who the server is said to be if it does not say so
	// itself. Nil: the bridge.
	ServerInfo []byte
}

// defaultInputTimeout is what an Options.InputTimeout of 0 or less means.
const defaultInputTimeout = 10 * time.Minute

// Bounds on the client's messages that are held while initialize waits for the server's answer.
const (
	maxQueuedMessages = 10_000   // how many messages may be held until initialize is answered
	maxQueuedBytes    = 16 << 20 // how many bytes the messages that are held until initialize is answered may have, all together
)

// New returns the Filter for one session of a client of 2024-11-05 to 2025-11-25
// with a server of 2026-07-28 (C.2, C.4.6), from initialize on. Requests to the
// server get ids from 1 up, which are never used twice (J2); progress tokens stay.
// Each message to the client is Related to the client's request that it belongs
// to, or to NullID.
func New(o Options) era.Filter {
	if o.InputTimeout <= 0 {
		o.InputTimeout = defaultInputTimeout
	}
	if !slices.Contains(era.LogLevels, o.DefaultLogLevel) {
		o.DefaultLogLevel = "info"
	}
	f := &filter{}
	f.session.logLevel = -1
	f.handshake = handshake{session: &f.session, serverInfo: o.ServerInfo, defaultLogLevel: o.DefaultLogLevel, serveQueued: f.serveQueued}
	f.inputs = inputs{session: &f.session, calls: &f.calls, timeout: o.InputTimeout, randomID: rand.Text, openRequests: map[jsonrpc.ID]*inputRequest{}}
	f.calls = calls{session: &f.session, inputs: &f.inputs, schemas: schemas{}, atServer: map[jsonrpc.ID]*call{}, byClientID: map[jsonrpc.ID]*call{}}
	f.listen = listener{session: &f.session}
	return f
}

// filter is one session of a client. handshake holds messages until the session has
// begun. Requests then go to calls, or to listen if they are about subscriptions.
type filter struct {
	session   session   // what client and server have said about themselves, and what requests to the server are made with
	handshake handshake // begins the session: takes the messages from initialize to its answer
	calls     calls     // the client's requests that the server is to answer
	inputs    inputs    // the input requests of the server, which the client is to answer
	listen    listener  // the client's subscriptions
}

// Start implements era.Filter. It does nothing: the client's initialize begins the session.
func (f *filter) Start(time.Time, *era.Out) {}

// FromClient implements era.Filter: a legacy client's message is answered, or made one that the modern server understands.
func (f *filter) FromClient(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Kind() {
	case jsonrpc.Request:
		f.handleRequest(now, m, out)
	case jsonrpc.Notification:
		f.handleClientNotification(now, m, out)
	case jsonrpc.Response:
		f.inputs.handleAnswer(m, out)
	}
}

// handleRequest decides what becomes of a request of the client. It answers ping itself, and turns initialize into server/discover.
// What comes before that is refused; what comes while the server has not answered that is held. All else is translated,
// for the server, or answered. out gets what is to be sent.
func (f *filter) handleRequest(now time.Time, m jsonrpc.Message, out *era.Out) {
	method := m.Method()
	switch {
	case method == "ping": // never forwarded, whatever the phase (C.2)
		reply(m.ID(), nil, out)
	case method == "initialize":
		f.handshake.startDiscovery(m, out)
	case f.handshake.phase == notStarted:
		refuse(m.ID(), jsonrpc.CodeInvalidRequest, "the session has not begun: send initialize first", nil, out)
	case f.handshake.phase == discovering:
		f.handshake.queue(m, out)
	default:
		f.serve(now, m, method, out)
	}
}

// serveQueued takes the client's messages that were held until initialize was answered.
func (f *filter) serveQueued(now time.Time, queued []jsonrpc.Message, out *era.Out) {
	for _, m := range queued {
		f.FromClient(now, m, out)
	}
}

// serve takes a request of the client in a session that has begun: it answers the request, or forwards
// it to the server.
func (f *filter) serve(now time.Time, m jsonrpc.Message, method string, out *era.Out) {
	id := m.ID()
	if f.isInFlight(id) { // J3
		refuse(id, jsonrpc.CodeInvalidRequest, "the id is that of another request in flight", nil, out)
		return
	}
	switch method {
	case "logging/setLevel":
		f.session.handleSetLevel(m, out)
	case "resources/subscribe":
		f.listen.subscribe(now, m, out)
	case "resources/unsubscribe":
		f.listen.unsubscribe(now, m, out)
	case "server/discover", "subscriptions/listen":
		refuse(id, jsonrpc.CodeMethodNotFound, "there is no method "+method+" in "+f.session.version, nil, out)
	default:
		if strings.HasPrefix(method, "tasks/") || era.IsRemovedMethod(method) {
			refuse(id, jsonrpc.CodeMethodNotFound, "the server has no method "+method, nil, out)
			return
		}
		f.calls.forward(m, method, out)
	}
}

// isInFlight reports whether a request of the client with this id waits for its answer.
func (f *filter) isInFlight(id jsonrpc.ID) bool {
	_, used := f.calls.byClientID[id]
	return used || f.listen.isSubscribing(id)
}

// handleClientNotification takes a notification of the client: it is for the Filter itself, held until initialize is
// answered, or dropped; those that 2026-07-28 does not define go to the server.
func (f *filter) handleClientNotification(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch f.handshake.phase {
	case notStarted:
		out.Drop(m, "the session has not begun")
		return
	case discovering:
		if m.Method() == "notifications/cancelled" {
			f.handshake.unqueue(m, out)
		} else {
			f.handshake.queue(m, out)
		}
		return
	}
	switch method := m.Method(); method {
	case "notifications/initialized":
		f.listen.handleInitialized(now, out)
	case "notifications/cancelled":
		if !f.calls.handleCancelled(m, out) && !f.listen.forgetWaiter(now, m.CancelledID()) {
			out.Drop(m, "it names no request in flight")
		}
	case "notifications/roots/list_changed", "notifications/progress", "notifications/tasks/status":
		out.Drop(m, "2026-07-28 has no "+method+" from clients")
	default:
		out.Server(m) // of an extension (J6)
	}
}

// FromServer implements era.Filter: a modern server's message is made one that the legacy client understands, or is for the
// bridge itself.
func (f *filter) FromServer(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Kind() {
	case jsonrpc.Response:
		f.handleResponse(now, m, out)
	case jsonrpc.Notification:
		f.handleServerNotification(now, m, out)
	case jsonrpc.Request: // 2026-07-28 has none, but a ping is harmless (C.2)
		if m.Method() == "ping" {
			out.Server(jsonrpc.NewResult(m.ID(), nil))
			return
		}
		out.Drop(m, "servers of 2026-07-28 send no requests")
		out.Server(era.MethodNotFound(m.Method()).Response(m.ID()))
	}
}

// handleResponse takes an answer of the server.
func (f *filter) handleResponse(now time.Time, m jsonrpc.Message, out *era.Out) {
	id, c, ok := jsonrpc.Find(f.calls.atServer, m.ID())
	switch {
	case ok:
		delete(f.calls.atServer, id)
		c.serverID = jsonrpc.ID{}
		if m.IsError() {
			f.calls.handleError(c, m, out)
		} else {
			f.calls.handleResult(now, c, m, out)
		}
	case f.handshake.phase == discovering && f.handshake.discoverID.Equivalent(m.ID()):
		f.handshake.handleDiscovery(now, m, out)
	default:
		if !f.listen.endListen(now, m.ID(), m, out) {
			out.Drop(m, "nobody waits for this answer") // J12
		}
	}
}

// handleServerNotification takes a notification of the server.
func (f *filter) handleServerNotification(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch method := m.Method(); method {
	case "notifications/progress":
		f.calls.forwardProgress(m, out)
	case "notifications/message":
		f.relayLogMessage(m, out)
	case "notifications/subscriptions/acknowledged":
		f.listen.handleAcknowledged(now, m, out)
	case "notifications/tools/list_changed", "notifications/prompts/list_changed",
		"notifications/resources/list_changed", "notifications/resources/updated":
		f.listen.forwardChange(m, method, out)
	case "notifications/cancelled": // with it servers end a listen (ST13)
		if !f.listen.endListen(now, m.CancelledID(), jsonrpc.Message{}, out) {
			out.Drop(m, "it names no open request")
		}
	case "notifications/elicitation/complete", "notifications/tasks", "notifications/tasks/status":
		out.Drop(m, "nothing that the client knows of")
	default:
		f.relay(m, out)
	}
}

// relayLogMessage passes a log message of the server on to the client, as relay does, or drops it if it
// is below the level that the client has set.
func (f *filter) relayLogMessage(m jsonrpc.Message, out *era.Out) {
	if f.session.logLevel >= 0 {
		if rank := era.LogRank(m.Lookup("params", "level")); rank >= 0 && rank < f.session.logLevel {
			out.Drop(m, "below the level that the client has set")
			return
		}
	}
	f.relay(m, out)
}

// relay passes a notification of the server on to the client, related to the call that it belongs
// to, if there is one: if the transport does not tell (jsonrpc.Message.Related is zero), to the only call at the
// server. It drops what comes before the session has begun or after its call has ended.
func (f *filter) relay(m jsonrpc.Message, out *era.Out) {
	if f.handshake.phase != ready {
		out.Drop(m, "the session has not begun")
		return
	}
	related := jsonrpc.NullID
	if f.listen.isOfListen(m) { // of an extension
		out.Client(legacyNotification(m).WithRelated(related))
		return
	}
	if c := f.calls.callOf(m); c != nil {
		related = c.id
	} else if of, ok := m.During(); ok {
		out.Drop(m, "its call has ended") // J12
		return
	} else if of.IsZero() {
		if c := f.calls.onlyCall(); c != nil {
			related = c.id // the only one possible (B.1)
		}
	}
	out.Client(m.WithRelated(related))
}

// Due implements era.Filter: it returns when a time limit or a wait of the listen or of a call ends; zero: there is none.
func (f *filter) Due() time.Time {
	return earlier(f.listen.nextDue(), f.inputs.nextDue())
}

// earlier returns the earlier of two times. Zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Tick implements era.Filter: it goes on with calls and with the listen where that is due.
func (f *filter) Tick(now time.Time, out *era.Out) {
	f.inputs.tick(now, out)
	f.listen.tick(now, out)
}

// ServerEnded implements era.Filter: all requests of the client that wait are answered with an error.
func (f *filter) ServerEnded(_ time.Time, err error, _ []jsonrpc.ID, out *era.Out) {
	text := "the server has ended"
	if err != nil {
		text += ": " + err.Error()
	}
	data := shape.ReasonData("server_ended")
	f.handshake.failQueued(text, data, out)
	f.calls.failAll(text, data, out)
	for _, w := range f.listen.waiters {
		refuse(w.id, jsonrpc.CodeInternalError, text, data, out)
	}
}

// reply answers a request of the client. A nil result is {}.
func reply(id jsonrpc.ID, result []byte, out *era.Out) {
	out.Client(jsonrpc.NewResult(id, result).WithRelated(id))
}

// refuse answers a request of the client with an error.
func refuse(id jsonrpc.ID, code int, text string, data []byte, out *era.Out) {
	out.Client(jsonrpc.NewError(id, code, text, data).WithRelated(id))
}
