package legacyclient

import (
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
		f.Add(s, uint8(4))
	}
	f.Fuzz(func(t *testing.T, object string, which uint8) {
		method := []string{"tools/call", "tools/list", "resources/list", "x/y"}[which%4]
		if m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":"a","method":"` + method + `","params":` + object + `}`)); err == nil {
			checkRequest(t, m)
		}
		if m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","result":` + object + `,"id":5}`)); err == nil {
			checkResult(t, m, method, which&4 != 0)
		}
	})
}

func checkRequest(t *testing.T, m jsonrpc.Message) {
	t.Helper()
	id := jsonrpc.IntID(77)
	if m.Params() != nil && !shape.IsObject(m.Params()) {
		return
	}
	f := New(Options{}).(*filter)
	const every = `"v":"1"`
	f.session.callMeta = jsonrpc.NewFragment([]byte("{" + every + "}"))
	c := &call{id: m.ID(), m: m, method: m.Method(), serverID: id}
	for _, retry := range []string{"", `"inputResponses":{"a":1},"requestState":"s"`} {
		want := eratest.ReplaceParams(m, splicedParams(c, every, retry)).WithID(id)
		eratest.CheckSameBytes(t, "to a modern server", f.calls.requestForServer(c, jsonrpc.NewFragment([]byte("{"+retry+"}"))), want)
	}
}

// splicedParams are a legacy client's params with our members of _meta and those of a retry.
func splicedParams(c *call, every, retry string) []byte {
	params := c.m.Params()
	if params == nil {
		params = []byte("{}")
	}
	if era.MayAskForInput(c.method) {
		params = jsonrpc.Without(params, "task", "inputResponses", "requestState")
	}
	rest := []byte("{}")
	meta := shape.Member(params, "_meta")
	if shape.IsObject(meta) {
		rest = jsonrpc.Without(meta, era.KeyVersion, era.KeyClientInfo, era.KeyCapabilities, era.KeyLogLevel, era.KeyRelatedTask)
		if shape.IsEmpty(rest) && len(rest) != len(meta) {
			// The space inside goes with it.
			params, meta, rest = jsonrpc.Without(params, "_meta"), nil, []byte("{}")
		}
	}
	all := "{" + every
	if !shape.IsEmpty(rest) {
		all += ","
	}
	all += string(rest[1:])
	if meta != nil {
		params = jsonrpc.With(params, "_meta", []byte(all))
	} else {
		params = eratest.PrependMembers(`"_meta":`+all, params)
	}
	if retry != "" {
		params = eratest.PrependMembers(retry, params)
	}
	return params
}

func checkResult(t *testing.T, m jsonrpc.Message, method string, wrapped bool) {
	t.Helper()
	m = m.Plain() // TestEnvelopes has the others
	request := jsonrpc.NewRequest(jsonrpc.StringID("the client's"), method, []byte(`{"name":"t"}`))
	parts := readResult(m)
	if !parts.valid {
		return
	}
	session := func() *filter {
		f := New(Options{}).(*filter)
		if wrapped {
			f.calls.schemas.wrapped = map[string]bool{"t": true}
		}
		return f
	}
	c := &call{id: request.ID(), m: request, method: method}
	got, f := session().calls.translateResult(c, m, parts), session()
	want := legacyResult(m.Result(), parts, era.IsModernMethod(method))
	switch method {
	case "tools/list":
		want = f.calls.schemas.wrapToolSchemas(want)
	case "tools/call":
		want = f.calls.schemas.wrapStructured(c, want)
	}
	eratest.CheckSameBytes(t, "of a modern server", got, m.WithResult(want).WithID(c.id))
}

// What has no meaning in an envelope ends with the era: a server or a client may
// take "ID" for "id".
func TestEnvelopes(t *testing.T) {
	request := eratest.Parse(t, `{"jsonrpc":"2.0","ID":7,"id":1,"method":"tools/call","params":{"name":"t"}}`)
	result := eratest.Parse(t, `{"jsonrpc":"2.0","params":{},"result":{"resultType":"complete","a":1},"id":1}`)
	client := New(Options{}).(*filter)
	c := &call{id: request.ID(), m: request, method: request.Method(), serverID: jsonrpc.IntID(3)}
	toServer := client.calls.requestForServer(c, jsonrpc.Fragment{})
	if want := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"_meta":{},"name":"t"}}`; string(toServer.Bytes()) != want {
		t.Errorf("the call is %s, want %s", toServer.Bytes(), want)
	}
	toClient := client.calls.translateResult(c, result, readResult(result))
	if want := `{"jsonrpc":"2.0","id":1,"result":{"a":1}}`; string(toClient.Bytes()) != want {
		t.Errorf("the result is %s, want %s", toClient.Bytes(), want)
	}
}

// A long call, and its result, are copied once, and not scanned again.
func TestTranslationCopiesOnce(t *testing.T) {
	f, _, _ := ordinaryCall(t)
	eratest.CheckCopiesOnce(t, f, `,"_meta":{"progressToken":1}`, `,"resultType":"complete"`, true)
}
