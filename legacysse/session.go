package legacysse

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/clientstate"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/sendqueue"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// How much may wait for the event stream of a session before session.Send waits, too.
const (
	maxQueuedBytes    = 256 << 10 // bytes that may wait for an event stream
	maxQueuedMessages = 4096      // messages that may wait for an event stream
)

// Why a session is over.
var (
	errClientGone   = errors.New("the client has closed its event stream")    // why a session is over: the client has closed its event stream, or the connection was lost
	errStalled      = errors.New("the client does not read its event stream") // why a session is over: a write to the event stream has taken too long (StallAfter)
	errIdle         = errors.New("the session was idle for too long")         // why a session is over: no message went either way for SessionTimeout
	errSessionEnded = errors.New("the session has ended")                     // why a session is over: its bridge.Handler or the bridge has ended it, not its client
)

// session is one client's session: the bridge.Conn that the Handler hands to
// its bridge.Handler. Receive hands on what the client POSTs; Send queues for the
// event stream, which the goroutine of the GET writes.
//
// No lock is held across I/O or a wait, but for the lock delivering of postQueue.
type session struct {
	id    string          // the sessionId
	owner string          // the principal that opened it; "" when nobody was authenticated (SS4)
	ctx   context.Context // the ctx with which the bridge.Handler serves the session

	in             postQueue                     // what the client POSTs, for Receive
	out            *sendqueue.Queue              // what waits for the event stream
	revision       clientstate.NegotiatedVersion // the protocol version that was negotiated, which says whether the client may send batches
	serverRequests clientstate.ServerRequests    // the server's requests that the client has not answered
	lastActive     atomic.Int64                  // when a message last went either way, Unix nanoseconds

	life        context.Context         // done when the session is over; the cause says why
	endLife     context.CancelCauseFunc // ends life
	taking      context.Context         // done when nothing more is taken from the client: at the end of life at the latest
	stopTaking  context.CancelFunc      // ends taking
	endOnce     sync.Once               // lets end do its work once
	onEnd       func()                  // called by end, once: takes the session out of the Handler
	origin      observe.SessionOrigin   // what observers are told of the session, and the Session that they know it as
	closing     context.Context         // done when Close was called: what the client has sent is not handed on to the server any more
	close       context.CancelFunc      // ends the context closing; Close calls it
	streamEnded chan struct{}           // closed when the event stream has ended
}

// newSession returns a new session with a random id. owner is the principal that opens it.
func newSession(owner string) *session {
	s := &session{
		id:          rand.Text(), // 130 bits, base32
		owner:       owner,
		out:         sendqueue.New(maxQueuedMessages, maxQueuedBytes),
		streamEnded: make(chan struct{}),
	}
	s.life, s.endLife = context.WithCancelCause(context.Background())
	s.taking, s.stopTaking = context.WithCancel(s.life)
	s.closing, s.close = context.WithCancel(context.Background())
	s.in.wakeup = make(chan struct{}, 1)
	s.touch()
	return s
}

// logName returns what the log calls the session: the name that observers know it by, or else the beginning of its id. The whole
// id would be a key to the session.
func (s *session) logName() string { return s.origin.Tag(s.id[:6]) }

// touch notes that a message goes, in either direction.
func (s *session) touch() { s.lastActive.Store(time.Now().UnixNano()) }

// idleTime returns for how long no message went either way.
func (s *session) idleTime() time.Duration { return time.Since(time.Unix(0, s.lastActive.Load())) }

// Receive implements bridge.Conn. A client whose stream has ended cannot be sent to
// any more (SS5), so that is no io.EOF. What was accepted before the end is handed on
// first, unless the owner has closed the session.
func (s *session) Receive(ctx context.Context, sink bridge.Sink) error {
	if s.closing.Err() != nil {
		return s.endCause()
	}
	receiving, sending, end := s.receiveContexts(ctx)
	defer end()
	err := s.in.receive(receiving, sending, sink)
	// The end of a session ends the context of its Handler too, but says more.
	if why := s.endCause(); why != nil && errors.Is(err, context.Canceled) {
		err = why
	}
	return err
}

// receiveContexts returns the contexts of a Receive: that of waiting for messages (receiving), which
// the end of the session ends, and that of handing them on (sending), which Close ends. end must be
// called when Receive returns.
func (s *session) receiveContexts(ctx context.Context) (receiving, sending context.Context, end func()) {
	receiving, stop := context.WithCancel(ctx)
	running := context.AfterFunc(s.life, stop)
	// What is on its way to the server when the client goes still gets there, so that it can
	// be cancelled: the end of the session ends ctx, too, and whoever calls Receive waits no
	// longer than it has to.
	sending, cancel := context.WithCancel(ctx)
	open := context.AfterFunc(s.closing, cancel)
	return receiving, sending, func() {
		open()
		cancel()
		running()
		stop()
	}
}

// Send implements bridge.Conn: it queues one message for the client. It waits while
// the queue is full, until the client has taken some of it. Once the session is over it returns why (endCause).
func (s *session) Send(ctx context.Context, m jsonrpc.Message) error {
	s.noteOutgoing(m)
	if err := s.out.Send(ctx, m.Line()); err != nil {
		return err
	}
	s.touch()
	return nil
}

// TrySend implements bridge.Conn: it queues one message for the client, unless the queue is full or the session is over;
// false: nothing was queued.
func (s *session) TrySend(m jsonrpc.Message) bool {
	s.noteOutgoing(m)
	if !s.out.TrySend(m.Line()) {
		return false
	}
	s.touch()
	return true
}

// noteOutgoing notes what a message for the client says (the protocol version, a request of the server),
// before the client can know of it. It may be called again for the same message.
func (s *session) noteOutgoing(m jsonrpc.Message) {
	s.revision.NoteSent(m)
	s.serverRequests.NoteSent(m)
}

// Close implements bridge.Conn: what was sent before still reaches the client, then
// its event stream ends. Receive and Send return errors from now on.
func (s *session) Close(reason error) error {
	if s.ctx != nil && context.Cause(s.ctx) == bridge.ErrReclaimed || errors.Is(reason, bridge.ErrReclaimed) {
		s.end(bridge.ErrReclaimed)
	}
	s.end(errSessionEnded)
	s.close()
	return nil
}

// end ends the session for this reason; the first one counts. What was sent before is still written to the event stream if
// the client is there; then the stream ends.
func (s *session) end(why error) {
	s.endOnce.Do(func() {
		s.endLife(why)
		s.out.Close(why)
		s.onEnd()
	})
}

// endCause returns why the session is over; nil: it is not.
func (s *session) endCause() error { return context.Cause(s.life) }

// offerAndWait hands a message of the client on to the server; share is what the message holds of the
// budget. It waits until the message is accepted: taken, or the next one for the server. The error says
// that ctx is done, or that the session takes no more; then share is still the caller's.
func (s *session) offerAndWait(ctx context.Context, m jsonrpc.Message, share *budget.Share) error {
	s.touch()
	s.serverRequests.NoteReceived(m)
	return s.in.offerAndWait(ctx, s.taking, m, share)
}
