package streamclient

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/sse"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

const (
	defaultReconnectDelay = time.Second           // how long to wait before a stream is opened again, if the server has not said
	minReconnectDelay     = 10 * time.Millisecond // the shortest wait before a stream is opened again, whatever the server says
	minBackoff            = time.Second / 4       // what the wait grows from after fruitless connections, if the server wants a shorter one
	minPollRetry          = time.Second / 4       // a server whose retry field is no shorter than this, or that has sent none, may end each connection of a stream early, behind an event id: it lets itself be polled
	maxBackoff            = 30 * time.Second      // up to which the wait grows after fruitless connections
	maxServerRetry        = 10 * time.Minute      // the longest wait that a server's retry field may ask for
	steadyAfter           = 10 * time.Second      // a connection that lasts so long does not count as fruitless
)

// resumePoint is how far a stream was read, over all its connections, and when to
// connect again.
type resumePoint struct {
	lastID   string        // the id of the last event; "": the stream cannot be resumed
	retry    time.Duration // the server's retry field, if hasRetry
	hasRetry bool          // the server has sent a retry field
	failures int           // how many connections in a row were fruitless
	giveUpAt time.Time     // when the time for fruitless connections is over; zero: there was none since the last progress
}

// noteConnectionEnd notes what the reader of a connection has learned, at the connection's end, and
// counts the connection in failures if it was fruitless: it brought no data, or ended at the event that
// was the last already, because the server repeats itself. A connection is never fruitless if it lasted
// for steadyAfter, or if the server lets itself be polled: it sends an id each time, if only the same
// one and without data, and its last retry field, if it has sent one, was at least minPollRetry (LE7). An id that is new is
// progress all the same.
func (s *resumePoint) noteConnectionEnd(r *sse.Reader, hasData bool, lifetime time.Duration) {
	if d, ok := r.Retry(); ok {
		s.retry, s.hasRetry = d, true
	}
	polled, before := false, s.lastID
	repeated := before != "" && r.LastEventID() == before
	fruitful := hasData && !repeated || lifetime >= steadyAfter
	if id := r.LastEventID(); id != "" {
		if !isSendable(id) {
			id = "" // it cannot be asked for: the stream cannot be resumed
		}
		s.lastID = id
		polled = s.serverWait() >= minPollRetry && !(hasData && repeated)
	}
	if fruitful || polled {
		s.failures = 0
	} else {
		s.failures++
	}
	if fruitful || polled || s.lastID != before {
		s.giveUpAt = time.Time{}
	}
}

// timeLeft returns how much is left of limit, the time for fruitless connections; 0 or negative: nothing is. That time
// begins with the first call of timeLeft since there was progress.
func (s *resumePoint) timeLeft(limit time.Duration) time.Duration {
	if s.giveUpAt.IsZero() {
		s.giveUpAt = time.Now().Add(limit)
	}
	return time.Until(s.giveUpAt)
}

// isSendable reports whether an event id can be the value of a header.
func isSendable(id string) bool {
	return utf8.ValidString(id) && !strings.ContainsFunc(id, unicode.IsControl)
}

// serverWait returns how long the server wants its client to wait before it connects again,
// within minReconnectDelay and maxServerRetry.
func (s *resumePoint) serverWait() time.Duration {
	if s.hasRetry {
		return min(max(s.retry, minReconnectDelay), maxServerRetry)
	}
	return defaultReconnectDelay
}

// isExpired reports whether nothing is left of the time that timeLeft has begun.
func (s *resumePoint) isExpired() bool { return !s.giveUpAt.IsZero() && time.Until(s.giveUpAt) <= 0 }

// nextDelay returns how long to wait before the next connection: exactly as long
// as the server has said, at first (LE7, LE8). From the second fruitless connection in a
// row on the wait grows, up to maxBackoff. It does not go beyond the time for
// fruitless ones while there is some left.
func (s *resumePoint) nextDelay() time.Duration {
	d := s.serverWait()
	if s.failures > 1 && d < maxBackoff {
		d = max(d, minBackoff)
		for range min(s.failures, 10) {
			d *= 2
		}
		d = min(d, maxBackoff)
		d -= rand.N(d / 4)
	}
	if left := time.Until(s.giveUpAt); left > 0 {
		d = min(d, left)
	}
	return d
}

// readEvents hands on what a stream carries, until the stream ends or an event is at fault,
// which makes call fail; hasData says that there was an event with data. A nil call means the
// standalone stream, which no single event can make fail: such an event is dropped.
func (c *conn) readEvents(r *sse.Reader, call *call, session *session) (hasData bool, fault *httpdial.Fault) {
	lingering := false
	for {
		event, err := r.Next()
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			fault = c.target.Peer.TooLargeFault(c.opts.MaxMessageSize)
		case err != nil:
			return hasData, nil
		case len(event.Data) == 0:
			continue
		case event.Name != "" && event.Name != "message": // LE8
			hasData = true
			continue
		default:
			fault = c.handleIncoming(event.Data, call, session)
		}
		hasData = true
		if fault != nil {
			if call != nil {
				return hasData, fault
			}
			c.log.Warn("event of the server dropped", "reason", fault.Reason)
		}
		if call != nil && !lingering && call.isDone() {
			// The server should end the stream now; see to it that it ends.
			lingering = true
			defer time.AfterFunc(streamLinger, call.cancel).Stop()
		}
	}
}

// readCallStream reads the event stream that answers a POST, and resumes it as
// often as it ends before the response (LE7), unless it had no event id.
func (c *conn) readCallStream(call *call, session *session, resp *http.Response) *httpdial.Fault {
	point := resumePoint{}
	for {
		since := time.Now()
		r := sse.NewReader(resp.Body, c.opts.MaxMessageSize)
		hasData, fault := c.readEvents(r, call, session)
		resp.Body.Close()
		point.noteConnectionEnd(r, hasData, time.Since(since))
		switch {
		case call.isDone() || !call.wantsResponse():
			return nil
		case fault != nil:
			return fault
		case call.ctx.Err() != nil:
			return c.target.Peer.NetFault(call.ctx.Err())
		case point.lastID == "":
			return &httpdial.Fault{Reason: httpdial.ReasonConnectionLost, Transient: true,
				Text: fmt.Sprintf("%s ended the stream before the response, which cannot be fetched again; the request may have been carried out", c.target.Peer)}
		}
		c.log.Debug("resuming a stream", "method", call.method)
		if resp, fault = c.resume(call, session, &point); resp == nil {
			return fault
		}
	}
}

// resume connects to the rest of the stream of a call, which it returns; it tries for ResumeTimeout
// from the first attempt on. If both results are nil, the call was answered meanwhile.
func (c *conn) resume(call *call, session *session, point *resumePoint) (*http.Response, *httpdial.Fault) {
	why := &httpdial.Fault{}
	for !point.isExpired() {
		if !httpdial.Pause(call.ctx, call.done, point.nextDelay()) {
			if call.isDone() {
				return nil, nil
			}
			return nil, c.target.Peer.NetFault(call.ctx.Err())
		}
		resp, fault := c.openStreamWithin(call.ctx, point.timeLeft(c.opts.ResumeTimeout), session, point.lastID)
		switch {
		case fault != nil && (!fault.Transient || fault.Status == http.StatusNotImplemented):
			return nil, c.resultLostFault(fault)
		case fault != nil:
			point.failures++
			why = fault
		case httpdial.MediaType(resp) == wire.TypeSSE:
			return resp, nil
		case httpdial.MediaType(resp) == wire.TypeJSON: // not foreseen, but plain what it means
			defer resp.Body.Close()
			return nil, c.readJSONReply(call, session, resp)
		default:
			resp.Body.Close()
			return nil, c.resultLostFault(&httpdial.Fault{Status: resp.StatusCode})
		}
	}
	lost := c.resultLostFault(why)
	lost.Text += fmt.Sprintf("; it was tried for %s (--resume-timeout)", c.opts.ResumeTimeout)
	return nil, lost
}

// resultLostFault returns the fault of a call that may have been processed, but whose result nobody
// will know: its stream broke, and why is what came of the last attempt to resume it. The call is not
// sent again: only its sender can say whether that is safe.
func (c *conn) resultLostFault(why *httpdial.Fault) *httpdial.Fault {
	f := &httpdial.Fault{Reason: httpdial.ReasonResultLost, Status: why.Status}
	f.Text = fmt.Sprintf("the stream from %s broke and cannot be resumed; the request may have been carried out, but its result is lost", c.target.Peer)
	if why.Status != 0 {
		f.Text += " (the server answered " + httpdial.StatusText(why.Status) + ")"
	}
	return f
}

// listener reads the standalone streams of the sessions of a conn.
type listener struct {
	c *conn // the conn whose sessions have the streams
}

// startListening starts to read the standalone stream of the session (LE9), unless
// that was done, or session is nil. The right time is when the server has accepted
// notifications/initialized; a client that leaves that out gets the stream
// with its first request.
func (l *listener) startListening(session *session) {
	c := l.c
	if session == nil {
		return
	}
	c.ledger.Lock()
	begun := session.listening
	session.listening = true
	c.ledger.Unlock()
	if !begun {
		c.Go(func() { l.listen(session) })
	}
}

// startListeningAndWait starts to read the standalone stream of the session, as startListening does, and waits until
// the server has answered the GET, for listenTimeout at most: what the server says to the requests that follow should
// find the stream, and some servers take the first GET after a request for a resumption. A nil session: nothing is done.
func (l *listener) startListeningAndWait(session *session) {
	if session == nil {
		return
	}
	l.startListening(session)
	httpdial.Pause(session.ctx, session.listenAnswered, listenTimeout)
}

// listen is the goroutine that reads the standalone stream of the session, and opens it again when it ends, for as long
// as the session lasts, or until it is known that the server offers none.
func (l *listener) listen(session *session) {
	c := l.c
	defer close(session.noListenStream)
	heard := sync.OnceFunc(func() { close(session.listenAnswered) })
	point := resumePoint{}
	for opened := false; ; {
		resp, fault := c.openStream(httpdial.Unattended(session.ctx), session, point.lastID)
		heard()
		switch {
		case session.ctx.Err() != nil:
			if resp != nil {
				resp.Body.Close()
			}
			return
		case fault == nil && httpdial.MediaType(resp) == wire.TypeSSE:
			opened = true
			l.setStreamUnavailable(session, false)
			l.readStandaloneStream(session, resp, &point)
		case fault == nil:
			resp.Body.Close()
			c.log.Warn("the server's standalone stream is no event stream: going without", "status", resp.StatusCode)
			return
		case fault.Status == http.StatusNotFound && opened && session.id != "": // LE5
			c.renewer.repairSession(session)
			return
		case fault.Transient && fault.Status != http.StatusNotImplemented:
			point.failures++
		case opened && fault.Reason == httpdial.ReasonAuthRequired && c.opts.AuthorizeTimeout != 0: // until somebody signs in for a request
			point.failures++
		case fault.Status == http.StatusBadRequest && point.lastID != "": // the event is not known any more
			point.lastID = ""
			point.failures++
		default:
			if fault.Status != http.StatusMethodNotAllowed {
				c.log.Warn("the server's standalone stream cannot be had: going without", "reason", fault.Reason, "status", fault.Status)
			}
			return
		}
		if point.failures > 0 && point.timeLeft(c.opts.ResumeTimeout) <= 0 {
			l.setStreamUnavailable(session, true)
		}
		if !httpdial.Pause(session.ctx, nil, point.nextDelay()) {
			return
		}
	}
}

// observeStream tells the Observer of a standalone stream that is resumed behind the event from; "": it is
// a new one. ended tells that it has ended.
func (l *listener) observeStream(from string) (ended func()) {
	e := observe.Stream{Hop: observe.Upstream, Name: "standalone", Action: "opened", FromEventID: from}
	if from != "" {
		e.Action = "resumed"
	}
	l.c.target.Session.Stream(e)
	return func() {
		l.c.target.Session.Stream(observe.Stream{Hop: observe.Upstream, Name: e.Name, Action: "closed"})
	}
}

// setStreamUnavailable notes whether the session's standalone stream cannot be had. If it cannot, those
// who wait for a response on it wait no longer.
func (l *listener) setStreamUnavailable(session *session, unavailable bool) {
	c := l.c
	c.ledger.Lock()
	defer c.ledger.Unlock()
	switch {
	case unavailable == session.isStreamUnavailable:
	case unavailable:
		close(session.streamUnavailable)
	default:
		session.streamUnavailable = make(chan struct{})
	}
	session.isStreamUnavailable = unavailable
}

// streamUnavailableOf returns a channel that is closed once the session's standalone stream cannot be had.
func (l *listener) streamUnavailableOf(session *session) <-chan struct{} {
	c := l.c
	c.ledger.Lock()
	defer c.ledger.Unlock()
	return session.streamUnavailable
}

// readStandaloneStream hands on what resp, a connection of the standalone stream, carries, until it ends. Then point
// notes how far the stream was read.
func (l *listener) readStandaloneStream(session *session, resp *http.Response, point *resumePoint) {
	c := l.c
	defer l.observeStream(point.lastID)()
	defer resp.Body.Close()
	since := time.Now()
	r := sse.NewReader(resp.Body, c.opts.MaxMessageSize)
	hasData, _ := c.readEvents(r, nil, session)
	point.noteConnectionEnd(r, hasData, time.Since(since))
}
