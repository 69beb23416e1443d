package streamclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// defaultModernMaxInFlight is what ModernOptions.MaxInFlight 0 means: one Conn
// may stand for many clients, and what they listen to counts too.
const defaultModernMaxInFlight = 1024

// ModernOptions tune a ModernClient. The zero value works.
type ModernOptions struct {
	// Header is added to every request. Headers that belong to the transport
	// (Accept, Content-Type, Last-Event-ID and all that begin with Mcp-) are
	// ignored: they are made from the message (ME1). "Host" sets the Host header.
	Header http.Header

	// Transport makes the requests. nil means one of the Conn's own: with
	// keep-alive, HTTP/2 where TLS offers it, no compression, the proxy from
	// the environment, and ConnectTimeout.
	Transport http.RoundTripper

	// Authorize wraps base, which is the Transport. The RoundTripper that it returns adds credentials to
	// each request, sees first the replies that refuse them, and may send a request again. If its error
	// is a *Fault, clients are told that. nil: the requests go out as they are.
	Authorize func(base http.RoundTripper) http.RoundTripper

	// TLS says which servers are trusted, and has the client's certificates.
	// It is not used with a Transport. nil means the system's authorities.
	TLS *tls.Config

	// ConnectTimeout bounds dialling and the TLS handshake, each. It is not
	// used with a Transport. 0 means 10 s.
	ConnectTimeout time.Duration

	// MaxMessageSize bounds a message from the server, in bytes.
	// 0 means 64 MiB.
	MaxMessageSize int

	// MaxDepth bounds the levels of objects and arrays in a message from the server (J14).
	// 0 means jsonrpc.DefaultMaxDepth; negative, any number.
	MaxDepth int

	// MaxInFlight bounds the requests in progress, subscriptions/listen among
	// them. One more is answered with an error: to wait would hold up the
	// cancellations behind it. 0 means 1024.
	MaxInFlight int

	// OnForeignRefusal is called when the server has refused or answered a request as only one does
	// that does not speak 2026-07-28 (ED9): the error is none of that revision (isForeignRefusal), or
	// the reply is neither JSON nor an event stream. It must not wait, and may be nil.
	OnForeignRefusal func()

	// OnToolsChanged is called when the server has refused a call for its headers,
	// and its list of tools has called for others (ME4). It must not wait, and may
	// be nil.
	OnToolsChanged func()

	// Logger is told what happens to the connection, never what messages
	// contain. nil means no logging.
	Logger hclog.Logger
}

// withDefaults returns o with the defaults in the place of zero values.
func (o ModernOptions) withDefaults() ModernOptions {
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, defaultConnectTimeout)
	o.MaxMessageSize = cmp.Or(o.MaxMessageSize, defaultMaxMessageSize)
	o.MaxDepth = cmp.Or(o.MaxDepth, jsonrpc.DefaultMaxDepth)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, defaultModernMaxInFlight)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return o
}

// ModernClient is a bridge.Dialer for a Streamable HTTP server of the revision
// 2026-07-28. Its methods may be called concurrently; it must not be copied.
type ModernClient struct {
	// URL is the server's one endpoint, http or https. User and password in
	// it become an Authorization header, unless Options.Header has one.
	URL string

	Options ModernOptions // those of each Conn that Dial returns from now on

	sendRawNames  atomic.Bool // the server was found to want the name in Mcp-Name as it is, without base64 (ME2)
	emptyAsBase64 atomic.Bool // the server was found to take an empty Mcp-Param header for a missing one: such a header goes in base64
}

// Dial checks the URL and the headers and returns a Conn. It makes no network
// call.
//
// The Conn takes requests and notifications that carry the _meta of a modern
// client, and knows no session: each request is a POST, whose reply is all
// that comes for it. Whatever Receive brings has Related set to the request's
// id; a request of the server's own, which this revision does not have, comes like
// the rest of the reply, and the response to it is a POST (ST10). A response, also one that says that the reply broke off, ends a request.
// notifications/cancelled closes the reply and is not sent (ME5).
//
// Send fails only when the Conn is closed, when ctx is done, or for a request
// with the id of one in progress. Receive ends only with Close.
func (c *ModernClient) Dial(ctx context.Context) (bridge.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// dial checks the URL and the headers, and returns a Conn, whether ctx is done or not.
func (c *ModernClient) dial(ctx context.Context) (*modernConn, error) {
	opts := c.Options.withDefaults()
	header := maps.Clone(opts.Header)
	for name := range header {
		if strings.HasPrefix(http.CanonicalHeaderKey(name), "Mcp-") {
			delete(header, name)
		}
	}
	target, err := httpdial.NewTarget(c.URL, httpdial.TargetOptions{
		Session: observe.SessionOf(ctx),
		Schemes: []string{"http", "https"}, Header: header, ReservedHeaders: []string{"Accept", "Content-Type", wire.HeaderLastEventID}, StatusHints: modernStatusHints,
		Transport: opts.Transport, Authorize: opts.Authorize, TLS: opts.TLS, ConnectTimeout: opts.ConnectTimeout, MaxIdleConnsPerHost: opts.MaxInFlight,
	})
	if err != nil {
		return nil, err
	}
	return newModernConn(c, target, opts), nil
}

// discoverID is the id of the server/discover that ModernClient.Discover sends.
var discoverID = jsonrpc.StringID("mcp-bridge-discover")

// deleteTimeout bounds the DELETE of a session that a legacy server has opened for the question of
// ModernClient.Discover.
const deleteTimeout = 2 * time.Second

// Discover asks the server once which revisions it speaks, with the server/discover of a
// modern client (ED7), until ctx is done. It returns the response: a result, or an error,
// which may have come with status 400 or 404. Without a response the Fault says why there
// is none. A legacy server may have opened a session for the question; Discover ends
// that session (ED9).
func (c *ModernClient) Discover(ctx context.Context) (jsonrpc.Message, *Fault) {
	conn, err := c.dial(ctx)
	if err != nil {
		return jsonrpc.Message{}, &httpdial.Fault{Reason: httpdial.ReasonUnreachable, Text: err.Error()}
	}
	defer conn.Close(nil)
	meta := era.Meta{Version: jsonrpc.Quote(era.NewestModern), ClientInfo: buildinfo.Implementation(), Capabilities: []byte("{}")}
	call := conn.newCall(ctx, jsonrpc.NewRequest(discoverID, "server/discover", []byte(`{"_meta":`+string(meta.Object())+`}`)))
	call.isOwn = true
	defer call.cancel()
	answer, fault := conn.ask(call)
	if call.sessionID != "" {
		conn.deleteSession(call.sessionID)
	}
	return answer, fault
}
