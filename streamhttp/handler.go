package streamhttp

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// HandlerOptions tune a Handler. The zero value works; durations below zero
// mean "never" or "no limit" where that is said.
type HandlerOptions struct {
	// Guard checks Origin and Host, and who a request comes from. The zero value
	// admits loopback origins only, and everybody.
	Guard access.Policy

	// AcquirePlace is asked for a place before a session is made, or with Stateless
	// before a request is served. The POST waits until AcquirePlace returns. If it returns
	// an error, the answer is 503 with Retry-After. The place is given back when the session
	// or the request has ended. nil: everybody is admitted.
	AcquirePlace admission.AcquirePlaceFunc

	// Modern serves requests of revision 2026-07-28, which have no session: it is
	// called once for each that is valid, in net/http's goroutine, with a bridge.Conn that is
	// one request long. Receive hands on the request, in the caller's goroutine, so that
	// the sink may do all that there is to do; if the client is lost before the answer,
	// Receive hands on a notifications/cancelled too; then it returns io.EOF. The
	// response that is sent ends the exchange. The context is done when the client is
	// lost, so that nothing can be sent any more: it has hung up (it may take 20 ms until
	// that is known), takes nothing for StallAfter, or its token was revoked (of
	// subscriptions/listen also: has expired).
	// With bridge.ErrClosing as its cause the Handler is being closed: the client
	// is still there. nil: such requests are refused (MI9).
	Modern bridge.Handler

	// Eras says whom to serve. Without Modern it is era.OnlyLegacy.
	Eras era.Eras

	// ToolSchema returns the input schema of the tool, by its name, that call, a modern tools/call, is
	// for. The Mcp-Param headers of the call are checked with it (MI22). known is false if it cannot be had;
	// then, and with a nil ToolSchema, the headers are not checked. ctx is done when the call is over or
	// its client gone.
	ToolSchema func(ctx context.Context, call jsonrpc.Message, tool string) (inputSchema []byte, known bool)

	// RawNames admits Mcp-Name headers in plain UTF-8 beside those that are
	// encoded as the revision says (MI6): there are clients that send them.
	RawNames bool

	// Stateless makes each legacy POST with requests in it a session of its own, for which the
	// bridge.Handler is called, and which ends when they are answered or the client has gone. There
	// are no session ids then, and no streams to resume or to listen to; nobody can answer the server's
	// requests. A POST without requests is answered 202, and reaches no server.
	Stateless bool

	MaxMessageSize int           // bytes in a body; more is answered 413. A legacy body that belongs to no session may have 1 MiB at most, but with Stateless as much as any. 0: 64 MiB
	MaxDepth       int           // levels of objects and arrays in a message (J14). 0: jsonrpc.DefaultMaxDepth; negative: any number
	MaxSessions    int           // sessions at once; a client beyond it is answered 503 with Retry-After, unless an idle session of a party with more gives way (admission.Controller); so is one beyond twice as many sessions whose servers may still be ending. With Stateless, it counts POSTs. 0: 1000
	MaxExchanges   int           // modern requests at once; more are answered 503 with Retry-After, as is one of a party that has more in progress than are still free. 0: 20 x MaxSessions
	MaxBatch       int           // messages in a batch; one with more is refused (LI9). 0: 50
	SessionTimeout time.Duration // a session ends when its client has had no exchange, such as an open stream, for so long; with calls in progress not before an hour (LI30). 0: 30 min; negative: none ends so. A session whose client has left before initialize was answered ends after a minute in any case

	// CommitAfter is how long the reply to a POST waits for the whole answer, to be plain JSON; then it
	// turns into an SSE stream (LI7), whether or not the server has taken the request by then. Any other
	// message of the server makes it one before. The reply to initialize, and with Stateless each,
	// waits for ten seconds. 0: 50 ms.
	CommitAfter time.Duration

	// ModernCommitAfter is how long the status of the reply to a modern request may
	// wait for its first message; then it becomes an SSE stream (MI13). 0: 10 s.
	ModernCommitAfter time.Duration

	KeepAlive   time.Duration // between comments on a silent SSE stream (LI26). 0: 15 s; negative: none
	StallAfter  time.Duration // a client that takes nothing of what is written to it for that long is cut off. 0: 30 s; negative: never
	HoldTimeout time.Duration // how long a server request waits for a stream (B.3); then the bridge refuses it. 0: 10 s

	ReplayBytes  int           // how many bytes of events that were written a session keeps for resumption; as many more may wait on streams that nobody reads, and in each list of what has no stream yet. 0: 4 MiB
	ReplayEvents int           // how many events that were written a session keeps for resumption; as many more may wait on streams that nobody reads. 0: 10,000
	ReplayAge    time.Duration // how long an event is kept for resumption, and a stream with events that wait for its client to come back. 0: 5 min

	// Budget is the memory for what clients make the Handler hold: bodies of more than
	// 16 KiB that are being read or wait for their server. A body for which there is no room
	// is answered 503. It may be shared with others. nil: one of its own, for messages of
	// MaxMessageSize.
	Budget *budget.Budget

	// ResumeBudget is the memory for events that all sessions together keep for clients that
	// come back (LI16, LI17). If there is no room for one more event, its session drops older
	// events of its own. It may be shared with others. nil: one of its own, of DefaultResumeBytes.
	ResumeBudget *budget.Budget

	Logger hclog.Logger // is told what happens; nil: silence
}

// DefaultResumeBytes is how many bytes all sessions of a Handler together keep for resumption at most, without a
// HandlerOptions.ResumeBudget.
const DefaultResumeBytes = 256 << 20

// withDefaults returns o with the defaults in the place of zero values.
func (o HandlerOptions) withDefaults() HandlerOptions {
	o.MaxMessageSize = cmp.Or(o.MaxMessageSize, 64<<20)
	o.MaxDepth = cmp.Or(o.MaxDepth, jsonrpc.DefaultMaxDepth)
	o.MaxSessions = cmp.Or(o.MaxSessions, 1000)
	o.MaxExchanges = cmp.Or(o.MaxExchanges, 20*o.MaxSessions)
	o.MaxBatch = cmp.Or(o.MaxBatch, 50)
	o.ReplayBytes = cmp.Or(o.ReplayBytes, 4<<20)
	o.ReplayEvents = cmp.Or(o.ReplayEvents, 10_000)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, 30*time.Minute)
	o.CommitAfter = cmp.Or(o.CommitAfter, 50*time.Millisecond)
	o.ModernCommitAfter = cmp.Or(o.ModernCommitAfter, 10*time.Second)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.StallAfter = cmp.Or(o.StallAfter, httpserve.DefaultDeadline)
	o.HoldTimeout = cmp.Or(o.HoldTimeout, 10*time.Second)
	o.ReplayAge = cmp.Or(o.ReplayAge, 5*time.Minute)
	if o.Modern == nil {
		o.Eras = era.OnlyLegacy
	}
	if o.Budget == nil {
		o.Budget = budget.ForMessages(o.MaxMessageSize)
	}
	if o.ResumeBudget == nil {
		o.ResumeBudget = budget.New(DefaultResumeBytes)
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// initializeCommitAfter is how long the answer to initialize may take before its
// reply turns into an SSE stream. It is long because the session id, which is
// due only when initialize succeeds (LI20), must be sent with the headers. The reply to a stateless
// POST has as long, because a server is started for it (LI7).
const initializeCommitAfter = 10 * time.Second

// tidyInterval is how long it takes at most until sessions are looked at again for what has become too old: more
// often with a SessionTimeout or ReplayAge that is short.
const tidyInterval = 15 * time.Second

// Deadlines are how long a client may take to send the body of a request, and to take the
// end of the reply (LI32). 0 means 30 seconds, negative means no limit. The
// method Handler(next http.Handler) http.Handler returns the handler to give to an
// http.Server. The timeouts of http.Server itself would also end event streams.
type Deadlines = httpserve.Deadlines

// Handler serves one MCP endpoint over Streamable HTTP to clients of the
// revisions 2024-11-05 to 2025-11-25 (docs/rules.md, LI) and of 2026-07-28
// (MI). What a request says decides which of the two it is (ED). A Handler is an
// http.Handler; every path it is given is the endpoint. Serve it behind Deadlines, which
// bound the wait for the body of a request and for the end of a reply.
type Handler struct {
	server bridge.Handler // serves the sessions, and stateless POSTs, of legacy clients; nil only with era.OnlyModern
	opts   HandlerOptions // NewHandler's, with the defaults filled in

	control         *admission.Controller // the places of sessions and of stateless POSTs
	exchanges       exchanges             // the modern requests in progress
	tidyLoop        sync.WaitGroup        // waits for the goroutine of endIdleSessions
	bodies          httpserve.BodyLimits  // how large each body may be, and the memory for all bodies
	refusalWarnings access.WarningLimiter // how often the log is warned of requests that were refused, or not served

	mu       sync.Mutex          // guards sessions
	sessions map[string]*session // the sessions, and stateless POSTs, of legacy clients, by id, until they end
}

// NewHandler makes a Handler that gives each session of a legacy client, as a bridge.Conn, to
// server, which may be nil with era.OnlyModern. Close ends the Handler.
func NewHandler(server bridge.Handler, opts HandlerOptions) *Handler {
	opts = opts.withDefaults()
	h := &Handler{server: server, opts: opts, control: admission.New(opts.MaxSessions, opts.AcquirePlace), sessions: make(map[string]*session)}
	h.bodies.MaxBytes, h.bodies.Budget = opts.MaxMessageSize, opts.Budget
	h.bodies.PartyOf = h.opts.Guard.Party
	h.exchanges.watchDelay, h.exchanges.timer.Do = min(defaultWatchDelay, opts.ModernCommitAfter), h.exchanges.watchAll
	h.tidyLoop.Go(h.endIdleSessions)
	return h
}

// Close stops taking sessions and modern requests, lets those there are finish
// what is in progress (for as long as their bridge.Handler takes: its context is done),
// ends them, and returns when all of them have ended. It may be called more than once.
func (h *Handler) Close() error {
	h.exchanges.close()
	h.control.Close()
	h.exchanges.wait()
	h.tidyLoop.Wait()
	return nil
}

// Sessions returns how many sessions of legacy clients there are, with stateless POSTs. One that has ended does not
// count, although its server may still be on its way out.
func (h *Handler) Sessions() int { return h.control.Sessions() }

// ServeHTTP answers one request. The order of the checks is that of
// docs/rules.md, LI.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["X-Content-Type-Options"] = valueNoSniff
	known, no := h.opts.Guard.Enter(w, r)
	switch {
	case no != nil:
		h.logRefused(r, no.Reason)
		refuse(w, observe.WithCause(r, no.Cause), no.Rule, no.Status, no.Reason)
	case known != nil:
		h.dispatch(w, known)
	}
}

// logRefused tells the log that a request was refused, unless an Observer is told of it: as a
// warning now and then, otherwise at the level debug.
func (h *Handler) logRefused(r *http.Request, reason string) {
	if observe.FromContext(r.Context()) != nil {
		return
	}
	level := hclog.Debug
	if h.refusalWarnings.Allow() {
		level = hclog.Warn
	}
	h.opts.Logger.Log(level, "request refused", append([]any{"reason", reason}, h.opts.Guard.LogFields(r)...)...)
}

// dispatch answers a request that the Guard has let in.
func (h *Handler) dispatch(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		h.servePOST(w, r)
	case h.refuseModernMethod(w, r):
	case h.opts.Stateless:
		notAllowed(w, r, "POST")
	case r.Method == http.MethodGet:
		h.serveGET(w, r)
	case r.Method == http.MethodDelete:
		h.serveDELETE(w, r)
	default:
		notAllowed(w, r, "GET, POST, DELETE")
	}
}

// notAllowed answers a request with status 405; allowed is the Allow header.
func notAllowed(w http.ResponseWriter, r *http.Request, allowed string) {
	w.Header()["Allow"] = []string{allowed}
	refuse(w, r, "LI3", http.StatusMethodNotAllowed, "method "+r.Method+" is not allowed here; allowed: "+allowed)
}

// serveDELETE ends a session at its client's wish (LI23).
func (h *Handler) serveDELETE(w http.ResponseWriter, r *http.Request) {
	s := h.findSession(w, r, jsonrpc.ID{})
	if s == nil {
		return
	}
	h.opts.Logger.Debug("session deleted by its client", "session", s.logName())
	s.end("the session was deleted")
	w.WriteHeader(http.StatusNoContent)
}

// findSession returns the session that a request names. nil: something is wrong with its headers, or
// its principal has no such session, and the request was answered (LI21, LI24). id is the one that an error
// has to carry; zero: none.
func (h *Handler) findSession(w http.ResponseWriter, r *http.Request, id jsonrpc.ID) *session {
	if len(r.Header[wire.HeaderSession]) > 1 || len(r.Header[wire.HeaderVersion]) > 1 {
		refuseID(w, r, "LI21", http.StatusBadRequest, id, "the headers Mcp-Session-Id and MCP-Protocol-Version may each be sent once")
		return nil
	}
	name := r.Header.Get(wire.HeaderSession)
	if name == "" {
		text := "the Mcp-Session-Id header is missing; begin with an initialize request"
		if r.Method == http.MethodGet { // most often a client of the older transport, which begins so
			text = "the Mcp-Session-Id header is missing; begin with an initialize request, by POST. This is the endpoint of Streamable HTTP: that of HTTP+SSE is mostly /sse"
		}
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			text = "this is the endpoint of Streamable HTTP, not of WebSocket, whose path mostly ends in /ws"
		}
		refuseID(w, r, "LI21", http.StatusBadRequest, id, text)
		return nil
	}
	s := h.namedSession(r)
	if s == nil {
		refuseID(w, r, "LI21", http.StatusNotFound, id, noSuchSessionText)
		return nil
	}
	if v := r.Header.Get(wire.HeaderVersion); v != "" && !isKnownVersion(v) {
		refuseID(w, r, "LI24", http.StatusBadRequest, id, unsupportedVersionText)
		return nil
	}
	observe.SetExchangeOrigin(w, &s.origin)
	return s
}

// unsupportedVersionText is the error text for an MCP-Protocol-Version header that names no known legacy revision.
const unsupportedVersionText = "unsupported MCP-Protocol-Version; supported: " + supportedVersions

// noSuchSessionText is the error text for an Mcp-Session-Id that names no session of the client.
const noSuchSessionText = "there is no such session (it may have ended); begin anew with an initialize request"

// namedSession returns the session that a request names; nil: there is none, or another principal's.
func (h *Handler) namedSession(r *http.Request) *session {
	name := r.Header.Get(wire.HeaderSession)
	if name == "" {
		return nil
	}
	h.mu.Lock()
	s := h.sessions[name]
	h.mu.Unlock()
	if s == nil || s.owner != principal(r) {
		return nil
	}
	return s
}

// endIdleSessions is a goroutine of the Handler: every so often it ends idle sessions and drops old
// events, until Close.
func (h *Handler) endIdleSessions() {
	every := tidyInterval
	if t := h.opts.SessionTimeout; t > 0 {
		every = min(every, max(t/4, 10*time.Millisecond))
	}
	every = min(every, max(h.opts.ReplayAge/2, 10*time.Millisecond))
	tick := time.NewTicker(every)
	defer tick.Stop()
	var all []*session
	for {
		select {
		case <-h.control.Context().Done():
			return
		case now := <-tick.C:
			all = all[:0]
			h.mu.Lock()
			for _, s := range h.sessions {
				all = append(all, s)
			}
			h.mu.Unlock()
			for _, s := range all {
				if s.tidy(now) {
					if !s.origin.Observed() {
						h.opts.Logger.Info("session ended: idle for too long", "session", s.logName())
					}
					s.end("the session was idle for too long")
				}
			}
			clear(all)
		}
	}
}

// refuse answers a request with this HTTP status, and a JSON-RPC error (invalid request) with this
// text and no id. rule is the rule of docs/rules.md that the request breaks.
func refuse(w http.ResponseWriter, r *http.Request, rule string, status int, text string) {
	httpserve.Refuse(w, r, rule, status, text)
}

// refuseID answers a request with this HTTP status, and a JSON-RPC error (invalid request) with this text and id, that
// of the request that is answered; zero: none. rule is the rule of docs/rules.md that the request breaks.
func refuseID(w http.ResponseWriter, r *http.Request, rule string, status int, id jsonrpc.ID, text string) {
	httpserve.WriteError(w, r, rule, status, jsonrpc.CodeInvalidRequest, id, text)
}
