package ws

import "time"

// Defaults of the options of both sides.
const (
	defaultMaxMessageSize = 64 << 20         // bytes in one message (J9)
	defaultPingInterval   = 25 * time.Second // WS5
)

// subprotocol is what a client offers and a server selects (WS2).
const subprotocol = "mcp"

// defaultMaxBatch is how many messages a client's batch may have (LI9).
const defaultMaxBatch = 50
