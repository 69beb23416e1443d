package streamclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// What zero values in Options mean.
const (
	defaultMaxMessageSize    = 64 << 20                       // of Options.MaxMessageSize, and of ModernOptions.MaxMessageSize: bytes
	defaultMaxInFlight       = 256                            // of Options.MaxInFlight: requests in progress
	defaultConnectTimeout    = httpdial.DefaultConnectTimeout // of Options.ConnectTimeout, and of ModernOptions.ConnectTimeout
	defaultInitializeTimeout = 60 * time.Second               // of Options.InitializeTimeout: the wait for the answer to initialize
	defaultResumeTimeout     = 15 * time.Second               // of Options.ResumeTimeout: how long a call's broken stream is resumed
	defaultCloseTimeout      = 2 * time.Second                // of Options.CloseTimeout: for the DELETE that ends a session
)

// Options tune a Client. The zero value works.
type Options struct {
	// Header is added to every request, GET and DELETE included (LE1).
	// Headers that belong to the transport (Accept, Content-Type,
	// Mcp-Session-Id and the like) are ignored. "Host" sets the Host header.
	Header http.Header

	// Transport makes the requests. nil means one of the Conn's own: with
	// keep-alive, HTTP/2 where TLS offers it, no compression, the proxy from
	// the environment, and ConnectTimeout.
	Transport http.RoundTripper

	// Authorize wraps base, which is the Transport. The RoundTripper that it returns adds credentials to
	// each request, sees first the replies that refuse them, and may send a request again. If its error
	// is a *Fault, clients are told that. nil: the requests go out as they are.
	Authorize func(base http.RoundTripper) http.RoundTripper

	// AuthorizeTimeout is how long a person may take to sign in while a request waits in the RoundTripper
	// of Authorize: time-outs are no shorter (httpdial.TimeoutWithSignIn). 0: nobody is asked to sign in.
	AuthorizeTimeout time.Duration

	// TLS says which servers are trusted, and has the client's certificates.
	// It is not used with a Transport. nil means the system's authorities.
	TLS *tls.Config

	// MaxMessageSize bounds a message from the server, in bytes.
	// 0 means 64 MiB.
	MaxMessageSize int

	// MaxDepth bounds the levels of objects and arrays in a message from the server (J14).
	// 0 means jsonrpc.DefaultMaxDepth; negative, any number.
	MaxDepth int

	// MaxInFlight bounds the requests in progress. One more is answered with
	// an error: to wait would hold up the responses and cancellations behind
	// it, and they may be what the others need to end.
	// 0 means 256.
	MaxInFlight int

	// ConnectTimeout bounds dialling and the TLS handshake, each. It is not
	// used with a Transport. 0 means 10 s.
	ConnectTimeout time.Duration

	// InitializeTimeout bounds the wait for the answer to initialize. Nothing
	// else may be sent before it, so it cannot wait forever. Other requests
	// are not bounded here: bridge.PumpOptions.RequestTimeout does that.
	// 0 means 60 s.
	InitializeTimeout time.Duration

	// ResumeTimeout bounds how long a call waits for its stream, which has ended
	// before the response, to be resumed (LE7): from the first attempt on, all
	// attempts together, until one brings a new event. When the time is up, the call is
	// answered with an error. A server that lets itself be polled has any time
	// (minPollRetry). 0 means 15 s.
	ResumeTimeout time.Duration

	// CloseTimeout bounds the DELETE that ends a session (LE11).
	// 0 means 2 s.
	CloseTimeout time.Duration

	// NoRenew: the Conn never initializes by itself. When the server has forgotten the
	// session (404, or a 400 that says so), Receive ends with ErrSessionLost: the client is
	// to learn of it and begin anew. What is in progress gets no answer then. An initialize
	// of the client that fails is not tried again.
	NoRenew bool

	// NotifyAfterRenewal: once a session was renewed, Receive brings notifications that
	// everything may have changed: of the kinds that the server announces, and for the
	// resources that are subscribed.
	NotifyAfterRenewal bool

	// ReportWrongTransport: when the client's first initialize is refused the way
	// that a server of another transport refuses it (LE13), Receive ends with a
	// WrongTransportError, and that initialize gets no answer.
	//
	// Then only that initialize, and the messages whose Send returned the
	// WrongTransportError, have to be sent over the other transport. Each other
	// request that was sent before has been answered.
	//
	// The renewal of a session may be refused like that as well, when the server has
	// changed; a 405 in mid-session is taken for a sign of that. The WrongTransportError
	// then has an EndedSession, and no initialize has to be sent.
	ReportWrongTransport bool

	// Handoff is what a Conn of another transport has left: this one begins by
	// renewing that session. nil: it begins with the client's initialize.
	Handoff *Handoff

	// OnRenewed is called when a session was renewed, and must not wait. It may be nil.
	OnRenewed func()

	// ConfirmUpgrade is asked whether the server speaks 2026-07-28 by now, when the server
	// has refused the renewal of a session with a JSON-RPC error, or with a 4xx that is not about
	// who asks, how much, or when. If it returns true, Receive ends with ErrUpgraded. refusal is the
	// JSON-RPC error, the zero Message if there is none. ConfirmUpgrade may wait, until ctx is
	// done. nil: the Conn goes on trying.
	ConfirmUpgrade func(ctx context.Context, refusal jsonrpc.Message) bool

	// OnOpened is called when the server has answered the client's initialize with a result,
	// before Receive brings the answer, and must not wait: session says
	// whether there is a session id. Without one the server has no way to ask
	// the client anything. It may be nil.
	OnOpened func(session bool)

	// Logger is told what happens to the connection, never what messages
	// contain. nil means no logging.
	Logger hclog.Logger
}

// withDefaults returns o with the defaults in the place of zero values.
func (o Options) withDefaults() Options {
	o.MaxMessageSize = cmp.Or(o.MaxMessageSize, defaultMaxMessageSize)
	o.MaxDepth = cmp.Or(o.MaxDepth, jsonrpc.DefaultMaxDepth)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, defaultMaxInFlight)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, defaultConnectTimeout)
	o.InitializeTimeout = cmp.Or(o.InitializeTimeout, defaultInitializeTimeout)
	o.ResumeTimeout = cmp.Or(o.ResumeTimeout, defaultResumeTimeout)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, defaultCloseTimeout)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// Client is a bridge.Dialer for a Streamable HTTP server of the revisions
// 2025-03-26 to 2025-11-25.
type Client struct {
	// URL is the server's one endpoint, http or https. User and password in
	// it become an Authorization header, unless Options.Header has one.
	URL string

	Options Options // those of each Conn that Dial returns from now on
}

// Dial checks the URL and the headers and returns a Conn. It makes no network
// call: the handshake is the local client's own initialize, and a server that
// is down answers it with a JSON-RPC error.
//
// The Conn looks after the session by itself: it opens the stream for what
// the server sends unasked, resumes streams that break, initializes again when
// the server has forgotten the session (LE5), and keeps trying in the
// background while the server is down. Its Send fails only when the Conn has
// ended, when ctx is done, or for a request with the id of one in progress,
// which could not be answered unmistakably: whatever else goes wrong with a
// request becomes a JSON-RPC error response that Receive brings. Receive ends
// only with Close, and as NoRenew, ReportWrongTransport and ConfirmUpgrade say.
func (c *Client) Dial(ctx context.Context) (bridge.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	opts := c.Options.withDefaults()
	target, err := httpdial.NewTarget(c.URL, httpdial.TargetOptions{
		Session: observe.SessionOf(ctx),
		Schemes: []string{"http", "https"}, Header: opts.Header, ReservedHeaders: reservedHeaders, StatusHints: statusHints,
		Transport: opts.Transport, Authorize: opts.Authorize, TLS: opts.TLS, ConnectTimeout: opts.ConnectTimeout, MaxIdleConnsPerHost: opts.MaxInFlight,
	})
	if err != nil {
		return nil, err
	}
	conn := newConn(target, opts)
	if opts.Handoff != nil {
		conn.renewer.adopt(opts.Handoff)
	}
	return conn, nil
}

// reservedHeaders are the headers that the transport itself sets: those in Options.Header are ignored.
var reservedHeaders = []string{"Accept", "Content-Type", wire.HeaderSession, wire.HeaderVersion, wire.HeaderLastEventID}
