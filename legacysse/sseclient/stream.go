package sseclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/internal/wire"
	"github.com/mcp-bridge/mcp-bridge/sse"
)

const (
	streamFirst   = time.Second           // before the stream is opened again, if the server has not said
	streamLeast   = 10 * time.Millisecond // the wait is never shorter, whatever the server says
	streamLongest = 30 * time.Second      // the wait grows up to this
	streamMost    = 10 * time.Minute      // the longest retry that is honoured
	streamSteady  = 10 * time.Second      // a stream that has lived so long was no failure
)

const reasonEndpoint = "foreign_endpoint" // the endpoint event names another server (SS6)

// keep gets a session, and another one when that is lost, until there is no
// use in it any more.
func (c *conn) keep() {
	failures := 0 // in a row
	c.mu.Lock()
	refused := c.st.refused
	c.mu.Unlock()
	if refused > 1 {
		failures = refused - 1
		c.pause(delay(0, failures-1))
	}
	for c.ctx.Err() == nil {
		session, fault := c.connect()
		var wait time.Duration
		if fault != nil {
			wait = fault.RetryAfter
		} else {
			<-session.ended
			wait = session.retry
			if time.Since(session.began) >= streamSteady {
				failures = 0
			}
			c.lose(session)
		}
		if c.ctx.Err() != nil || c.retire() {
			return
		}
		c.pause(delay(wait, failures))
		failures++
	}
}

// retire ends the keeper if there is nothing for it to do.
func (c *conn) retire() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.st.down == nil && len(c.st.pending) == 0 || c.st.end != nil {
		c.st.keeper = false
		return true
	}
	return false
}

// pause waits, unless a client has come meanwhile that wants a session now.
func (c *conn) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.kick:
	case <-c.ctx.Done():
	}
}

// delay returns how long to wait before the next attempt: as long as the
// server has said at first, and longer while the attempts are in vain.
func delay(retry time.Duration, failures int) time.Duration {
	d := streamFirst
	if retry > 0 {
		d = min(max(retry, streamLeast), streamMost)
	}
	if failures == 0 || d >= streamLongest {
		return d
	}
	d = min(max(d, streamFirst)<<min(failures, 10), streamLongest)
	return d - rand.N(d/4)
}

// connect makes one attempt to get a session: for the requests that wait for
// one, or by initializing in the client's place.
func (c *conn) connect() (*session, *httpdial.Fault) {
	session, unopened, fault := c.open()
	if fault == nil && !c.install(session) {
		if fault = c.handshake(session); fault != nil {
			session.stop()
			<-session.ended
			c.lose(session)
		} else {
			c.log.Info("connected again", "url", c.peer.String())
			c.install(session)
			c.renewed(session)
		}
	}
	if fault != nil && c.ctx.Err() == nil {
		c.notOpened(fault, unopened)
	}
	return session, fault
}

// install makes a session the one that messages go to, and sends what has
// waited for it. It is false if there is nothing and the client does not know of
// this session yet.
func (c *conn) install(session *session) bool {
	if c.acquire(c.ctx, c.turn) != nil {
		return false
	}
	defer func() { <-c.turn }()
	c.mu.Lock()
	if len(c.st.pending) == 0 && !session.initialized {
		c.mu.Unlock()
		return false
	}
	var calls []*call
	for _, call := range c.st.pending {
		if c.st.calls[call.id] == call { // otherwise it was cancelled
			call.session = session
			calls = append(calls, call)
		}
	}
	c.st.pending, c.st.session, c.st.down = nil, session, nil
	c.mu.Unlock()
	for _, call := range calls {
		c.spawn(func() { c.carry(call) })
		c.await(c.ctx, call.accepted, call.written, aheadWait)
	}
	return true
}

// notOpened answers the requests that have waited for a session, and decides
// whether to go on trying.
func (c *conn) notOpened(fault *httpdial.Fault, unopened bool) {
	c.log.Warn("cannot connect", append(fault.Attrs(), "url", c.peer.String())...)
	c.mu.Lock()
	calls := c.st.pending
	c.st.pending = nil
	first := c.st.down == nil
	if unopened && c.opts.ReportUnopened {
		end := &UnopenedError{Status: fault.Status, Text: fault.Text}
		if !first {
			end.Estate = c.st.books.Estate(c.st.refused + 1)
			if c.st.gate == nil {
				c.st.gate = make(chan struct{}) // which stays shut
			}
		}
		c.mu.Unlock()
		c.refusals.Wait()
		c.finish(end)
		return
	}
	goesOn := !first || fault.Transient && !c.opts.NoRenew && c.st.books.Initialize.Kind() == jsonrpc.Request
	if goesOn {
		c.st.down = fault
	} else {
		c.st.books.Initialize = jsonrpc.Message{}
	}
	calls = slices.DeleteFunc(calls, func(call *call) bool { return c.st.calls[call.id] != call })
	for _, call := range calls {
		c.remove(call)
	}
	c.mu.Unlock()
	if goesOn {
		more := *fault
		more.Text = httpdial.Also(more.Text, "it is tried again for as long as the client stays")
		fault = &more
	}
	for _, call := range calls {
		c.answerFault(call, fault)
	}
}

// open opens the event stream and waits for its first event (SS6). unopened
// says that there is no HTTP+SSE server at the URL.
func (c *conn) open() (opened *session, unopened bool, fault *httpdial.Fault) {
	s := &session{ended: make(chan struct{}), began: time.Now()}
	s.ctx, s.stop = context.WithCancel(c.ctx)
	late := time.AfterFunc(c.opts.ConnectTimeout+c.opts.EndpointTimeout, s.stop)
	defer late.Stop()
	req := c.newRequest(s.ctx, http.MethodGet)
	req.Header["Accept"] = acceptSSE
	resp, fault := c.peer.Do(c.rt, req)
	if fault != nil {
		if s.ctx.Err() != nil {
			fault = c.peer.NetFault(context.DeadlineExceeded)
		}
		s.stop()
		return nil, false, fault
	}
	late.Reset(c.opts.EndpointTimeout)
	unopened, fault = c.judge(resp)
	if fault == nil {
		r := sse.NewReader(resp.Body, c.opts.MaxMessageSize)
		if s.endpoint, unopened, fault = c.awaitEndpoint(r, resp, s); fault == nil {
			s.peer = c.peer.At(s.endpoint, nil)
			if late.Stop() && c.spawn(func() { c.read(s, r, resp.Body) }) {
				return s, false, nil
			}
			fault = c.peer.NetFault(context.DeadlineExceeded)
		}
	}
	s.stop()
	resp.Body.Close()
	return nil, unopened, fault
}

// judge looks at what the GET was answered with.
func (c *conn) judge(resp *http.Response) (unopened bool, fault *httpdial.Fault) {
	status := resp.StatusCode
	if status/100 != 2 {
		fault = c.peer.RefusalFault(resp)
		fault.Own = jsonrpc.Message{} // it does not know what it answers
		switch status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
			return false, fault // LE13
		}
		return status/100 == 4 && !fault.Transient, fault
	}
	if t := httpdial.MediaType(resp); t != wire.TypeSSE {
		return true, &httpdial.Fault{Reason: httpdial.ReasonNotMCP, Status: status,
			Text: fmt.Sprintf("%s answered with %q, not with an event stream; is this the URL of an HTTP+SSE server? It often ends in /sse", c.peer, c.peer.Withhold(t))}
	}
	return false, nil
}

// awaitEndpoint reads up to the endpoint event.
func (c *conn) awaitEndpoint(r *sse.Reader, resp *http.Response, s *session) (*url.URL, bool, *httpdial.Fault) {
	for {
		event, err := r.Next()
		switch {
		case err == sse.ErrTooLarge:
			continue
		case err != nil:
			text := "%s ended its event stream without an endpoint event; is it an HTTP+SSE server?"
			if s.ctx.Err() != nil {
				text = "%s sent no endpoint event in time; is it an HTTP+SSE server?"
			}
			return nil, true, &httpdial.Fault{Reason: httpdial.ReasonNotMCP, Status: resp.StatusCode, Text: fmt.Sprintf(text, c.peer)}
		case event.Name == "endpoint":
			base := c.url
			if resp.Request != nil && resp.Request.URL != nil {
				base = resp.Request.URL // after redirects
			}
			u, err := resolveEndpoint(base, string(event.Data))
			if err != nil {
				return nil, false, &httpdial.Fault{Reason: reasonEndpoint, Text: fmt.Sprintf("%s cannot be used: %v", c.peer, err)}
			}
			return u, false, nil
		}
	}
}

// mostEndpoint is how long the address in an endpoint event may be.
const mostEndpoint = 8 << 10

// resolveEndpoint returns the address for POSTs that an endpoint event names,
// relative to the address of the stream. Both must have the same origin:
// credentials go along with every POST (SS6).
func resolveEndpoint(stream *url.URL, text string) (*url.URL, error) {
	ref, err := url.Parse(strings.TrimSpace(text))
	if err != nil || len(text) > mostEndpoint || ref.Opaque != "" || *ref == (url.URL{}) {
		return nil, errors.New("its endpoint event names no valid address") // err would repeat it, with the session's id
	}
	u := stream.ResolveReference(ref)
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if !httpdial.SameOrigin(stream, u) {
		return nil, fmt.Errorf("its endpoint event names another server, %s://%s, which would get the credentials", u.Scheme, u.Host)
	}
	return u, nil
}

// read hands on what the event stream carries, until it ends.
func (c *conn) read(s *session, r *sse.Reader, body io.Closer) {
	defer close(s.ended)
	defer body.Close()
	defer s.stop()
	for {
		event, err := r.Next()
		switch {
		case err == sse.ErrTooLarge:
			s.why = c.peer.TooLargeFault(c.opts.MaxMessageSize)
		case err != nil:
			s.why = c.streamFault(err)
		case len(event.Data) > 0 && (event.Name == "" || event.Name == "message"):
			c.incoming(event.Data, s)
		}
		if err != nil {
			s.retry, _ = r.Retry()
			return
		}
	}
}

// streamFault explains the end of the event stream to those who wait for a response.
func (c *conn) streamFault(err error) *httpdial.Fault {
	f := &httpdial.Fault{Reason: httpdial.ReasonBroken, Transient: true}
	f.Text = fmt.Sprintf("the event stream from %s ended before the answer came; the request may have been carried out", c.peer)
	if err != io.EOF {
		c.log.Debug("event stream broken", "error", c.peer.NetFault(err).Text)
	}
	return f
}

// lose deals with a session whose stream has ended: who waits for a response
// gets an error, and nobody waits any more for what the server has asked.
func (c *conn) lose(s *session) {
	c.mu.Lock()
	s.lost = true
	fault := s.why
	if s.forgotten != nil {
		fault = s.forgotten
	}
	if c.st.session == s {
		c.st.session = nil
		if c.st.books.Initialize.Kind() == jsonrpc.Request && !c.opts.NoRenew {
			c.st.down = &httpdial.Fault{Reason: fault.Reason, Status: fault.Status,
				Text: fmt.Sprintf("the session with %s is lost", c.peer)}
		}
	}
	var calls []*call
	for _, call := range c.st.calls {
		if call.session == s {
			calls = append(calls, call)
			c.remove(call)
		}
	}
	withdrawn := c.st.books.Withdrawn(s, "the connection to the server was lost")
	c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.log.Warn("the session is lost", "url", c.peer.String(), "reason", fault.Reason)
	for _, call := range calls {
		c.answerFault(call, fault)
	}
	for _, m := range withdrawn {
		c.push(c.ctx, m)
	}
	if c.opts.NoRenew {
		c.finish(ErrSessionLost)
	}
}
