package ws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// reservedHeaders are the headers of the upgrade that ClientOptions.Header cannot set.
var reservedHeaders = []string{
	"Upgrade", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Sec-WebSocket-Protocol",
	"Sec-WebSocket-Extensions", "Sec-WebSocket-Accept",
}

// statusHints is what the error for a reply without an upgrade advises, by the HTTP status of the reply.
var statusHints = map[int]string{
	http.StatusOK:               "there is no WebSocket server at this path; is the path of the URL right? It is often /ws",
	http.StatusNotFound:         "is the path of the URL right? It is often /ws",
	http.StatusBadRequest:       noWebSocketHint,
	http.StatusMethodNotAllowed: noWebSocketHint,
	http.StatusNotAcceptable:    noWebSocketHint,
	http.StatusUpgradeRequired:  "does a proxy on the way not pass WebSockets on?",
	http.StatusNotImplemented:   "does a proxy on the way not pass WebSockets on?",
}

// noWebSocketHint is the hint for statuses with which a server refuses a GET that it does not understand.
const noWebSocketHint = "there is no WebSocket server at this path; the URL of a Streamable HTTP server begins with http"

// dialer makes the connections of one Conn of Client.Dial.
type dialer struct {
	url       *url.URL          // the server's, without user and password
	peer      *httpdial.Peer    // names the server in texts, and makes Faults
	host      string            // the Host header; "": that of the URL
	header    http.Header       // headers of the request for the upgrade, but for Host
	rt        http.RoundTripper // makes the request for the upgrade, with credentials; session is told of it
	closeIdle func()            // closes the idle connections of a transport of our own; does nothing with ClientOptions.Transport
	opts      ClientOptions     // the ClientOptions, with the defaults filled in
	session   *observe.Session  // is told of the handshakes, and when a connection is opened or closed; nil: nobody is
}

// newDialer returns a dialer for the address, a ws or wss URL; the error says what is wrong with the URL or the
// headers. seen is told of its connections; it may be nil.
func newDialer(address string, opts ClientOptions, seen *observe.Session) (*dialer, error) {
	u, err := httpdial.ParseURL(address, "ws", "wss")
	if err != nil {
		return nil, err
	}
	header, err := httpdial.RequestHeader(opts.Header, u.User, reservedHeaders...)
	if err != nil {
		return nil, err
	}
	u.User = nil
	d := &dialer{url: u, peer: httpdial.NewPeer(u, header, statusHints), host: header.Get("Host"), header: header, rt: opts.Transport, opts: opts, session: seen}
	header.Del("Host")
	d.closeIdle = func() {}
	if d.rt == nil {
		own := httpdial.NewTransport(httpdial.TransportOptions{ConnectTimeout: opts.ConnectTimeout, TLS: opts.TLS})
		own.ResponseHeaderTimeout = opts.ConnectTimeout
		own.ForceAttemptHTTP2 = false
		d.rt, d.closeIdle = own, own.CloseIdleConnections
	}
	d.rt = httpdial.Authorized(httpdial.Observed(d.rt, seen), opts.Authorize)
	return d, nil
}

// dial makes a connection. The error is a *httpdial.Fault, as is that of the
// Conn's Receive when the connection is lost.
func (d *dialer) dial(ctx context.Context) (bridge.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, httpdial.TimeoutWithSignIn(3*d.opts.ConnectTimeout, d.opts.AuthorizeTimeout))
	defer cancel()
	hs := &handshake{dialer: d}
	socket, _, err := websocket.Dial(ctx, d.url.String(), &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport:     hs,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPHeader:   d.header,
		Host:         d.host,
		Subprotocols: []string{subprotocol}, // WS2: a server may select none
	})
	if err != nil {
		return nil, hs.openFault(err)
	}
	hs.body.validated.Store(true)
	c := newConn(socket, hs.wire, connConfig{
		peer:           d.peer.String(),
		maxMessageSize: d.opts.MaxMessageSize,
		maxDepth:       d.opts.MaxDepth,
		maxBatch:       jsonrpc.MaxServerBatch,
		pingInterval:   d.opts.PingInterval,
		onNoise: func(size int, reason string) {
			d.opts.Logger.Warn("the server has sent what is no message", "bytes", size, "reason", reason)
		},
	})
	d.session.Stream(observe.Stream{Hop: observe.Upstream, Name: "websocket", Action: "opened"})
	return &dialedConn{conn: c, dialer: hs.dialer}, nil
}

// handshake is the RoundTripper of one opening handshake. It follows redirects
// within the origin (LE14) and puts a wire under the WebSocket.
type handshake struct {
	*dialer
	wire *wire         // under the WebSocket; nil until a reply with status 101 has come
	body *upgradedBody // the body of the reply with status 101; nil until it has come
}

// upgradedBody is the body of a reply with status 101. It seems empty until the library has found the
// rest of the reply valid: of an invalid reply the library would read the body, for up to 3 s.
type upgradedBody struct {
	*wire
	validated atomic.Bool // the library has accepted the reply
}

// Read implements io.Reader: io.EOF until validated is set, and then what comes over the wire.
func (b *upgradedBody) Read(p []byte) (int, error) {
	if !b.validated.Load() {
		return 0, io.EOF
	}
	return b.wire.Read(p)
}

// RoundTrip implements http.RoundTripper. Its error for a reply that is no upgrade is an *httpdial.Fault.
func (h *handshake) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, fault := h.peer.Do(h.rt, req)
	if fault != nil {
		return nil, fault
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		return nil, h.peer.RefusalFault(resp)
	}
	own := *h.dialer
	own.peer = h.peer.WithholdingSent(resp) // what the server says on this connection
	h.dialer = &own
	body, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		resp.Body.Close()
		return nil, errors.New("the transport in use cannot upgrade")
	}
	h.wire = newWire(body, h.opts.StallAfter)
	h.body = &upgradedBody{wire: h.wire}
	resp.Body = h.body
	return resp, nil
}

// openFault returns the Fault for err, with which a handshake has failed.
func (d *dialer) openFault(err error) *httpdial.Fault {
	var fault *httpdial.Fault
	switch {
	case errors.As(err, &fault):
		return fault
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return d.peer.NetFault(context.DeadlineExceeded)
	}
	d.opts.Logger.Debug("the server's upgrade is not valid", "url", d.peer.String(), "reason", d.peer.WithholdSecrets(err.Error()))
	return &httpdial.Fault{Reason: httpdial.ReasonNotMCP, Text: fmt.Sprintf("%s does not speak the WebSocket protocol", d.peer)}
}

// lostFault returns the Fault for those who wait for a response when a connection has ended with err and this close
// status of ours.
func (d *dialer) lostFault(err error, code websocket.StatusCode) *httpdial.Fault {
	if code == websocket.StatusMessageTooBig {
		return d.peer.TooLargeFault(d.opts.MaxMessageSize)
	}
	text := err.Error()
	var closed *closeError
	if errors.As(err, &closed) && closed.reason != "" && !strings.ContainsFunc(closed.reason, unicode.IsControl) {
		text += fmt.Sprintf("; it says: %q", d.peer.WithholdSecrets(closed.reason))
	}
	return &httpdial.Fault{Reason: httpdial.ReasonConnectionLost, Transient: true,
		Text: text + "; no answer has come, but the request may have been carried out"}
}

// dialedConn is the Conn of one connection to a server. Its Receive ends with a
// *httpdial.Fault when the connection is lost.
type dialedConn struct {
	*conn
	dialer *dialer     // makes the Faults, without what the server has been sent in secret
	closed atomic.Bool // Close was called: the observer was told
}

// Receive implements bridge.Conn; when the connection is lost, its error is an *httpdial.Fault.
func (c *dialedConn) Receive(ctx context.Context, sink bridge.Sink) error {
	err := c.conn.Receive(ctx, sink)
	if isDone(c.end.done) && err == c.end.err && err != errClosed && ctx.Err() == nil {
		return c.dialer.lostFault(err, c.end.code)
	}
	return err
}

// Close implements bridge.Conn: it closes the connection, and tells the observer why it has ended.
func (c *dialedConn) Close(error) error {
	if c.closed.CompareAndSwap(false, true) {
		why := "the bridge has closed it"
		if isDone(c.end.done) {
			why = c.dialer.peer.WithholdSecrets(c.end.err.Error())
		}
		defer c.dialer.session.Stream(observe.Stream{Hop: observe.Upstream, Name: "websocket", Action: "closed", Reason: why})
	}
	c.close(websocket.StatusNormalClosure, "")
	return nil
}
