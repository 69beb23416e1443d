package idp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/resource"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ServerOptions say what an MCP server demands.
type ServerOptions struct {
	Scopes        []string                // the scopes that every token must have; nil: mcp:read
	Policy        string                  // which scopes messages need, as resource.ParsePolicy reads it; "": nothing more
	DPoP          resource.DPoPMode       // whether tokens may or must be bound to a key
	Introspection *resource.Introspection // how the server asks about tokens that are not signed; nil: tokens are signed
}

// A Server is an MCP server on the Go SDK, over Streamable HTTP, that takes tokens of a Provider
// to the second, not for longer as others do. Its tools "read" and "write" give their
// argument "text" back.
type Server struct {
	URL string // the address of the endpoint

	refused atomic.Int64 // how many requests were refused for their token
	calls   atomic.Int64 // how many calls of tools were answered
}

// Refused returns how many requests were refused for their token.
func (s *Server) Refused() int64 { return s.refused.Load() }

// Calls returns how many calls of tools were answered.
func (s *Server) Calls() int64 { return s.calls.Load() }

// skew is how far the clock of a Server is ahead, without DPoP: as much as a resource server forgives of clocks that differ, but a second, as
// times in tokens have no fractions. So it takes no token longer than this is valid.
const skew = 29 * time.Second

// Serve runs a server until the test ends.
func (p *Provider) Serve(t testing.TB, o ServerOptions) *Server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.Scopes == nil {
		o.Scopes = []string{"mcp:read"}
	}
	policy, err := resource.ParsePolicy(o.Policy)
	if err != nil {
		t.Fatal(err)
	}
	options := resource.Options{PublicURL: "http://" + l.Addr().String(), Resources: []resource.Resource{{Paths: []string{"/mcp"}, IsOnly: true}},
		RequiredScopes: o.Scopes, Policy: policy, DPoP: o.DPoP, Introspection: o.Introspection,
		OnDenied: func(r *http.Request, _ string, err error) {
			t.Logf("the server refuses %s: %v", r.Method, err)
		}}
	if o.Introspection == nil {
		options.Issuers = []resource.Issuer{{URL: p.URL}}
	}
	if o.DPoP == resource.DPoPOff { // proofs have times, too
		options.Now = func() time.Time { return time.Now().Add(skew) }
	}
	protector, err := resource.New(options)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: options.PublicURL + "/mcp"}
	mux := http.NewServeMux()
	mux.Handle("/.well-known/", protector.MetadataHandler())
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.server() }, nil)
	mux.Handle("/mcp", s.counted(authorized(protector, inner)))
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done; _ = protector.Close() })
	return s
}

// server returns the server of a session, with the tools "read" and "write". It counts the calls in s.
func (s *Server) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "protected", Version: "1"}, nil)
	type args struct {
		Text string `json:"text,omitempty"`
	}
	for _, name := range []string{"read", "write"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, a args) (*mcp.CallToolResult, any, error) {
			s.calls.Add(1)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}}, nil, nil
		})
	}
	return server
}

// counted returns a handler that lets next serve, and counts its refusals in s.
func (s *Server) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&status{ResponseWriter: w, s: s}, r)
	})
}

// A status looks at the status of a reply.
type status struct {
	http.ResponseWriter         // takes the reply
	s                   *Server // counts the refusals
}

// WriteHeader implements http.ResponseWriter: it counts refusals, and passes the status on.
func (w *status) WriteHeader(code int) {
	if code == http.StatusUnauthorized || code == http.StatusForbidden {
		w.s.refused.Add(1)
	}
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap returns the ResponseWriter that takes the reply, for http.ResponseController.
func (w *status) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which the SDK asks for: it sends what was written of the reply.
func (w *status) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// authorized returns a handler that has the Protector authenticate each request, and say whether the client may send the message of a
// POST. It refuses a request that may not come in, and lets next serve the others.
func authorized(p *resource.Protector, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, no := p.Authenticate(w.Header(), r)
		if no != nil {
			http.Error(w, no.Reason, no.Status)
			return
		}
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		m, err := jsonrpc.Parse(bytes.Clone(body))
		if err != nil {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		if no := p.Authorize(w.Header(), r, m); no != nil {
			http.Error(w, no.Reason, no.Status)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
