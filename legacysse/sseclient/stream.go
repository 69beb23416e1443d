package sseclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/internal/wire"
	"github.com/mcp-bridge/mcp-bridge/sse"
)

const (
	defaultReconnectDelay = time.Second           // how long to wait before the stream is opened again, if the server has not said
	minReconnectDelay     = 10 * time.Millisecond // the shortest wait before the stream is opened again, whatever the server says
	maxBackoff            = 30 * time.Second      // up to which the wait grows after failures
	maxServerRetry        = 10 * time.Minute      // the longest wait that a server's retry field may ask for
	steadyAfter           = 10 * time.Second      // a stream that lasts so long does not count as a failure
)

const reasonEndpoint = "foreign_endpoint" // the Reason of a Fault: the endpoint event names another server, or no valid address (SS6)

// openStream opens the event stream, waits for the endpoint event (SS6), and starts the goroutine that reads the
// stream. wrongTransport says that there is no HTTP+SSE server at the URL. The session ends with ctx.
func (c *conn) openStream(ctx context.Context) (opened *session, wrongTransport bool, fault *httpdial.Fault) {
	s := &session{ended: make(chan struct{}), began: time.Now()}
	s.ctx, s.stop = context.WithCancel(ctx)
	endpointTimer := time.AfterFunc(httpdial.TimeoutWithSignIn(c.opts.ConnectTimeout+c.opts.EndpointTimeout, c.opts.AuthorizeTimeout), s.stop)
	defer endpointTimer.Stop()
	req := c.target.NewRequest(s.ctx, http.MethodGet)
	req.Header["Accept"] = acceptSSE
	resp, fault := c.target.Do(req)
	if fault != nil {
		if s.ctx.Err() != nil {
			fault = c.target.Peer.NetFault(context.DeadlineExceeded)
		}
		s.stop()
		return nil, false, fault
	}
	endpointTimer.Reset(c.opts.EndpointTimeout)
	wrongTransport, fault = c.checkResponse(resp)
	if fault == nil {
		r := sse.NewReader(resp.Body, c.opts.MaxMessageSize)
		if s.endpoint, wrongTransport, fault = c.awaitEndpoint(r, resp, s); fault == nil {
			s.peer = c.target.Peer.AtURL(s.endpoint, nil)
			if endpointTimer.Stop() && c.Go(func() { c.readStream(s, r, resp.Body) }) {
				return s, false, nil
			}
			fault = c.target.Peer.NetFault(context.DeadlineExceeded)
		}
	}
	s.stop()
	resp.Body.Close()
	return nil, wrongTransport, fault
}

// checkResponse returns what is wrong with the reply to the GET; nil: it is an event stream.
// wrongTransport says that there is no HTTP+SSE server at the URL.
func (c *conn) checkResponse(resp *http.Response) (wrongTransport bool, fault *httpdial.Fault) {
	status := resp.StatusCode
	if status/100 != 2 {
		fault = c.target.Peer.RefusalFault(resp)
		fault.ServerError = jsonrpc.Message{} // it does not know what it answers
		switch status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
			return false, fault // LE13
		}
		return status/100 == 4 && !fault.Transient, fault
	}
	if t := httpdial.MediaType(resp); t != wire.TypeSSE {
		return true, &httpdial.Fault{Reason: httpdial.ReasonNotMCP, Status: status,
			Text: fmt.Sprintf("%s answered with %q, not with an event stream; is this the URL of an HTTP+SSE server? It often ends in /sse", c.target.Peer, c.target.Peer.WithholdingSent(resp).WithholdSecrets(t))}
	}
	return false, nil
}

// awaitEndpoint reads the event stream up to the endpoint event, and returns the address for POSTs that
// it names. wrongTransport says that no endpoint event came: there is no HTTP+SSE server at the URL.
func (c *conn) awaitEndpoint(r *sse.Reader, resp *http.Response, s *session) (endpoint *url.URL, wrongTransport bool, fault *httpdial.Fault) {
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
			return nil, true, &httpdial.Fault{Reason: httpdial.ReasonNotMCP, Status: resp.StatusCode, Text: fmt.Sprintf(text, c.target.Peer)}
		case event.Name == "endpoint":
			base := c.target.URL
			if resp.Request != nil && resp.Request.URL != nil {
				base = resp.Request.URL // after redirects
			}
			u, err := resolveEndpoint(base, string(event.Data))
			if err != nil {
				return nil, false, &httpdial.Fault{Reason: reasonEndpoint, Text: fmt.Sprintf("%s cannot be used: %v", c.target.Peer, err)}
			}
			return u, false, nil
		}
	}
}

// maxEndpointSize is how long, in bytes, the address in an endpoint event may be.
const maxEndpointSize = 8 << 10

// resolveEndpoint returns the address for POSTs that an endpoint event names,
// relative to the address of the stream. Both must have the same origin:
// credentials go along with every POST (SS6).
func resolveEndpoint(stream *url.URL, text string) (*url.URL, error) {
	ref, err := url.Parse(strings.TrimSpace(text))
	if err != nil || len(text) > maxEndpointSize || ref.Opaque != "" || *ref == (url.URL{}) {
		return nil, errors.New("its endpoint event names no valid address") // err would repeat it, with the session's id
	}
	u := stream.ResolveReference(ref)
	u.RawQuery = escapeQuery(u.RawQuery)
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if !httpdial.SameOrigin(stream, u) {
		return nil, fmt.Errorf("its endpoint event names another server, %s://%s, which would get the credentials", u.Scheme, u.Host)
	}
	return u, nil
}

// escapeQuery percent-encodes what cannot stand in the first line of a request, as browsers do;
// url.Parse leaves a query as it is.
func escapeQuery(query string) string {
	var b strings.Builder
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// readStream is the goroutine that reads the event stream of s, whose body it closes at the end: it
// hands on the messages in it until it ends, sets s.endFault and s.serverRetry, and then closes s.ended.
func (c *conn) readStream(s *session, r *sse.Reader, body io.Closer) {
	defer close(s.ended)
	c.target.Session.Stream(observe.Stream{Hop: observe.Upstream, Name: "events", Action: "opened"})
	defer c.observeStreamEnd(s)
	defer body.Close()
	defer s.stop()
	for {
		event, err := r.Next()
		switch {
		case err == sse.ErrTooLarge:
			s.endFault = c.target.Peer.TooLargeFault(c.opts.MaxMessageSize)
		case err != nil:
			s.endFault = c.streamFault(err)
		case len(event.Data) > 0 && (event.Name == "" || event.Name == "message"):
			c.handleIncoming(event.Data, s)
		}
		if err != nil {
			if retry, ok := r.Retry(); ok {
				s.serverRetry = max(retry, minReconnectDelay) // 0 would mean that there is none
			}
			return
		}
	}
}

// observeStreamEnd tells the Observer that the event stream has ended.
func (c *conn) observeStreamEnd(s *session) {
	why := "the bridge has closed it"
	if c.Context().Err() == nil && s.endFault != nil {
		why = s.endFault.Text
	}
	c.target.Session.Stream(observe.Stream{Hop: observe.Upstream, Name: "events", Action: "closed", Reason: why})
}

// streamFault returns the fault for those who wait for a response when the event stream has ended with
// err.
func (c *conn) streamFault(err error) *httpdial.Fault {
	f := &httpdial.Fault{Reason: httpdial.ReasonConnectionLost, Transient: true}
	f.Text = fmt.Sprintf("the event stream from %s ended before the answer came; the request may have been carried out", c.target.Peer)
	if err != io.EOF {
		c.log.Debug("event stream broken", "error", c.target.Peer.NetFault(err).Text)
	}
	return f
}
