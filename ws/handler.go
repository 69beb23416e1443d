package ws

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/coder/websocket"
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

// HandlerOptions tune a Handler. The zero value works.
type HandlerOptions struct {
	// Guard says who may connect. The zero value keeps web pages out, but for those of loopback origins, and asks nobody
	// for a token.
	Guard access.Policy

	MaxMessageSize int // how many bytes a client's message may have; a longer one ends the session with status 1009. 0: 64 MiB
	// how many levels of objects and arrays a client's message may have (J14). 0: jsonrpc.DefaultMaxDepth; negative:
	// any number
	MaxDepth int
	// how many clients there may be at once; a client beyond it is answered 503 with Retry-After, unless an idle session
	// of a party with more gives way (admission.Controller). So is one when, with the sessions whose servers are still
	// ending, there are twice as many. 0: 1000
	MaxSessions int
	MaxBatch    int // how many messages a client's batch may have; one with more is answered with an error (LI9). 0: 50

	// PingInterval is how often a client is pinged (WS5). A client from which nothing comes for 2.2 times as long is
	// gone. 0: 25 s; negative: never.
	PingInterval time.Duration

	// Budget is the memory for messages that are on their way from clients: being
	// received, or waiting for their server to take them. Messages of less than 64 KiB
	// do not count. A client for whose message there is none left is closed with status
	// 1013. It may be shared with others. nil: one of its own, for messages of
	// MaxMessageSize.
	//
	// Until a client has sent one valid message, its messages may have 1 MiB at
	// most (1009), whatever MaxMessageSize is.
	Budget *budget.Budget

	// ChunkTimeout is how long a client may take to send each 64 KiB of a message, or what there is of it; then it is
	// closed with status 1008. 0: 30 s; negative: no limit
	ChunkTimeout time.Duration

	// StallAfter is how long a client may take nothing of what it is sent; then it is cut off. 0: 30 s; negative: for
	// ever
	StallAfter time.Duration

	// SessionTimeout ends a session in which no message went either way for so long, calls in progress or not. (No
	// session needs it to end: pings find out whether the client is there.) 0 or negative: none ever does.
	SessionTimeout time.Duration

	// AcquirePlace is asked for a place when a bridge.Handler wants one for a session, before it starts a server
	// (admission.AcquireProcessPlace); who gets none is closed with status 1013. nil: there always is one.
	AcquirePlace admission.AcquirePlaceFunc

	// Logger is told what goes wrong; nil: nothing is logged
	Logger hclog.Logger
}

// withDefaults returns the options with defaults in the place of zeros.
func (o HandlerOptions) withDefaults() HandlerOptions {
	o.MaxMessageSize = cmp.Or(o.MaxMessageSize, defaultMaxMessageSize)
	o.MaxSessions = cmp.Or(o.MaxSessions, 1000)
	o.MaxDepth = cmp.Or(o.MaxDepth, jsonrpc.DefaultMaxDepth)
	o.ChunkTimeout = cmp.Or(o.ChunkTimeout, httpserve.DefaultDeadline)
	o.MaxBatch = cmp.Or(o.MaxBatch, defaultMaxBatch)
	o.PingInterval = cmp.Or(o.PingInterval, defaultPingInterval)
	o.StallAfter = cmp.Or(o.StallAfter, httpserve.DefaultDeadline)
	if o.Budget == nil {
		o.Budget = budget.ForMessages(o.MaxMessageSize)
	}
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
	server bridge.Handler // the bridge.Handler that serves each session
	opts   HandlerOptions // the HandlerOptions, with the defaults filled in

	control         *admission.Controller // gives the sessions their places; at Close it waits until they have left
	refusalWarnings access.WarningLimiter // limits the warnings about refused requests, forbidden messages, and sessions for which there is no place
	budgetWarnings  access.WarningLimiter // limits the warnings about sessions that the Budget has ended
}

// NewHandler makes a Handler that gives each session, as a bridge.Conn, to server. Close
// ends it.
//
// The reason with which the Conn is closed becomes the close status. When server's
// ServeConn returns, its error is the reason.
func NewHandler(server bridge.Handler, o HandlerOptions) *Handler {
	o = o.withDefaults()
	return &Handler{server: server, opts: o, control: admission.New(o.MaxSessions, o.AcquirePlace)}
}

// Close stops taking sessions, lets those there are finish what is in
// progress (for as long as their bridge.Handler takes: its context is done), ends
// them with status 1001, and returns when all of them have ended. It may be
// called more than once.
func (h *Handler) Close() error {
	h.control.Close()
	return nil
}

// Sessions returns how many sessions there are. One whose client is gone does
// not count, although its server may still be on its way out.
func (h *Handler) Sessions() int { return h.control.Sessions() }

// ServeHTTP upgrades a request to a WebSocket and serves its session; it
// returns when the session is over. What is wrong with the request is answered
// before the upgrade, with an HTTP status and a line of text (WS3).
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	r, no := h.opts.Guard.Enter(w, r)
	switch {
	case no != nil:
		h.logRefused(r, no.Reason)
		httpserve.RefuseText(w, observe.WithCause(r, no.Cause), no.Rule, no.Status, no.Reason)
		return
	case r == nil:
		return // it was a preflight
	case !checkUpgrade(w, r):
		return
	}
	slot, err := h.control.AcquireLazily(identity.WithParty(r.Context(), h.opts.Guard.Party(r)))
	if err != nil {
		if r.Context().Err() == nil { // somebody is left to tell
			h.logRefused(r, err.Error())
			httpserve.RefuseBusyText(w, r, admission.PublicReason(err), err)
		}
		return
	}
	defer slot.Release()
	h.serve(w, r, slot)
}

// logRefused logs that a request was refused, for this reason, unless an Observer is told of it. Of many refusals only
// some are warnings.
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

// logBudgetExhausted logs that a session was closed because the Budget had no room for its message. Of many only some
// are warnings.
func (h *Handler) logBudgetExhausted() {
	level := hclog.Debug
	if h.budgetWarnings.Allow() {
		level = hclog.Warn
	}
	h.opts.Logger.Log(level, "session closed: too much is being received", "limit", h.opts.Budget.Total())
}

// withAuthorization returns a Conn that is s without those of the client's messages that the Guard's Authenticator
// forbids; a request among them is answered with an error. r is the request that has opened the session.
func (h *Handler) withAuthorization(r *http.Request, s bridge.Conn) bridge.Conn {
	a := h.opts.Guard.Authenticator
	if a == nil {
		return s
	}
	return bridge.Intercept(s, bridge.Hooks{Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
		if no, refused := a.Forbidden(r, *m); refused {
			h.logRefused(r, "the client may not send "+m.Method())
			answer := no // no itself would always be allocated
			*m, reply = jsonrpc.Message{}, &answer
		}
		return reply
	}})
}

// serve upgrades the connection of r, has the bridge.Handler serve the session, closes it, and logs how it has ended.
// The place is slot.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, slot *admission.Slot) {
	up := &wireHijacker{ResponseWriter: w, stallTimeout: h.opts.StallAfter}
	socket, err := websocket.Accept(up, r, &websocket.AcceptOptions{
		Subprotocols:       []string{subprotocol}, // WS2: whoever offers none, or others only, gets none
		InsecureSkipVerify: true,                  // the Guard has looked at the Origin
	})
	if err != nil { // and was answered
		observe.Refuse(w, r, "WS3", http.StatusBadRequest, err.Error())
		h.opts.Logger.Debug("no WebSocket", "reason", err)
		return
	}
	s := newSession(h, slot, socket, up.wire, access.Principal(r), identity.Party(slot.Context()))
	seen := &observe.SessionOrigin{Remote: h.opts.Guard.RemoteAddr(r), Principal: s.owner, DescribeEnd: s.endText}
	defer s.endWithToken(access.TokenContext(r))()
	err = h.server.ServeConn(observe.WithOrigin(identity.WithPrincipal(s.ctx, s.owner), seen), h.withAuthorization(r, s))
	if how, failed := s.endText(err); !seen.Observed() && failed {
		level := hclog.Warn
		if errors.Is(err, bridge.ErrBusy) && !h.refusalWarnings.Allow() { // clients try again
			level = hclog.Debug
		}
		h.opts.Logger.Log(level, "session ended", "error", err)
	} else if !seen.Observed() && context.Cause(s.ctx) == bridge.ErrReclaimed {
		h.opts.Logger.Info("session ended: " + how)
	}
	_ = s.Close(err)
}
