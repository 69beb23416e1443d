package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/turns"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Options configures a Filter. The zero value works for clients that accept no
// input requests; the others need a Sealer.
type Options struct {
	// Capabilities are declared to the server; ProjectCapabilities returns them. Nil
	// or {}: none, so that the server may not send input requests.
	Capabilities []byte

	// ClientInfo is the raw clientInfo of initialize. If it is nil, or not valid, the
	// bridge's own is sent.
	ClientInfo []byte

	// Principal is whose calls the Filter gets; "": nobody has authenticated. It becomes part of the State
	// of a parked call, and the retry must match it.
	Principal string

	// Unit is the shared server whose calls the Filter gets. It becomes part of the State of a parked call,
	// and the retry must match it.
	Unit string

	// ServerRun names the start of the server to which the Filter belongs: no two starts have the same. It becomes
	// part of the State of a parked call, and the retry must match it.
	ServerRun string

	// Sealer seals the States. Nil: calls are not parked, and input requests of the
	// server are refused.
	Sealer *era.Sealer

	// ParkTimeout is how long a parked call waits for its retry. 0: 10 minutes.
	ParkTimeout time.Duration

	// MaxParked is how many calls may be parked at a time, which means that they wait for the client's retry
	// with the answers to input requests. Input requests of further calls are refused. 0: 100.
	MaxParked int
}

// canAsk reports whether calls are parked (there is a Sealer), and the server is told that clients
// accept input requests.
func (o *Options) canAsk() bool {
	has := func(capability string) bool { return shape.Member(o.Capabilities, capability) != nil }
	return o.Sealer != nil && (has("elicitation") || has("sampling") || has("roots"))
}

// Filter is an era.Filter that makes a legacy server look modern (C.1, C.3, C.4,
// C.5). Make one with New.
//
// Requests of clients wait in handshake until the server has answered initialize,
// and then become calls. Before a call is sent it may wait for a log level (logRouter),
// for the list of tools (taskTools) and for its turn (turns). Input requests of the
// server go to parking, which parks the call until the client retries it.
//
// Order: what the server sends reaches a client in the same order. Calls reach the
// server in the order in which they come, except for those that wait.
type Filter struct {
	timers           timers.Timers      // the timers of all the others
	ownRequests      ownRequests        // requests that the Filter itself sends to the server
	handshake        handshake          // initialize, and requests that wait for its answer
	resultTranslator resultTranslator   // makes results modern
	calls            calls              // the clients' requests that the server works on
	turns            turns.Turns[*call] // which calls may be at the server at a time
	parking          parking            // calls whose client is asked for input
	logRouter        logRouter          // the server's log level and log messages
	taskTools        taskTools          // which tools must run as tasks
	taskRunner       taskRunner         // runs calls as tasks
	subscriptions    subscriptions      // the clients' subscriptions/listen
	lastMeta         lastMeta           // the _meta of an earlier request: one that has the same need not be read again
}

var _ era.Filter = (*Filter)(nil)

// New returns the Filter for one connection to a legacy server. The ids and
// progress tokens of requests must be unique over all of its clients.
func New(o Options) *Filter {
	if o.ParkTimeout == 0 {
		o.ParkTimeout = 10 * time.Minute
	}
	if o.MaxParked == 0 {
		o.MaxParked = 100
	}
	if !shape.IsObject(o.Capabilities) {
		o.Capabilities = []byte("{}")
	}
	f := &Filter{}
	f.handshake = handshake{timers: &f.timers, ownRequests: &f.ownRequests, resultTranslator: &f.resultTranslator, onOpened: f.serveHeld}
	f.turns = turns.New(&f.timers, f.calls.proceed)
	f.logRouter = logRouter{timers: &f.timers, ownRequests: &f.ownRequests, calls: &f.calls, taskRunner: &f.taskRunner, onePrincipal: o.Principal != "",
		resumeCall: f.calls.continueAfterLevel, serverRank: len(era.LogLevels), settingRank: len(era.LogLevels)}
	f.taskTools = taskTools{timers: &f.timers, ownRequests: &f.ownRequests, resumeCall: f.calls.continueAfterTools}
	f.taskRunner = taskRunner{timers: &f.timers, ownRequests: &f.ownRequests, calls: &f.calls}
	f.subscriptions = subscriptions{timers: &f.timers, ownRequests: &f.ownRequests, handshake: &f.handshake, resultTranslator: &f.resultTranslator}
	f.parking = parking{timers: &f.timers, calls: &f.calls, turns: &f.turns, logRouter: &f.logRouter, maxParked: o.MaxParked, declaredCapabilities: o.Capabilities,
		openRequests: make(map[jsonrpc.ID]*inputRequest), parkedCalls: make(map[string]*call),
		states: stateIssuer{sealer: o.Sealer, timeout: o.ParkTimeout, unit: o.Unit, serverRun: o.ServerRun, principal: o.Principal, resultTranslator: &f.resultTranslator}}
	f.calls = calls{canAsk: o.canAsk(), ownRequests: &f.ownRequests, resultTranslator: &f.resultTranslator, turns: &f.turns, logRouter: &f.logRouter, taskTools: &f.taskTools,
		taskRunner: &f.taskRunner, parking: &f.parking, byClientID: make(map[jsonrpc.ID]*call), byServerID: make(map[jsonrpc.ID]*call), byToken: make(map[jsonrpc.ID]*call)}
	f.handshake.clientInfo, f.handshake.clientCapabilities = o.ClientInfo, o.Capabilities
	return f
}

// Parked returns how many calls are parked: their clients got input_required, and have not retried them yet. It is safe
// for concurrent use.
func (f *Filter) Parked() int { return int(f.parking.parkedCount.Load()) }

// HasFailed reports whether initialize has failed: the server has refused it, has not
// answered within a minute, or has answered with a version that the bridge does not know.
// The requests that waited were refused; the caller must close the connection and
// may try another one (D4). After an answer that is only late it is false again. It is
// safe for concurrent use.
func (f *Filter) HasFailed() bool { return f.handshake.failed.Load() }

// Start implements era.Filter: it sends initialize to the server.
func (f *Filter) Start(now time.Time, out *era.Out) { f.handshake.start(now, out) }

// FromClient implements era.Filter: a modern client's request is answered, or made one that the legacy server understands.
func (f *Filter) FromClient(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Kind() {
	case jsonrpc.Request:
		if f.handshake.admitRequest(m, out) {
			f.serve(now, m, out)
		}
	case jsonrpc.Notification:
		if m.Method() == "notifications/cancelled" {
			f.handleCancelled(now, m, out)
			return
		}
		out.Drop(m, "a modern client has no such notification")
	default:
		out.Drop(m, "a modern client sends no responses") // ST10
	}
}

// serveHeld is called when the server has answered initialize with a result: it notes what the server can do, and serves
// held, the requests that have waited.
func (f *Filter) serveHeld(now time.Time, held []jsonrpc.Message, out *era.Out) {
	f.logRouter.supported = shape.Member(f.handshake.capabilities, "logging") != nil
	f.taskRunner.cancellable = shape.IsObject(shape.Member(shape.Member(f.handshake.capabilities, "tasks"), "cancel"))
	f.taskTools.start(now, &f.handshake, out)
	f.taskRunner.supported = f.taskTools.supported
	for _, m := range held {
		f.serve(now, m, out)
	}
}

// serve takes a client's request after the server has answered initialize.
func (f *Filter) serve(now time.Time, m jsonrpc.Message, out *era.Out) {
	r := readRequest(m, &f.lastMeta)
	if r.refusal != nil {
		out.Client(r.refusal.Response(r.id).WithRelated(r.id))
		return
	}
	if f.calls.byClientID[r.id] != nil || f.subscriptions.isListening(r.id) {
		refuse(r.id, jsonrpc.CodeInvalidRequest, "a request with this id is in progress", nil, out) // J3
		return
	}
	switch r.method {
	case "server/discover":
		out.Client(f.resultTranslator.makeResponse(r.id, r.method, f.handshake.discoverResult))
	case "subscriptions/listen":
		f.subscriptions.handleListen(now, r, out)
	case "", "tasks/get", "tasks/update", "tasks/cancel": // the extension for tasks is not advertised (C.5)
		out.Client(era.MethodNotFound(r.method).Response(r.id).WithRelated(r.id))
	default:
		switch {
		case era.IsRemovedMethod(r.method):
			out.Client(era.MethodNotFound(r.method).Response(r.id).WithRelated(r.id))
		case r.requestState != nil:
			f.parking.handleRetry(now, r, out)
		default:
			f.calls.begin(now, r, out)
		}
	}
}

// handleCancelled takes a client's notifications/cancelled. The client hears nothing
// more of the request (J12). A parked call cannot be cancelled, because the client's
// request has been answered.
func (f *Filter) handleCancelled(now time.Time, m jsonrpc.Message, out *era.Out) {
	id := m.CancelledID()
	switch {
	case f.handshake.removeHeld(id):
	case f.subscriptions.isListening(id):
		f.subscriptions.endListen(now, id)
	default:
		f.calls.handleCancelled(now, id, m.Lookup("params", "reason"), out)
	}
}

// FromServer implements era.Filter: a legacy server's response or notification goes to the clients that it is for. An
// input request of the server parks the call during which it came, whose client is asked; a ping is answered, and any
// other request is refused.
func (f *Filter) FromServer(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Kind() {
	case jsonrpc.Request:
		f.handleRequest(now, m, out)
	case jsonrpc.Notification:
		f.handleNotification(now, m, out)
	case jsonrpc.Response:
		if !f.calls.handleResponse(now, m, out) && !f.ownRequests.handleResponse(now, m, out) {
			out.Drop(m, "a response to nothing that is in progress") // J12
		}
	}
}

// handleRequest takes a request of the server.
func (f *Filter) handleRequest(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch method := m.Method(); {
	case method == "ping":
		out.Server(jsonrpc.NewResult(m.ID(), nil))
	case !isInputRequest(method):
		out.Server(jsonrpc.NewError(m.ID(), jsonrpc.CodeMethodNotFound, "there is no method "+method, nil))
	default:
		f.parking.handleRequest(now, m, out)
	}
}

// handleNotification takes a notification of the server.
func (f *Filter) handleNotification(now time.Time, m jsonrpc.Message, out *era.Out) {
	switch m.Method() {
	case "notifications/progress":
		f.calls.forwardProgress(m, out)
	case "notifications/message":
		f.logRouter.forwardMessage(now, m, out)
	case "notifications/cancelled":
		f.parking.handleCancelled(m)
	case "notifications/tasks/status":
		f.taskRunner.handleStatus(now, m, out)
	case "notifications/tools/list_changed":
		f.taskTools.handleChanged(now, out)
		f.subscriptions.fanOut(m, out)
	case "notifications/prompts/list_changed", "notifications/resources/list_changed", "notifications/resources/updated":
		f.subscriptions.fanOut(m, out)
	default:
		out.Drop(m, "no notification of "+era.NewestModern)
	}
}

// Due implements era.Filter: it returns when the next of the timers fires; zero: there is none.
func (f *Filter) Due() time.Time { return f.timers.Next() }

// Tick implements era.Filter: it fires the timers that are due.
func (f *Filter) Tick(now time.Time, out *era.Out) { f.timers.FireDue(now, out) }

// ServerEnded answers every call with -32603 and data.reason "server_ended", but for
// those that the server has not got, if it was initialized: they are Unsent. It
// does not answer open subscriptions/listen: the caller knows whether they end or
// are opened again at the next server (ST9). Retries of parked calls reach another
// Filter with another ServerRun, which refuses them.
func (f *Filter) ServerEnded(now time.Time, err error, unwritten []jsonrpc.ID, out *era.Out) {
	text := "the server has ended"
	if err != nil {
		text += ": " + err.Error()
	}
	f.handshake.failHeld(text, out)
	f.calls.failAll(text, unwritten, out)
	f.parking.forgetAll()
	f.timers = timers.Timers{}
}
