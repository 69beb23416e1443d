package legacyserver

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// FuzzTranslatedBytes compares what the filter writes in one go with the same
// edits made one after the other, each with a copy of its own.
func FuzzTranslatedBytes(f *testing.F) {
	for _, s := range eratest.SampleObjects {
		f.Add(s, uint8(0))
		f.Add(s, uint8(1))
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, object string, which uint8) {
		method := []string{"tools/call", "tools/list", "resources/list", "x/y"}[which%4]
		if m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":"a","method":"` + method + `","params":` + object + `}`)); err == nil {
			checkRequest(t, m)
		}
		if m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","result":` + object + `,"id":5}`)); err == nil {
			checkResult(t, m, method)
		}
	})
}

func checkRequest(t *testing.T, m jsonrpc.Message) {
	t.Helper()
	id := jsonrpc.IntID(77)
	if m.Params() != nil && !shape.IsObject(m.Params()) {
		return
	}
	r := readRequest(m, &lastMeta{})
	if m.Meta() == nil || shape.IsObject(m.Meta()) {
		eratest.CheckSameBytes(t, "to a legacy server", r.forServer(id), eratest.ReplaceParams(m, keptParams(m.Params())).WithID(id))
	}
}

// TestLastMeta: what is known of the last request changes nothing about the next.
func TestLastMeta(t *testing.T) {
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
		requests = append(requests, eratest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`))
	}
	requests = append(requests, eratest.Parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
	for _, a := range requests {
		for _, b := range requests {
			var last lastMeta
			var all, wanted []request
			for _, m := range []jsonrpc.Message{a, a, b, a, b} {
				got, want := readRequest(m, &last), readRequest(m, &lastMeta{})
				all, wanted = append(all, got), append(wanted, want)
				if !reflect.DeepEqual(all, wanted) { // those before it, too
					t.Fatalf("%s: %+v, want %+v", m.Bytes(), all, wanted)
				}
				if got.refusal == nil {
					eratest.CheckSameBytes(t, "to a legacy server", got.forServer(jsonrpc.IntID(77)), eratest.ReplaceParams(m, keptParams(m.Params())).WithID(jsonrpc.IntID(77)))
				}
			}
		}
	}
}

// keptParams are params without what no legacy server knows.
func keptParams(params []byte) []byte {
	if params == nil {
		return nil
	}
	if meta := shape.Member(params, "_meta"); meta != nil {
		rest := jsonrpc.Without(meta, era.KeyVersion, era.KeyClientInfo, era.KeyCapabilities, era.KeyLogLevel)
		switch {
		case shape.IsEmpty(rest) && len(rest) != len(meta):
			params = jsonrpc.Without(params, "_meta")
		case len(rest) != len(meta):
			params = jsonrpc.With(params, "_meta", rest)
		}
	}
	if params = jsonrpc.Without(params, "requestState", "inputResponses"); shape.IsEmpty(params) {
		return nil
	}
	return params
}

func checkResult(t *testing.T, m jsonrpc.Message, method string) {
	t.Helper()
	m = m.Plain() // TestEnvelopes has the others
	said := jsonrpc.NewRequest(jsonrpc.StringID("the client's"), method, []byte(`{"name":"t"}`))
	for _, meta := range []string{"", `{"name":"s"}`} {
		f := New(Options{})
		f.resultTranslator.setServerInfo([]byte(meta))
		c := &call{request: readRequest(said, &lastMeta{})}
		want := f.resultTranslator.makeResponse(c.id, method, m.Result())
		if shape.IsObject(m.Result()) && shape.IsEmpty(m.Result()) { // its white space stays
			preamble := f.resultTranslator.preamble
			if era.IsCacheable(method) {
				preamble = f.resultTranslator.cacheablePreamble
			}
			want = m.WithResult(eratest.PrependMembers(preamble.String(), m.Result())).WithID(c.id).WithRelated(c.id)
		}
		if want.Result() != nil {
			want = m.WithResult(want.Result()).WithID(c.id).WithRelated(c.id)
		}
		got := f.resultTranslator.translate(c, m)
		if got.Result() != nil && bytes.HasPrefix(got.Bytes(), []byte(`{"jsonrpc":"2.0","id"`)) { // it was made anew
			got = m.WithResult(got.Result()).WithID(c.id).WithRelated(c.id)
		}
		eratest.CheckSameBytes(t, "of a legacy server", got, want)
	}
}

// What has no meaning in an envelope ends with the era: a server or a client may
// take "ID" for "id".
func TestEnvelopes(t *testing.T) {
	said := eratest.Parse(t, `{"jsonrpc":"2.0","ID":7,"id":1,"method":"tools/call","params":{"name":"t"}}`)
	r := readRequest(said, &lastMeta{})
	server := New(Options{})
	server.resultTranslator.setServerInfo(nil)
	toServer := r.forServer(jsonrpc.IntID(2))
	if want := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`; string(toServer.Bytes()) != want {
		t.Errorf("the call is %s, want %s", toServer.Bytes(), want)
	}
	toClient := server.resultTranslator.translate(&call{request: r}, eratest.Parse(t, `{"x":1,"jsonrpc":"2.0","result":{"a":1},"id":9}`))
	if want := `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","a":1}}`; string(toClient.Bytes()) != want {
		t.Errorf("the result is %s, want %s", toClient.Bytes(), want)
	}
}

// A long call, and its result, are copied once, and not scanned again.
func TestTranslationCopiesOnce(t *testing.T) {
	f, _ := opened(t, `{"tools":{}}`)
	eratest.CheckCopiesOnce(t, f, `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1}`, ``, false)
}
