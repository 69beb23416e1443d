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

// maxWrites is how often an HTTP/2 request may be written before it gets no other connection any more. It is two because a
// server that ends a connection in good order (GOAWAY) names requests that it has not looked at, and they are sent again.
const maxWrites = 2

var errRefusedAgain = errors.New("the server has refused the request on one HTTP/2 connection after the other")

// writesKey is the key of a context's *http2Writes.
type writesKey struct{}

// http2Writes counts how often a request was written to HTTP/2 connections.
type http2Writes struct {
	isHTTP2 atomic.Bool // the connection that the request has now
	count   atomic.Int32
}

// withWritesCounted returns req with a context by which limitWrites counts. net/http sends an HTTP/2 request
// again that the server has reset with REFUSED_STREAM or PROTOCOL_ERROR, at most seven times on one connection, but on any
// number of connections. Without a limit, one request to a server that always does so becomes hundreds a second, and
// has no end. Only https has HTTP/2 here.
func withWritesCounted(req *http.Request) *http.Request {
	if req.URL.Scheme != "https" {
		return req
	}
	writes := new(http2Writes)
	ctx := context.WithValue(req.Context(), writesKey{}, writes)
	return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: writes.noteConn, WroteHeaders: writes.noteWrite}))
}

func (w *http2Writes) noteConn(info httptrace.GotConnInfo) {
	conn, ok := info.Conn.(*tls.Conn)
	w.isHTTP2.Store(ok && conn.ConnectionState().NegotiatedProtocol == "h2")
}

func (w *http2Writes) noteWrite() {
	if w.isHTTP2.Load() {
		w.count.Add(1)
	}
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// limitWrites returns dial for the connections of requests of withWritesCounted.
func limitWrites(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if writes, ok := ctx.Value(writesKey{}).(*http2Writes); ok && writes.count.Load() >= maxWrites {
			return nil, errRefusedAgain
		}
		return dial(ctx, network, address)
	}
}

// limitedResends is a RoundTripper whose requests are written a limited number of times. Its transport is of NewTransport.
type limitedResends struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t limitedResends) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.Transport.RoundTrip(withWritesCounted(req))
}
