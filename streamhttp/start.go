package streamhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/access"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file makes sessions, as many as may be.

// principal names who is behind a request.
func principal(r *http.Request) string { return access.Principal(r) }

// start asks for a place and lets a bridge.Handler serve the session, or
// answers its request, which has this id, with why not.
func (h *Handler) start(w http.ResponseWriter, r *http.Request, s *session, id jsonrpc.ID) (ok bool) {
	slot, err := h.control.Acquire(identity.WithParty(r.Context(), h.opts.Guard.Party(r)))
	if err != nil {
		if r.Context().Err() != nil { // nobody is left to tell
			abort()
		}
		h.logRefused(r, err.Error())
		httpserve.Busy(w, r, id, admission.PublicReason(err))
		return false
	}
	s.onEnd = func() {
		h.mu.Lock()
		delete(h.sessions, s.id)
		h.mu.Unlock()
		slot.Gone()
	}
	h.mu.Lock()
	h.sessions[s.id] = s
	h.mu.Unlock()
	h.opts.Logger.Debug("session opened", "session", s.tag(), "remote", h.opts.Guard.RemoteAddr(r), "principal", s.owner)
	go h.serve(slot, s, access.SessionStanding(r))
	return true
}

// serve runs the bridge.Handler for a session, which ends with the standing of
// who has opened it.
func (h *Handler) serve(slot *admission.Slot, s *session, standing context.Context) {
	defer slot.Release()
	defer context.AfterFunc(standing, func() { s.end("there is no token any more for who has opened the session") })()
	ctx := slot.Context()
	stop, _ := admission.InUse(ctx, s.inUse)
	defer stop()
	err := h.server.ServeConn(identity.WithPrincipal(ctx, s.owner), s)
	if err != nil && !errors.Is(err, errSessionEnded) && !(ctx.Err() != nil && errors.Is(err, context.Canceled)) {
		h.opts.Logger.Warn("session ended", "session", s.tag(), "error", err)
	}
	if context.Cause(ctx) == bridge.ErrReclaimed {
		h.opts.Logger.Info("session ended: it was idle, and its place goes to another client, who has fewer", "session", s.tag(), "client", identity.Party(ctx))
	}
	s.end("the server has ended the session")
}
