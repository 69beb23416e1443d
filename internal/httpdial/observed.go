package httpdial

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// Observed returns a RoundTripper that makes requests by rt and tells seen of each exchange, while somebody
// watches exchanges. With a nil seen it is rt itself. NewTarget calls it.
func Observed(rt http.RoundTripper, seen *observe.Session) http.RoundTripper {
	if seen == nil {
		return rt
	}
	return &observedTransport{rt, seen}
}

// Authorized returns the RoundTripper that authorize, a TargetOptions.Authorize, makes of rt: it adds credentials. If authorize
// is nil it is rt itself. NewTarget calls it.
func Authorized(rt http.RoundTripper, authorize func(http.RoundTripper) http.RoundTripper) http.RoundTripper {
	if authorize == nil {
		return rt
	}
	return authorize(rt)
}

// observedTransport is an http.RoundTripper that tells of each exchange when it is over: the reply has ended, or its body was closed;
// the request has failed; or the reply has made a connection of it, as for a WebSocket.
type observedTransport struct {
	http.RoundTripper
	session *observe.Session // is told of the exchanges
}

// RoundTrip implements http.RoundTripper. It makes the request, and tells the Session of the exchange when that is over. It
// tells nothing if nobody watched exchanges when the request began.
func (o *observedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !o.session.WantsExchanges() {
		return o.RoundTripper.RoundTrip(req)
	}
	x := &observedExchange{session: o.session, Exchange: observe.Exchange{
		Hop: observe.Upstream, Method: req.Method, URL: req.URL.String(), RequestHeader: req.Header, RequestBytes: max(req.ContentLength, 0), Began: time.Now(),
	}}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn:              x.noteConn,
		GotFirstResponseByte: x.noteFirstByte,
	}))
	resp, err := o.RoundTripper.RoundTrip(req)
	if err != nil {
		x.report(err)
		return resp, err
	}
	x.noteReply(resp)
	if _, upgraded := resp.Body.(io.Writer); upgraded { // it is a connection now
		x.report(nil)
		return resp, nil
	}
	x.ReadCloser, resp.Body = resp.Body, x
	return resp, nil
}

// observedExchange is an exchange in progress, and the body of its reply.
type observedExchange struct {
	io.ReadCloser
	session *observe.Session // is told of the exchange

	mu sync.Mutex // guards what follows
	observe.Exchange
	reported bool // session was told
}

// noteConn notes the address of the server's end of the connection.
func (x *observedExchange) noteConn(c httptrace.GotConnInfo) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.RemoteAddr = c.Conn.RemoteAddr().String()
}

// noteFirstByte notes that the first byte of the reply has come now.
func (x *observedExchange) noteFirstByte() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.FirstByte = time.Since(x.Began)
}

// noteReply notes the status, the headers and the HTTP version of the reply.
func (x *observedExchange) noteReply(resp *http.Response) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Status, x.ResponseHeader, x.Proto = resp.StatusCode, resp.Header, resp.Proto
}

// Read implements io.Reader: it reads the body of the reply, and reports the exchange at its end.
func (x *observedExchange) Read(p []byte) (int, error) {
	n, err := x.ReadCloser.Read(p)
	x.mu.Lock()
	x.ResponseBytes += int64(n)
	x.mu.Unlock()
	if err != nil {
		x.report(err)
	}
	return n, err
}

// Close implements io.Closer: it closes the body of the reply, and reports the exchange.
func (x *observedExchange) Close() error {
	err := x.ReadCloser.Close()
	x.report(nil)
	return err
}

// report tells session of the exchange, which has ended with err (nil or io.EOF: as it should). Only the
// first call counts.
func (x *observedExchange) report(err error) {
	if err == io.EOF {
		err = nil
	}
	x.mu.Lock()
	if x.reported {
		x.mu.Unlock()
		return
	}
	x.reported, x.Err, x.Duration = true, err, time.Since(x.Began)
	e := x.Exchange
	x.mu.Unlock()
	x.session.Exchange(&e)
}
