package legacysse

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/httpguard"
	"github.com/mcp-bridge/mcp-bridge/httpserver"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// HandlerOptions tune a Handler. The zero value works; durations below zero
// mean "never" or "no limit" where that is said.
type HandlerOptions struct {
	// Guard says who may connect. The zero value admits loopback origins only.
	Guard httpguard.Policy

	// MessageURL returns the path of the endpoint for POSTs as the client of
	// the request r must see it: absolute, escaped, with a query or without.
	// nil: the path of the request for the stream, its last segment replaced
	// by "message", behind the prefix that a trusted proxy names (Guard.Prefix).
	MessageURL func(r *http.Request) string

	MaxMessageSize int // bytes in a body; more is answered 413. 0: 64 MiB
	MaxSessions    int // more are answered 503 with Retry-After, as are twice as many servers that run or are being stopped. 0: 1000
	MaxBodies      int // bytes of all bodies that are being read or wait for their server; beyond, 503. Negative: no limit. 0: 4 x MaxMessageSize
	MaxBatch       int // messages in a batch (LI9). 0: 50

	KeepAlive   time.Duration // between comments on a silent stream (LI26). 0: 15 s; negative: none
	BodyTimeout time.Duration // to send a request's body in. 0: 30 s; negative: no limit
	StallAfter  time.Duration // a reader that takes nothing for that long is cut off. 0: 30 s; negative: never

	// SessionTimeout ends a session in which no message went either way for
	// so long, calls in progress or not. The stream itself shows that the client is there, so
	// that none need end so. 0 or negative: none ever does.
	SessionTimeout time.Duration

	// Admit is asked for a place before a session is made. nil: there is one.
	Admit bridge.Admit

	Logger hclog.Logger // nil: silence
}

func (o HandlerOptions) withDefaults() HandlerOptions {
	number := func(p *int, d int) {
		if *p == 0 {
			*p = d
		}
	}
	duration := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	number(&o.MaxMessageSize, 64<<20)
	number(&o.MaxBodies, 4*o.MaxMessageSize)
	number(&o.MaxSessions, 1000)
	number(&o.MaxBatch, 50)
	duration(&o.KeepAlive, 15*time.Second)
	duration(&o.BodyTimeout, 30*time.Second)
	duration(&o.StallAfter, 30*time.Second)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// lastWords is how long Close, and the end of a server, wait for a client to
// take what was said to it before.
const lastWords = 5 * time.Second

// Handler serves the two endpoints of HTTP+SSE to clients of the revisions
// 2024-11-05 to 2025-11-25 (docs/rules.md, SS): ServeSSE and ServeMessage.
type Handler struct {
	server bridge.Handler
	opts   HandlerOptions

	ctx     context.Context // done when the handler shuts down: sessions drain
	cancel  context.CancelFunc
	wg      sync.WaitGroup // sessions
	bodies  httpserver.Bodies
	refused warnings

	mu       sync.Mutex
	sessions map[string]*session // by id, until they end
	served   int                 // places taken: of sessions, and of ended ones whose server is not gone yet
	closing  bool
}

// NewHandler makes a Handler that gives each session, as a bridge.Conn, to
// server. Close ends it.
func NewHandler(server bridge.Handler, o HandlerOptions) *Handler {
	o = o.withDefaults()
	h := &Handler{server: server, opts: o, sessions: make(map[string]*session)}
	h.bodies.Max, h.bodies.Total, h.bodies.Timeout = o.MaxMessageSize, o.MaxBodies, o.BodyTimeout
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close stops taking sessions, lets those there are finish what is in
// progress (their bridge.Handler's context is done; it bounds the wait), ends
// them, and returns when all of them have ended and their clients have taken
// what they were owed, for which they have five seconds. It may be called more
// than once.
func (h *Handler) Close() error {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	h.cancel()
	h.wg.Wait()
	return nil
}

// Sessions returns how many sessions there are. One that has ended does not
// count, although its server may still be on its way out.
func (h *Handler) Sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

// begin does what every request needs first. It returns nil when the request
// was answered: it was refused, or it was a preflight.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request) *http.Request {
	h.bodies.Expect(w, r)
	w.Header()["X-Content-Type-Options"] = valueNoSniff
	r, no := h.opts.Guard.Enter(w, r)
	if no != nil {
		level := hclog.Debug
		if h.refused.due(time.Now()) {
			level = hclog.Warn
		}
		h.opts.Logger.Log(level, "request refused", "reason", no.Reason, "remote", h.opts.Guard.RemoteAddr(r))
		refuse(w, r, no.Status, jsonrpc.ID{}, no.Reason)
		return nil
	}
	return r
}

// end gives the last bytes of a reply, which net/http sends after a handler
// has returned, a deadline.
func (h *Handler) end(w http.ResponseWriter) {
	if h.opts.StallAfter > 0 {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.opts.StallAfter))
	}
}

var (
	errTooMany = errors.New("too many sessions; try again later")
	errClosing = errors.New("the bridge is shutting down")

	errNoStanding = errors.New("there is no token any more for who has opened the session")
)

// start makes a session and lets the bridge.Handler serve it. The error is
// errTooMany, errClosing, or Admit's.
func (h *Handler) start(r *http.Request) (*session, error) {
	s := newSession(httpguard.Principal(r))
	ctx, cancel := context.WithCancel(h.ctx)
	s.onEnd = func() {
		cancel()
		h.mu.Lock()
		delete(h.sessions, s.id)
		h.mu.Unlock()
	}
	if err := h.enter(s); err != nil {
		cancel()
		return nil, err
	}
	leave, err := h.admit(r.Context())
	if err != nil {
		s.end(err)
		h.leave()
		return nil, err
	}
	go h.serve(ctx, s, leave, httpguard.Standing(r))
	return s, nil
}

// enter takes a place for a session. Who has one owes a leave.
func (h *Handler) enter(s *session) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return errClosing
	}
	// Servers that are still being stopped do not count, but cannot pile up.
	if len(h.sessions) >= h.opts.MaxSessions || h.served >= 2*h.opts.MaxSessions {
		return errTooMany
	}
	h.served++
	h.sessions[s.id] = s
	h.wg.Add(1)
	return nil
}

func (h *Handler) leave() {
	h.mu.Lock()
	h.served--
	h.mu.Unlock()
	h.wg.Done()
}

// admit asks for a place, for as long as the client and the Handler wait for one.
func (h *Handler) admit(ctx context.Context) (leave func(), err error) {
	if h.opts.Admit == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	leave, err = h.opts.Admit(ctx)
	if err == nil && h.ctx.Err() != nil {
		leave()
		return nil, errClosing
	}
	return leave, err
}

// serve runs the bridge.Handler for a session. ctx is done when the session
// has ended or the Handler shuts down; the session ends with the standing of
// who has opened it.
func (h *Handler) serve(ctx context.Context, s *session, leave func(), standing context.Context) {
	defer h.leave()
	defer context.AfterFunc(standing, func() { s.end(errNoStanding) })()
	err := h.server.ServeConn(ctx, s)
	leave()
	why := s.over()
	if err != nil && !(why != nil && errors.Is(err, why)) && !(ctx.Err() != nil && errors.Is(err, context.Canceled)) {
		h.opts.Logger.Warn("session ended", "session", s.tag(), "error", err)
	}
	s.end(errSessionEnded)
	t := time.NewTimer(lastWords)
	defer t.Stop()
	select {
	case <-s.written:
	case <-t.C:
	}
}

// find returns the session that a POST names, if its sender may use it; nil:
// there is none, or none any more (SS3, SS4).
func (h *Handler) find(r *http.Request, id string) *session {
	h.mu.Lock()
	s := h.sessions[id]
	h.mu.Unlock()
	if s == nil || s.owner != httpguard.Principal(r) {
		return nil
	}
	return s
}

// refuse answers a request with a JSON-RPC error of the code for what is no
// valid request.
func refuse(w http.ResponseWriter, r *http.Request, status int, id jsonrpc.ID, text string) {
	httpserver.WriteError(w, r, status, jsonrpc.CodeInvalidRequest, id, text)
}

// warnings keeps a web page that is refused again and again from flooding the
// log: a few in a quarter of a minute are worth a warning.
type warnings struct {
	mu    sync.Mutex
	since time.Time
	n     int
}

func (w *warnings) due(now time.Time) bool {
	const most, per = 10, 15 * time.Second
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.since) >= per {
		w.since, w.n = now, 0
	}
	w.n++
	return w.n <= most
}
