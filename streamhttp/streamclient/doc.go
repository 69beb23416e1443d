// Package streamclient is the client side of MCP's Streamable HTTP transport. Both its
// types are of type bridge.Dialer: Dial makes no network call and returns a bridge.Conn.
//
//   - Client is for servers with sessions (2025-03-26 to 2025-11-25). Its Conn sends what
//     the caller sends, beginning with initialize, and looks after the session: it opens
//     the stream for what the server sends unasked, resumes broken streams, and begins a
//     new session when the server has forgotten the old one.
//   - ModernClient is for 2026-07-28, which has no sessions. Each request is a POST.
//     ModernClient.Discover asks a server what it speaks.
//
// What goes wrong with a request is answered to the caller as a JSON-RPC error that says
// what to do. Conns and Clients may be used by many goroutines. Close of a Conn ends its
// session at the server, and returns when every goroutine of the Conn has ended. The
// examples send one request with each Client.
//
// The files of ModernClient begin with modern.
package streamclient
