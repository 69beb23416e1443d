package streamhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/httpguard"
	"github.com/mcp-bridge/mcp-bridge/httpserver"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file makes sessions, as many as may be.

// principal names who is behind a request.
func principal(r *http.Request) string { return httpguard.Principal(r) }

var (
	errTooMany = errors.New("too many sessions; try again later")
	errClosing = errors.New("the bridge is shutting down")
)

// start asks for a place and lets a bridge.Handler serve the session, or
// answers its request, which has this id, with why not.
func (h *Handler) start(w http.ResponseWriter, r *http.Request, s *session, id jsonrpc.ID) (ok bool) {
	leave, err := h.admit(r.Context())
	if err == nil {
		if err = h.launch(s, leave, httpguard.Standing(r)); err == nil {
			return true
		}
		leave()
	}
	if r.Context().Err() != nil {
		return false // nobody is left to tell
	}
	h.logRefused(r, err.Error())
	if err != errTooMany && err != errClosing {
		err = bridge.ErrBusy // what it wraps is for the log
	}
	httpserver.Busy(w, r, id, err.Error())
	return false
}

// admit waits until there is a place for one more, for as long as the request
// and the Handler last.
func (h *Handler) admit(ctx context.Context) (leave func(), err error) {
	if h.opts.Admit == nil {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	leave, err = h.opts.Admit(ctx)
	switch {
	case err == nil && ctx.Err() != nil: // too late
		leave()
		return nil, ctx.Err()
	case err != nil && h.ctx.Err() != nil:
		return nil, errClosing
	}
	return leave, err
}

// launch enters the session and runs a bridge.Handler for it, after which it
// calls leave. The session ends with the standing of who has opened it.
func (h *Handler) launch(s *session, leave func(), standing context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return errClosing
	}
	// Servers that are still being stopped do not count, but cannot pile up.
	if len(h.sessions) >= h.opts.MaxSessions || h.served >= 2*h.opts.MaxSessions {
		return errTooMany
	}
	ctx, cancel := context.WithCancel(h.ctx)
	s.onEnd = func() {
		cancel()
		h.mu.Lock()
		delete(h.sessions, s.id)
		h.mu.Unlock()
	}
	h.served++
	h.sessions[s.id] = s
	h.wg.Go(func() {
		defer leave()
		defer context.AfterFunc(standing, func() { s.end("there is no token any more for who has opened the session") })()
		h.serve(ctx, s)
	})
	return nil
}

// serve runs the bridge.Handler for a session. ctx is done when the session
// has ended or the Handler shuts down.
func (h *Handler) serve(ctx context.Context, s *session) {
	err := h.server.ServeConn(ctx, s)
	if err != nil && !errors.Is(err, errSessionEnded) && !(ctx.Err() != nil && errors.Is(err, context.Canceled)) {
		h.opts.Logger.Warn("session ended", "session", s.tag(), "error", err)
	}
	s.end("the server has ended the session")
	h.mu.Lock()
	h.served--
	h.mu.Unlock()
}
