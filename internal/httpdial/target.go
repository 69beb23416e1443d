package httpdial

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// TargetOptions are what requests to one address have in common.
type TargetOptions struct {
	Schemes         []string       // the URL schemes that the address may have
	Header          http.Header    // the headers of every request, as the user has set them
	ReservedHeaders []string       // headers that belong to the transport: those in Header are ignored
	StatusHints     map[int]string // what texts about an HTTP status end in, by status: see NewPeer

	// Transport makes the requests. nil: the Target has one of its own.
	Transport http.RoundTripper

	// The fields that follow are for the Target's own transport, if Transport is nil.

	ConnectTimeout      time.Duration // bounds dialling and the TLS handshake, each. 0: DefaultConnectTimeout
	TLS                 *tls.Config   // which servers are trusted, and who we are; nil: the system's authorities, and nobody
	MaxIdleConnsPerHost int           // how many idle connections are kept, to be used again. 0: http.DefaultMaxIdleConnsPerHost
	NoHTTP2             bool          // the requests go over HTTP/1 only
	ReplyHeaderTimeout  time.Duration // how long the server may take, once it has the request, to send the header of the reply; 0: any time

	// Authorize returns the RoundTripper that all requests go through; nil: they go out as they are.
	// That RoundTripper adds credentials, sees the replies that refuse them, and may then send a request
	// again. base is the Transport; it tells the field Session of each request that it gets. If the
	// error of the RoundTripper is a *Fault, the client is told that Fault.
	Authorize func(base http.RoundTripper) http.RoundTripper

	// Session is told of each exchange while somebody watches exchanges. nil: nobody is told.
	Session *observe.Session
}

// A Target is the address of a server, with all that goes with each request to it.
type Target struct {
	URL    *url.URL    // the address, without user and password; not to be changed
	Peer   *Peer       // explains what goes wrong
	Header http.Header // the headers of every request; not to be changed
	Host   string      // the Host header of every request; "": the URL's host. Not to be changed

	// Transport makes the requests: it adds credentials (TargetOptions.Authorize), and tells Session of each exchange.
	Transport http.RoundTripper

	// Session is that of the TargetOptions: what is told of the exchanges.
	Session *observe.Session

	closeIdle func() // closes idle connections, if the transport is the Target's own; otherwise it does nothing
}

// NewTarget checks the address and the headers. It makes no network call. User and
// password in the address become an Authorization header, unless there is one.
func NewTarget(address string, o TargetOptions) (*Target, error) {
	u, err := ParseURL(address, o.Schemes...)
	if err != nil {
		return nil, err
	}
	header, err := RequestHeader(o.Header, u.User, o.ReservedHeaders...)
	if err != nil {
		return nil, err
	}
	u.User = nil
	t := &Target{URL: u, Peer: NewPeer(u, header, o.StatusHints), Host: header.Get("Host"), Header: header, Transport: o.Transport, closeIdle: func() {}}
	header.Del("Host")
	if t.Transport == nil {
		own := NewTransport(TransportOptions{ConnectTimeout: o.ConnectTimeout, TLS: o.TLS, MaxIdleConnsPerHost: o.MaxIdleConnsPerHost})
		own.ForceAttemptHTTP2 = !o.NoHTTP2
		own.ResponseHeaderTimeout = o.ReplyHeaderTimeout
		t.Transport, t.closeIdle = limitedResends{own}, own.CloseIdleConnections
	}
	t.Session, t.Transport = o.Session, Authorized(Observed(t.Transport, o.Session), o.Authorize)
	return t, nil
}

// NewRequest returns a request to the Target's URL with the headers that all have. Its Header may be changed.
func (t *Target) NewRequest(ctx context.Context, method string) *http.Request {
	return t.NewBareRequest(ctx, method, maps.Clone(t.Header))
}

// NewBareRequest returns a request to the Target's URL with these headers and no others but Host.
func (t *Target) NewBareRequest(ctx context.Context, method string, header http.Header) *http.Request {
	return (&http.Request{Method: method, URL: t.URL, Host: t.Host, Header: header}).WithContext(ctx)
}

// Do makes the request with the Target's Transport, as Peer.Do does: it follows redirects within the origin, and explains errors
// as a Fault. The caller closes the body of the response.
func (t *Target) Do(req *http.Request) (*http.Response, *Fault) { return t.Peer.Do(t.Transport, req) }

// TimeoutWithSignIn returns the time-out of a request for which somebody may have to sign in first: limit, or wait and the time to
// connect, if that is more. wait is how long the sign-in may take; 0: nobody has to sign in.
func TimeoutWithSignIn(limit, wait time.Duration) time.Duration {
	if wait == 0 {
		return limit
	}
	return max(limit, wait+DefaultConnectTimeout)
}

// Close closes idle connections, if the transport is the Target's own. Requests must have ended before.
func (t *Target) Close() { t.closeIdle() }

// SetBody gives a request this body, and a GetBody, so that it can be sent again.
func SetBody(req *http.Request, body []byte) {
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
}
