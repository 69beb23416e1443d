package sseclient

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
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/internal/wire"
)

// What zero values in Options mean.
const (
	defaultMaxMessageSize  = 64 << 20                       // of Options.MaxMessageSize: bytes
	defaultMaxInFlight     = 256                            // of Options.MaxInFlight: requests in progress
	defaultConnectTimeout  = httpdial.DefaultConnectTimeout // of Options.ConnectTimeout
	defaultEndpointTimeout = 10 * time.Second               // of Options.EndpointTimeout: the wait for the endpoint event
)

// ErrSessionLost is the error with which Receive ends when the event stream has ended, if Options.NoRenew is set.
var ErrSessionLost = errors.New("sseclient: the event stream has ended, and with it the session")

// Handoff is the session of a Conn that has ended because the server changed its
// transport. The Dialer of the new transport takes it as Options.Handoff, and renews the
// session there: package streamhttp/streamclient has the same type.
type Handoff = sessionstate.Handoff

// WrongTransportError says that the server at the URL does not speak HTTP+SSE: it
// refuses the GET, its reply is no event stream, or no endpoint event comes.
type WrongTransportError struct {
	Status int    // the HTTP status of the reply to the GET
	Text   string // what is wrong, for people

	// EndedSession is for Options.Handoff of the Conn that takes over, if a lost session was to
	// be renewed. nil: there was no session.
	EndedSession *Handoff

	// Unsent are the client's requests that have waited for a session. Send has taken them, but the server has not got them, and they
	// are still to be answered. Without an EndedSession the request for which the stream was opened is among them.
	Unsent []jsonrpc.Message
}

// Error returns Text.
func (e *WrongTransportError) Error() string { return e.Text }

// Options tune a Client. The zero value works.
type Options struct {
	// Header is added to every request. Headers that belong to the transport
	// (Accept, Content-Type and the like) are ignored. "Host" sets the Host
	// header.
	Header http.Header

	// Transport makes the requests. nil means one of the Conn's own: with
	// keep-alive, HTTP/2 where TLS offers it, no compression, the proxy from
	// the environment, and ConnectTimeout.
	Transport http.RoundTripper

	// Authorize wraps base, which is the Transport. The RoundTripper that it returns adds credentials to
	// each request, sees first the replies that refuse them, and may send a request again. If its error
	// is an *httpdial.Fault, clients are told that. nil: the requests go out as they are.
	Authorize func(base http.RoundTripper) http.RoundTripper

	// AuthorizeTimeout is how long a person may take to sign in while a request waits in the RoundTripper
	// of Authorize: time-outs are no shorter (httpdial.TimeoutWithSignIn). 0: nobody is asked to sign in.
	AuthorizeTimeout time.Duration

	// TLS says which servers are trusted, and has the client's certificates.
	// It is not used with a Transport. nil means the system's authorities.
	TLS *tls.Config

	// MaxMessageSize bounds an event of the server, in bytes. A larger one
	// ends the stream. 0 means 64 MiB.
	MaxMessageSize int

	// MaxDepth bounds the levels of objects and arrays in a message from the server (J14).
	// 0 means jsonrpc.DefaultMaxDepth; negative, any number.
	MaxDepth int

	// MaxInFlight bounds the requests in progress. One more is answered with
	// an error. 0 means 256.
	MaxInFlight int

	// ConnectTimeout bounds dialling and the TLS handshake, each. It is not
	// used with a Transport. 0 means 10 s.
	ConnectTimeout time.Duration

	// EndpointTimeout bounds the wait for the reply to the GET, once
	// connected, and then for the endpoint event (SS6).
	// 0 means 10 s.
	EndpointTimeout time.Duration

	// NoRenew says not to connect again after the event stream has ended:
	// Receive ends with ErrSessionLost. Nor is it tried again to connect
	// when the first attempt has failed, unless the client does.
	NoRenew bool

	// NotifyAfterRenewal: once a session was renewed, Receive brings notifications that
	// everything may have changed: of the kinds that the server announces, and for the
	// resources that are subscribed.
	NotifyAfterRenewal bool

	// ReportWrongTransport says to end the Conn with a *WrongTransportError if the server
	// does not speak HTTP+SSE, instead of answering the request for which the stream
	// was opened: Receive and Send return that error from then on. If a lost session was to
	// be renewed, the error has an EndedSession. The requests that are not answered are its Unsent.
	ReportWrongTransport bool

	// Handoff is what a Conn of another transport has left: this one begins by
	// renewing that session. nil: it begins with the client's initialize.
	Handoff *Handoff

	// OnRenewed is called when a session was renewed, and must not wait. It may be nil.
	OnRenewed func()

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
	o.EndpointTimeout = cmp.Or(o.EndpointTimeout, defaultEndpointTimeout)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// Client is a bridge.Dialer for an HTTP+SSE server.
type Client struct {
	// URL is the address of the event stream, http or https. User and password
	// in it become an Authorization header, unless Options.Header has one.
	URL string

	Options Options // those of each Conn that Dial returns from now on
}

// Dial checks the URL and the headers and returns a Conn. It makes no network
// call: the first request does, which is the local client's own initialize,
// and a server that is down answers it with a JSON-RPC error.
//
// When the event stream ends the session is lost (SS7): requests in progress
// are answered with an error, and unless NoRenew says otherwise the Conn
// connects and initializes again, for as long as it takes, and restores
// subscriptions and log level. Meanwhile requests are answered with an error.
//
// Send fails only when the Conn has ended, when ctx is done, or for a request
// with the id of one in progress, which could not be answered unmistakably:
// whatever else goes wrong with a request becomes a JSON-RPC error response
// that Receive brings. Receive ends only with Close, or as NoRenew and
// ReportWrongTransport say.
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
		conn.adopt(opts.Handoff)
	}
	return conn, nil
}

// reservedHeaders are the headers that the transport itself sets: those in Options.Header are ignored.
var reservedHeaders = []string{"Accept", "Content-Type", wire.HeaderVersion, "Last-Event-Id"}

// statusHints says what the text of a Fault ends in, by the HTTP status of the reply to the GET.
var statusHints = map[int]string{
	http.StatusBadRequest:       "is it a Streamable HTTP server?",
	http.StatusNotFound:         "is the path of the URL right? It is often /sse, and /mcp for Streamable HTTP",
	http.StatusMethodNotAllowed: "there is no HTTP+SSE server at this path; is it a Streamable HTTP server?",
}
