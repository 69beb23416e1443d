package observe

import (
	"math/rand/v2"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Among many requests, each is found by its id and no other, and the latest one of those that share an id.
func TestCallTable(t *testing.T) {
	var table callTable
	want := map[jsonrpc.ID]*Call{}
	random := rand.New(rand.NewPCG(1, 2))
	for phase := range 6 {
		for range 4000 {
			call := &Call{ID: jsonrpc.IntID(random.Int64N(1000))}
			switch old := want[call.ID]; {
			case phase%2 == 0 || old == nil && random.IntN(8) == 0:
				if got := table.add(call); got != old {
					t.Fatalf("adding %s replaced %p, want %p", call.ID, got, old)
				}
				want[call.ID] = call
			case table.remove(call):
				t.Fatalf("a request was removed that only has the id of another: %s", call.ID)
			case old != nil:
				if !table.remove(old) || table.remove(old) {
					t.Fatalf("%s was not removed once", call.ID)
				}
				delete(want, call.ID)
			}
		}
		if table.count != len(want) {
			t.Fatalf("%d requests, want %d", table.count, len(want))
		}
		for id := range int64(1000) {
			if id := jsonrpc.IntID(id); table.get(id) != want[id] {
				t.Fatalf("%s: %p, want %p", id, table.get(id), want[id])
			}
		}
		for call := range table.all() {
			if want[call.ID] != call {
				t.Fatalf("%s is not the request that was added last", call.ID)
			}
		}
	}
}

// The only request that is left of many may be replaced by one with its id.
func TestReplaceLastOfMany(t *testing.T) {
	var table callTable
	calls := make([]*Call, 4*maxEmptyChains)
	for i := range calls {
		calls[i] = &Call{ID: jsonrpc.IntID(int64(i))}
		table.add(calls[i])
	}
	for _, call := range calls[1:] {
		table.remove(call)
	}
	again := &Call{ID: calls[0].ID}
	if table.add(again) != calls[0] || table.get(again.ID) != again || table.count != 1 {
		t.Error("not replaced")
	}
	table.remove(again)
	if len(table.chains) > maxEmptyChains {
		t.Errorf("%d chains are kept for no request", len(table.chains))
	}
}
