package streamhttp

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file passes what clients POST on to the server of their session.

// serverOutbox is what a POST still has to pass to the server. The zero serverOutbox is empty.
type serverOutbox struct {
	s         *session              // the session of the POST: its queue (posts) leads to the server
	messages  []jsonrpc.Message     // the messages of the POST that the server has not got, in order
	queued    *pendingMessage       // the first of messages, in the queue of the session; nil: it is not in the queue
	passedAny bool                  // the server has got a message of the POST
	share     *httpserve.BodyMemory // what the body takes of the budget; goes with the last message
}

// passReady passes on the messages that the server takes at once. It returns a channel that
// is closed when the server has taken the next one: then the caller calls passReady again.
// nil: no message is left, or the server must answer the bridge's own initialize first: its answer
// wakes the reader of the POST's stream (handleOwnInitializeAnswer), which calls passReady again.
func (o *serverOutbox) passReady() <-chan struct{} {
	for len(o.messages) > 0 {
		if o.queued == nil {
			if o.passedAny && o.s.isOwnInitializePending() {
				return nil
			}
			var share *budget.Share
			if len(o.messages) == 1 { // until then all of the body is needed
				share = o.share.Detach()
			}
			o.queued = o.s.posts.offer(o.messages[0], share)
		}
		if taken := o.s.posts.whenTaken(o.queued); taken != nil {
			return taken
		}
		o.notePassed()
	}
	return nil
}

// takeBack takes the queued message out of the queue, unless the server may be taking it: that counts as got. It
// returns the messages that the server has not got.
func (o *serverOutbox) takeBack() []jsonrpc.Message {
	if o.queued == nil {
		return o.messages
	}
	if share, ok := o.s.posts.takeBack(o.queued); ok {
		o.share.Reattach(share)
	} else {
		o.notePassed()
	}
	o.queued = nil
	return o.messages
}

// passRestTimeout is how long the rest of a batch waits for the server to take it when
// there is nobody left to answer.
const passRestTimeout = time.Minute

// passRestToServer passes on the notifications and responses that are left of a batch which
// the server has begun to take: the end of the reply, or of the connection, does not
// concern them, and the server may wait for them (LI9). Those of a stateless POST are not passed
// on: its session ends. It waits for passRestTimeout at most, and returns the messages that the server has not got.
func (o *serverOutbox) passRestToServer() []jsonrpc.Message {
	left := o.takeBack()
	if !o.passedAny || len(left) == 0 || o.s.stateless {
		return left
	}
	requests := onlyRequests(left)
	o.messages = slices.DeleteFunc(slices.Clone(left), func(m jsonrpc.Message) bool { return m.Kind() == jsonrpc.Request })
	enough := time.NewTimer(passRestTimeout)
	defer enough.Stop()
	for over := false; !over; {
		taken := o.passReady()
		if taken == nil {
			break
		}
		select {
		case <-taken:
		case <-o.s.done:
			over = true
		case <-enough.C:
			over = true
		}
	}
	return append(requests, o.takeBack()...)
}

// notePassed takes out the first message, which the server has got, and tells the session of it.
func (o *serverOutbox) notePassed() {
	o.passedAny, o.queued = true, nil
	o.s.notePassed(o.messages[0])
	o.messages[0] = jsonrpc.Message{} // its bytes are the server's now
	o.messages = o.messages[1:]
}

// passAllToServer passes on messages that need no answer, or answers the request with
// 404 if the server has got none of them. If the session ends behind the first,
// they are accepted: 404 would have the client send all of them again to a new
// session (LI21), and what is left was for the one that has ended alone.
func (h *Handler) passAllToServer(w http.ResponseWriter, r *http.Request, s *session, messages []jsonrpc.Message, share *httpserve.BodyMemory) (accepted bool) {
	for i, m := range messages {
		var held *budget.Share
		if i == len(messages)-1 { // until then all of the body is needed
			held = share.Detach()
		}
		if err := passToServer(r.Context(), s, m, held); err == nil {
			continue
		}
		if i > 0 {
			s.failUndelivered(messages[i:])
			return true
		}
		refuse(w, r, "LI21", http.StatusNotFound, sessionGoneText)
		return false
	}
	return true
}

// passToServer gives the server a message, waits until the server has taken it, and notes what it
// says about the session. share and the error are those of session.offerAndWait.
func passToServer(ctx context.Context, s *session, m jsonrpc.Message, share *budget.Share) error {
	if err := s.offerAndWait(ctx, m, share); err != nil {
		return err
	}
	s.notePassed(m)
	return nil
}

// offerAndWait passes a message on to the server, and waits until the server has taken it. share is what
// the message holds of the budget; it is given back in any case. The error says that the server
// has not got the message: the session has ended, or ctx is done. There is none if the server may
// be taking the message just then.
func (s *session) offerAndWait(ctx context.Context, m jsonrpc.Message, share *budget.Share) (err error) {
	p := s.posts.offer(m, share)
	taken := s.posts.whenTaken(p)
	if taken == nil {
		return nil
	}
	select {
	case <-taken:
		return nil
	case <-s.done:
		err = errSessionEnded
	case <-ctx.Done():
		err = ctx.Err()
	}
	share, ok := s.posts.takeBack(p)
	if !ok {
		return nil
	}
	share.ReleaseAll()
	return err
}
