package streamhttp

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

var (
	errSessionEnded = errors.New("the session has ended")
	errTooManyCalls = errors.New("too many requests are in progress; try again later")
)

// highWater is how many bytes may wait for one connected reader before Send
// waits too.
const highWater = 256 << 10

// maxCalls is how many requests of the client may wait for the server's
// answers. A server that answers none must not make the books grow for ever.
const maxCalls = 10_000

// call is a client's request in flight.
type call struct {
	id      jsonrpc.ID
	method  string
	token   jsonrpc.ID
	task    bool   // augmented as a task: its token outlives the response (J13)
	results string // the task that a tasks/result is about, as raw JSON
	order   uint64
	stream  *stream
}

// opens reports whether c is the initialize request: no other comes first.
func (c *call) opens() bool { return c.order == 1 }

// session is one client's session: the bridge.PullConn that the Handler hands to
// its bridge.Handler. Recv yields what the client POSTs; Send picks the
// response stream (docs/rules.md, part B).
//
// No lock is held across I/O or a wait.
type session struct {
	id    string
	owner string // the principal that opened it; "" when nobody was authenticated (LI25)
	opts  *HandlerOptions
	in    *inbox
	done  chan struct{} // closed by end
	onEnd func()
	alone bool // it serves one POST of a stateless Handler, without an id

	mu        sync.Mutex
	ended     bool
	version   string // negotiated; until then what the client asked for
	answered  bool   // initialize was answered with a result
	ready     bool   // notifications/initialized has arrived (LI29)
	greeting  bool   // the bridge's own initialize request is not answered with a result (yet)
	rejected  bool   // it was answered with an error
	calls     map[jsonrpc.ID]*call
	tokens    map[jsonrpc.ID]*call
	tasks     map[jsonrpc.ID]struct{} // progress tokens of tasks
	asks      map[jsonrpc.ID]*stream  // the server's requests under way to the client
	streams   map[uint64]*stream      // those that can be resumed
	gets      []*stream               // standalone streams with a reader, newest last
	idle      []*stream               // standalone streams without a reader, oldest first
	held      []*held                 // server requests with no stream to go on, oldest first
	expiry    *time.Timer             // calls expire; nil: it was never set
	early     shelf                   // what must wait for initialized
	backlog   shelf                   // what waits for a standalone stream
	replay    replay
	parked    struct{ bytes, events int }   // what waits on streams that nobody reads
	kept      *budget.Share                 // for replay and parked; nil: they are not counted
	keys      uint64                        // streams made
	orders    uint64                        // calls made
	look      *time.Timer                   // calls lookForLate; nil: it was never set
	lookAt    time.Time                     // when; zero: it does not
	due       struct{ calls, long dueList } // long: initialize, and what is served alone
	lost      bool                          // a warning about lost notifications was logged
	exchanges int                           // HTTP exchanges being served
	quiet     time.Time                     // when the last of them ended
}

func newSession(opts *HandlerOptions, owner, version string, now time.Time) *session {
	return &session{
		id:      rand.Text(), // 130 bits, base32 (LI20)
		owner:   owner,
		opts:    opts,
		in:      newInbox(),
		done:    make(chan struct{}),
		version: version,
		calls:   make(map[jsonrpc.ID]*call),
		replay:  replay{maxBytes: opts.ReplayBytes, maxCount: opts.ReplayEvents, maxAge: opts.ReplayAge},
		quiet:   now,
	}
}

// Recv returns the client's next message. A client that has ended its session
// has gone for good, so that is no io.EOF.
func (s *session) Recv(ctx context.Context) (jsonrpc.Message, error) { return s.Offer(ctx, nil) }

// Offer is what bridge.Offer says: a request may be passed on by its POST.
func (s *session) Offer(ctx context.Context, take bridge.Taker) (jsonrpc.Message, error) {
	m, err := s.in.waiter.Offer(ctx, take)
	if err != nil && ctx.Err() != nil {
		select { // the end of a session ends its context too, but says more
		case <-s.done:
			err = errSessionEnded
		default:
		}
	}
	return m, err
}

// Send routes one message of the server to the client. It waits while the
// stream that the message belongs to is full and somebody reads it.
func (s *session) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for {
		_, room, err := s.place(m, false)
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
		rd, room, err := s.place(m, true)
		if rd != nil {
			rd.deliver()
		}
		return room == nil && err == nil
	}
}

// crowd is how many calls may be open for the answer to one to be written by who brings
// it. When there are more the next one's is soon to come, and shall not wait for that.
const crowd = 4

// place routes one message, unless the stream that it belongs to is full and
// somebody reads it: then it returns what is closed when that may have changed.
// deliver: the caller is ready to do the work of the exchange that has got a
// response now, which is returned then.
func (s *session) place(m jsonrpc.Message, deliver bool) (rd *reader, room <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, errSessionEnded
	}
	if s.greeting && m.ID() == greetingID && m.Kind() == jsonrpc.Response {
		s.greeted(m)
		return nil, nil, nil
	}
	st := s.target(m)
	if st == nil {
		m = s.respell(m)
		st = s.target(m)
	}
	read := st != nil && st.reader != nil
	switch {
	case read && st.bytes >= highWater:
		if st.room == nil {
			st.room = make(chan struct{})
		}
		room = st.room
	case read && deliver && m.Kind() == jsonrpc.Response && len(s.calls) <= crowd:
		rd = st.reader
		rd.held = true
		s.route(m, st)
		rd.held = false
	default:
		s.route(m, st)
	}
	return rd, room, nil
}

// Close ends the session: what is owed is answered with an error, every
// stream ends, and Recv and Send return errors.
func (s *session) Close() error {
	s.end("the session has ended")
	return nil
}

func (s *session) end(why string) {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	s.ended = true
	for _, c := range s.calls {
		c.stream.push(jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, why, sessionEndedData))
		s.settle(c)
	}
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.held, s.early, s.backlog = nil, shelf{}, shelf{}
	for _, st := range s.gets {
		st.finish()
	}
	if s.look != nil {
		s.look.Stop()
	}
	s.kept.Free() // nobody can come back
	s.kept = nil
	close(s.done)
	s.in.end(errSessionEnded)
	s.mu.Unlock()
	s.onEnd()
}

var sessionEndedData = []byte(`{"reason":"session_ended"}`)

// open enters the requests of one POST, which all answer on one stream, and
// returns the stream with its reader. It is nil when an id is in use (J3);
// the id is returned then. The error is errSessionEnded or errTooManyCalls.
func (s *session) open(requests []jsonrpc.Message) (*stream, *reader, jsonrpc.ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, nil, jsonrpc.ID{}, errSessionEnded
	}
	if len(s.calls)+len(requests) > maxCalls {
		return nil, nil, jsonrpc.ID{}, errTooManyCalls
	}
	for i, m := range requests {
		_, used := s.calls[m.ID()]
		if used || slices.ContainsFunc(requests[:i], func(o jsonrpc.Message) bool { return o.ID() == m.ID() }) {
			return nil, nil, m.ID(), nil
		}
	}
	st := s.newStream(false)
	st.reader = newReader()
	st.owed = len(requests)
	for _, m := range requests {
		s.orders++
		c := &call{id: m.ID(), method: m.Method(), token: m.ProgressToken(), order: s.orders, stream: st}
		s.calls[c.id] = c
		if c.method == "tasks/result" {
			c.results = string(m.Lookup("params", "taskId"))
		}
		if !c.token.IsZero() {
			if s.tokens == nil {
				s.tokens = make(map[jsonrpc.ID]*call)
			}
			s.tokens[c.token] = c
			c.task = m.Lookup("params", "task") != nil
		}
	}
	s.retry()
	return st, st.reader, jsonrpc.ID{}, nil
}

// newStream makes a stream; the caller holds the lock.
func (s *session) newStream(get bool) *stream {
	s.keys++
	return &stream{key: s.keys, get: get, next: 1}
}

// begun reports whether the initialize exchange has left a session that the
// client knows: it was answered, or its reply is a stream that goes on.
func (s *session) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.opens() && c.stream.committed {
			return true
		}
	}
	return s.answered
}

// accept hands a message to Recv, with what it holds of the budget. It waits while
// the server does not take what came before.
func (s *session) accept(ctx context.Context, m jsonrpc.Message, share *budget.Share) (err error) {
	h := s.in.hold(m, share)
	taken := s.in.taken(h)
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
	share, ok := s.in.takeBack(h)
	if !ok {
		return nil
	}
	share.Free()
	return err
}

// passed notes what a message says about the session, once Recv has it.
func (s *session) passed(m jsonrpc.Message) {
	switch {
	case m.Kind() == jsonrpc.Response:
		s.responded(m.ID())
	case m.Kind() == jsonrpc.Request:
	case m.Method() == "notifications/cancelled":
		s.cancel(m.RequestID())
	case m.Method() == "notifications/initialized":
		s.initialized()
	}
}

// over reports whether the session takes no more messages of the client.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended || s.rejected
}

// settle takes a call out of the books after its response was pushed, or in
// place of one. The caller holds the lock.
func (s *session) settle(c *call) {
	delete(s.calls, c.id)
	if !c.token.IsZero() && s.tokens[c.token] == c {
		delete(s.tokens, c.token)
		if c.task {
			if len(s.tasks) >= maxWaiting || s.tasks == nil {
				s.tasks = make(map[jsonrpc.ID]struct{})
			}
			s.tasks[c.token] = struct{}{}
		}
	}
	if c.stream.owed--; c.stream.owed == 0 {
		c.stream.finish()
	}
}

// responded notes that the client has answered a request of the server's.
func (s *session) responded(id jsonrpc.ID) {
	s.mu.Lock()
	if id, _, ok := jsonrpc.Find(s.asks, id); ok {
		delete(s.asks, id)
	}
	s.mu.Unlock()
}

// cancel ends a call without a response, as the client asked to (LI28),
// unless it cannot be cancelled (J11).
func (s *session) cancel(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, c, ok := jsonrpc.Find(s.calls, id)
	if !ok || c.opens() {
		return
	}
	st := c.stream
	if !st.committed && st.reader != nil {
		// The POST has seen no byte yet, so its exchange must be completed.
		st.push(jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, "cancelled", cancelledData))
		s.settle(c)
		return
	}
	s.settle(c)
	if st.owed == 0 {
		s.abandon(st)
	}
}

var cancelledData = []byte(`{"reason":"cancelled"}`)

// withdraw takes back requests that the server never got.
func (s *session) withdraw(messages []jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		if m.Kind() != jsonrpc.Request {
			continue
		}
		if c := s.calls[m.ID()]; c != nil {
			s.settle(c)
		}
	}
}

// undelivered answers requests that the server never got, although their reply
// has begun: the connection broke before, and the client may resume the stream.
func (s *session) undelivered(messages []jsonrpc.Message) {
	dropped := 0
	s.mu.Lock()
	for _, m := range messages {
		if m.Kind() != jsonrpc.Request {
			dropped++
		} else if c := s.calls[m.ID()]; c != nil {
			s.push(c.stream, jsonrpc.NewError(c.id, jsonrpc.CodeInternalError, "the connection broke before the server took the request", undeliveredData))
			s.settle(c)
		}
	}
	s.mu.Unlock()
	if dropped > 0 {
		s.opts.Logger.Warn("messages dropped: their POST or the session was over before the server took them", "session", s.tag(), "messages", dropped)
	}
}

var undeliveredData = []byte(`{"reason":"undelivered"}`)

// initialized notes that the client is ready and lets go what waited for it.
func (s *session) initialized() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready || s.ended {
		return
	}
	s.ready = true
	s.release()
	s.retry()
}

// inUse is what bridge.InUse is told: the server may not have got yet what the client
// has asked, and what serves one POST is in use for as long as it is there.
func (s *session) inUse() (busy bool, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone || len(s.calls) > 0, s.quiet
}

// begin and finish bracket every HTTP exchange of the session.
func (s *session) begin() {
	s.mu.Lock()
	s.exchanges++
	s.mu.Unlock()
}

func (s *session) finish() {
	s.mu.Lock()
	s.exchanges--
	s.quiet = time.Now()
	s.mu.Unlock()
}

// abandonedAfter is how long a call in flight keeps a session alive whose
// client has not been seen. It bounds nothing where idle sessions never end.
const abandonedAfter = time.Hour

// tidy drops what has become too old and reports whether the session has
// been idle for too long (LI30).
func (s *session) tidy(now time.Time) (expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replay.expire(now)
	s.fitKept()
	for key, st := range s.streams {
		switch {
		case st.reader != nil:
		case st.closed && len(st.pending) == 0 && len(st.sent) == 0:
			delete(s.streams, key)
		case len(st.pending) > 0 && now.Sub(st.detached) > s.replay.maxAge:
			s.lose(st, "nobody came back for them in time")
		}
	}
	if s.exchanges > 0 || s.opts.SessionTimeout < 0 {
		return false
	}
	idle := now.Sub(s.quiet)
	return idle >= s.opts.SessionTimeout && (len(s.calls) == 0 || idle >= max(s.opts.SessionTimeout, abandonedAfter))
}

// tag names the session in logs; the id itself is a credential of sorts.
func (s *session) tag() string { return s.id[:6] }

// revision returns the negotiated protocol version.
func (s *session) revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}
