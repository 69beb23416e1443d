package httpdial

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// maxWrites is how often an HTTP/2 request may be written before no new connection is opened for it any more. It is two because a
// server that ends a connection in good order (GOAWAY) names requests that it has not looked at, and they are sent again.
const maxWrites = 2

// errRefusedAgain is the error of a request for which no new connection is opened any more (maxWrites).
var errRefusedAgain = errors.New("the server has refused the request on one HTTP/2 connection after the other")

// writesKey is the key of a context's *http2Writes.
type writesKey struct{}

// http2Writes counts how often a request was written to HTTP/2 connections.
type http2Writes struct {
	isHTTP2 atomic.Bool  // the connection that the request has now speaks HTTP/2
	count   atomic.Int32 // how often the request was written to such a connection
}

// withWritesCounted returns req with a context in which its writes to HTTP/2 connections are counted, for
// limitWrites. When the server has reset an HTTP/2 request with REFUSED_STREAM or PROTOCOL_ERROR, net/http sends it
// again: at most seven times on one connection, but on any number of connections. Without a limit, one request to a
// server that always does so becomes hundreds a second, and has no end. Only https has HTTP/2 here.
func withWritesCounted(req *http.Request) *http.Request {
	if req.URL.Scheme != "https" {
		return req
	}
	writes := new(http2Writes)
	ctx := context.WithValue(req.Context(), writesKey{}, writes)
	return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: writes.noteConn, WroteHeaders: writes.noteWrite}))
}

// noteConn notes which connection the request has now.
func (w *http2Writes) noteConn(info httptrace.GotConnInfo) {
	conn, ok := info.Conn.(*tls.Conn)
	w.isHTTP2.Store(ok && conn.ConnectionState().NegotiatedProtocol == "h2")
}

// noteWrite counts a write of the request, if its connection speaks HTTP/2.
func (w *http2Writes) noteWrite() {
	if w.isHTTP2.Load() {
		w.count.Add(1)
	}
}

// dialFunc opens a connection, as http.Transport.DialContext does.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// limitWrites returns dial with a limit: it opens no connection for a request of withWritesCounted that was
// written maxWrites times already.
func limitWrites(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if writes, ok := ctx.Value(writesKey{}).(*http2Writes); ok && writes.count.Load() >= maxWrites {
			return nil, errRefusedAgain
		}
		return dial(ctx, network, address)
	}
}

// limitedResends is a RoundTripper that does not send an HTTP/2 request on ever new connections: after maxWrites writes of it no more
// are opened. Its transport must dial by limitWrites, as one of NewTransport does.
type limitedResends struct{ *http.Transport }

// RoundTrip implements http.RoundTripper. It makes the request with its writes to HTTP/2 connections counted, which limitWrites
// looks at.
func (t limitedResends) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.Transport.RoundTrip(withWritesCounted(req))
}
