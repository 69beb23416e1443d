package legacyserver

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const testMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

// opened returns a filter whose server has these capabilities.
func opened(t testing.TB, capabilities string) (f *Filter, now time.Time) {
	f = New(Options{Capabilities: []byte(`{"elicitation":{}}`), Sealer: testSealer(t)})
	now = time.Unix(1700000000, 0)
	f.Start(now, &era.Out{})
	f.FromServer(now, eratest.Parse(t, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"serverInfo":{"name":"everything","version":"1.0.0"}}}`), &era.Out{})
	return f, now
}

// testSealer returns a Sealer.
func testSealer(t testing.TB) *era.Sealer {
	t.Helper()
	sealer, err := era.NewSealer()
	bridgetest.Must(t, err)
	return sealer
}

// A call that asks and asks is ended after 16 rounds (C.4.4).
func TestRounds(t *testing.T) {
	f, now := opened(t, `{}`)
	var out era.Out
	f.FromClient(now, eratest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",`+testMeta+`}}`), &out)
	for round := 1; ; round++ {
		f.FromServer(now, eratest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{}}`, round)), &out)
		now = now.Add(time.Second)
		out = era.Out{}
		f.Tick(now, &out)
		if len(out.ToClient) != 1 {
			t.Fatalf("round %d: %d messages", round, len(out.ToClient))
		}
		m := out.ToClient[0]
		if m.IsError() {
			if round != 17 || shape.ErrorCode(m) != jsonrpc.CodeInternalError {
				t.Fatalf("round %d: %s", round, m.Bytes())
			}
			break
		}
		state, _ := jsonrpc.Text(m.Lookup("result", "requestState"))
		out = era.Out{}
		f.FromClient(now, eratest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","requestState":%q,"inputResponses":{"m%d":{"action":"accept"}},%s}}`,
			round+1, state, round, testMeta)), &out)
		if len(out.ToServer) != 1 || out.ToServer[0].IsError() {
			t.Fatalf("round %d: %v", round, out)
		}
	}
	if len(out.ToServer) != 2 || string(out.ToServer[0].Result()) != `{"action":"cancel"}` || out.ToServer[1].Method() != "notifications/cancelled" {
		t.Errorf("the server was sent %v", out.ToServer)
	}
	if f.Parked() != 0 {
		t.Error("something is kept")
	}
}

// A refusal until the user has been at a URL is a round like others, although
// nothing is kept of it (C.1).
func TestRoundsOfURLs(t *testing.T) {
	f, now := opened(t, `{}`)
	meta := strings.Replace(testMeta, `"elicitation":{}`, `"elicitation":{"url":{}}`, 1)
	state := ""
	for round := 1; ; round++ {
		var out era.Out
		f.FromClient(now, eratest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x",%s%s}}`, round, state, meta)), &out)
		f.FromServer(now, eratest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"error":{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","url":"https://example.com"}]}}}`, out.ToServer[0].ID())), &out)
		m := out.ToClient[0]
		if m.IsError() {
			if round != 17 {
				t.Errorf("round %d: %s", round, m.Bytes())
			}
			return
		}
		state = `"requestState":` + string(m.Lookup("result", "requestState")) + `,"inputResponses":{"m1":{"action":"accept"}},`
	}
}

// Neither requests that wait for the server to start nor questions of one call
// pile up without bound.
func TestBounds(t *testing.T) {
	f := New(Options{})
	now := time.Unix(1700000000, 0)
	f.Start(now, &era.Out{})
	var out era.Out
	for id := range 1001 {
		f.FromClient(now, eratest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{%s}}`, id, testMeta)), &out)
	}
	if len(out.ToClient) != 1 || string(out.ToClient[0].Lookup("error", "data", "reason")) != `"busy"` {
		t.Errorf("of 1001 requests, %d are refused", len(out.ToClient))
	}

	f, now = opened(t, `{}`)
	f.FromClient(now, eratest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",`+testMeta+`}}`), &era.Out{})
	out = era.Out{}
	for id := range 101 {
		f.FromServer(now, eratest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{}}`, id)), &out)
	}
	if len(out.ToServer) != 1 || !out.ToServer[0].IsError() {
		t.Errorf("of 101 questions, %d are refused", len(out.ToServer))
	}
}

// Our ids towards the server are never used twice (J2).
func TestIDs(t *testing.T) {
	f, now := opened(t, `{}`)
	seen := map[jsonrpc.ID]bool{}
	for id := range 10000 {
		var out era.Out
		f.FromClient(now, eratest.Parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{%s}}`, id, testMeta)), &out)
		sent := out.ToServer[0].ID()
		if seen[sent] {
			t.Fatalf("id %v twice", sent)
		}
		seen[sent] = true
		f.FromServer(now, jsonrpc.NewResult(sent, nil), &out)
	}
}

// The hot path: an ordinary call of about 100 bytes and its result.
func callAndResult(t testing.TB) (step func()) {
	f, now := opened(t, `{"tools":{}}`)
	call := eratest.Parse(t, `{"jsonrpc":"2.0","id":123456,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"name":"echo","arguments":{"text":"0123456789012345678901234567890123456789"}}}`)
	first := int64(f.ownRequests.lastID)
	var out era.Out
	return func() {
		out.ToClient, out.ToServer = out.ToClient[:0], out.ToServer[:0]
		f.FromClient(now, call, &out)
		first++
		result := serverResult(t, first)
		f.FromServer(now, result, &out)
		if len(out.ToClient) != 1 || len(out.ToServer) != 1 || out.ToClient[0].IsError() {
			t.Fatal("no call")
		}
	}
}

// serverResult makes the result; that costs one allocation.
func serverResult(t testing.TB, id int64) jsonrpc.Message {
	raw := append(make([]byte, 0, 160), `{"jsonrpc":"2.0","id":`...)
	raw = strconv.AppendInt(raw, id, 10)
	raw = append(raw, `,"result":{"content":[{"type":"text","text":"0123456789012345678901234567890123456789"}]}}`...)
	m, err := jsonrpc.Parse(raw)
	bridgetest.Must(t, err)
	return m
}

// The translation of a call costs few allocations; the test itself makes one.
func TestCallAllocations(t *testing.T) {
	step := callAndResult(t)
	for range 200 {
		step() // ids of three digits cost one more
	}
	if n := testing.AllocsPerRun(500, step) - 1; n > 13 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCall(b *testing.B) {
	step := callAndResult(b)
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}
