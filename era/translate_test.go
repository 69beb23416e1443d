package era

import (
	"bytes"
	"reflect"
	"runtime"
	"slices"
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
		`{"_meta":{"io.modelcontextprotocol\/clientInfo":{"name":"x"},"a":1},"name":"n"}`,
		`{"task":{},"_meta":null,"n\u0061me":"x","name":"y","resultType":"complete"}`,
		`{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}},"content":[{"type":"text"}],"structuredContent":{"a":1}}`,
		`{"content":[],"structuredContent":[1],"ttlMs":0,"cacheScope":"private","ttlMs":1}`,
		`{"_meta":{"io.modelcontextprotocol/serverInfo":{},"x":1},"result\u0054ype":"complete","tools":[{"name":"t","outputSchema":{"type":"array"}}]}`,
		`{"_meta":{}}`, `{}`, `{ }`, "{\"a\":\n1,\"task\":2}", `[1]`, `"x"`, `null`,
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
		if m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","result":` + object + `,"id":5}`)); err == nil {
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
	if m.Params() != nil && !isObject(m.Params()) {
		return
	}
	r := readRequest(m, &spokenMeta{})
	if m.Meta() == nil || isObject(m.Meta()) {
		sameBytes(t, "to a legacy server", r.forServer(id), inPlace(m, keptParams(m.Params())).WithID(id))
	}
	f := LegacyClient(LegacyClientOptions{}).(*legacyClient)
	const every = `"v":"1"`
	f.meta = jsonrpc.NewFragment([]byte("{" + every + "}"))
	c := &clientCall{id: m.ID(), m: m, method: m.Method(), upstream: id}
	for _, retry := range []string{"", `"inputResponses":{"a":1},"requestState":"s"`} {
		want := inPlace(m, splicedParams(c, every, retry)).WithID(id)
		sameBytes(t, "to a modern server", f.forServer(c, jsonrpc.NewFragment([]byte("{"+retry+"}"))), want)
	}
}

// TestSpokenMeta: what is known of the last request changes nothing about the next.
func TestSpokenMeta(t *testing.T) {
	const plain = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":{}}`
	var requests []jsonrpc.Message
	for _, params := range []string{
		`{"name":"a","_meta":{` + plain + `}}`,
		`{"_meta":{` + plain + `},"requestState":"s","name":"b"}`,
		`{"_meta":{` + plain + `},"inputResponses":{},"name":"b"}`,
		`{"_meta":{` + plain + `},"requestState":null}`,
		`{"_meta":{` + plain + `,"io.modelcontextprotocol/logLevel":"info"}}`,
		`{"_meta":{` + plain + `,"io.modelcontextprotocol/logLevel":"loud"}}`,
		`{"_meta":{` + plain + `,"io.modelcontextprotocol/clientInfo":{"name":"x"}}}`,
		`{"_meta":{` + plain + `,"progressToken":1},"a":1}`,
		`{"_meta":{ ` + plain + `}}`,
		`{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":7}}`,
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2099-01-01","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}}`,
		`{"_meta":{}}`, `{"_meta":null}`, `{}`,
	} {
		requests = append(requests, mustParse(t, `"id":1,"method":"tools/call","params":`+params))
	}
	requests = append(requests, mustParse(t, `"id":1,"method":"tools/call"`))
	for _, a := range requests {
		for _, b := range requests {
			var last spokenMeta
			var all, wanted []request
			for _, m := range []jsonrpc.Message{a, a, b, a, b} {
				got, want := readRequest(m, &last), readRequest(m, &spokenMeta{})
				all, wanted = append(all, got), append(wanted, want)
				if !reflect.DeepEqual(all, wanted) { // those before it, too
					t.Fatalf("%s: %+v, want %+v", m.Bytes(), all, wanted)
				}
				if got.refusal == nil {
					sameBytes(t, "to a legacy server", got.forServer(jsonrpc.IntID(77)), inPlace(m, keptParams(m.Params())).WithID(jsonrpc.IntID(77)))
				}
			}
		}
	}
}

// inPlace returns the request with other params where they stand, or made anew if
// it has none or shall have none.
func inPlace(m jsonrpc.Message, params []byte) jsonrpc.Message {
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

// keptParams are params without what no legacy server knows.
func keptParams(params []byte) []byte {
	if params == nil {
		return nil
	}
	if meta := member(params, "_meta"); meta != nil {
		rest := jsonrpc.Without(meta, KeyVersion, KeyClientInfo, KeyCapabilities, KeyLogLevel)
		switch {
		case isEmpty(rest) && len(rest) != len(meta):
			params = jsonrpc.Without(params, "_meta")
		case len(rest) != len(meta):
			params = jsonrpc.With(params, "_meta", rest)
		}
	}
	if params = jsonrpc.Without(params, "requestState", "inputResponses"); isEmpty(params) {
		return nil
	}
	return params
}

// splicedParams are a legacy client's params with our members of _meta and those of a retry.
func splicedParams(c *clientCall, every, retry string) []byte {
	params := c.m.Params()
	if params == nil {
		params = []byte("{}")
	}
	if MayAskForInput(c.method) {
		params = jsonrpc.Without(params, "task", "inputResponses", "requestState")
	}
	rest := []byte("{}")
	meta := member(params, "_meta")
	if isObject(meta) {
		rest = jsonrpc.Without(meta, KeyVersion, KeyClientInfo, KeyCapabilities, KeyLogLevel, KeyRelatedTask)
		if isEmpty(rest) && len(rest) != len(meta) {
			params, meta = jsonrpc.Without(params, "_meta"), nil
		}
	}
	all := "{" + every
	if !isEmpty(rest) {
		all += ","
	}
	all += string(rest[1:])
	if meta != nil {
		params = jsonrpc.With(params, "_meta", []byte(all))
	} else {
		params = first(`"_meta":`+all, params)
	}
	if retry != "" {
		params = first(retry, params)
	}
	return params
}

// first puts members ahead of those of an object.
func first(members string, object []byte) []byte {
	if !isEmpty(object) {
		members += ","
	}
	return append([]byte("{"+members), object[1:]...)
}

func checkResults(t *testing.T, m jsonrpc.Message, method string, wrapped bool) {
	t.Helper()
	m = m.Plain() // TestEnvelopes has the others
	call := jsonrpc.NewRequest(jsonrpc.StringID("the client's"), method, []byte(`{"name":"t"}`))
	for _, meta := range []string{"", `{"io.modelcontextprotocol/serverInfo":{"name":"s"}}`} {
		f := LegacyServer(LegacyServerOptions{})
		if meta != "" {
			f.link.meta = []byte(meta)
		}
		f.link.makePreambles()
		c := &serverCall{request: readRequest(call, &spokenMeta{})}
		want := f.resultMessage(c.id, method, m.Result())
		if isObject(m.Result()) && isEmpty(m.Result()) { // its white space stays
			preamble := f.link.preamble
			if IsCacheable(method) {
				preamble = f.link.cacheablePreamble
			}
			want = m.WithResult(first(preamble.String(), m.Result())).WithID(c.id).WithRelated(c.id)
		}
		if want.Result() != nil {
			want = m.WithResult(want.Result()).WithID(c.id).WithRelated(c.id)
		}
		got := f.resultOf(c, m)
		if got.Result() != nil && bytes.HasPrefix(got.Bytes(), []byte(`{"jsonrpc":"2.0","id"`)) { // it was made anew
			got = m.WithResult(got.Result()).WithID(c.id).WithRelated(c.id)
		}
		sameBytes(t, "of a legacy server", got, want)
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

// What has no meaning in an envelope ends with the era: a server or a client may
// take "ID" for "id".
func TestEnvelopes(t *testing.T) {
	parse := func(text string) jsonrpc.Message {
		m, err := jsonrpc.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	call := parse(`{"jsonrpc":"2.0","ID":7,"id":1,"method":"tools/call","params":{"name":"t"}}`)
	result := parse(`{"jsonrpc":"2.0","params":{},"result":{"resultType":"complete","a":1},"id":1}`)
	r := readRequest(call, &spokenMeta{})
	client := LegacyClient(LegacyClientOptions{}).(*legacyClient)
	c := &clientCall{id: call.ID(), m: call, method: call.Method(), upstream: jsonrpc.IntID(3)}
	server := LegacyServer(LegacyServerOptions{})
	server.link.makePreambles()
	for name, c := range map[string]struct {
		got  jsonrpc.Message
		want string
	}{
		"call of a modern client":   {r.forServer(jsonrpc.IntID(2)), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`},
		"call of a legacy client":   {client.forServer(c, jsonrpc.Fragment{}), `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"_meta":{},"name":"t"}}`},
		"result of a modern server": {client.translated(c, result, readResult(result)), `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`},
		"result of a legacy server": {server.resultOf(&serverCall{request: r}, parse(`{"x":1,"jsonrpc":"2.0","result":{"a":1},"id":9}`)), `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","a":1}}`},
	} {
		if string(c.got.Bytes()) != c.want {
			t.Errorf("%s: %s, want %s", name, c.got.Bytes(), c.want)
		}
	}
}

// A long call, and its result, are copied once for the other era, whichever side
// is the older one, and not scanned again.
func TestTranslationCopiesOnce(t *testing.T) {
	const size = 1 << 20
	text := strings.Repeat("x", size)
	poison := strings.Repeat(`"]}{`, size/4) // no scan would get through it
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
		"to a legacy server":   {legacy, `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1}`, ``},
		"from a legacy client": {older, `,"_meta":{"progressToken":1}`, `,"resultType":"complete"`},
	} {
		through := func(text, poison string) (there, back jsonrpc.Message) {
			t.Helper()
			// Parsed as it should be, and then spoiled: no scan gets to what stands behind.
			spoiled := func(raw string) jsonrpc.Message {
				m := parse(raw)
				copy(m.Bytes()[strings.Index(raw, text):], poison)
				return m
			}
			var out Out
			call := spoiled(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"t","arguments":{"text":"` + text + `"}` + c.call + `}}`)
			most := uint64(len(text)*5/4 + 10_000)
			if n := allocated(func() { c.f.FromClient(now, call, &out) }); n > most {
				t.Errorf("%s: %d bytes are allocated for a call of %d", name, n, len(text))
			}
			if len(out.ToServer) != 1 {
				t.Fatalf("%s: %d messages for the server", name, len(out.ToServer))
			}
			there = out.ToServer[0]
			if n := allocated(func() { there.Bytes() }); n > uint64(len(text)/2+1000) && c.f != Filter(older) { // whose id will be another one yet
				t.Errorf("%s: %d bytes are allocated to write a call of %d", name, n, len(text))
			}
			result := spoiled(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + text + `"}]` + c.result + `}}`).WithID(there.ID())
			if n := allocated(func() { c.f.FromServer(now, result, &out) }); n > most {
				t.Errorf("%s: %d bytes are allocated for a result of %d", name, n, len(text))
			}
			if len(out.ToClient) != 1 || out.ToClient[0].IsError() {
				t.Fatalf("%s: %d messages for the client", name, len(out.ToClient))
			}
			return there.WithID(jsonrpc.IntID(1)), out.ToClient[0]
		}
		there, back := through(text, poison)
		wantThere, wantBack := through("short", "")
		for what, c := range map[string]struct{ got, want jsonrpc.Message }{"the call": {there, wantThere}, "the result": {back, wantBack}} {
			if got := strings.Replace(string(c.got.Bytes()), poison, "short", 1); got != string(c.want.Bytes()) {
				t.Errorf("%s: %s is %.1000s, want %s", name, what, got, c.want.Bytes())
			}
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
