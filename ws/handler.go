package ws

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/httpguard"
)

// HandlerOptions tune a Handler. The zero value works.
type HandlerOptions struct {
	// Guard says who may connect. The zero value admits loopback origins only.
	Guard httpguard.Policy

	MaxMessageSize int // bytes in a message; a longer one ends the session with status 1009. 0: 64 MiB
	MaxSessions    int // more are answered 503 with Retry-After, as are twice as many servers that run or are being stopped. 0: 1000
	MaxBatch       int // messages in a batch (LI9). 0: 50

	// PingInterval is how often a client is pinged (WS5). One from which
	// nothing comes for 2.2 times as long is gone. 0: 25 s; negative: never.
	PingInterval time.Duration

	StallAfter time.Duration // a client that takes nothing for that long is cut off. 0: 30 s; negative: never

	// SessionTimeout ends a session in which no message went either way for
	// so long, calls in progress or not. Pings show that the client is there,
	// so that none need end so. 0 or negative: none ever does.
	SessionTimeout time.Duration

	// Admit is asked for a place before a session is made. nil: there is one.
	Admit bridge.Admit

	Logger hclog.Logger // nil: silence
}

func (o HandlerOptions) withDefaults() HandlerOptions {
	o.MaxMessageSize = cmp.Or(o.MaxMessageSize, DefaultMaxMessageSize)
	o.MaxSessions = cmp.Or(o.MaxSessions, 1000)
	o.MaxBatch = cmp.Or(o.MaxBatch, defaultMaxBatch)
	o.PingInterval = cmp.Or(o.PingInterval, DefaultPingInterval)
	o.StallAfter = cmp.Or(o.StallAfter, DefaultStallAfter)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// Handler serves one MCP endpoint over WebSocket (docs/rules.md, WS). It is an
// http.Handler; every path it is given is the endpoint. A connection is a
// session: it begins with the upgrade and belongs to the Principal of that
// request; whichever side ends it ends the session (WS4).
type Handler struct {
	server bridge.Handler
	opts   HandlerOptions

	ctx     context.Context // done when the handler shuts down: sessions drain
	cancel  context.CancelFunc
	wg      sync.WaitGroup // requests for sessions that have a place
	refused warnings

	mu      sync.Mutex
	open    int // sessions whose client is there, and upgrades under way
	served  int // bridge.Handlers that run, and upgrades under way
	closing bool
}

// NewHandler makes a Handler that gives each session, as a bridge.Conn, to
// server. Close ends it.
//
// The Conn has one more method, CloseFor(err error) error: Close that tells the
// client by the close status whether the server has ended by error. The end of
// server's ServeConn closes a Conn that is still open like this.
func NewHandler(server bridge.Handler, o HandlerOptions) *Handler {
	h := &Handler{server: server, opts: o.withDefaults()}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close stops taking sessions, lets those there are finish what is in
// progress (their bridge.Handler's context is done; it bounds the wait), ends
// them with status 1001, and returns when all of them have ended. It may be
// called more than once.
func (h *Handler) Close() error {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	h.cancel()
	h.wg.Wait()
	return nil
}

// Sessions returns how many sessions there are. One whose client is gone does
// not count, although its server may still be on its way out.
func (h *Handler) Sessions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// ServeHTTP upgrades a request to a WebSocket and serves its session; it
// returns when the session is over. What is wrong with the request is answered
// before the upgrade, with an HTTP status and a line of text (WS3).
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r, no := h.opts.Guard.Enter(w, r)
	switch {
	case no != nil:
		level := hclog.Debug
		if h.refused.due(time.Now()) {
			level = hclog.Warn
		}
		h.opts.Logger.Log(level, "request refused", "reason", no.Reason, "remote", h.opts.Guard.RemoteAddr(r))
		http.Error(w, no.Reason, no.Status)
		return
	case r == nil:
		return // it was a preflight
	case !upgradable(w, r):
		return
	}
	if err := h.begin(); err != nil {
		busy(w, err)
		return
	}
	defer h.finish()
	leave, err := h.admit(r.Context())
	if err != nil {
		h.opts.Logger.Debug("session refused", "reason", err)
		h.clientGone()
		busy(w, bridge.ErrBusy) // what may wrap it is for the log
		return
	}
	defer leave()
	h.serve(w, r)
}

var (
	errTooMany = errors.New("too many sessions; try again later")
	errClosing = errors.New("the bridge is shutting down")
)

// begin takes a place for a session.
func (h *Handler) begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Servers that are still being stopped do not count, but cannot pile up.
	switch {
	case h.closing:
		return errClosing
	case h.open >= h.opts.MaxSessions || h.served >= 2*h.opts.MaxSessions:
		return errTooMany
	}
	h.open++
	h.served++
	h.wg.Add(1)
	return nil
}

// clientGone is called once for each begin, when there is no client any more.
func (h *Handler) clientGone() {
	h.mu.Lock()
	h.open--
	h.mu.Unlock()
}

// finish gives the place back.
func (h *Handler) finish() {
	h.mu.Lock()
	h.served--
	h.mu.Unlock()
	h.wg.Done()
}

// admit asks for a place, for as long as the client waits.
func (h *Handler) admit(ctx context.Context) (leave func(), err error) {
	if h.opts.Admit == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	return h.opts.Admit(ctx)
}

// busy answers a request that may succeed later.
func busy(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// serve upgrades the connection and runs the bridge.Handler for it.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	up := &upgrader{ResponseWriter: w, stall: h.opts.StallAfter}
	socket, err := websocket.Accept(up, r, &websocket.AcceptOptions{
		Subprotocols:       []string{subprotocol}, // WS2: whoever offers none, or others only, gets none
		InsecureSkipVerify: true,                  // the Guard has looked at the Origin
	})
	if err != nil { // and was answered
		h.opts.Logger.Debug("no WebSocket", "reason", err)
		h.clientGone()
		return
	}
	s := newSession(h, socket, up.wire, httpguard.Principal(r))
	h.opts.Logger.Debug("session opened", "remote", h.opts.Guard.RemoteAddr(r), "principal", s.owner)
	defer context.AfterFunc(httpguard.Standing(r), func() {
		s.close(websocket.StatusPolicyViolation, "there is no token any more for who has opened the session")
	})()
	err = h.server.ServeConn(s.ctx, s)
	if err != nil && !s.isGone(err) && !(s.ctx.Err() != nil && errors.Is(err, context.Canceled)) {
		h.opts.Logger.Warn("session ended", "error", err)
	}
	_ = s.CloseFor(err)
	h.opts.Logger.Debug("session closed", "how", s.err)
}

// warnings says which refusals are worth a warning: a web page must not be
// able to flood the log.
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
