package ws

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ErrSessionLost is what Receive ends with after the connection was lost, where
// ClientOptions.NoRenew asks for that.
var ErrSessionLost = errors.New("ws: the connection was lost, and with it the session")

// ClientOptions tune a Client. The zero value works.
type ClientOptions struct {
	// Header is added to the request for the upgrade. Headers that belong to
	// the transport (Upgrade, Sec-WebSocket-Key and the like) are ignored.
	// "Host" sets the Host header.
	Header http.Header

	// Transport makes the request for the upgrade. What it returns with status 101 must have a body that can be
	// written to, as http.Transport has it. nil means one of the Conn's own: with the proxy from the environment, and
	// ConnectTimeout.
	Transport http.RoundTripper

	// Authorize wraps base, which is the Transport. The RoundTripper that it returns adds credentials to each request,
	// sees first the replies that refuse them, and may send a request again. If its error is an *httpdial.Fault,
	// clients are told that. nil: the requests go out as they are.
	Authorize func(base http.RoundTripper) http.RoundTripper
	// AuthorizeTimeout is how long a person may take to sign in while Authorize's RoundTripper makes a request:
	// time-outs are no shorter (httpdial.TimeoutWithSignIn). 0: nobody signs in.
	AuthorizeTimeout time.Duration

	// TLS says which servers are trusted, and has the client's certificates.
	// It is not used with a Transport. nil means the system's authorities.
	TLS *tls.Config

	// MaxMessageSize bounds a message from the server, in bytes. A longer one
	// ends the connection. 0 means 64 MiB.
	MaxMessageSize int

	// MaxDepth bounds the levels of objects and arrays in a message from the server (J14).
	// 0 means jsonrpc.DefaultMaxDepth; negative, any number.
	MaxDepth int

	// ConnectTimeout bounds three steps, each by itself: dialling, the TLS handshake, and the reply to the upgrade.
	// With a Transport, thrice as long bounds all of them together. 0 means 10 seconds.
	ConnectTimeout time.Duration

	// PingInterval is how often the server is pinged (WS5). A server from which nothing comes for 2.2 times as long is
	// gone. 0 means 25 s, negative never.
	PingInterval time.Duration

	// StallAfter is how long the server may take nothing of what it is sent before it counts as gone. 0 means 30 s,
	// negative for ever.
	StallAfter time.Duration

	// NoRenew says not to connect again after the connection was lost: Receive of the Conn ends with ErrSessionLost. Nor is
	// it tried again to connect when the first attempt has failed, unless the client does.
	NoRenew bool

	// NotifyAfterRenewal: once a lost session was renewed, Receive brings the client notifications that everything may
	// have changed: list_changed of the kinds that the server announces, and updates of the resources that are
	// subscribed.
	NotifyAfterRenewal bool

	// Logger is told what happens to the connection, never what messages
	// contain. nil means no logging.
	Logger hclog.Logger
}

// withDefaults returns the options with defaults in the place of zeros.
func (o ClientOptions) withDefaults() ClientOptions {
	o.MaxMessageSize = cmp.Or(o.MaxMessageSize, defaultMaxMessageSize)
	o.MaxDepth = cmp.Or(o.MaxDepth, jsonrpc.DefaultMaxDepth)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, httpdial.DefaultConnectTimeout)
	o.PingInterval = cmp.Or(o.PingInterval, defaultPingInterval)
	o.StallAfter = cmp.Or(o.StallAfter, httpserve.DefaultDeadline)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// Client is a bridge.Dialer for an MCP server that speaks WebSocket.
type Client struct {
	// URL is the address of the server, ws or wss. User and password in it
	// become an Authorization header, unless Options.Header has one.
	URL string

	// Options tune the Client; the zero value works.
	Options ClientOptions
}

// Dial checks the URL and the headers and returns a Conn. It makes no network
// call: the first Send does, which is that of the local client's own
// initialize, and a server that is down answers it with a JSON-RPC error.
//
// The end of the connection is the end of the session (WS4): requests in
// progress are answered with an error, and unless NoRenew says otherwise the
// Conn connects and initializes again, for as long as it takes, and restores
// subscriptions and log level (LE5). Meanwhile requests are answered with an error.
//
// Send fails only when the Conn has ended, when ctx is done, or for a request
// with the id of one in progress, which could not be answered unmistakably:
// whatever else goes wrong with a request becomes a JSON-RPC error response
// that Receive brings. Receive ends only with Close, or as NoRenew says.
func (c *Client) Dial(ctx context.Context) (bridge.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d, err := newDialer(c.URL, c.Options.withDefaults(), observe.SessionOf(ctx))
	if err != nil {
		return nil, err
	}
	return newRenewer(d.dial, d.closeIdle, renewOptions{
		Server: d.peer.String(), NoRenew: c.Options.NoRenew, NotifyAfterRenewal: c.Options.NotifyAfterRenewal, SignsIn: c.Options.AuthorizeTimeout != 0, Logger: d.opts.Logger,
	}), nil
}
