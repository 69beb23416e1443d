package streamhttp

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

var (
	errSessionEnded = errors.New("the session has ended")                              // of Send and Receive of a session, and of requests that come too late
	errTooManyCalls = errors.New("too many requests are in progress; try again later") // a request is refused: maxCalls or MaxExchanges
)

// highWater is how many bytes may wait for one connected reader before Send
// waits too.
const highWater = 256 << 10

// session is one legacy client's session, or one stateless POST (newStateless): the bridge.Conn
// that the Handler hands to its bridge.Handler. Receive hands on what the client POSTs; Send
// picks the response stream (docs/rules.md, part B).
//
// Order of locks: session.mu comes before the lock of postQueue, of a reader and of the
// budget; postQueue.delivering and reader.mu are held while somebody does another's work, and
// come before session.mu. Only these two are held during I/O; whoever brings a message or an
// answer only tries to take them.
//
// Order of delivery: the client's messages reach the server in the order in which their
// POSTs were read, one at a time (postQueue). What the server sends reaches each stream
// in the order of Send; between streams there is no order.
type session struct {
	id     string                // the Mcp-Session-Id
	owner  string                // the principal that opened it; "" when nobody was authenticated (LI25)
	opts   *HandlerOptions       // those of the Handler, with the defaults filled in
	posts  *postQueue            // what the client POSTs, for Receive
	done   chan struct{}         // closed by end
	onEnd  func()                // called by end, once: takes the session out of the Handler
	origin observe.SessionOrigin // what observers are told of the session, and the Session that they know it as

	mu              sync.Mutex       // guards all that follows
	ended           bool             // end was called
	endReason       string           // why the session has ended, in words
	router                           // which stream a message of the server travels on
	deferred        deferredMessages // messages of the server without a stream
	retained        retention        // the streams that the client can resume, with what was written to them and what waits on them
	commits         commitTimer      // when the replies to POSTs become SSE streams
	activity        activity         // how the session is in use
	lastStreamKey   uint64           // the key of the stream that was made last
	lastDropWarning time.Time        // when the log was last warned of a dropped response
}

// newSession returns a new session with a random id. owner is the principal that opens it, version
// the one that its client has asked for; the session is idle since now.
func newSession(opts *HandlerOptions, owner, version string, now time.Time) *session {
	s := &session{
		id:       rand.Text(), // 130 bits, base32 (LI20)
		owner:    owner,
		opts:     opts,
		posts:    newPostQueue(),
		done:     make(chan struct{}),
		retained: retention{replayStore: replayStore{maxBytes: opts.ReplayBytes, maxCount: opts.ReplayEvents, maxEventAge: opts.ReplayAge}},
	}
	s.handshake.version = version
	s.activity.idleSince = now
	s.deferred.expiryTimer.Do = s.expireDeferredRequests
	s.commits.timer.Do = s.markDueStreams
	return s
}

// Receive hands on what the client POSTs. Once the session has ended, by whomever, it returns errSessionEnded, and not
// io.EOF: the client has gone for good, and can be sent nothing.
func (s *session) Receive(ctx context.Context, sink bridge.Sink) error {
	return s.posts.receive(ctx, sink)
}

// Send routes one message of the server to the client. It waits while the
// stream that the message belongs to is full and somebody reads it. It may do the work of
// the POST that waits for the answer m.
func (s *session) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		room, err := s.tryDeliver(m)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TrySend routes one message of the server to the client, unless the stream that it belongs to is full
// and somebody reads it, or the session has ended; false: nothing was done.
func (s *session) TrySend(m jsonrpc.Message) bool {
	room, err := s.tryDeliver(m)
	return room == nil && err == nil
}

// tryDeliver routes m, a message of the server, and writes the reply that m completes, if that may be
// done at once. If room is not nil, nothing was done, because the stream of m is full: room is
// closed when the stream may have room.
func (s *session) tryDeliver(m jsonrpc.Message) (room <-chan struct{}, err error) {
	rd, room, err := s.tryRoute(m)
	if rd != nil {
		rd.answerAndWake()
	}
	return room, err
}

// Close ends the session: what is owed is answered with an error, every
// stream ends, and Receive and Send return errors. Whatever the reason, a client learns
// of it when it uses the session again.
func (s *session) Close(error) error {
	s.end(errSessionEnded.Error())
	return nil
}

// end ends the session, and answers its open calls with the text why. The first call counts. The
// caller holds no lock.
func (s *session) end(why string) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended, s.endReason = true, why
	for _, c := range s.calls.byID {
		c.stream.push(jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, why, sessionEndedData))
		s.endCall(c)
	}
	s.deferred.clear()
	for _, st := range s.standalone.connected {
		st.finish()
	}
	s.retained.freeAll()
	close(s.done)
	s.posts.end(errSessionEnded)
	s.mu.Unlock()
	s.deferred.expiryTimer.Stop() // these may have to wait for the lock
	s.commits.timer.Stop()
	s.onEnd()
}

// openPostStream enters the requests of one POST, which are all answered on one stream, and
// returns the stream with its reader. If an id is in use (J3), the stream is nil and that
// id is returned. The error is errSessionEnded or errTooManyCalls.
func (s *session) openPostStream(requests []jsonrpc.Message) (*stream, *reader, jsonrpc.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, jsonrpc.ID{}, errSessionEnded
	}
	if len(s.calls.byID)+len(requests) > maxCalls {
		return nil, nil, jsonrpc.ID{}, errTooManyCalls
	}
	if used, ok := s.calls.unusableID(requests); ok {
		return nil, nil, used, nil
	}
	st := s.newStream(false)
	st.reader = newReader()
	st.owedResponses = len(requests)
	for _, m := range requests {
		s.calls.add(m, st)
	}
	s.routeDeferredRequests()
	return st, st.reader, jsonrpc.ID{}, nil
}

// isEstablished reports whether the initialize exchange has left a session that the
// client knows: initialize was answered with a result, or its reply is an SSE stream and the answer is still to come.
func (s *session) isEstablished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls.byID {
		if c.isInitialize() && c.stream.committed {
			return true
		}
	}
	return s.handshake.accepted
}

// takesNoMore reports whether the session takes no more messages of the client: it has ended, or the
// server has answered the bridge's own initialize (of a stateless POST) with an error.
func (s *session) takesNoMore() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || s.handshake.ownInitializeRejected
}

// isOwnInitializePending reports whether the server has not answered the bridge's own initialize
// request with a result (yet). Until then it gets none of the client's messages.
func (s *session) isOwnInitializePending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handshake.ownInitializePending
}

// revision returns the negotiated protocol version; until initialize is answered, the one that the client has asked for.
func (s *session) revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.handshake.version
}

// logName returns what the log calls the session: the name that observers know it by, or else the beginning of its id. The whole
// id is a credential of sorts.
func (s *session) logName() string { return s.origin.Tag(s.id[:6]) }

// notePassed notes what a message of the client says about the session, once the server has it.
func (s *session) notePassed(m jsonrpc.Message) {
	switch {
	case m.Kind() == jsonrpc.Response:
		s.mu.Lock()
		s.sent.remove(m.ID())
		s.mu.Unlock()
	case m.Kind() == jsonrpc.Request:
	case m.Method() == "notifications/cancelled":
		s.cancelCall(m.CancelledID())
	case m.Method() == "notifications/initialized":
		s.noteInitialized()
	}
}

// cancelCall ends a call because the client has cancelled it (LI28), unless it is initialize, which cannot be cancelled
// (J11). The call gets no response. But if its POST still waits for the beginning of its reply, it gets an error.
func (s *session) cancelCall(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, c, ok := jsonrpc.Find(s.calls.byID, id)
	if !ok || c.isInitialize() {
		return
	}
	st := c.stream
	if !st.committed && st.reader != nil {
		// The POST has seen no byte yet, so its exchange must be completed.
		s.fail(c, "cancelled", cancelledData)
		return
	}
	s.endCall(c)
	if st.owedResponses == 0 {
		s.abandon(st)
	}
}

// noteInitialized notes that the client is ready and lets go what waited for it.
func (s *session) noteInitialized() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handshake.gotInitialized || s.ended {
		return
	}
	s.handshake.gotInitialized = true
	s.routeAwaitingInitialized()
	s.routeDeferredRequests()
}

// withdrawRequests ends the calls of those messages that are requests, without an answer: the server
// never got them, and their client has gone.
func (s *session) withdrawRequests(messages []jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if m.Kind() != jsonrpc.Request {
			continue
		}
		if c := s.calls.byID[m.ID()]; c != nil {
			s.endCall(c)
		}
	}
}

// failUndelivered answers those messages that are requests with an error: the server never got them,
// although their reply has begun, and the client may resume the stream. It warns of the others.
func (s *session) failUndelivered(messages []jsonrpc.Message) {
	dropped := 0
	s.mu.Lock()
	for _, m := range messages {
		if m.Kind() != jsonrpc.Request {
			dropped++
		} else if c := s.calls.byID[m.ID()]; c != nil {
			s.fail(c, "the connection broke before the server took the request", undeliveredData)
		}
	}
	s.mu.Unlock()
	if dropped > 0 {
		s.opts.Logger.Warn("messages dropped: their POST or the session was over before the server took them", "session", s.logName(), "messages", dropped)
	}
}

// abandonedAfter is how long a call in flight keeps a session alive whose
// client has not been seen. It bounds nothing where idle sessions never end.
const abandonedAfter = time.Hour

// initializeAbandonedAfter is how long a session is kept whose client has left while the server had not answered initialize. It is long
// enough to resume the stream. A client whose time for initialize is up begins anew: without this, each of its attempts would
// leave a server process that hangs.
const initializeAbandonedAfter = time.Minute

// activity is how a session is in use by its client. The session's lock guards it.
type activity struct {
	exchanges int       // how many HTTP exchanges of the session are being served
	idleSince time.Time // when the last HTTP exchange ended; before that, when the session was made
}

// beginExchange notes that an HTTP exchange of the session begins, which endExchange ends.
func (s *session) beginExchange() {
	s.mu.Lock()
	s.activity.exchanges++
	s.mu.Unlock()
}

// endExchange notes that an HTTP exchange of the session has ended.
func (s *session) endExchange() {
	s.mu.Lock()
	s.activity.exchanges--
	s.activity.idleSince = time.Now()
	s.mu.Unlock()
}

// inUse tells admission.ReportBusy whether the session is in use, and since when it is idle.
// It is in use while a call is open, even if the server has not got the call yet, and
// always if it serves one stateless POST.
func (s *session) inUse() (busy bool, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateless || len(s.calls.byID) > 0, s.activity.idleSince
}

// tidy drops what has become too old and reports whether the session has
// been idle for too long (LI30).
func (s *session) tidy(now time.Time) (expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidyStreams(now)
	idle := now.Sub(s.activity.idleSince)
	switch {
	case s.activity.exchanges > 0:
		return false
	case !s.handshake.accepted && idle >= initializeAbandonedAfter:
		return true
	case s.opts.SessionTimeout < 0:
		return false
	}
	return idle >= s.opts.SessionTimeout && (len(s.calls.byID) == 0 || idle >= max(s.opts.SessionTimeout, abandonedAfter))
}
