package legacysse

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// How much may wait for the reader of a stream before Send waits too.
const (
	mostBytes  = 256 << 10
	mostQueued = 4096
)

// Why a session is over.
var (
	errClientGone   = errors.New("the client has closed its event stream")
	errStalled      = errors.New("the client does not read its event stream")
	errIdle         = errors.New("the session was idle for too long")
	errSessionEnded = errors.New("the session has ended")
)

// session is one client's session: the bridge.PullConn that the Handler hands to
// its bridge.Handler. Recv yields what the client POSTs; Send queues for the
// event stream, which the goroutine of the GET writes.
//
// No lock is held across I/O or a wait.
type session struct {
	id    string
	owner string        // the principal that opened it; "" when nobody was authenticated (SS4)
	in    chan incoming // unbuffered: an accepted message has reached Recv
	wake  chan struct{} // has a token when there is something to write
	done  chan struct{} // closed by end
	onEnd func()
	ctx   context.Context // of the bridge.Handler

	passing atomic.Pointer[budget.Share] // of the message that Recv has returned last, which is being passed on; nil: it is little

	written  chan struct{} // closed when the event stream has ended
	revision bridge.Revision
	asked    bridge.Questions
	active   atomic.Int64 // when a message last went either way, Unix nanoseconds

	mu    sync.Mutex
	why   error // nil until the session is over
	queue [][]byte
	bytes int           // of queue
	room  chan struct{} // closed when the queue shrinks; nil when nobody waits
}

func newSession(owner string) *session {
	s := &session{
		id:      rand.Text(), // 130 bits, base32
		owner:   owner,
		in:      make(chan incoming),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		written: make(chan struct{}),
	}
	s.touch()
	return s
}

// tag names the session in the log, where its id would be a key to it.
func (s *session) tag() string { return s.id[:6] }

func (s *session) touch() { s.active.Store(time.Now().UnixNano()) }

// quiet returns for how long no message went either way.
func (s *session) quiet() time.Duration { return time.Since(time.Unix(0, s.active.Load())) }

// Recv returns the client's next message. A client whose stream has ended
// cannot be sent to any more (SS5), so that is no io.EOF.
func (s *session) Recv(ctx context.Context) (jsonrpc.Message, error) {
	s.passing.Swap(nil).Free()
	err := ctx.Err()
	if err == nil && s.over() == nil {
		select {
		case it := <-s.in:
			if it.share != nil {
				s.passing.Store(it.share)
			}
			return it.m, nil
		case <-s.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	// The end of a session ends its context too, but says more.
	if why := s.over(); why != nil {
		err = why
	}
	return jsonrpc.Message{}, err
}

// incoming is a message for Recv, with what it holds of the budget; mostly nil.
type incoming struct {
	m     jsonrpc.Message
	share *budget.Share
}

// Send queues one message for the client. It waits while the queue is full,
// until the client has taken some of it or is cut off.
func (s *session) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		room, err := s.put(m)
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

// TrySender is what bridge.TrySender says.
func (s *session) TrySender() func(m jsonrpc.Message) bool {
	return func(m jsonrpc.Message) bool {
		room, err := s.put(m)
		return room == nil && err == nil
	}
}

// put queues a message for the event stream, or returns what is closed when there
// may be room for it.
func (s *session) put(m jsonrpc.Message) (room <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.why != nil:
		return nil, s.why
	case s.bytes >= mostBytes || len(s.queue) >= mostQueued:
		if s.room == nil {
			s.room = make(chan struct{})
		}
		return s.room, nil
	}
	s.revision.Note(m) // before the client can know of it
	s.asked.Sent(m)
	line := m.Line()
	s.queue = append(s.queue, line)
	s.bytes += len(line)
	s.touch()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil, nil
}

// take returns what waits for the event stream, and gives the queue the memory
// of buf in exchange. last says that nothing comes after it.
func (s *session) take(buf [][]byte) (lines [][]byte, last bool) {
	clear(buf)
	s.mu.Lock()
	defer s.mu.Unlock()
	lines, s.queue, s.bytes = s.queue, buf[:0], 0
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
	return lines, s.why != nil
}

// Close ends the session: what was sent before still reaches the client, then
// its event stream ends. Recv and Send return errors from now on.
func (s *session) Close() error {
	if s.ctx != nil && context.Cause(s.ctx) == bridge.ErrReclaimed {
		s.end(bridge.ErrReclaimed)
	}
	s.end(errSessionEnded)
	return nil
}

// end ends the session for this reason; the first one counts.
func (s *session) end(why error) {
	s.mu.Lock()
	if s.why != nil {
		s.mu.Unlock()
		return
	}
	s.why = why
	close(s.done)
	s.mu.Unlock()
	s.onEnd()
}

// over returns why the session is over; nil: it is not.
func (s *session) over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// accept hands a message to Recv, with what it holds of the budget. It waits while
// the server does not take what came before. With an error, share is still the
// caller's.
func (s *session) accept(ctx context.Context, m jsonrpc.Message, share *budget.Share) error {
	s.touch()
	s.asked.Received(m)
	select {
	case s.in <- incoming{m, share}:
		return nil
	case <-s.done:
		return errSessionEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}
