// Package ws carries JSON-RPC messages over WebSocket, one message in one text
// message of RFC 6455 (docs/rules.md, WS; docs/websocket.md).
//
//   - Handler is an http.Handler that serves clients: NewHandler gives each connection, as
//     a bridge.Conn, to a bridge.Handler such as that of bridge.Serve.
//   - Client is a bridge.Dialer that connects to a server, and connects again when the
//     connection is lost.
//
// MCP has no WebSocket transport of its own; this one (WS1), with the subprotocol "mcp", is
// the one in use. One connection is one client. Its messages travel as they do over
// stdio, no part of them stands in headers (WS6), and the end of the connection is the
// end of the session.
//
// Handlers, Clients and Conns may be used by many goroutines. Close of a Handler ends its
// sessions, and returns when they have ended: net/http does not know of connections that
// were upgraded. The example connects a Client to a Handler.
package ws
