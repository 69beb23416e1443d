package legacysse

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// HandlerOptions tune a Handler. The zero value works; durations below zero
// mean "never" or "no limit" where that is said.
type HandlerOptions struct {
	// Guard checks Origin and Host, and who a request comes from. The zero value
	// admits loopback origins only, and everybody.
	Guard access.Policy

	// MessageURL returns the path of the endpoint for POSTs as the client of
	// the request r must see it: absolute, escaped, with a query or without.
	// nil: the path of the request for the stream, its last segment replaced
	// by "message", behind the prefix that a trusted proxy names (Guard.Prefix).
	MessageURL func(r *http.Request) string

	MaxMessageSize int // bytes in a body; more is answered 413. 0: 64 MiB
	MaxDepth       int // levels of objects and arrays in a message (J14). 0: jsonrpc.DefaultMaxDepth; negative: any number
	MaxSessions    int // sessions at once; a client beyond it is answered 503 with Retry-After, unless an idle session of a party with more gives way (admission.Controller); so is one beyond twice as many sessions whose servers may still be ending. 0: 1000
	MaxBatch       int // messages in a batch; one with more is refused (LI9). 0: 50

	KeepAlive  time.Duration // between comments on a silent stream (LI26). 0: 15 s; negative: none
	StallAfter time.Duration // a client that takes nothing of its event stream for that long, while there is something to write, is cut off. 0: 30 s; negative: never

	// SessionTimeout ends a session in which no message went either way for
	// so long, calls in progress or not. The stream itself shows that the client is there, so
	// that none need end so. 0 or negative: none ever does.
	SessionTimeout time.Duration

	// AcquirePlace is asked for a place when a bridge.Handler wants one for a session, before it starts
	// a server (admission.AcquireProcessPlace, which returns its error). nil: there always is one.
	AcquirePlace admission.AcquirePlaceFunc

	// Budget is the memory for what clients make the Handler hold: bodies of more than
	// 16 KiB that are being read or wait for their server. A body for which there is no room
	// is answered 503. It may be shared with others. nil: one of its own, for messages of
	// MaxMessageSize.
	Budget *budget.Budget

	Logger hclog.Logger // is told what happens; nil: silence
}

// withDefaults returns o with the defaults in the place of zero values.
func (o HandlerOptions) withDefaults() HandlerOptions {
	o.MaxMessageSize = cmp.Or(o.MaxMessageSize, 64<<20)
	o.MaxDepth = cmp.Or(o.MaxDepth, jsonrpc.DefaultMaxDepth)
	o.MaxSessions = cmp.Or(o.MaxSessions, 1000)
	o.MaxBatch = cmp.Or(o.MaxBatch, 50)
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.StallAfter = cmp.Or(o.StallAfter, httpserve.DefaultDeadline)
	if o.Budget == nil {
		o.Budget = budget.ForMessages(o.MaxMessageSize)
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// finalWriteTimeout is how long Close, and the end of a server, wait for a client to
// take what was said to it before.
const finalWriteTimeout = 5 * time.Second

// Deadlines are how long a client may take to send the body of a request, and to take the
// end of the reply (LI32). 0 means 30 seconds, negative means no limit. The
// method Handler(next http.Handler) http.Handler returns the handler to give to an
// http.Server. The timeouts of http.Server itself would also end event streams.
type Deadlines = httpserve.Deadlines

// Handler serves the two endpoints of HTTP+SSE to clients of the revisions
// 2024-11-05 to 2025-11-25 (docs/rules.md, SS): ServeSSE and ServeMessage. Serve both
// behind Deadlines, which bound the wait for the body of a request and for the end of a
// reply. The methods may be called concurrently.
type Handler struct {
	server bridge.Handler // serves the sessions
	opts   HandlerOptions // NewHandler's, with the defaults filled in

	control         *admission.Controller // the places of sessions
	wg              sync.WaitGroup        // counts the sessions, each until its client has taken what it was owed (finalWriteTimeout at most)
	bodies          httpserve.BodyLimits  // how large each body may be, and the memory for all bodies
	refusalWarnings access.WarningLimiter // how often the log is warned of refused requests, and of sessions for which there is no place

	mu       sync.Mutex          // guards sessions
	sessions map[string]*session // the sessions that have not ended, by their ids
}

// NewHandler makes a Handler that gives each session, as a bridge.Conn, to
// server. Close ends the Handler.
func NewHandler(server bridge.Handler, o HandlerOptions) *Handler {
	o = o.withDefaults()
	h := &Handler{server: server, opts: o, control: admission.New(o.MaxSessions, o.AcquirePlace), sessions: make(map[string]*session)}
	h.bodies.MaxBytes, h.bodies.Budget = o.MaxMessageSize, o.Budget
	h.bodies.PartyOf = h.opts.Guard.Party
	return h
}

// Close stops taking sessions, lets those there are finish what is in
// progress (for as long as their bridge.Handler takes: its context is done), ends
// them, and returns when all of them have ended and their clients have taken
// what they were owed, for which they have five seconds. It may be called more
// than once.
func (h *Handler) Close() error {
	h.control.Close()
	h.wg.Wait()
	return nil
}

// Sessions returns how many sessions there are. One that has ended does not
// count, although its server may still be on its way out.
func (h *Handler) Sessions() int { return h.control.Sessions() }

// admitRequest has the Guard check a request, and returns it with what the Guard has found out about
// its sender. nil: the request was answered, because it is refused, or is a preflight of CORS.
func (h *Handler) admitRequest(w http.ResponseWriter, r *http.Request) *http.Request {
	w.Header()["X-Content-Type-Options"] = valueNoSniff
	r, no := h.opts.Guard.Enter(w, r)
	if no != nil {
		h.logRefused(r, no.Reason)
		refuse(w, observe.WithCause(r, no.Cause), no.Rule, no.Status, jsonrpc.ID{}, no.Reason)
		return nil
	}
	return r
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

// startSession makes a session and lets the bridge.Handler serve it in a goroutine of its
// own. The error is that of admission.Controller.AcquireLazily.
func (h *Handler) startSession(r *http.Request) (*session, error) {
	slot, err := h.control.AcquireLazily(identity.WithParty(r.Context(), h.opts.Guard.Party(r)))
	if err != nil {
		return nil, err
	}
	s := newSession(access.Principal(r))
	s.ctx = slot.Context()
	s.onEnd = func() {
		h.mu.Lock()
		delete(h.sessions, s.id)
		h.mu.Unlock()
		slot.ClientGone()
	}
	h.mu.Lock()
	h.sessions[s.id] = s
	h.mu.Unlock()
	s.origin.Remote, s.origin.Principal = h.opts.Guard.RemoteAddr(r), s.owner
	h.wg.Go(func() { h.serve(slot, s, access.TokenContext(r)) })
	return s, nil
}

// errTokenRemoved is why a session ends whose token was removed.
var errTokenRemoved = errors.New("there is no token any more for who has opened the session")

// serve is the goroutine of a session: it runs the bridge.Handler, and waits until the client has
// taken what it was owed. tokenCtx is done when the token that opened the session is removed, which
// ends the session at once, or has expired: then the calls in progress may be answered first.
func (h *Handler) serve(slot *admission.Slot, s *session, tokenCtx context.Context) {
	ctx, cancel := context.WithCancelCause(slot.Context())
	defer cancel(nil)
	defer context.AfterFunc(tokenCtx, func() {
		if context.Cause(tokenCtx) == access.ErrExpired { // calls in progress may be answered
			s.stopTaking()
			cancel(access.ErrExpired)
			return
		}
		s.end(errTokenRemoved)
	})()
	s.ctx = ctx
	s.origin.DescribeEnd = s.endText
	h.endSession(slot, s, h.server.ServeConn(observe.WithOrigin(identity.WithPrincipal(ctx, s.owner), &s.origin), s))
}

// endSession ends a session whose bridge.Handler has returned err, gives its place (slot) back, and waits for the end of
// its event stream, finalWriteTimeout at most. It tells the log of a failure, and that a place was reclaimed, unless an
// Observer is told. It is not inlined into serve, because a
// goroutine that waits there should need little stack: there are as many as there are sessions.
//
//go:noinline
func (h *Handler) endSession(slot *admission.Slot, s *session, err error) {
	s.in.freeShares()
	if how, failed := s.endText(err); !s.origin.Observed() && failed {
		h.logEnded(s, err)
	} else if !s.origin.Observed() && context.Cause(slot.Context()) == bridge.ErrReclaimed {
		h.opts.Logger.Info("session ended: "+how, "session", s.logName())
	}
	s.end(errSessionEnded)
	slot.Release()
	t := time.NewTimer(finalWriteTimeout)
	defer t.Stop()
	select {
	case <-s.streamEnded:
	case <-t.C:
	}
}

// endText returns how the session has ended, in words for the log. err is what its bridge.Handler has
// returned. failed: the end is worth a warning.
func (s *session) endText(err error) (text string, failed bool) {
	why := s.endCause()
	switch {
	case err != nil && !(why != nil && errors.Is(err, why)) && !(s.ctx.Err() != nil && errors.Is(err, context.Canceled)):
		return err.Error(), true
	case why != nil && why != errSessionEnded: // Close does not know why
		return why.Error(), false
	case context.Cause(s.ctx) == bridge.ErrReclaimed:
		return "it was idle, and its place goes to another client, who has fewer than " + identity.Party(s.ctx), false
	case context.Cause(s.ctx) == access.ErrExpired:
		return access.ErrExpired.Error(), false
	case s.ctx.Err() != nil:
		return "the bridge ends it", false
	}
	return "the server has ended it", false
}

// logEnded warns that a session has ended with an error. If there was no place for the
// session, it warns only now and then: clients try again.
func (h *Handler) logEnded(s *session, err error) {
	level := hclog.Warn
	if errors.Is(err, bridge.ErrBusy) && !h.refusalWarnings.Allow() {
		level = hclog.Debug
	}
	h.opts.Logger.Log(level, "session ended", "session", s.logName(), "error", err)
}

// findSession returns the session with this id; nil: there is none (any more), or it belongs
// to another principal than the sender of r (SS3, SS4).
func (h *Handler) findSession(r *http.Request, id string) *session {
	h.mu.Lock()
	s := h.sessions[id]
	h.mu.Unlock()
	if s == nil || s.owner != access.Principal(r) {
		return nil
	}
	return s
}

// refuse answers a request with this HTTP status, and a JSON-RPC error (invalid request) with this id
// (zero: none) and text. rule is the rule of docs/rules.md that the request breaks.
func refuse(w http.ResponseWriter, r *http.Request, rule string, status int, id jsonrpc.ID, text string) {
	httpserve.WriteError(w, r, rule, status, jsonrpc.CodeInvalidRequest, id, text)
}
