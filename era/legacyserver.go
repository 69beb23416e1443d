package era

import (
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// LegacyServerOptions configures a LegacyServerFilter. The zero value works for
// clients that never answer questions; Sealer is needed for those that do.
type LegacyServerOptions struct {
	// Capabilities are declared to the server, as ProjectCapabilities returns
	// them. Nil or {}: none, then the server may ask for nothing.
	Capabilities []byte

	// ClientInfo is the raw clientInfo of initialize. Nil: the bridge's own.
	ClientInfo []byte

	// Principal, Unit and Instance go into the State of a parked call, and a
	// retry must name the same: whose call it is, which unit of isolation has
	// it, and which started server of that unit. Instance is never used twice.
	Principal, Unit, Instance string

	// Sealer seals the states. Nil: calls are not parked; the server's questions
	// are answered with an error.
	Sealer *Sealer

	// ParkTimeout is how long a parked call waits for its retry. 0: 10 minutes.
	ParkTimeout time.Duration

	// MaxParked is how many calls may be parked at a time; the questions of others
	// are answered with an error. 0: 100.
	MaxParked int

	// Dropped hears of each message that goes no further, and why. It is called
	// in the course of the Filter's methods and must not call them. Nil: nobody.
	Dropped func(m jsonrpc.Message, reason string)
}

// LegacyServerFilter is a Filter that makes a legacy server look modern (C.1,
// C.3, C.4, C.5). Make one with LegacyServer.
type LegacyServerFilter struct {
	o      LegacyServerOptions
	parked atomic.Int64
}

var _ Filter = (*LegacyServerFilter)(nil)

// LegacyServer returns the Filter for one connection to a legacy server, in
// front of which are any number of modern clients, the ids and progress tokens
// of whose requests are unique over all of them.
func LegacyServer(o LegacyServerOptions) *LegacyServerFilter {
	return &LegacyServerFilter{o: o}
}

// Parked returns how many calls wait for their retry. It may be called at any
// time by any goroutine.
func (f *LegacyServerFilter) Parked() int { return int(f.parked.Load()) }

// Start sends initialize.
func (f *LegacyServerFilter) Start(now time.Time, out *Out) {}

// FromClient implements Filter.
func (f *LegacyServerFilter) FromClient(now time.Time, m jsonrpc.Message, out *Out) {}

// FromServer implements Filter.
func (f *LegacyServerFilter) FromServer(now time.Time, m jsonrpc.Message, out *Out) {}

// Due implements Filter.
func (f *LegacyServerFilter) Due() time.Time { return time.Time{} }

// Tick implements Filter.
func (f *LegacyServerFilter) Tick(now time.Time, out *Out) {}

// ServerEnded implements Filter.
func (f *LegacyServerFilter) ServerEnded(now time.Time, err error, out *Out) {}
