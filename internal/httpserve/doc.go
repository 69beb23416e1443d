// Package httpserve has what the Handlers of Streamable HTTP and of HTTP+SSE
// share: bodies read in bounded memory, media types, and replies that carry a
// JSON-RPC error. It knows no sessions.
package httpserve
