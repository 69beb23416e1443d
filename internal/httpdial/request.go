package httpdial

import (
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// DefaultConnectTimeout is how long dialling and the TLS handshake may take, each, where a ConnectTimeout is 0.
const DefaultConnectTimeout = 10 * time.Second

// ParseURL parses the address of a server, whose scheme must be one of schemes. A
// fragment is left out; user and password stay in User, see RequestHeader. No error
// repeats anything of the address but its scheme, there may be keys in it.
func ParseURL(text string, schemes ...string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil: // its text would repeat the URL, secrets and all
		return nil, errors.New("the server's URL is not valid")
	case !slices.Contains(schemes, u.Scheme):
		return nil, fmt.Errorf("the server's URL must begin with %s://, not %q", strings.Join(schemes, ":// or "), u.Scheme+":")
	case u.Host == "" || u.Hostname() == "":
		return nil, errors.New("the server's URL has no host")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

// alwaysReservedHeaders are the headers that users cannot set, whatever the transport, because net/http
// sets them. Accept-Encoding is among them because nothing here decompresses.
var alwaysReservedHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "Transfer-Encoding"}

// RequestHeader returns the headers that go on every request, a copy of from: without
// the reserved ones, which belong to the transport, with user (nil: none) as
// Authorization unless from has one, and with a User-Agent of ours unless from has
// one. The Host header, if any, is still among them. The error says which name cannot
// be that of a header, or that a value has a control character.
func RequestHeader(from http.Header, user *url.Userinfo, reserved ...string) (http.Header, error) {
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
	for _, name := range slices.Concat(alwaysReservedHeaders, reserved) {
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

// isControl reports whether r is a control character, which no header value may have; a tab is none.
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

// TransportOptions tune NewTransport. The zero value works.
type TransportOptions struct {
	// ConnectTimeout bounds dialling and the TLS handshake, each.
	// 0 means DefaultConnectTimeout.
	ConnectTimeout time.Duration

	// TLS says which servers are trusted, and who we are; see LoadTLSConfig.
	// nil means the system's authorities, and nobody.
	TLS *tls.Config

	// MaxIdleConnsPerHost is how many idle connections are kept, to be used
	// again. 0 means http.DefaultMaxIdleConnsPerHost.
	MaxIdleConnsPerHost int
}

// idleConnTimeout is how long an unused connection is kept. Many servers (those in
// Node.js, and Python's uvicorn) close one after five seconds; a request that is
// on its way then is lost, and no tools/call may be sent twice.
const idleConnTimeout = 4 * time.Second

// NewTransport returns a transport that suits streams: with keep-alive,
// HTTP/2 where TLS offers it, no compression, and the proxy from the
// environment. Who has it calls CloseIdleConnections in the end.
func NewTransport(o TransportOptions) *http.Transport {
	dialer := newDialer(o.ConnectTimeout)
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		OnProxyConnectResponse: checkProxyConnect,
		DialContext:            limitWrites(dialer.DialContext),
		TLSClientConfig:        o.TLS.Clone(),
		TLSHandshakeTimeout:    dialer.Timeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // events would wait in the compressor
		MaxIdleConnsPerHost:    o.MaxIdleConnsPerHost,
		IdleConnTimeout:        idleConnTimeout,
		ReadBufferSize:         16 << 10,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// newDialer returns a dialer that gives up after timeout; 0: DefaultConnectTimeout. Its connections are probed while they
// are silent: one whose other end is gone without a word ends after 75 seconds.
func newDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: cmp.Or(timeout, DefaultConnectTimeout), KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 4,
	}}
}
