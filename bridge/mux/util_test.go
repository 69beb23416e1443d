package mux_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// passing is a Filter that changes nothing.
type passing struct{}

func (passing) Start(time.Time, *era.Out)                               {}
func (passing) FromClient(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Server(m) }
func (passing) FromServer(_ time.Time, m jsonrpc.Message, out *era.Out) { out.Client(m) }
func (passing) Due() time.Time                                          { return time.Time{} }
func (passing) Tick(time.Time, *era.Out)                                {}
func (passing) ServerEnded(time.Time, error, []jsonrpc.ID, *era.Out)    {}

// keeping is passing, and knows all that it was given.
type keeping struct {
	passing
	given []jsonrpc.Message
}

func (k *keeping) FromClient(now time.Time, m jsonrpc.Message, out *era.Out) {
	k.given = append(k.given, m)
	k.passing.FromClient(now, m, out)
}

func (k *keeping) ServerEnded(_ time.Time, _ error, unwritten []jsonrpc.ID, out *era.Out) {
	for _, m := range k.given {
		if slices.Contains(unwritten, m.ID()) {
			out.Unsent = append(out.Unsent, m)
		}
	}
}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
