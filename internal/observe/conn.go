package observe

import (
	"context"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// maxOpenCalls is how many requests of one direction are kept at each end of a session until they are answered. The
// responses to more are told without their Call.
const maxOpenCalls = 10_000

// Conn returns c, of the client (Downstream) or of the server (Upstream), so that the Watchers are told of what passes; for a nil
// Session or without an Observer, c itself. It is no bridge.Intercept, because that costs each message several copies of it.
func (s *Session) Conn(c bridge.Conn, hop Hop) bridge.Conn {
	if s == nil || s.o == nil {
		return c
	}
	observed := &conn{Conn: c, session: s, hop: hop}
	if hop == Downstream {
		observed.streams, _ = c.(streamer)
	}
	return observed
}

// A streamer is a Conn whose messages pass on several streams. StreamOf returns the stream on which a message has come, or
// will be sent (toClient); "": none.
type streamer interface {
	StreamOf(m *jsonrpc.Message, toClient bool) string
}

// conn is a Conn that tells the Observer of its session what passes.
type conn struct {
	bridge.Conn
	session *Session       // the session that the Conn belongs to
	hop     Hop            // at which end of the bridge the Conn is
	streams streamer       // says on which stream a message passes; nil: there is one stream, or it is not known
	unsent  unsentRequests // the requests that the Conn has not taken at once
	untaken *arrival       // the message that the last Receive has left, and the next one brings again; nil: there is none
}

// arrival is a received message that Watchers were told of, and that the Sink has not taken yet.
type arrival struct {
	key  jsonrpc.Key   // the Key of the message, by which it is known again
	mark *jsonrpc.Mark // the Mark that the message got; nil: there is no such message
}

// inDirection returns the direction of the messages that are received from the Conn.
func (c *conn) inDirection() Direction {
	if c.hop == Downstream {
		return ToServer
	}
	return ToClient
}

// outDirection returns the direction of the messages that are sent to the Conn.
func (c *conn) outDirection() Direction { return ToServer + ToClient - c.inDirection() }

// mustObserve reports whether m, which goes in direction dir, must be looked at: because somebody is to be told of it, or because it
// may answer or cancel a request that somebody was told of, though nobody may watch any more. With a Sampler, each request must be,
// and notifications while a request waits that was told. Until it is known who the client is, mustObserve looks for that in m, too.
func (c *conn) mustObserve(m *jsonrpc.Message, dir Direction) bool {
	if c.hop == Downstream && !c.session.clientKnown.Load() {
		c.session.noteClient(m, dir)
	}
	o := c.session.o
	if o.messageWatchers.Load() != nil {
		return true
	}
	waits := c.session.openRequests.Load() > 0
	switch kind := m.Kind(); {
	case o.sampler.Load() == nil:
		return waits && mayEndRequest(m)
	case kind == jsonrpc.Response:
		return waits && c.session.mayAnswer(m.ID(), c.hop, ToServer+ToClient-dir)
	case kind == jsonrpc.Request:
		return true
	}
	return waits
}

// mayAnswer reports whether a response with this id may answer a request in direction dir that somebody was told of.
func (s *Session) mayAnswer(id jsonrpc.ID, hop Hop, dir Direction) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.openCallsAt(hop, dir)
	return len(b.cancelled) > 0 || b.findByID(id) != nil
}

// mayEndRequest reports whether m may be the end of a request.
func mayEndRequest(m *jsonrpc.Message) bool {
	return m.Kind() == jsonrpc.Response || m.Kind() == jsonrpc.Notification && m.Method() == cancelledMethod
}

// cancelledMethod is the method that says that a request needs no answer any more.
const cancelledMethod = "notifications/cancelled"

// Send implements bridge.Conn: it sends m, as the Sampler may have changed it, and tells of it once it was taken.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if !c.mustObserve(&m, c.outDirection()) {
		err := c.Conn.Send(ctx, m)
		if err == nil {
			c.countUntold(m.Kind(), c.endedRequestID(&m), c.outDirection())
		}
		return err
	}
	if c.isUnsampled(&m) {
		counted := c.beginUnsampled(&m)
		err := c.Conn.Send(ctx, m)
		if err != nil && counted {
			c.session.unsampledCallsAt(c.hop, c.outDirection()).subtract()
		}
		return err
	}
	p := c.beginSend(&m)
	err := c.Conn.Send(ctx, p.Message)
	if err == nil {
		c.session.tellSent(p)
	} else if c.session.withdraw(p) {
		c.session.tellUnanswered(c.hop, p.Call)
	}
	p.release()
	return err
}

// TrySend implements bridge.Conn. Where m is taken at once, it does what Send does.
func (c *conn) TrySend(m jsonrpc.Message) bool {
	if !c.mustObserve(&m, c.outDirection()) {
		taken := c.Conn.TrySend(m)
		if taken {
			c.countUntold(m.Kind(), c.endedRequestID(&m), c.outDirection())
		}
		return taken
	}
	if c.isUnsampled(&m) {
		counted := c.beginUnsampled(&m)
		taken := c.Conn.TrySend(m)
		if !taken && counted {
			c.session.unsampledCallsAt(c.hop, c.outDirection()).subtract()
		}
		return taken
	}
	p := c.beginSend(&m)
	taken := c.Conn.TrySend(p.Message)
	if taken {
		c.session.tellSent(p)
	} else {
		c.noteUntaken(p, &m)
	}
	p.release()
	return taken
}

// noteUntaken notes that TrySend was offered m, of which beginSend has made p, and has not taken it.
func (c *conn) noteUntaken(p *Passed, m *jsonrpc.Message) {
	if !c.session.withdraw(p) || c.session.o.sampler.Load() == nil {
		return
	}
	c.reportNeverSent(c.unsent.add(m, p.Call))
	if p.Call.isLost() { // there is no Close any more that tells of it
		c.reportNeverSent(c.unsent.clear())
	}
}

// Close closes the Conn, and tells that the requests that have passed it, or that it has not taken, will not be answered.
func (c *conn) Close(reason error) error {
	err := c.Conn.Close(reason)
	c.session.tellAllUnanswered(c.hop, c)
	c.reportNeverSent(c.unsent.clear())
	return err
}

// reportNeverSent tells that requests will not be answered: TrySend was offered them, and they will not be sent.
func (c *conn) reportNeverSent(left map[unsentKey]*Call) {
	for _, call := range left {
		c.session.tellUnanswered(c.hop, call)
	}
}

// Receive implements bridge.Conn: it tells of each message that comes, before sink gets it.
func (c *conn) Receive(ctx context.Context, sink bridge.Sink) error {
	r := &receiver{conn: c, sink: sink}
	if c.untaken != nil {
		r.current, c.untaken = *c.untaken, nil
	}
	err := c.Conn.Receive(ctx, r)
	if r.current.mark != nil {
		c.untaken = &arrival{r.current.key, r.current.mark}
	}
	return err
}

// receiver is the Sink of the inner Conn in one Receive. Its calls do not overlap.
type receiver struct {
	*conn
	sink    bridge.Sink // what Receive was given
	current arrival     // the message that sink was offered, and has not taken yet; zero: there is none
}

// tellOnce tells of a message, unless that was done when it was offered before, and gives the message its mark.
func (r *receiver) tellOnce(m *jsonrpc.Message) {
	if r.current.mark == nil || r.current.key != m.Key() {
		r.current = arrival{m.Key(), r.received(m)}
	}
	*m = m.WithMark(r.current.mark)
}

// noteTaken notes that the sink has taken a message of this kind. ended is what endedRequestID has returned of it.
func (r *receiver) noteTaken(kind jsonrpc.Kind, ended jsonrpc.ID) {
	if r.hop == Downstream && kind == jsonrpc.Request {
		r.session.calls.Add(1)
	}
	if r.current.mark != nil {
		r.current = arrival{}
	} else {
		r.countUntold(kind, ended, r.inDirection())
	}
}

// Send implements bridge.Sink: it tells of a message that has come, and hands it to the sink. Unless somebody watches, it keeps
// nothing of the message while the sink has it: the sink may return only when the message is answered.
func (r *receiver) Send(ctx context.Context, m jsonrpc.Message) error {
	kind, ended := m.Kind(), r.endedRequestID(&m)
	if r.current.mark != nil || r.mustObserve(&m, r.inDirection()) {
		r.tellOnce(&m)
	}
	err := r.sink.Send(ctx, m)
	if err == nil {
		r.noteTaken(kind, ended)
	}
	return err
}

// TrySend implements bridge.Sink: it does what Send does, if the sink takes the message at once.
func (r *receiver) TrySend(m jsonrpc.Message) bool {
	kind, ended := m.Kind(), r.endedRequestID(&m)
	if r.current.mark != nil || r.mustObserve(&m, r.inDirection()) {
		r.tellOnce(&m)
	}
	taken := r.sink.TrySend(m)
	if taken {
		r.noteTaken(kind, ended)
	}
	return taken
}

// received tells of a message that has come, and returns the mark that the message is to have. A request is only counted if
// there is nobody but a Sampler that does not want it.
func (c *conn) received(m *jsonrpc.Message) *jsonrpc.Mark {
	s := c.session
	source := newSource(m)
	mark := &source.mark
	if m.Kind() == jsonrpc.Request {
		if source.askSampler(s.o, m); source.unsampled && s.o.messageWatchers.Load() == nil {
			s.unsampledCallsAt(c.hop, c.inDirection()).add()
			return mark
		}
		source.call = new(Call)
	}
	source.at, source.told = now(), true
	p := passedPool.Get().(*Passed)
	p.at, p.Session, p.Hop, p.Dir, p.Message, p.Source, p.Call, p.conn = source.at, s, c.hop, c.inDirection(), *m, source, source.call, c
	p.Stream = c.stream(p)
	s.attachCall(p)
	// Only now, because attachCall may have told of the request that m answers, and a Watcher has numbered that if it had no number.
	p.Seq = s.o.nextMessageSeq()
	mark.Seq = p.Seq
	s.o.tellMessage(p)
	if p.cancels() {
		s.markCancelled(p)
	}
	p.release()
	return mark
}

// stream returns on which stream a message passes; "": not known, or nobody wants to know: to ask takes the transport's lock.
func (c *conn) stream(p *Passed) string {
	if c.streams == nil || !c.session.o.WantsExchanges() {
		return ""
	}
	return c.streams.StreamOf(&p.Message, p.Dir == ToClient)
}

// beginSend notes a message that is about to be sent, because the answer to a request may come before Send
// returns. Message of the result is what is to be sent; the caller releases the result.
func (c *conn) beginSend(m *jsonrpc.Message) *Passed {
	s := c.session
	p := passedPool.Get().(*Passed)
	p.Seq, p.at, p.Session, p.Hop, p.Dir, p.Message, p.conn = s.o.nextMessageSeq(), now(), s, c.hop, c.outDirection(), *m, c
	source := sourceOf(m)
	p.Source = source
	if source != nil && source.told {
		p.HasCause, p.CauseSeq, p.TimeInBridge, p.Origin = true, source.mark.Seq, p.at.sub(source.at), source.call
	}
	p.Stream = c.stream(p)
	if m.Kind() == jsonrpc.Request {
		p.Call = c.unsent.takeCall(m)
		s.attachCall(p)
		s.o.rewriteForSampler(p)
		p.Call.setUntold(p)
	}
	return p
}

// tellSent tells of a message that was taken, unless it is a request of which tellWatchers has told already.
func (s *Session) tellSent(p *Passed) {
	if p.Message.Kind() == jsonrpc.Request {
		if lost := p.Call.tellWatchers(); lost {
			s.tellUnanswered(p.Hop, p.Call)
		}
		return
	}
	s.attachCall(p)
	s.o.tellMessage(p)
	if p.cancels() {
		s.markCancelled(p)
	}
}

// setUntold has tellWatchers tell of p, the request that is about to be sent; nil: of nothing. It waits for one that has begun.
func (c *Call) setUntold(p *Passed) {
	c.tellMu.Lock()
	defer c.tellMu.Unlock()
	c.untoldRequest.Store(p)
}

// tellWatchers tells the Watchers of a request that is sent, unless that was done, and returns when they were told. Its sender
// calls it, and so does whoever brings the response: that may come while the request is still being sent, and
// Watchers are told of the request first. lost says that the Conn was closed before.
func (c *Call) tellWatchers() (lost bool) {
	if c.untoldRequest.Load() != nil {
		c.tellMu.Lock()
		defer c.tellMu.Unlock()
		if p := c.untoldRequest.Load(); p != nil {
			p.Session.o.tellMessage(p)
			c.untoldRequest.Store(nil)
		}
	}
	return c.lostBeforeTold.Load()
}

// markLost notes that the Conn was closed, and reports whether the request is still being sent. Then its sender tells what becomes of it.
func (c *Call) markLost() (unsent bool) {
	c.tellMu.Lock()
	defer c.tellMu.Unlock()
	unsent = c.untoldRequest.Load() != nil
	c.lostBeforeTold.Store(unsent)
	return unsent
}

// passedPool is memory for what the Watchers are told.
var passedPool = sync.Pool{New: func() any { return new(Passed) }}

// release ends the use of p, whose memory is used again.
func (p *Passed) release() {
	*p = Passed{}
	passedPool.Put(p)
}

// isLost reports whether the Conn was closed before Watchers were told of the request.
func (c *Call) isLost() bool { return c.lostBeforeTold.Load() }

// withdraw takes back what beginSend has noted of a request that was not sent. For what is no request it does nothing, and is false.
func (s *Session) withdraw(p *Passed) bool {
	if p.Call == nil || p.Message.Kind() != jsonrpc.Request {
		return false
	}
	p.Call.setUntold(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeOpenCall(s.openCallsAt(p.Hop, p.Dir), p.Call)
	return true
}

// tellAllUnanswered tells that requests at an end of the bridge will not be answered: those that have
// passed the Conn of; nil: all. Those that came unwatched are always among them, because their Conn is not known.
func (s *Session) tellAllUnanswered(hop Hop, of *conn) {
	var lost []*Call
	s.mu.Lock()
	for dir := range s.openCalls[hop-1] {
		b := &s.openCalls[hop-1][dir]
		waiting := len(lost)
		for call := range b.byID.all() {
			if call.belongsTo(of) {
				lost = append(lost, call)
			}
		}
		for _, call := range lost[waiting:] {
			s.removeOpenCall(b, call)
		}
		lost = append(lost, b.removeCancelled(func(call *Call) bool { return call.belongsTo(of) })...)
	}
	s.mu.Unlock()
	s.unsampledCallsAt(hop, ToServer).clear()
	s.unsampledCallsAt(hop, ToClient).clear()
	for _, call := range lost {
		if !call.markLost() {
			s.tellUnanswered(hop, call)
		}
	}
}

// belongsTo reports whether the request may have passed the Conn; it is true for nil.
func (c *Call) belongsTo(to *conn) bool { return to == nil || c.conn == to || c.cameUnwatched }

// cancels reports whether p cancels a request that is known (p.Call). An initialize cannot be cancelled (J11).
func (p *Passed) cancels() bool {
	return p.Call != nil && p.Message.Kind() == jsonrpc.Notification && p.Call.Method != "initialize"
}

// markCancelled notes that the request that p cancels waits no more. Its answer may be on its way still, so the request is kept
// until that comes, or maxCancelled others were cancelled after it.
func (s *Session) markCancelled(p *Passed) {
	s.mu.Lock()
	b := s.openCallsAt(p.Hop, p.Dir)
	var gone *Call
	if b.byID.get(p.Call.ID) == p.Call {
		s.removeOpenCall(b, p.Call)
		gone = b.addCancelled(p.Call)
	}
	p.Call.cancelled.Store(true)
	s.mu.Unlock()
	if gone != nil {
		s.tellUnanswered(p.Hop, gone)
	}
}

// tellUnanswered tells that a request will not be answered, unless that was told, or the request was answered: a Conn that is
// closed while it sends a request may say that it has not sent it, though the response has come.
func (s *Session) tellUnanswered(hop Hop, call *Call) {
	if call.ended.CompareAndSwap(false, true) {
		s.o.Event(Unanswered{Session: s, Hop: hop, Call: call, Cancelled: call.cancelled.Load()})
	}
}

// UnansweredCount returns how many requests of a direction wait for their answers at an end of the bridge: those that Watchers were
// told of or WaitingCalls has returned, and those that are only counted (unsampledCalls). One that was cancelled does not wait.
func (s *Session) UnansweredCount(hop Hop, dir Direction) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openCallsAt(hop, dir).byID.count + s.unsampledCallsAt(hop, dir).waitingCount()
}

// WaitsForOne reports whether exactly one request of a direction is open. It counts as UnansweredCount does, but a request that
// the Sampler does not want also after it was cancelled, since it is not known whether it was answered before: beside such a
// request WaitsForOne is false, and for such a request alone it is true.
func (s *Session) WaitsForOne(hop Hop, dir Direction) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openCallsAt(hop, dir).byID.count+int(s.unsampledCallsAt(hop, dir).unanswered.Load()) == 1
}

// openCallsAt returns the requests that pass this end of the bridge in this direction and have no answer yet.
func (s *Session) openCallsAt(hop Hop, dir Direction) *openCalls {
	return &s.openCalls[hop-1][dir-1]
}

// attachCall sets p.Call: of a request it keeps the Call until the answer comes, of a response or cancellation it finds the Call; nil: none.
func (s *Session) attachCall(p *Passed) {
	m := &p.Message
	back := ToServer + ToClient - p.Dir
	switch m.Kind() {
	case jsonrpc.Request:
		if p.Call == nil {
			p.Call = new(Call)
		}
		if p.Call.conn == nil {
			s.fillCall(p.Call, p)
		}
		if old := s.addOpenCall(p); old != nil {
			s.tellUnanswered(p.Hop, old)
		}
	case jsonrpc.Response:
		if p.Call = s.takeAnswered(p.Hop, back, m.ID()); p.Call != nil {
			p.Duration = p.at.sub(p.Call.began)
			p.Call.tellWatchers()
		} else {
			p.conn.countUntold(jsonrpc.Response, m.ID(), p.Dir)
		}
	case jsonrpc.Notification:
		if m.Method() == cancelledMethod {
			s.mu.Lock()
			p.Call = s.openCallsAt(p.Hop, p.Dir).findByID(m.CancelledID())
			s.mu.Unlock()
			if p.Call == nil {
				p.conn.countUntold(jsonrpc.Notification, m.CancelledID(), p.Dir)
			}
		}
	}
}

// fillCall sets the fields of a Call to what is known of its request.
func (s *Session) fillCall(c *Call, p *Passed) {
	m := &p.Message
	c.ID, c.Method, c.Dir, c.began, c.Size, c.conn = m.ID(), m.Method(), p.Dir, p.at, m.Size(), p.conn
	switch {
	case s.o.nameWatchers.Load() == 0:
	case p.Origin != nil && p.Origin.Name != "" && p.Source.IsWhole(m):
		c.Name = p.Origin.Name
	default:
		c.Name = s.o.subjectOf(m)
	}
}

// Name returns Call.Name; of a request also if no Watcher needs names. p has a Call.
func (p *Passed) Name() string {
	if p.Call.Name != "" || p.Message.Kind() != jsonrpc.Request {
		return p.Call.Name
	}
	return p.Session.o.subjectOf(&p.Message)
}

// takeAnswered returns the request in direction dir that a response with this id answers, and which waits no more; nil: none is known.
func (s *Session) takeAnswered(hop Hop, dir Direction, id jsonrpc.ID) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.openCallsAt(hop, dir)
	call := b.takeByID(id)
	if call != nil {
		s.openRequests.Add(-1)
	} else {
		call = b.takeCancelled(id)
	}
	if call != nil {
		call.ended.Store(true)
		if call.cameUnwatched && (hop == Downstream) == (dir == ToServer) {
			s.removeUnwatchedCall(s.openCallsAt(Downstream+Upstream-hop, dir), call.ID)
		}
	}
	return call
}

// removeUnwatchedCall takes a request that came unwatched out of b, the requests at the end that an answer passes first. It is
// called when the answer passes the other end: at the first one it may have passed just before addUnwatchedCall. If the
// bridge itself has answered, the peer's answer may come still, so the request is kept for a while. mu is held.
func (s *Session) removeUnwatchedCall(b *openCalls, id jsonrpc.ID) {
	call := b.byID.get(id)
	if call == nil || !call.cameUnwatched {
		return
	}
	call.ended.Store(true)
	s.removeOpenCall(b, call)
	if len(b.cancelled) < maxCancelled {
		b.cancelled = append(b.cancelled, call)
	}
}

// addOpenCall keeps the request p until it is answered. It returns the Call whose answer will not be
// known: that of an older request with the same id, or p.Call if there are maxOpenCalls; nil: none.
func (s *Session) addOpenCall(p *Passed) *Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.openCallsAt(p.Hop, p.Dir)
	if b.byID.count >= maxOpenCalls && b.byID.get(p.Call.ID) == nil {
		return p.Call
	}
	old := b.add(p.Call)
	if old == nil {
		s.openRequests.Add(1)
	} else if old.cameUnwatched { // it is the same request, which has come to this end only now
		return nil
	}
	return old
}

// removeOpenCall takes a request out of b, if it is there. It is called with mu held.
func (s *Session) removeOpenCall(b *openCalls, call *Call) {
	if b.remove(call) {
		s.openRequests.Add(-1)
	}
}

// subjectOf returns what a request is about: the name of a tool or prompt, or the URI of a resource; "": none of these.
func (o *Observer) subjectOf(m *jsonrpc.Message) (name string) {
	switch m.Method() {
	case "tools/call", "prompts/get":
		name = o.shortText(o.internedNames.intern(m.Lookup("params", "name")))
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		name = o.shortURI(m.Lookup("params", "uri"))
	}
	return name
}

// shortURI returns the beginning of a URI, a JSON string, without secrets. The last part is left out if it is cut through: half a
// secret, or a user and password without their @, would not be found later.
func (o *Observer) shortURI(value []byte) string {
	uri, _ := jsonrpc.Text(value)
	uri = o.redact(uri)
	begin := printable.Clip(uri, maxExcerpt)
	if len(begin) < len(uri) {
		if i := strings.LastIndexAny(begin, "/?#&"); i >= 0 {
			return begin[:i+1]
		}
	}
	return begin
}
