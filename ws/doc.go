// Package ws carries JSON-RPC messages over WebSocket, one message in one text
// message of RFC 6455 (docs/rules.md, WS; docs/websocket.md). Handler serves
// clients, Client connects to a server.
//
// MCP has no WebSocket transport of its own; this custom one (WS1) is the one in
// use, with the subprotocol "mcp". One connection is one client: its messages
// travel as they do over stdio, nothing of them stands in headers (WS6), and
// its end is the end of the session.
package ws

import "time"

// Defaults of the options of both sides.
const (
	DefaultMaxMessageSize = 64 << 20         // bytes in one message (J9)
	DefaultPingInterval   = 25 * time.Second // WS5
	DefaultStallAfter     = 30 * time.Second // without a byte taken by the peer
)

// subprotocol is what a client offers and a server selects (WS2).
const subprotocol = "mcp"

// defaultMaxBatch is how many messages a client's batch may have (LI9).
const defaultMaxBatch = 50
