package remote

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/streamclient"
)

// ErrNotModern is the error of Dialer.Discover for a server that does not speak 2026-07-28, or to which the bridge must
// not speak it (TransportMode sse-only).
var ErrNotModern = errors.New("the server does not speak 2026-07-28")

// IsHTTP reports whether the server is reached at an http or https URL.
func (d *Dialer) IsHTTP() bool {
	scheme, _, _ := strings.Cut(strings.ToLower(d.URL), ":")
	return scheme == "http" || scheme == "https"
}

// ModernDialer returns a Dialer whose Conns speak 2026-07-28 with the server. There
// are no sessions in it: over HTTP a Conn lasts until it is closed. For other URLs the
// Dialer is d itself, whose Conns send what they are given, of either era.
func (d *Dialer) ModernDialer() bridge.Dialer {
	if !d.IsHTTP() {
		return d
	}
	c := d.modernClient()
	c.Options.OnForeignRefusal, c.Options.OnToolsChanged = d.Options.OnForeignRefusal, d.Options.OnToolsChanged
	return c
}

// modernClient returns a client of 2026-07-28 for the server's URL, with the Options other than OnForeignRefusal and
// OnToolsChanged.
func (d *Dialer) modernClient() *streamclient.ModernClient {
	return &streamclient.ModernClient{URL: d.URL, Options: streamclient.ModernOptions{
		Header: d.Options.Header, Authorize: d.Options.Authorize, TLS: d.Options.TLS, ConnectTimeout: d.Options.ConnectTimeout,
		MaxMessageSize: d.Options.MaxMessageSize, MaxDepth: d.Options.MaxDepth, Logger: d.Options.Logger,
	}}
}

// Discover asks the server at an http or https URL whether it speaks
// 2026-07-28, and returns its answer. ErrNotModern says that there was none
// that a modern server gives (ED8), or that TransportMode allows HTTP+SSE only, and the server
// was not asked; any other error, that it could not be asked.
func (d *Dialer) Discover(ctx context.Context) (jsonrpc.Message, error) {
	if d.Options.TransportMode == sseOnly {
		return jsonrpc.Message{}, ErrNotModern
	}
	m, fault := d.modernClient().Discover(ctx)
	switch {
	case fault == nil:
		return m, nil
	case saysNotModern(fault):
		return m, ErrNotModern
	}
	return m, &probeError{fault}
}

// saysNotModern reports whether f, the fault of server/discover, shows that the server does not know
// the request. A server that does not let us in, or lets us come later, may be a modern one.
func saysNotModern(f *httpdial.Fault) bool {
	switch f.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return f.Status/100 == 4 || f.Status/100 == 2 || f.Reason == httpdial.ReasonNotMCP
}

// probeError is the error of Dialer.Discover for a server that could not be asked.
type probeError struct {
	fault *httpdial.Fault // why the server could not be asked
}

// Error returns the text of the fault.
func (e *probeError) Error() string { return e.fault.Error() }

// Unwrap returns the fault.
func (e *probeError) Unwrap() error { return e.fault }

// PublicError returns the text that clients are told.
func (e *probeError) PublicError() string { return e.fault.Error() }

// PublicData returns the data of the error that clients get, a JSON object that says where to sign in; nil:
// no credential is missing.
func (e *probeError) PublicData() []byte {
	if e.fault.IsMissingCredential() {
		return e.fault.ErrorData()
	}
	return nil
}
