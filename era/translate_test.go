package era

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// FuzzTranslatedBytes compares what the filters write in one go with the same
// edits made one after the other, each with a copy of its own.
func FuzzTranslatedBytes(f *testing.F) {
	for _, s := range []string{
		`{"name":"echo","arguments":{"text":"a long one"},"_meta":{"progressToken":1}}`,
		`{ "_meta" : {"io.modelcontextprotocol/protocolVersion":"2026-07-28", "x":1 } , "requestState":"s" ,"a":[1, 2] }`,
		`{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}},"inputResponses":{}}`,
		`{"task":{},"_meta":null,"n\u0061me":"x","name":"y","resultType":"complete"}`,
		`{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}},"content":[{"type":"text"}],"structuredContent":{"a":1}}`,
		`{"content":[],"structuredContent":[1],"ttlMs":0,"cacheScope":"private","ttlMs":1}`,
		`{"_meta":{"io.modelcontextprotocol/serverInfo":{},"x":1},"result\u0054ype":"complete","tools":[{"name":"t","outputSchema":{"type":"array"}}]}`,
		`{}`, `{ }`, "{\"a\":\n1,\"task\":2}", `[1]`, `"x"`, `null`,
	} {
		f.Add(s, uint8(0))
		f.Add(s, uint8(1))
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, object string, which uint8) {
		method := []string{"tools/call", "tools/list", "resources/list", "x/y"}[which%4]
		if m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":"a","method":"` + method + `","params":` + object + `}`)); err == nil {
			checkRequests(t, m)
		}
		if m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","result":` + object + `,"id":5,"x":1.0}`)); err == nil {
			checkResults(t, m, method, which&4 != 0)
		}
	})
}

func sameBytes(t *testing.T, what string, got, want jsonrpc.Message) {
	t.Helper()
	if !bytes.Equal(got.Bytes(), want.Bytes()) || got.Related() != want.Related() || !bytes.Equal(got.Params(), want.Params()) || !bytes.Equal(got.Result(), want.Result()) {
		t.Fatalf("%s: got %s, want %s", what, got.Bytes(), want.Bytes())
	}
}

func checkRequests(t *testing.T, m jsonrpc.Message) {
	t.Helper()
	id := jsonrpc.IntID(77)
	r := readRequest(m)
	sameBytes(t, "to a legacy server", r.forServer(id), jsonrpc.NewRequest(id, m.Method(), keptParams(m.Params())))
	if params := m.Params(); params != nil && !isObject(params) {
		return
	}
	f := LegacyClient(LegacyClientOptions{}).(*legacyClient)
	f.meta = []byte(`"v":"1"`)
	c := &clientCall{id: m.ID(), m: m, method: m.Method(), upstream: id}
	for _, retry := range []string{"", `"inputResponses":{"a":1},"requestState":"s"`} {
		sameBytes(t, "to a modern server", f.forServer(c, []byte(retry)), jsonrpc.NewRequest(id, m.Method(), splicedParams(f, c, []byte(retry))))
	}
}

// keptParams are params without what no legacy server knows.
func keptParams(params []byte) []byte {
	out, end := []byte("{"), 1
	for m := range jsonrpc.Members(params) {
		value, ahead := m.Value, params[end:m.At]
		end = m.At + len(m.Value)
		if m.Key == "_meta" {
			value = legacyMeta(value)
		}
		if m.Key == "requestState" || m.Key == "inputResponses" || value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, ahead[bytes.IndexByte(ahead, '"'):]...), value...)
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, '}')
}

// splicedParams are a legacy client's params with our _meta and the members of a retry.
func splicedParams(f *legacyClient, c *clientCall, retry []byte) []byte {
	params := c.m.Params()
	if params == nil {
		params = []byte("{}")
	}
	if MayAskForInput(c.method) {
		params = jsonrpc.Without(params, "task", "inputResponses", "requestState")
	}
	b := []byte("{")
	if len(retry) > 0 {
		b = append(append(b, retry...), ',')
	}
	at, meta, alone := findMeta(params)
	rest := []byte("{}")
	if isObject(meta) {
		rest = withoutReserved(meta)
	}
	if meta != nil {
		b = append(b, params[1:at]...)
	} else {
		b = append(b, `"_meta":`...)
	}
	b = append(append(b, '{'), f.meta...)
	if !isEmpty(rest) {
		b = append(b, ',')
	}
	b = append(b, rest[1:]...)
	if meta != nil {
		return append(b, params[at+len(meta):]...)
	}
	if !alone {
		b = append(b, ',')
	}
	return append(b, params[1:]...)
}

func checkResults(t *testing.T, m jsonrpc.Message, method string, wrapped bool) {
	t.Helper()
	call := jsonrpc.NewRequest(jsonrpc.StringID("the client's"), method, []byte(`{"name":"t"}`))
	for _, meta := range []string{"", `{"io.modelcontextprotocol/serverInfo":{"name":"s"}}`} {
		f := LegacyServer(LegacyServerOptions{})
		if meta != "" {
			f.link.meta = []byte(meta)
		}
		c := &serverCall{request: readRequest(call)}
		sameBytes(t, "of a legacy server", f.resultOf(c, m), f.resultMessage(c.id, method, m.Result()))
	}
	parts := readResult(m)
	if !parts.ok {
		return
	}
	session := func() *legacyClient {
		f := LegacyClient(LegacyClientOptions{}).(*legacyClient)
		if wrapped {
			f.wrapped["t"] = true
		}
		return f
	}
	c := &clientCall{id: call.ID(), m: call, method: method}
	got, f := session().translated(c, m, parts), session()
	want := legalResult(m.Result(), parts, IsModernMethod(method))
	switch method {
	case "tools/list":
		want = f.showTools(want)
	case "tools/call":
		want = f.showStructured(c, want)
	}
	sameBytes(t, "of a modern server", got, m.WithResult(want).WithID(c.id))
}

// A long call, and its result, are copied once for the other era, whichever side
// is the older one, and not scanned again.
func TestTranslationCopiesOnce(t *testing.T) {
	const size = 1 << 20
	text := strings.Repeat(`\n`, size/2)
	now := time.Unix(1_800_000_000, 0)
	parse := func(text string) jsonrpc.Message {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	legacy := LegacyServer(LegacyServerOptions{})
	var out Out
	legacy.Start(now, &out)
	legacy.FromServer(now, parse(`{"jsonrpc":"2.0","id":`+out.ToServer[0].ID().String()+`,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`), &out)
	for len(out.ToServer) > 0 { // what it wants to know of the server
		asked := out.ToServer
		out = Out{}
		for _, m := range asked {
			if m.Kind() == jsonrpc.Request && m.Method() != "initialize" {
				legacy.FromServer(now, parse(`{"jsonrpc":"2.0","id":`+m.ID().String()+`,"result":{"tools":[]}}`), &out)
			}
		}
	}
	older, _, _ := ordinaryCall(t)
	for name, c := range map[string]struct {
		f            Filter
		call, result string
	}{
		"to a legacy server":   {legacy, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1},`, ``},
		"from a legacy client": {older, `"_meta":{"progressToken":1},`, `"resultType":"complete",`},
	} {
		call := parse(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{` + c.call + `"name":"t","arguments":{"text":"` + text + `"}}}`)
		result := parse(`{"jsonrpc":"2.0","id":1,"result":{` + c.result + `"content":[{"type":"text","text":"` + text + `"}]}}`)
		scan := shortest(func() { parse(string(call.Bytes())) })
		var out Out
		var there, back uint64
		var took [2]time.Duration
		for i := range took {
			took[i] = time.Hour
		}
		for range 10 {
			out = Out{}
			begin := time.Now()
			there = allocated(func() { c.f.FromClient(now, call, &out) })
			took[0] = min(took[0], time.Since(begin))
			if len(out.ToServer) != 1 {
				t.Fatalf("%s: %d messages for the server", name, len(out.ToServer))
			}
			answer := result.WithID(out.ToServer[0].ID())
			begin = time.Now()
			back = allocated(func() { c.f.FromServer(now, answer, &out) })
			took[1] = min(took[1], time.Since(begin))
			if len(out.ToClient) != 1 || out.ToClient[0].IsError() {
				t.Fatalf("%s: %d messages for the client", name, len(out.ToClient))
			}
		}
		if most := uint64(size * 5 / 4); there > most || back > most {
			t.Errorf("%s: %d and %d bytes are allocated for %d", name, there, back, size)
		}
		if took[0] > scan/2 || took[1] > scan/2 {
			t.Errorf("%s: translation takes %v and %v, and one scan %v", name, took[0], took[1], scan)
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// shortest returns the shortest time that f takes.
func shortest(f func()) time.Duration {
	least := time.Hour
	for range 10 {
		begin := time.Now()
		f()
		least = min(least, time.Since(begin))
	}
	return least
}
