package eratest

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// SampleObjects are JSON texts of params and results, with which both filters' FuzzTranslatedBytes begins.
var SampleObjects = []string{
	`{"name":"echo","arguments":{"text":"a long one"},"_meta":{"progressToken":1}}`,
	`{ "_meta" : {"io.modelcontextprotocol/protocolVersion":"2026-07-28", "x":1 } , "requestState":"s" ,"a":[1, 2] }`,
	`{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}},"inputResponses":{}}`,
	`{"_meta":{"io.modelcontextprotocol\/clientInfo":{"name":"x"},"a":1},"name":"n"}`,
	`{"task":{},"_meta":null,"n\u0061me":"x","name":"y","resultType":"complete"}`,
	`{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}},"content":[{"type":"text"}],"structuredContent":{"a":1}}`,
	`{"content":[],"structuredContent":[1],"ttlMs":0,"cacheScope":"private","ttlMs":1}`,
	`{"_meta":{"io.modelcontextprotocol/serverInfo":{},"x":1},"result\u0054ype":"complete","tools":[{"name":"t","outputSchema":{"type":"array"}}]}`,
	`{"_meta":{"io.modelcontextprotocol/logLevel":1 , "io.modelcontextprotocol/clientInfo":1 }, "a":[1, 2] }`,
	`{"_meta":{}}`, `{}`, `{ }`, "{\"a\":\n1,\"task\":2}", `[1]`, `"x"`, `null`,
}

// CheckSameBytes fails the test if two messages are not the same, byte for byte, or do not belong to the same request
// (Related). what names them in the failure.
func CheckSameBytes(t *testing.T, what string, got, want jsonrpc.Message) {
	t.Helper()
	if !bytes.Equal(got.Bytes(), want.Bytes()) || got.Related() != want.Related() || !bytes.Equal(got.Params(), want.Params()) || !bytes.Equal(got.Result(), want.Result()) {
		t.Fatalf("%s: got %s, want %s", what, got.Bytes(), want.Bytes())
	}
}

// ReplaceParams returns the request m with other params; nil: with none. All other bytes of m
// stay, unless m has no params or gets none.
func ReplaceParams(m jsonrpc.Message, params []byte) jsonrpc.Message {
	m = m.Plain()
	if m.Params() == nil || params == nil {
		return m.WithParams(params)
	}
	text := m.Bytes()
	for member := range jsonrpc.Members(text) {
		if member.Key == "params" {
			text = slices.Concat(text[:member.At], params, text[member.At+len(member.Value):])
		}
	}
	changed, err := jsonrpc.Parse(text)
	if err != nil {
		panic(err)
	}
	return changed
}

// PrependMembers returns a raw object with members, which are raw JSON without braces, ahead of its own.
func PrependMembers(members string, object []byte) []byte {
	if !shape.IsEmpty(object) {
		members += ","
	}
	return append([]byte("{"+members), object[1:]...)
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// CheckCopiesOnce checks that a long call, and its result, are copied once for the
// other era, and not scanned again. meta and kind are raw members, each with a comma
// before it, that the params of the call and the result need besides; lateID says that
// writing the call copies it once more, as its id is replaced then.
func CheckCopiesOnce(t *testing.T, f era.Filter, meta, kind string, lateID bool) {
	t.Helper()
	const size = 1 << 20
	text := strings.Repeat("x", size)
	poison := strings.Repeat(`"]}{`, size/4) // no scan would get through it
	now := time.Unix(1_800_000_000, 0)
	through := func(text, poison string) (there, back jsonrpc.Message) {
		t.Helper()
		// Parsed as it should be, and then spoiled: no scan gets to what stands behind.
		spoiled := func(raw string) jsonrpc.Message {
			m := Parse(t, raw)
			copy(m.Bytes()[strings.Index(raw, text):], poison)
			return m
		}
		var out era.Out
		call := spoiled(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"t","arguments":{"text":"` + text + `"}` + meta + `}}`)
		most := uint64(len(text)*5/4 + 10_000)
		if n := allocated(func() { f.FromClient(now, call, &out) }); n > most {
			t.Errorf("%d bytes are allocated for a call of %d", n, len(text))
		}
		if len(out.ToServer) != 1 {
			t.Fatalf("%d messages for the server", len(out.ToServer))
		}
		there = out.ToServer[0]
		if n := allocated(func() { there.Bytes() }); n > uint64(len(text)/2+1000) && !lateID {
			t.Errorf("%d bytes are allocated to write a call of %d", n, len(text))
		}
		result := spoiled(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + text + `"}]` + kind + `}}`).WithID(there.ID())
		if n := allocated(func() { f.FromServer(now, result, &out) }); n > most {
			t.Errorf("%d bytes are allocated for a result of %d", n, len(text))
		}
		if len(out.ToClient) != 1 || out.ToClient[0].IsError() {
			t.Fatalf("%d messages for the client", len(out.ToClient))
		}
		return there.WithID(jsonrpc.IntID(1)), out.ToClient[0]
	}
	there, back := through(text, poison)
	wantThere, wantBack := through("short", "")
	for what, c := range map[string]struct{ got, want jsonrpc.Message }{"the call": {there, wantThere}, "the result": {back, wantBack}} {
		if got := strings.Replace(string(c.got.Bytes()), poison, "short", 1); got != string(c.want.Bytes()) {
			t.Errorf("%s is %.1000s, want %s", what, got, c.want.Bytes())
		}
	}
}

// Parse returns the message that text is; if it is none, the test ends.
func Parse(t testing.TB, text string) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return m
}

// Member returns the value at a path of keys in a raw object; nil if there is none.
func Member(object []byte, path ...string) []byte {
	for _, key := range path {
		object = shape.Member(object, key)
	}
	return object
}
