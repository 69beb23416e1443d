package replay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// DefaultWait is how much longer than in the recording Play waits for the server.
const DefaultWait = 10 * time.Second

// PlayOptions tune Play. The zero value works.
type PlayOptions struct {
	// Wait is how much longer than in the recording is waited for what the server has said
	// there, before each message of the client; then it is missing. 0: DefaultWait.
	Wait time.Duration

	// Timing keeps the pauses of the recording. Otherwise a message is sent at once when all
	// has arrived that came before it from the server.
	Timing bool

	// Ignore are the differences that are not reported.
	Ignore Ignored
}

// ErrNoServer says that the server has answered nothing but errors, where the recording has
// results.
var ErrNoServer = errors.New("the server cannot be used")

// Play sends the client's messages of a recording into conn, with new ids and progress
// tokens, and compares what comes back. It returns when all that the server has said in the
// recording has come or was waited for, when the server has ended, and when ctx is done. The
// error says why nothing could be compared; it wraps ErrNoServer, or is ctx's. The caller
// closes conn.
func Play(ctx context.Context, conn bridge.Conn, rec *Recording, o PlayOptions) (*Report, error) {
	o.Wait = cmp.Or(o.Wait, DefaultWait)
	p := &player{
		PlayOptions: o, conn: conn, rec: rec, wakeup: make(chan struct{}, 1),
		callsByID: map[jsonrpc.ID]*call{}, callsByItem: map[*item]*call{}, tokens: map[jsonrpc.ID]*item{},
		groups: map[group]*arrivals{}, serverRequests: map[*item]*arrival{}, newOpaqueTexts: map[string]string{},
	}
	p.countRecorded()
	receiving, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := conn.Receive(receiving, playerSink{p})
		p.mu.Lock()
		p.receiveErr = cmp.Or(p.receiveErr, err, io.EOF)
		p.mu.Unlock()
		p.wake()
	})
	err := p.play(ctx)
	stop()
	wg.Wait()
	if err != nil {
		return nil, err
	}
	return p.report()
}

// A group is the messages of a server that can stand for one another.
type group struct {
	kind       jsonrpc.Kind // Request or Notification
	method     string
	progressOf *item // the client's request whose progress it is; nil: none
}

// arrivals is what has come of a group, and what has to.
type arrivals struct {
	recorded      []*item
	arrived       []*arrival
	expectedCount int // so many are waited for
	missedCount   int // so many have not come in time
}

// An arrival is a request or notification of the server.
type arrival struct {
	m         jsonrpc.Message
	afterLine int    // the line of the client's message that was sent last
	key       string // the same for equal ones
	recorded  *item  // the recorded one that it stands for; nil: not known yet

	refused bool // the recording has no answer to it
}

// A call is a request of the recording's client, as it was sent.
type call struct {
	request *item
	answer  jsonrpc.Message // invalid: none has come
	missed  bool            // it has not come in time
}

// player is one run of Play. The goroutine of Play sends, that of Receive takes what comes.
type player struct {
	PlayOptions
	conn   bridge.Conn
	rec    *Recording
	wakeup chan struct{} // something has come; holds one element

	mu             sync.Mutex // guards the rest; not held while sending
	receiveErr     error      // of Receive
	lastID         int64
	lastLine       int // line of the client's message that was sent last
	callsByID      map[jsonrpc.ID]*call
	callsByItem    map[*item]*call
	tokens         map[jsonrpc.ID]*item // new progress tokens
	groups         map[group]*arrivals
	serverRequests map[*item]*arrival // the server's recorded requests, and what came for them
	replies        []jsonrpc.Message  // to requests that have no recorded answer
	unanswered     []*arrival         // these
	strayResponses []string           // responses that answer nothing
	newOpaqueTexts map[string]string  // cursors and the like: what the server says now, by kind and what was recorded
	sentCount      int
	extraCount     int // messages that the recording does not have
	unaskedCount   int // these, pings, and responses that answer nothing
	unsentCount    int // messages of the client, because the server has ended
}

// countRecorded finds out how many messages of each group are in the recording.
func (p *player) countRecorded() {
	for _, i := range p.rec.items {
		if !i.fromClient && i.m.Kind() != jsonrpc.Response {
			a := p.group(&i.m, requestOf(i))
			a.recorded = append(a.recorded, i)
		}
	}
}

// requestOf returns the request of which a recorded message is the progress.
func requestOf(i *item) *item {
	if i.m.Method() != "notifications/progress" {
		return nil
	}
	return i.request
}

func groupOf(m *jsonrpc.Message, about *item) group { return group{m.Kind(), m.Method(), about} }

func (p *player) group(m *jsonrpc.Message, about *item) *arrivals {
	g := groupOf(m, about)
	if p.groups[g] == nil {
		p.groups[g] = &arrivals{}
	}
	return p.groups[g]
}

func (p *player) play(ctx context.Context) error {
	began := time.Now()
	var before, first time.Time // of the client's last message, of the first
	var need []func() bool      // what has to have come, and how to give it up
	var waive []func()
	for n, i := range p.rec.items {
		if first.IsZero() {
			first, before = i.time, i.time
		}
		if !i.fromClient {
			come, giveUp := p.expectItem(i)
			need, waive = append(need, come), append(waive, giveUp)
			continue
		}
		over, err := p.await(ctx, need, waive, p.rec.items[max(n-1, 0)].time.Sub(before))
		switch {
		case err != nil:
			return err
		case over:
			p.countUnsent(p.rec.items[n:])
			return nil
		case p.Timing:
			if err := p.pause(ctx, began.Add(i.time.Sub(first))); err != nil {
				return err
			}
		}
		need, waive, before = nil, nil, i.time
		if err := p.send(ctx, i); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.countUnsent(p.rec.items[n:])
			return nil
		}
	}
	_, err := p.await(ctx, need, waive, p.rec.items[len(p.rec.items)-1].time.Sub(before))
	return err
}

// countUnsent counts what is not sent any more.
func (p *player) countUnsent(items []*item) {
	for _, i := range items {
		if i.fromClient {
			p.unsentCount++
		}
	}
}

// pause waits until then. What comes meanwhile may have to be replied to.
func (p *player) pause(ctx context.Context, then time.Time) error {
	t := time.NewTimer(time.Until(then))
	defer t.Stop()
	for {
		if err := p.reply(ctx); err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		select {
		case <-t.C:
			return nil
		case <-p.wakeup:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// expectItem returns what says whether a message of the server has come, and what gives it up.
// Both are called with mu held.
func (p *player) expectItem(i *item) (come func() bool, giveUp func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.m.Kind() == jsonrpc.Response {
		return func() bool {
				c := p.callsByItem[i.request]
				return c == nil || c.missed || c.answer.Kind() != jsonrpc.Invalid
			}, func() {
				if c := p.callsByItem[i.request]; c != nil {
					c.missed = true
				}
			}
	}
	a := p.group(&i.m, requestOf(i))
	a.expectedCount++
	due := a.expectedCount
	return func() bool { return len(a.arrived)+a.missedCount >= due },
		func() { a.missedCount = max(a.missedCount, due-len(a.arrived)) }
}

// maxBelievedDuration is for how long Play believes a recording that something took: its times may be made up.
const maxBelievedDuration = 24 * time.Hour

// await waits until all of need is true, for as long as it took in the recording and Wait
// more; what has not come then is waited for no more. over: the server has ended.
func (p *player) await(ctx context.Context, need []func() bool, waive []func(), took time.Duration) (over bool, err error) {
	t := time.NewTimer(min(max(took, 0), maxBelievedDuration) + p.Wait)
	defer t.Stop()
	for {
		if err := p.reply(ctx); err != nil && ctx.Err() != nil {
			return false, ctx.Err()
		}
		p.mu.Lock()
		for len(need) > 0 && need[0]() {
			need, waive = need[1:], waive[1:]
		}
		over = p.receiveErr != nil
		p.mu.Unlock()
		if len(need) == 0 || over {
			return over, nil
		}
		select {
		case <-p.wakeup:
		case <-t.C:
			p.mu.Lock()
			for n := range need {
				if !need[n]() {
					waive[n]()
				}
			}
			p.mu.Unlock()
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// reply sends what the server is told at once.
func (p *player) reply(ctx context.Context) error {
	for {
		p.mu.Lock()
		if len(p.replies) == 0 || p.receiveErr != nil {
			p.mu.Unlock()
			return nil
		}
		m := p.replies[0]
		p.replies = p.replies[1:]
		p.mu.Unlock()
		if err := p.conn.Send(ctx, m); err != nil {
			return err
		}
	}
}

// wake makes await look again.
func (p *player) wake() {
	select {
	case p.wakeup <- struct{}{}:
	default:
	}
}

// send sends a message of the client. Nothing is sent of one that is about what has not come.
func (p *player) send(ctx context.Context, i *item) error {
	m, ok := p.withNewIDs(i)
	if !ok {
		return nil
	}
	if err := p.conn.Send(ctx, m); err != nil {
		return err
	}
	p.mu.Lock()
	p.sentCount++
	p.mu.Unlock()
	return nil
}

// withNewIDs returns a message of the client with the ids, tokens and cursors of this run.
func (p *player) withNewIDs(i *item) (m jsonrpc.Message, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastLine = i.line
	switch m = i.m; m.Kind() {
	case jsonrpc.Request:
		c := &call{request: i}
		id := p.newID(m.ID())
		p.callsByID[id], p.callsByItem[i] = c, c
		m = p.replaceOpaque(m.WithID(id))
		if token := m.ProgressToken(); !token.IsZero() {
			token = p.newID(token)
			p.tokens[token] = i
			m = m.WithProgressToken(token)
		}
		return m, true
	case jsonrpc.Response:
		q := p.findServerRequest(i.request)
		if q == nil {
			return m, false
		}
		return m.WithID(q.m.ID()), true
	}
	switch m.Method() {
	case "notifications/cancelled":
		for id, c := range p.callsByID {
			if i.request != nil && c.request == i.request {
				return m.WithCancelledID(id), true
			}
		}
		return m, false
	case "notifications/progress":
		if i.request == nil {
			return m, false
		}
		q := p.findServerRequest(i.request)
		if q == nil || q.m.ProgressToken().IsZero() {
			return m, false
		}
		return m.WithProgressToken(q.m.ProgressToken()), true
	}
	return p.replaceOpaque(m), true
}

// newID returns an id or token that was not used yet, of the type of the recorded one.
func (p *player) newID(like jsonrpc.ID) jsonrpc.ID {
	p.lastID++
	if like.String()[0] == '"' {
		return jsonrpc.StringID("replay-" + strconv.FormatInt(p.lastID, 10))
	}
	return jsonrpc.IntID(p.lastID)
}

// findServerRequest returns what came for a recorded request of the server: an equal one, else the
// first that stands for no other. nil: nothing came.
func (p *player) findServerRequest(recorded *item) *arrival {
	if q := p.serverRequests[recorded]; q != nil {
		return q
	}
	var first *arrival
	key := keyOf(&recorded.m)
	for _, a := range p.group(&recorded.m, nil).arrived {
		if a.recorded != nil || a.refused {
			continue
		}
		if a.key == key {
			first = a
			break
		}
		if first == nil {
			first = a
		}
	}
	if first != nil {
		first.recorded = recorded
		p.serverRequests[recorded] = first
	}
	return first
}

// keyOf returns a short text that is the same for equal requests and notifications.
func keyOf(m *jsonrpc.Message) string {
	sum := sha256.Sum256(canonical(append([]byte(m.Method()), ' '), paramsOf(m)))
	return string(sum[:])
}

// playerSink takes what the server says. It never waits.
type playerSink struct{ *player }

func (s playerSink) TrySend(m jsonrpc.Message) bool {
	s.takeMessage(m)
	s.wake()
	return true
}

func (s playerSink) Send(_ context.Context, m jsonrpc.Message) error {
	s.TrySend(m)
	return nil
}

// maxExtra is how many messages are kept that the recording does not have.
const maxExtra = 1000

// maxUnrecorded is how many messages a server may send that the recording does not have, and pings, until it is treated
// as if it had ended: it may never stop, and wants each answered.
const maxUnrecorded = 10 * maxExtra

var errUnrecorded = fmt.Errorf("it has sent more than %d messages that the recording does not have", maxUnrecorded)

// takeMessage notes a message of the server.
func (p *player) takeMessage(m jsonrpc.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unaskedCount > maxUnrecorded {
		p.receiveErr = cmp.Or(p.receiveErr, errUnrecorded)
		return
	}
	switch m.Kind() {
	case jsonrpc.Response:
		id, c, ok := jsonrpc.Find(p.callsByID, m.ID())
		if !ok {
			p.unaskedCount++
		}
		switch {
		case !ok && len(p.strayResponses) < maxExtra:
			p.strayResponses = append(p.strayResponses, fmt.Sprintf("an answer to no request, with the id %s", shorten(m.ID().String())))
		case ok:
			delete(p.callsByID, id)
			c.answer = m
			p.learnOpaque(c)
		}
	case jsonrpc.Request:
		if m.Method() == "ping" {
			p.unaskedCount++
			p.replies = append(p.replies, jsonrpc.NewResult(m.ID(), nil))
			return
		}
		q, isExtra := p.noteArrival(m, nil)
		if isExtra {
			q.refused = true
			if len(p.unanswered) < maxExtra {
				p.unanswered = append(p.unanswered, q)
			}
			p.replies = append(p.replies, jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, "the recording has no answer to this request", nil))
		}
	case jsonrpc.Notification:
		var about *item
		if m.Method() == "notifications/progress" {
			about = p.tokens[m.ProgressToken()]
		}
		p.noteArrival(m, about)
	}
}

// noteArrival notes a request or notification. extra: there are more of its group than in the
// recording.
func (p *player) noteArrival(m jsonrpc.Message, about *item) (q *arrival, extra bool) {
	q = &arrival{m: m, afterLine: p.lastLine, key: keyOf(&m)}
	a := p.groups[groupOf(&m, about)]
	if extra = a == nil || len(a.arrived) >= len(a.recorded); !extra {
		a.arrived = append(a.arrived, q)
		return q, false
	}
	p.unaskedCount++
	if p.extraCount++; p.extraCount <= maxExtra {
		a = p.group(&m, about)
		a.arrived = append(a.arrived, q)
	}
	return q, true
}
