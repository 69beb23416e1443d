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

// ErrNotModern says that a server does not speak 2026-07-28.
var ErrNotModern = errors.New("the server does not speak 2026-07-28")

// IsHTTP reports whether the server is reached at an http or https URL.
func (d *Dialer) IsHTTP() bool {
	scheme, _, _ := strings.Cut(strings.ToLower(d.URL), ":")
	return scheme == "http" || scheme == "https"
}

// ModernDialer returns a Dialer whose Conns speak 2026-07-28 with the server. There
// are no sessions in it: a Conn lasts until it is closed, over HTTP, and else
// until the connection ends.
func (d *Dialer) ModernDialer() bridge.Dialer {
	if !d.IsHTTP() {
		return d
	}
	c := d.modernClient()
	c.Options.OnForeignRefusal, c.Options.OnToolsChanged = d.Options.OnForeignRefusal, d.Options.OnToolsChanged
	return c
}

func (d *Dialer) modernClient() *streamclient.ModernClient {
	return &streamclient.ModernClient{URL: d.URL, Options: streamclient.ModernOptions{
		Header: d.Options.Header, Authorize: d.Options.Authorize, TLS: d.Options.TLS, ConnectTimeout: d.Options.ConnectTimeout,
		MaxMessageSize: d.Options.MaxMessageSize, MaxDepth: d.Options.MaxDepth, Logger: d.Options.Logger,
	}}
}

// Discover asks the server at an http or https URL whether it speaks
// 2026-07-28, and returns its answer. ErrNotModern says that there was none
// that a modern server gives (ED8); any other error, that it could not be asked.
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

// saysNotModern reports whether f is the refusal of a server that does not know what it
// was asked. A server that does not let us in, or lets us come later, may be a modern one.
func saysNotModern(f *httpdial.Fault) bool {
	switch f.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return f.Status/100 == 4 || f.Status/100 == 2 || f.Reason == httpdial.ReasonNotMCP
}

// probeError is why a server could not be asked.
type probeError struct{ fault *httpdial.Fault }

func (e *probeError) Error() string { return e.fault.Error() }
func (e *probeError) Unwrap() error { return e.fault }

// PublicError is what clients are told.
func (e *probeError) PublicError() string { return e.fault.Error() }

// PublicData is the data that goes with it: where to sign in, for instance.
func (e *probeError) PublicData() []byte {
	if e.fault.IsMissingCredential() {
		return e.fault.ErrorData()
	}
	return nil
}
