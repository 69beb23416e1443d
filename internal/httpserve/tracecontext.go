package httpserve

import (
	"net/http"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// WithTraceContext returns the request m, which has come with these HTTP headers, with a Mark from which
// whoever observes it knows the trace that the HTTP request belongs to (W3C Trace Context). Without the
// header traceparent, with several of it, and for a message that is no request, it returns m itself.
func WithTraceContext(m jsonrpc.Message, h http.Header) jsonrpc.Message {
	parent := h["Traceparent"]
	if len(parent) != 1 || m.Kind() != jsonrpc.Request {
		return m
	}
	return m.WithMark(&jsonrpc.Mark{Traceparent: parent[0], Tracestate: strings.Join(h["Tracestate"], ",")})
}
