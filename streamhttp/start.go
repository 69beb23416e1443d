package streamhttp

import (
	"context"
	"errors"
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file makes sessions, as many as may be.

// principal returns the principal of a request; "" when nobody was authenticated.
func principal(r *http.Request) string { return access.Principal(r) }

// start asks for a place for s, enters it in sessions, and starts the goroutine that serves it. ok is
// false if there is no place: then the request that opens the session, which has this id, was answered.
func (h *Handler) start(w http.ResponseWriter, r *http.Request, s *session, id jsonrpc.ID) (ok bool) {
	slot, err := h.control.Acquire(identity.WithParty(r.Context(), h.opts.Guard.Party(r)))
	if err != nil {
		if r.Context().Err() != nil { // nobody is left to tell
			abortHandler()
		}
		h.logRefused(r, err.Error())
		httpserve.RefuseBusy(w, r, id, admission.PublicReason(err), err)
		return false
	}
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
	go h.serve(slot, s, access.PrincipalContext(r))
	return true
}

// serve is the goroutine of a session: it runs the bridge.Handler. principalCtx is the
// access.PrincipalContext of who has opened the session; when it is done, the session ends.
func (h *Handler) serve(slot *admission.Slot, s *session, principalCtx context.Context) {
	defer slot.Release()
	defer context.AfterFunc(principalCtx, func() { s.end("there is no token any more for who has opened the session") })()
	ctx := slot.Context()
	stop, _ := admission.ReportBusy(ctx, s.inUse)
	defer stop()
	s.origin.DescribeEnd = func(err error) (string, bool) { return s.endText(ctx, err) }
	h.endSession(ctx, s, h.server.ServeConn(observe.WithOrigin(identity.WithPrincipal(ctx, s.owner), &s.origin), s))
}

// endSession ends a session whose bridge.Handler has returned err. It tells the log of a failure, and that a place was
// reclaimed, unless an Observer is told. It is not inlined into serve, because a goroutine that waits there should need little
// stack: there are as many as there are sessions.
//
//go:noinline
func (h *Handler) endSession(ctx context.Context, s *session, err error) {
	if how, failed := s.endText(ctx, err); !s.origin.Observed() && failed {
		h.opts.Logger.Warn("session ended", "session", s.logName(), "error", err)
	} else if !s.origin.Observed() && context.Cause(ctx) == bridge.ErrReclaimed {
		h.opts.Logger.Info("session ended: "+how, "session", s.logName())
	}
	s.end("the server has ended the session")
}

// endText returns how the session has ended, in words for the log. ctx is that of its bridge.Handler,
// which has returned err. failed: the end is worth a warning.
func (s *session) endText(ctx context.Context, err error) (text string, failed bool) {
	s.mu.Lock()
	text = s.endReason
	s.mu.Unlock()
	switch {
	case err != nil && !errors.Is(err, errSessionEnded) && !(ctx.Err() != nil && errors.Is(err, context.Canceled)):
		return err.Error(), true
	case text != "" && text != errSessionEnded.Error(): // Close does not know why
		return text, false
	case context.Cause(ctx) == bridge.ErrReclaimed:
		return "it was idle, and its place goes to another client, who has fewer than " + identity.Party(ctx), false
	case ctx.Err() != nil:
		return "the bridge ends it", false
	}
	return "the server has ended it", false
}
