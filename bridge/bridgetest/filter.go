package bridgetest

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// PassingFilter is an era.Filter that passes on every message unchanged. The zero value works.
type PassingFilter struct{}

// Start implements era.Filter; it does nothing.
func (PassingFilter) Start(time.Time, *era.Out) {}

// FromClient implements era.Filter: the server gets m.
func (PassingFilter) FromClient(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Server(m) }

// FromServer implements era.Filter: the client gets m.
func (PassingFilter) FromServer(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Client(m) }

// Due implements era.Filter: it has no timers.
func (PassingFilter) Due() time.Time { return time.Time{} }

// Tick implements era.Filter; it does nothing.
func (PassingFilter) Tick(time.Time, *era.Out) {}

// ServerEnded implements era.Filter; it does nothing: requests that the server has not answered get no answer.
func (PassingFilter) ServerEnded(_ time.Time, _ error, unwritten []jsonrpc.ID, _ *era.Out) {}

// KeepingFilter is a PassingFilter that keeps the client's messages, and says at the end of the server which of them the
// server has not got (era.Out.Unsent). The zero value works. Its methods are called one at a time.
type KeepingFilter struct {
	PassingFilter
	given []jsonrpc.Message // the messages that FromClient was called with
}

// FromClient implements era.Filter: the server gets m, which is kept.
func (k *KeepingFilter) FromClient(now time.Time, m jsonrpc.Message, out *era.Out) {
	k.given = append(k.given, m)
	k.PassingFilter.FromClient(now, m, out)
}

// ServerEnded implements era.Filter: it puts the messages with the ids in unwritten into out.Unsent.
func (k *KeepingFilter) ServerEnded(_ time.Time, _ error, unwritten []jsonrpc.ID, out *era.Out) {
	for _, m := range k.given {
		if slices.Contains(unwritten, m.ID()) {
			out.Unsent = append(out.Unsent, m)
		}
	}
}
