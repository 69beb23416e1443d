package upstream

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
)

// TestPlacesOfBothEras: D.3. Who makes modern requests beside a legacy session on one connection has two processes, and both count.
func TestPlacesOfBothEras(t *testing.T) {
	t.Parallel()
	var taken atomic.Int32
	admit := func(context.Context) (func(), error) {
		taken.Add(1)
		return func() { taken.Add(-1) }, nil
	}
	f := &fleet{kind: legacyServer}
	s := serverOf(t, f, Spec{AcquirePlace: admit, Protocol: era.OnlyLegacy})
	control := admission.New(10, admit)
	slot, err := control.AcquireLazily(t.Context())
	bridgetest.Must(t, err)
	t.Cleanup(func() {
		slot.Release()
		control.Close()
	})
	client := party(t, slot.Context(), s.Handler(false, bridge.PumpOptions{}))
	for _, request := range []string{initialize, modernCall, legacyCall} {
		if m := ask(t, client, request); m.IsError() {
			t.Errorf("%s got %s", request, m.Bytes())
		}
	}
	f.wait(t, 2, 2)
	if n := taken.Load(); n != 2 {
		t.Errorf("two processes run, and %d places are taken", n)
	}
}
