package streamhttp

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

// Defaults of ClientOptions.
const (
	DefaultClientMaxMessageSize    = 64 << 20
	DefaultClientMaxInFlight       = 256
	DefaultClientConnectTimeout    = 10 * time.Second
	DefaultClientInitializeTimeout = 60 * time.Second
	DefaultClientCloseTimeout      = 2 * time.Second
)

// ClientOptions tune a Client. The zero value works.
type ClientOptions struct {
	// Header is added to every request, GET and DELETE included (LE1).
	// Headers that belong to the transport (Accept, Content-Type,
	// Mcp-Session-Id and the like) are ignored. "Host" sets the Host header.
	Header http.Header

	// Transport makes the requests. nil means one of the Conn's own: with
	// keep-alive, HTTP/2 where TLS offers it, no compression, the proxy from
	// the environment, and ConnectTimeout.
	Transport http.RoundTripper

	// MaxMessageSize bounds a message from the server, in bytes.
	// 0 means DefaultClientMaxMessageSize.
	MaxMessageSize int

	// MaxInFlight bounds the requests in progress. One more is answered with
	// an error: to wait would hold up the responses and cancellations behind
	// it, and they may be what the others need to end.
	// 0 means DefaultClientMaxInFlight.
	MaxInFlight int

	// ConnectTimeout bounds dialling and the TLS handshake, each. It is not
	// used with a Transport. 0 means DefaultClientConnectTimeout.
	ConnectTimeout time.Duration

	// InitializeTimeout bounds the wait for the answer to initialize. Nothing
	// else may be sent before it, so it cannot wait forever. Other requests
	// are not bounded here: bridge.PumpOptions.RequestTimeout does that.
	// 0 means DefaultClientInitializeTimeout.
	InitializeTimeout time.Duration

	// CloseTimeout bounds the DELETE that ends a session (LE11).
	// 0 means DefaultClientCloseTimeout.
	CloseTimeout time.Duration

	// Logger is told what happens to the connection, never what messages
	// contain. nil means no logging.
	Logger hclog.Logger
}

func (o ClientOptions) withDefaults() ClientOptions {
	o.MaxMessageSize = cmp.Or(o.MaxMessageSize, DefaultClientMaxMessageSize)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, DefaultClientMaxInFlight)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultClientConnectTimeout)
	o.InitializeTimeout = cmp.Or(o.InitializeTimeout, DefaultClientInitializeTimeout)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, DefaultClientCloseTimeout)
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

	Options ClientOptions
}

// Dial checks the URL and the headers and returns a Conn. It makes no network
// call: the handshake is the local client's own initialize, and a server that
// is down answers it with a JSON-RPC error.
//
// The Conn looks after the session by itself: it opens the stream for what
// the server sends unasked, resumes streams that break, initializes again when
// the server has forgotten the session (LE5), and keeps trying in the
// background while the server is down. Its Send fails only when the Conn is
// closed, when ctx is done, or for a request with the id of one in progress,
// which could not be answered unmistakably: whatever else goes wrong with a
// request becomes a JSON-RPC error response that Recv returns. Its Recv ends
// only with Close.
func (c *Client) Dial(ctx context.Context) (bridge.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	u, err := clientURL(c.URL)
	if err != nil {
		return nil, err
	}
	header, err := clientHeader(c.Options.Header, u.User)
	if err != nil {
		return nil, err
	}
	u.User = nil
	opts := c.Options.withDefaults()
	rt := opts.Transport
	idle := func() {}
	if rt == nil {
		own := newClientTransport(opts)
		rt, idle = own, own.CloseIdleConnections
	}
	return newClientConn(u, header, rt, idle, opts), nil
}

func clientURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil: // its text would repeat the URL, secrets and all
		return nil, errors.New("the server's URL is not valid")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the server's URL must begin with http:// or https://, not %q", u.Scheme+":")
	case u.Host == "" || u.Hostname() == "":
		return nil, errors.New("the server's URL has no host")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// clientReserved are the headers that are the transport's own business.
// Accept-Encoding is among them because nothing here decompresses.
var clientReserved = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Transfer-Encoding",
	headerSession, headerVersion, headerLastEventID,
}

// clientHeader returns what goes on every request.
func clientHeader(from http.Header, user *url.Userinfo) (http.Header, error) {
	header := http.Header{}
	for name, values := range from {
		if !isToken(name) {
			return nil, fmt.Errorf("%q is not a header name", name)
		}
		for _, v := range values {
			if strings.ContainsFunc(v, isControl) {
				return nil, fmt.Errorf("the value of header %q contains a control character", name)
			}
			header.Add(name, strings.TrimSpace(v))
		}
	}
	for _, name := range clientReserved {
		header.Del(name)
	}
	if user != nil && header.Get("Authorization") == "" {
		password, _ := user.Password()
		both := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		header.Set("Authorization", "Basic "+both)
	}
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", "mcp-bridge")
	}
	return header, nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

// isToken reports whether s is a token (RFC 9110, 5.6.2).
func isToken(s string) bool {
	for _, r := range s {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z'
		if !letter && !('0' <= r && r <= '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) {
			return false
		}
	}
	return s != ""
}

func newClientTransport(o ClientOptions) *http.Transport {
	// A connection that has died without a word is noticed after a minute.
	dialer := &net.Dialer{Timeout: o.ConnectTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4,
	}}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: o.ConnectTimeout,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // events would wait in the compressor
		MaxIdleConnsPerHost: o.MaxInFlight,
		IdleConnTimeout:     90 * time.Second,
		ReadBufferSize:      16 << 10,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
}
