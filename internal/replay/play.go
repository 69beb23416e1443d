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

// DefaultWait is how much longer than in the recording Play waits for the server, unless PlayOptions.Wait says otherwise.
const DefaultWait = 10 * time.Second

// PlayOptions tune Play. The zero value works.
type PlayOptions struct {
	// Wait is how much longer than in the recording Play waits, before each message of the client and at the end, for what the server
	// has said there. What has not come by then is missing. 0: DefaultWait.
	Wait time.Duration

	// KeepPauses keeps the pauses of the recording. Otherwise a message is sent as soon as all
	// that the server has said before it has arrived, or is missing.
	KeepPauses bool

	// Ignore says which differences are not reported.
	Ignore Ignored
}

// ErrNoServer says that the server has answered with errors alone those requests to which the recording has results.
var ErrNoServer = errors.New("the server cannot be used")

// Play sends the client's messages of a recording into conn, with new ids and progress
// tokens, and compares what comes back. It returns when all that the server has said in the
// recording has come or is missing, when the server has ended, or when ctx is done. The
// error says why nothing could be compared; it wraps ErrNoServer, or is that of ctx. The caller
// closes conn.
func Play(ctx context.Context, conn bridge.Conn, rec *Recording, o PlayOptions) (*Report, error) {
	o.Wait = cmp.Or(o.Wait, DefaultWait)
	p := &player{
		PlayOptions: o, conn: conn, recording: rec, wakeup: make(chan struct{}, 1),
		callsByID: map[jsonrpc.ID]*call{}, callsByRequest: map[*recordedMessage]*call{}, requestsByToken: map[jsonrpc.ID]*recordedMessage{},
		groups: map[messageGroup]*arrivals{}, arrivalsByRequest: map[*recordedMessage]*arrival{}, newOpaqueTexts: map[string]string{},
	}
	p.collectRecorded()
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

// A messageGroup stands for the requests or notifications of a server that can stand for one another: a map key.
type messageGroup struct {
	kind       jsonrpc.Kind     // jsonrpc.Request or jsonrpc.Notification
	method     string           // the method that all of them have
	progressOf *recordedMessage // of progress: the client's request that it is about; nil: it is no progress, or of no known request
}

// arrivals are the messages of a group, in the recording and in this run.
type arrivals struct {
	recorded      []*recordedMessage // the messages of the group in the recording, in its order
	arrived       []*arrival         // the messages of the group that have come in this run, in their order
	expectedCount int                // how many must have come, or be given up, before the next message of the client is sent
	missedCount   int                // how many of expectedCount were given up, because they have not come in time
}

// An arrival is a request or notification that the server has sent in this run.
type arrival struct {
	m         jsonrpc.Message  // the message itself
	afterLine int              // line in the trace of the client's message that was sent last before it came; 0: none was
	key       string           // matchKey of m
	recorded  *recordedMessage // of a request: the recorded request in whose place it has come; nil: none so far

	hasNoAnswer bool // it is a request to which the recording has no answer
}

// A call is a request of the recorded client that was sent in this run.
type call struct {
	request *recordedMessage // the request as it was recorded
	answer  jsonrpc.Message  // the response of this run; zero, which is of kind jsonrpc.Invalid: none has come
	missed  bool             // the answer was given up, because it has not come in time
}

// player is one run of Play. The goroutine of Play sends; that of Conn.Receive takes what comes.
type player struct {
	PlayOptions
	conn      bridge.Conn   // the server
	recording *Recording    // what is played
	wakeup    chan struct{} // holds one element when something has come, for await and pause

	mu                 sync.Mutex                      // guards the rest; not held while sending
	receiveErr         error                           // why nothing more is received; nil: Receive goes on
	lastID             int64                           // the number in the last id or token that newID has made
	lastLine           int                             // line in the trace of the client's message that was sent last; 0: none was
	callsByID          map[jsonrpc.ID]*call            // the calls that have no answer so far, by the id of this run
	callsByRequest     map[*recordedMessage]*call      // all calls that were sent, by the recorded request
	requestsByToken    map[jsonrpc.ID]*recordedMessage // recorded requests of the client, by the progress token of this run
	groups             map[messageGroup]*arrivals      // requests and notifications of the server, recorded and of this run
	arrivalsByRequest  map[*recordedMessage]*arrival   // by recorded request of the server: the request of this run that stands for it; findServerRequest fills it
	pendingReplies     []jsonrpc.Message               // replies that are to be sent: to pings, and to requests that the recording has no answer to
	unansweredArrivals []*arrival                      // the first maxExtraMessages requests of the server that the recording has no answer to
	strayResponses     []string                        // descriptions of the first maxExtraMessages responses that answer no request
	newOpaqueTexts     map[string]string               // texts such as cursors that the server has said in this run, by param (see opaqueFields), a space and the recorded text
	sentCount          int                             // how many messages of the recorded client were sent
	extraCount         int                             // how many requests and notifications of the server the recording does not have
	unaskedCount       int                             // how many messages of the server, of all kinds, the recording does not have: extraCount, pings, and responses that answer nothing
	unsentCount        int                             // how many messages of the client were not sent, because the server had ended
}

// collectRecorded puts the recorded requests and notifications of the server into groups.
func (p *player) collectRecorded() {
	for _, i := range p.recording.messages {
		if !i.fromClient && i.m.Kind() != jsonrpc.Response {
			a := p.arrivalsOf(&i.m, progressRequest(i))
			a.recorded = append(a.recorded, i)
		}
	}
}

// progressRequest returns the request whose progress i tells; nil: i is no progress, or of no known request.
func progressRequest(i *recordedMessage) *recordedMessage {
	if i.m.Method() != "notifications/progress" {
		return nil
	}
	return i.request
}

// groupOf returns the messageGroup of a request or notification of the server. about is the client's request if it is progress;
// nil: none.
func groupOf(m *jsonrpc.Message, about *recordedMessage) messageGroup {
	return messageGroup{m.Kind(), m.Method(), about}
}

// arrivalsOf returns the arrivals of the group of m, and adds the group if there is none. about is as in groupOf.
func (p *player) arrivalsOf(m *jsonrpc.Message, about *recordedMessage) *arrivals {
	g := groupOf(m, about)
	if p.groups[g] == nil {
		p.groups[g] = &arrivals{}
	}
	return p.groups[g]
}

// play sends the client's messages, each once what the server has said before it in the recording has come, or was given up.
// The error is that of ctx.
func (p *player) play(ctx context.Context) error {
	began := time.Now()
	var lastSent, firstTime time.Time // of the client's last message, of the first
	var arrivedChecks []func() bool   // see expectMessage
	var giveUps []func()
	for n, i := range p.recording.messages {
		if firstTime.IsZero() {
			firstTime, lastSent = i.time, i.time
		}
		if !i.fromClient {
			hasArrived, giveUp := p.expectMessage(i)
			arrivedChecks, giveUps = append(arrivedChecks, hasArrived), append(giveUps, giveUp)
			continue
		}
		serverEnded, err := p.await(ctx, arrivedChecks, giveUps, p.recording.messages[max(n-1, 0)].time.Sub(lastSent))
		switch {
		case err != nil:
			return err
		case serverEnded:
			p.countUnsent(p.recording.messages[n:])
			return nil
		case p.KeepPauses:
			if err := p.pause(ctx, began.Add(i.time.Sub(firstTime))); err != nil {
				return err
			}
		}
		arrivedChecks, giveUps, lastSent = nil, nil, i.time
		if err := p.send(ctx, i); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.countUnsent(p.recording.messages[n:])
			return nil
		}
	}
	_, err := p.await(ctx, arrivedChecks, giveUps, p.recording.messages[len(p.recording.messages)-1].time.Sub(lastSent))
	return err
}

// countUnsent adds the client's messages in items, which are not sent any more, to unsentCount.
func (p *player) countUnsent(items []*recordedMessage) {
	for _, i := range items {
		if i.fromClient {
			p.unsentCount++
		}
	}
}

// pause waits until a time, and meanwhile sends replies that the server needs. The error is that of ctx.
func (p *player) pause(ctx context.Context, until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	for {
		if err := p.sendReplies(ctx); err != nil && ctx.Err() != nil {
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

// expectMessage returns two functions for i, a recorded message of the server: hasArrived reports whether one for it has come,
// was given up, or cannot come, since its request was not sent; giveUp gives it up. Both are called with mu held.
func (p *player) expectMessage(i *recordedMessage) (hasArrived func() bool, giveUp func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i.m.Kind() == jsonrpc.Response {
		return func() bool {
				c := p.callsByRequest[i.request]
				return c == nil || c.missed || c.answer.Kind() != jsonrpc.Invalid
			}, func() {
				if c := p.callsByRequest[i.request]; c != nil {
					c.missed = true
				}
			}
	}
	a := p.arrivalsOf(&i.m, progressRequest(i))
	a.expectedCount++
	due := a.expectedCount
	return func() bool { return len(a.arrived)+a.missedCount >= due },
		func() { a.missedCount = max(a.missedCount, due-len(a.arrived)) }
}

// maxBelievedDuration is the longest time that Play believes the server took for something in the recording: its times may be
// made up.
const maxBelievedDuration = 24 * time.Hour

// await waits until all of arrivedChecks are true or the server has ended, and meanwhile sends pendingReplies. It waits for
// recordedWait, which is how long that took in the recording, and Wait more. If this time passes, await gives up what has not
// come: giveUps has a function for each check, and those whose checks are false are called. serverEnded: nothing more will come,
// and nothing was given up. The error is that of ctx.
func (p *player) await(ctx context.Context, arrivedChecks []func() bool, giveUps []func(), recordedWait time.Duration) (serverEnded bool, err error) {
	t := time.NewTimer(min(max(recordedWait, 0), maxBelievedDuration) + p.Wait)
	defer t.Stop()
	for {
		if err := p.sendReplies(ctx); err != nil && ctx.Err() != nil {
			return false, ctx.Err()
		}
		p.mu.Lock()
		for len(arrivedChecks) > 0 && arrivedChecks[0]() {
			arrivedChecks, giveUps = arrivedChecks[1:], giveUps[1:]
		}
		serverEnded = p.receiveErr != nil
		p.mu.Unlock()
		if len(arrivedChecks) == 0 || serverEnded {
			return serverEnded, nil
		}
		select {
		case <-p.wakeup:
		case <-t.C:
			p.mu.Lock()
			for n := range arrivedChecks {
				if !arrivedChecks[n]() {
					giveUps[n]()
				}
			}
			p.mu.Unlock()
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// sendReplies sends pendingReplies, unless the server has ended. The error is that of the Conn.
func (p *player) sendReplies(ctx context.Context) error {
	for {
		p.mu.Lock()
		if len(p.pendingReplies) == 0 || p.receiveErr != nil {
			p.mu.Unlock()
			return nil
		}
		m := p.pendingReplies[0]
		p.pendingReplies = p.pendingReplies[1:]
		p.mu.Unlock()
		if err := p.conn.Send(ctx, m); err != nil {
			return err
		}
	}
}

// wake has await or pause look at what has come.
func (p *player) wake() {
	select {
	case p.wakeup <- struct{}{}:
	default:
	}
}

// send sends a recorded message of the client, unless withNewIDs says that it is to be left out.
func (p *player) send(ctx context.Context, i *recordedMessage) error {
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

// withNewIDs returns a recorded message of the client with the ids, tokens and opaque texts of this run, and keeps a request as
// a call. false: the message has to be left out. It is about a request of the server that in this run has not come, or has no
// progress token; or it cancels a request that was not sent, or was answered already.
func (p *player) withNewIDs(i *recordedMessage) (m jsonrpc.Message, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastLine = i.line
	switch m = i.m; m.Kind() {
	case jsonrpc.Request:
		c := &call{request: i}
		id := p.newID(m.ID())
		p.callsByID[id], p.callsByRequest[i] = c, c
		m = p.replaceOpaque(m.WithID(id))
		if token := m.ProgressToken(); !token.IsZero() {
			token = p.newID(token)
			p.requestsByToken[token] = i
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

// newID returns an id or progress token that was not used yet in this run, a string if like is one, else a number. It is called
// with mu held.
func (p *player) newID(like jsonrpc.ID) jsonrpc.ID {
	p.lastID++
	if like.String()[0] == '"' {
		return jsonrpc.StringID("replay-" + strconv.FormatInt(p.lastID, 10))
	}
	return jsonrpc.IntID(p.lastID)
}

// findServerRequest returns the request of this run that stands for a recorded request of the server: an equal one, or else the
// first that stands for no other; nil: none has come. It is called with mu held.
func (p *player) findServerRequest(recorded *recordedMessage) *arrival {
	if q := p.arrivalsByRequest[recorded]; q != nil {
		return q
	}
	var first *arrival
	key := matchKey(&recorded.m)
	for _, a := range p.arrivalsOf(&recorded.m, nil).arrived {
		if a.recorded != nil || a.hasNoAnswer {
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
		p.arrivalsByRequest[recorded] = first
	}
	return first
}

// matchKey returns a hash that is the same for requests and notifications with the same method and equal params (see paramsOf).
func matchKey(m *jsonrpc.Message) string {
	sum := sha256.Sum256(appendCanonical(append([]byte(m.Method()), ' '), paramsOf(m)))
	return string(sum[:])
}

// playerSink takes what the server says, for a player. It is a bridge.Sink that never waits.
type playerSink struct{ *player }

// TrySend takes a message of the server, always.
func (s playerSink) TrySend(m jsonrpc.Message) bool {
	s.takeMessage(m)
	s.wake()
	return true
}

// Send takes a message of the server, as TrySend does.
func (s playerSink) Send(_ context.Context, m jsonrpc.Message) error {
	s.TrySend(m)
	return nil
}

// maxExtraMessages is how many messages of the server that the recording does not have are kept for the report: of responses,
// of requests, and of requests and notifications together.
const maxExtraMessages = 1000

// maxUnrecordedMessages is the player.unaskedCount above which the server is treated as if it had ended: it may never stop, and
// its requests and pings are answered.
const maxUnrecordedMessages = 10 * maxExtraMessages

// errTooManyUnrecorded is the player.receiveErr after maxUnrecordedMessages: the server counts as ended, and what it still
// sends is thrown away.
var errTooManyUnrecorded = fmt.Errorf("it has sent more than %d messages that the recording does not have", maxUnrecordedMessages)

// takeMessage takes a message of the server. A response becomes the answer of its call, or a stray response if it has none. A ping gets
// a pending reply, and becomes nothing. Any other request, and a notification, becomes an arrival; a request to which the recording has
// no answer gets a pending reply as well. After maxUnrecordedMessages every message is thrown away.
func (p *player) takeMessage(m jsonrpc.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unaskedCount > maxUnrecordedMessages {
		p.receiveErr = cmp.Or(p.receiveErr, errTooManyUnrecorded)
		return
	}
	switch m.Kind() {
	case jsonrpc.Response:
		id, c, ok := jsonrpc.Find(p.callsByID, m.ID())
		if !ok {
			p.unaskedCount++
		}
		switch {
		case !ok && len(p.strayResponses) < maxExtraMessages:
			p.strayResponses = append(p.strayResponses, fmt.Sprintf("an answer to no request, with the id %s", escapeAndShorten(m.ID().String())))
		case ok:
			delete(p.callsByID, id)
			c.answer = m
			p.learnOpaque(c)
		}
	case jsonrpc.Request:
		if m.Method() == "ping" {
			p.unaskedCount++
			p.pendingReplies = append(p.pendingReplies, jsonrpc.NewResult(m.ID(), nil))
			return
		}
		q, isExtra := p.noteArrival(m, nil)
		if isExtra {
			q.hasNoAnswer = true
			if len(p.unansweredArrivals) < maxExtraMessages {
				p.unansweredArrivals = append(p.unansweredArrivals, q)
			}
			p.pendingReplies = append(p.pendingReplies, jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, "the recording has no answer to this request", nil))
		}
	case jsonrpc.Notification:
		var about *recordedMessage
		if m.Method() == "notifications/progress" {
			about = p.requestsByToken[m.ProgressToken()]
		}
		p.noteArrival(m, about)
	}
}

// noteArrival notes a request or notification of the server; about is as in groupOf. isExtra: more of its group have come than
// the recording has. All extra ones are counted, but only the first maxExtraMessages are kept for the report. It is called with mu held.
func (p *player) noteArrival(m jsonrpc.Message, about *recordedMessage) (arrived *arrival, isExtra bool) {
	arrived = &arrival{m: m, afterLine: p.lastLine, key: matchKey(&m)}
	a := p.groups[groupOf(&m, about)]
	if isExtra = a == nil || len(a.arrived) >= len(a.recorded); !isExtra {
		a.arrived = append(a.arrived, arrived)
		return arrived, false
	}
	p.unaskedCount++
	if p.extraCount++; p.extraCount <= maxExtraMessages {
		a = p.arrivalsOf(&m, about)
		a.arrived = append(a.arrived, arrived)
	}
	return arrived, true
}
