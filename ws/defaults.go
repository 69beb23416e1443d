package ws

import "time"

// Defaults of the options of both sides.
const (
	defaultMaxMessageSize = 64 << 20         // MaxMessageSize by default, in bytes (J9)
	defaultPingInterval   = 25 * time.Second // PingInterval by default (WS5)
)

// subprotocol is the name that a client offers and a server selects in the handshake (WS2).
const subprotocol = "mcp"

// defaultMaxBatch is HandlerOptions.MaxBatch by default (LI9).
const defaultMaxBatch = 50
