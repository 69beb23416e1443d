package ws

import (
	"context"
	"errors"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// session is one client's session: the bridge.Conn that the Handler hands to
// its bridge.Handler. A client that has closed its end, in whatever way, cannot
// be sent to: it is gone, and Receive does not return io.EOF.
type session struct {
	*conn
	handler *Handler        // the Handler that the session is of
	owner   string          // the principal that has opened it; "": the client has not authenticated
	ctx     context.Context // done when the session is to end: the client is gone, the Handler shuts down, the place is another's or the token has expired (see the cause)
}

// newSession makes the session of a client on an open WebSocket with its wire. owner is its principal, and party who
// it counts as; its place is slot.
func newSession(h *Handler, slot *admission.Slot, socket *websocket.Conn, w *wire, owner, party string) *session {
	s := &session{handler: h, owner: owner, ctx: slot.Context()}
	s.conn = newConn(socket, w, connConfig{
		peer:           "the client",
		peerIsClient:   true,
		maxMessageSize: h.opts.MaxMessageSize,
		maxDepth:       h.opts.MaxDepth,
		maxBatch:       h.opts.MaxBatch,
		pingInterval:   h.opts.PingInterval,
		idleTimeout:    h.opts.SessionTimeout,
		onNoise: func(size int, reason string) {
			h.opts.Logger.Debug("the client has sent what is no message", "bytes", size, "reason", reason)
		},
		budget:            h.opts.Budget,
		party:             party,
		maxFirstMessage:   maxFirstMessage,
		chunkTimeout:      h.opts.ChunkTimeout,
		onBudgetExhausted: h.logBudgetExhausted,
		onEnded:           slot.ClientGone,
	})
	return s
}

// expiredText is what a client is told when its token has expired.
var expiredText = access.ErrExpired.Error() + ": connect again with a new one"

// refuseUntaken answers with an error the requests of the client that no Sink had taken when its token expired.
func (s *session) refuseUntaken() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	s.in.End(access.ErrExpired)
	_ = s.in.Receive(ctx, refusingSink{s.conn}) // its error is that all of it was answered, or that the client takes nothing
	s.delivering.Lock()                         // the one that was waiting for room is answered by whoever has read it
	defer s.delivering.Unlock()
}

// refusingSink is a Sink that answers each request with refuseExpired, and drops all else.
type refusingSink struct{ *conn }

// TrySend implements bridge.Sink: it takes nothing, so that Send is called.
func (refusingSink) TrySend(jsonrpc.Message) bool { return false }

// Send implements bridge.Sink: it answers a request with an error, and drops any other message.
func (u refusingSink) Send(ctx context.Context, m jsonrpc.Message) error {
	err := u.refuseExpired(ctx, m)
	if err == nil {
		u.in.noteTaken()
	}
	return err
}

// errTokenGone is the error of Receive and Send of a session whose token was revoked.
var errTokenGone = errors.New("there is no token any more for who has opened the session")

// endWithToken ends the session when the token that it was opened with is not valid any more. If the token
// was revoked, the session ends at once. If the token has expired, the session ends when calls in progress
// have been answered, and requests that come meanwhile are refused. stop must be called; it also ends s.ctx.
func (s *session) endWithToken(token context.Context) (stop func()) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	s.ctx = ctx
	unused := context.AfterFunc(token, func() {
		if context.Cause(token) == access.ErrExpired {
			s.tokenExpired.Store(true)
			cancel(access.ErrExpired)
			return
		}
		s.closeWith(errTokenGone, websocket.StatusPolicyViolation, errTokenGone.Error())
	})
	return func() {
		unused()
		cancel(nil)
	}
}

// Close implements bridge.Conn. err is why the server has ended the conversation, or could not be had. After what was
// sent, the client gets a close frame: status 1001 when the Handler shuts down, 1013 when there is no place for it or
// another party is to have that, 1000 without an error, 1008 for a client that is too slow or whose token has expired,
// 1011 with another error, whose text is not for the client. A shutdown, a place that another party is to have, and an
// expired token decide the status whatever err is.
func (s *session) Close(err error) error {
	switch {
	case s.handler.control.Context().Err() != nil:
		s.close(websocket.StatusGoingAway, bridge.ErrClosing.Error())
	case context.Cause(s.ctx) == bridge.ErrReclaimed || errors.Is(err, bridge.ErrReclaimed):
		s.close(websocket.StatusTryAgainLater, bridge.ErrReclaimed.Error())
	case context.Cause(s.ctx) == access.ErrExpired:
		s.refuseUntaken()
		s.close(websocket.StatusPolicyViolation, expiredText)
	case errors.Is(err, bridge.ErrBusy):
		s.close(websocket.StatusTryAgainLater, bridge.ErrBusy.Error())
	case errors.Is(err, bridge.ErrSlow):
		s.close(websocket.StatusPolicyViolation, bridge.ErrSlow.Error())
	case err != nil:
		s.close(websocket.StatusInternalError, "the server has ended or could not be started")
	default:
		s.close(websocket.StatusNormalClosure, "")
	}
	return nil
}

// endText returns a text for the log that says how the session has ended. err is what its bridge.Handler has returned.
// failed: it is worth a warning.
func (s *session) endText(err error) (text string, failed bool) {
	switch {
	case err != nil && !s.isOwnEnd(err) && !(s.ctx.Err() != nil && errors.Is(err, context.Canceled)):
		return err.Error(), true
	case isDone(s.end.done) && s.end.err != nil && s.end.err != errClosed: // Close does not know why
		return s.end.err.Error(), false
	case context.Cause(s.ctx) == bridge.ErrReclaimed:
		return "it was idle, and its place goes to another client, who has fewer than " + identity.Party(s.ctx), false
	case context.Cause(s.ctx) == access.ErrExpired:
		return access.ErrExpired.Error(), false
	case s.ctx.Err() != nil:
		return "the bridge ends it", false
	}
	return "the server has ended it", false
}

// isOwnEnd reports whether err is only the error with which the session has ended by itself: the client or the network
// has ended it, the client has broken a rule, was silent for too long, or its message had no room in memory. Where Close
// has ended the session, it is false.
func (s *session) isOwnEnd(err error) bool {
	return isDone(s.end.done) && s.end.err != errClosed && errors.Is(err, s.end.err)
}
