package mux_test

import (
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
func (passing) ServerEnded(now time.Time, err error, out *era.Out)      {}

func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
