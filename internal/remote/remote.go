// Package remote connects to a server by its address, whatever transport it
// speaks: Streamable HTTP or the older HTTP+SSE, which it finds out (LE13),
// WebSocket, or newline-delimited messages over a socket.
package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/sseclient"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/streamclient"
	"github.com/mcp-bridge/mcp-bridge/ws"
)

// TransportMode says which transports are tried at an http or https URL, and in which
// order. The zero TransportMode is httpFirst.
type TransportMode uint8

// The modes.
const (
	httpFirst TransportMode = iota // the mode that tries Streamable HTTP first, then HTTP+SSE
	sseFirst                       // the mode that tries HTTP+SSE first, then Streamable HTTP
	httpOnly                       // the mode that tries only Streamable HTTP
	sseOnly                        // the mode that tries only HTTP+SSE
)

// modeNames are the texts of the TransportModes, each at the index that is its value.
var modeNames = [...]string{"http-first", "sse-first", "http-only", "sse-only"}

// String returns the mode as ParseTransportMode takes it.
func (m TransportMode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "unknown"
}

// ParseTransportMode returns the mode that is named http-first, sse-first, http-only or sse-only. The names that clients and other
// programs have for a transport (http, streamable-http, sse) mean that one first. Any other text is an error.
func ParseTransportMode(text string) (TransportMode, error) {
	switch strings.ToLower(strings.ReplaceAll(text, "-", "")) { // as other programs and files of clients name a transport
	case "http", "streamablehttp":
		return httpFirst, nil
	case "sse":
		return sseFirst, nil
	}
	for i, name := range modeNames {
		if text == name {
			return TransportMode(i), nil
		}
	}
	return 0, fmt.Errorf("%q is no transport mode; they are %s", text, strings.Join(modeNames[:], ", "))
}

// Options tune a Dialer. The zero value works.
type Options struct {
	// TransportMode says which transports are tried at an http or https URL, and in which order. A URL of another
	// scheme (ws, wss, unix, tcp) has one transport.
	TransportMode TransportMode

	// Header is added to every HTTP request. A socket (unix, tcp) has no place
	// for headers: Dial refuses them.
	Header http.Header

	// MaxMessageSize bounds a message from the server, in bytes.
	// 0 means the default of the transport.
	MaxMessageSize int

	// MaxDepth bounds the levels of objects and arrays in a message from the server (J14).
	// 0 means jsonrpc.DefaultMaxDepth; negative, any number.
	MaxDepth int

	// ConnectTimeout bounds dialling and the TLS handshake, each. 0 means 10 s.
	ConnectTimeout time.Duration

	// ResumeTimeout bounds how long a legacy call's broken stream is resumed over Streamable HTTP
	// (streamclient.Options.ResumeTimeout). 0 means 15 s.
	ResumeTimeout time.Duration

	// TLS says which servers are trusted, and who we are, for https and wss
	// (httpdial.LoadTLSConfig). nil means the system's authorities.
	TLS *tls.Config

	// Authorize adds credentials to the requests, for http and ws URLs (streamclient.Options.Authorize).
	// nil: there are none but those in Header.
	Authorize func(base http.RoundTripper) http.RoundTripper

	// AuthorizeTimeout is how long a person may take to sign in while a request waits for credentials
	// (streamclient.Options.AuthorizeTimeout). 0: nobody is asked to sign in.
	AuthorizeTimeout time.Duration

	// NoRenew: when the session is lost, the Conn ends instead of making a new
	// session in the client's name. With a socket that is so in any case. Nor is the client's
	// initialize tried again when it has failed.
	NoRenew bool

	// NotifyAfterRenewal: when the session was renewed, the Conn says that everything
	// may have changed (streamclient.Options.NotifyAfterRenewal).
	NotifyAfterRenewal bool

	// OnOpened is called when the server has answered the client's initialize over Streamable HTTP: session says whether
	// there is a session id (streamclient.Options.OnOpened). It may be nil.
	OnOpened func(session bool)

	// ConfirmUpgrade is asked, over Streamable HTTP, when a server refuses to renew a session, whether the server
	// speaks 2026-07-28 by now (streamclient.Options.ConfirmUpgrade). refusal is the server's error response. It may be nil.
	ConfirmUpgrade func(ctx context.Context, refusal jsonrpc.Message) bool

	// OnForeignRefusal is called by the Conns of ModernDialer when the server has refused or answered a request as
	// only one does that does not speak 2026-07-28 (streamclient.ModernOptions). It may be nil.
	OnForeignRefusal func()

	// OnToolsChanged is called by the Conns of ModernDialer when the server's list of tools was found to
	// have changed (streamclient.ModernOptions). It may be nil.
	OnToolsChanged func()

	// Logger is told what happens to the connection, never what messages
	// contain. nil means no logging.
	Logger hclog.Logger
}

// Dialer is a bridge.Dialer for the server at URL. Dial may be called
// concurrently. A Dialer remembers which transport it has found and must not
// be copied.
type Dialer struct {
	// URL is http://, https://, ws:// or wss:// and so on, unix:PATH, or
	// tcp:HOST:PORT; see CheckURL.
	URL string

	Options Options // the Options of each Conn that Dial returns

	mu             sync.Mutex // guards knownTransport
	knownTransport transport  // the transport over which the server has answered initialize, or renewed a session, last; it is tried first

	dialersForTest func(transport) bridge.Dialer // returns the Dialer for a transport in tests; otherwise nil
}

// schemeOf returns the scheme of a server's address, in lower case, or an error that says what is wrong
// with the address.
func schemeOf(text string) (scheme string, err error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme = strings.ToLower(scheme); {
	case slices.Contains([]string{"http", "https", "ws", "wss"}, scheme):
		_, err = httpdial.ParseURL(text, scheme)
	case scheme == "unix" || scheme == "tcp":
		_, err = stdio.ParseSocket(text)
	case strings.HasPrefix(rest, "//"):
		err = fmt.Errorf("%s, not %.20q", urlFormsText, scheme+"://...")
	default:
		err = errors.New(urlFormsText)
	}
	return scheme, err
}

// urlFormsText is the error text for an address of an unknown scheme.
const urlFormsText = "the server's URL must be http://..., https://..., ws://..., wss://..., unix:PATH or tcp:HOST:PORT"

// CheckURL returns an error that says what is wrong with the address of a server; nil: nothing
// is. The error does not repeat an address of http, https, ws or wss, which may have keys in
// it. It repeats one that begins with "unix:" or "tcp:".
func CheckURL(text string) error {
	_, err := schemeOf(text)
	return err
}

// Dial checks the URL and returns a Conn. With http, https, ws and wss it makes no
// network call: the Conn finds the server, and its transport, with the client's own
// initialize, which is answered with a JSON-RPC error if the server is down. With unix
// and tcp it connects, and refuses Options.Header.
func (d *Dialer) Dial(ctx context.Context) (bridge.Conn, error) {
	scheme, err := schemeOf(d.URL)
	if err != nil {
		return nil, err
	}
	switch scheme {
	case "unix", "tcp":
		return d.dialSocket(ctx)
	case "ws", "wss":
		return (&ws.Client{URL: d.URL, Options: ws.ClientOptions{
			Header: d.Options.Header, MaxMessageSize: d.Options.MaxMessageSize, MaxDepth: d.Options.MaxDepth, ConnectTimeout: d.Options.ConnectTimeout, TLS: d.Options.TLS,
			Authorize: d.Options.Authorize, AuthorizeTimeout: d.Options.AuthorizeTimeout, NoRenew: d.Options.NoRenew, NotifyAfterRenewal: d.Options.NotifyAfterRenewal, Logger: d.Options.Logger,
		}}).Dial(ctx)
	}
	switch d.Options.TransportMode {
	case httpOnly:
		return d.dialerFor(streamableHTTP, false, nil).Dial(ctx)
	case sseOnly:
		return d.dialerFor(httpSSE, false, nil).Dial(ctx)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return newConn(ctx, d)
}

// dialSocket connects to the socket that the URL names (unix, tcp), and returns a Conn.
func (d *Dialer) dialSocket(ctx context.Context) (bridge.Conn, error) {
	if len(d.Options.Header) > 0 {
		return nil, errors.New("a socket has no place for headers; they are for http and ws URLs")
	}
	socket, err := stdio.ParseSocket(d.URL)
	if err != nil {
		return nil, err
	}
	socket.ConnectTimeout = d.Options.ConnectTimeout
	socket.Options.MaxMessageSize, socket.Options.MaxDepth = d.Options.MaxMessageSize, d.Options.MaxDepth
	socket.Options.OnNoise = func(size int, reason string) {
		d.log().Warn("line of the server skipped: no valid message", "bytes", size, "reason", reason)
	}
	return socket.Dial(ctx)
}

// transport is a transport that may be spoken at an http or https URL.
type transport uint8

// The transports.
const (
	unknownTransport transport = iota // it is not found out yet which transport the server speaks
	streamableHTTP                    // the transport Streamable HTTP
	httpSSE                           // the transport HTTP+SSE
)

// String returns the name of the transport, for people.
func (t transport) String() string {
	switch t {
	case streamableHTTP:
		return "Streamable HTTP"
	case httpSSE:
		return "HTTP+SSE"
	}
	return "unknown"
}

// alternative returns the other transport, which is tried when t is refused.
func (t transport) alternative() transport {
	if t == streamableHTTP {
		return httpSSE
	}
	return streamableHTTP
}

// dialerFor returns a Dialer for one transport. report: its Conn ends with a WrongTransportError if the
// server speaks another one. handoff is the session that its Conn has to renew; nil: there is none.
func (d *Dialer) dialerFor(t transport, report bool, handoff *sessionstate.Handoff) bridge.Dialer {
	renewed := func() { d.noteTransport(t) }
	switch {
	case d.dialersForTest != nil:
		return d.dialersForTest(t)
	case t == streamableHTTP:
		return &streamclient.Client{URL: d.URL, Options: streamclient.Options{
			Header: d.Options.Header, MaxMessageSize: d.Options.MaxMessageSize, MaxDepth: d.Options.MaxDepth, ConnectTimeout: d.Options.ConnectTimeout, TLS: d.Options.TLS,
			Authorize: d.Options.Authorize, AuthorizeTimeout: d.Options.AuthorizeTimeout, NoRenew: d.Options.NoRenew, NotifyAfterRenewal: d.Options.NotifyAfterRenewal, ResumeTimeout: d.Options.ResumeTimeout,
			ReportWrongTransport: report, Handoff: handoff, OnRenewed: renewed, OnOpened: d.Options.OnOpened, ConfirmUpgrade: d.Options.ConfirmUpgrade, Logger: d.Options.Logger,
		}}
	}
	return &sseclient.Client{URL: d.URL, Options: sseclient.Options{
		Header: d.Options.Header, MaxMessageSize: d.Options.MaxMessageSize, MaxDepth: d.Options.MaxDepth, ConnectTimeout: d.Options.ConnectTimeout, TLS: d.Options.TLS,
		Authorize: d.Options.Authorize, AuthorizeTimeout: d.Options.AuthorizeTimeout, NoRenew: d.Options.NoRenew, NotifyAfterRenewal: d.Options.NotifyAfterRenewal, ReportWrongTransport: report, Handoff: handoff, OnRenewed: renewed, Logger: d.Options.Logger,
	}}
}

// firstTransport returns which transport to try first: the one that has answered last, otherwise as
// TransportMode says.
func (d *Dialer) firstTransport() transport {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.knownTransport != unknownTransport:
		return d.knownTransport
	case d.Options.TransportMode == sseFirst:
		return httpSSE
	}
	return streamableHTTP
}

// noteTransport remembers over which transport the server has answered initialize, or renewed a session, and logs it if
// it is another one than before.
func (d *Dialer) noteTransport(t transport) {
	d.mu.Lock()
	news := d.knownTransport != t
	d.knownTransport = t
	d.mu.Unlock()
	if news {
		d.log().Info("the server's transport is found", "transport", t.String())
	}
}

// log returns Options.Logger, or one that logs nothing.
func (d *Dialer) log() hclog.Logger {
	if d.Options.Logger == nil {
		return hclog.NewNullLogger()
	}
	return d.Options.Logger
}

// wrongTransportFault returns the fault in err if that is the WrongTransportError of a transportConn; nil:
// it is not.
func wrongTransportFault(err error) *httpdial.Fault {
	var s *streamclient.WrongTransportError
	var l *sseclient.WrongTransportError
	switch {
	case errors.As(err, &s):
		return s.Fault
	case errors.As(err, &l):
		f := &httpdial.Fault{Reason: httpdial.ReasonHTTPStatus, Status: l.Status, Text: l.Text}
		if l.Status/100 == 2 {
			f.Reason = httpdial.ReasonNotMCP
		}
		return f
	}
	return nil
}

// handoffOf returns the session to renew over another transport that is in err, the WrongTransportError of
// a transportConn that was refused in mid-session; nil: there is none.
func handoffOf(err error) *sessionstate.Handoff {
	var s *streamclient.WrongTransportError
	var l *sseclient.WrongTransportError
	switch {
	case errors.As(err, &s):
		return s.EndedSession
	case errors.As(err, &l):
		return l.EndedSession
	}
	return nil
}

// unsentOf returns the requests in err, the WrongTransportError of a transportConn, that its Send has taken but not sent.
func unsentOf(err error) []jsonrpc.Message {
	if l, ok := errors.AsType[*sseclient.WrongTransportError](err); ok {
		return l.Unsent
	}
	return nil
}
