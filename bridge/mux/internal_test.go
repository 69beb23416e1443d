package mux

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Which log messages a call asks for is found however its key is spelled.
func TestLogLevel(t *testing.T) {
	for meta, want := range map[string]string{
		`{}`:                     ``,
		`{"progressToken":1}`:    ``,
		`{"x/logLevel":"error"}`: ``,
		`{"progressToken":1,"io.modelcontextprotocol/logLevel":"info"}`:     `"info"`,
		`{"io.modelcontextprotocol\/logL\u0065vel":"info","logLevel":"no"}`: `"info"`,
		`{"io.modelcontextprotocol\/\u006cogLevel":"debug"}`:                `"debug"`,
	} {
		m := jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", []byte(`{"_meta":`+meta+`}`))
		if got := requestedLogLevel(m); string(got) != want {
			t.Errorf("%s: %s, want %s", meta, got, want)
		}
	}
}

// The calls of a client are found by their ids, and by what means the same, however
// many there are and were.
func TestCalls(t *testing.T) {
	spelled := [][]jsonrpc.ID{ // the same in each
		{jsonrpc.IntID(1), rawID(t, `1.0`)}, {jsonrpc.IntID(2), rawID(t, `2e0`)},
		{jsonrpc.StringID("1"), rawID(t, `"\u0031"`)}, {jsonrpc.StringID("a"), rawID(t, `"\u0061"`)},
	}
	for range 2000 {
		var calls clientCalls
		want := make(map[jsonrpc.ID]*call)
		for range rand.IntN(12) {
			id := spelled[rand.IntN(len(spelled))][rand.IntN(2)]
			if got := calls.get(id); got != want[id] {
				t.Fatalf("get(%s) = %v, want %v", id, got, want[id])
			}
			_, same, _ := jsonrpc.Find(want, id)
			if got := calls.find(id); got != same {
				t.Fatalf("find(%s) = %v, want %v", id, got, same)
			}
			if c := want[id]; c != nil {
				calls.remove(c)
				delete(want, id)
			} else {
				want[id] = &call{id: id}
				calls.add(want[id])
			}
			got := make(map[jsonrpc.ID]*call)
			for call := range calls.all() {
				got[call.id] = call
			}
			if calls.len() != len(want) || !maps.Equal(got, want) {
				t.Fatalf("%d calls %v, want %v", calls.len(), slices.Collect(maps.Keys(got)), slices.Collect(maps.Keys(want)))
			}
		}
		if calls.find(jsonrpc.ID{}) != nil {
			t.Fatal("no id is that of no call")
		}
	}
}

func rawID(t *testing.T, text string) jsonrpc.ID {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":` + text + `,"method":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	return m.ID()
}
