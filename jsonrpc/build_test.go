package jsonrpc

import (
	"encoding/json"
	"testing"
)

func TestBuild(t *testing.T) {
	for _, c := range []struct {
		m    Message
		want string
		kind Kind
	}{
		{NewRequest(IntID(1), "ping", nil), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, Request},
		{NewRequest(StringID("a"), "x\"\n", []byte(`{"a": 1}`)), `{"jsonrpc":"2.0","id":"a","method":"x\"\n","params":{"a": 1}}`, Request},
		{NewNotification("n", []byte(`[]`)), `{"jsonrpc":"2.0","method":"n","params":[]}`, Notification},
		{NewNotification("n", nil), `{"jsonrpc":"2.0","method":"n"}`, Notification},
		{NewResult(IntID(-1), nil), `{"jsonrpc":"2.0","id":-1,"result":{}}`, Response},
		{NewResult(IntID(1), []byte(`null`)), `{"jsonrpc":"2.0","id":1,"result":null}`, Response},
		{NewError(ID{}, -32700, "x", nil), `{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}`, Response},
		{NewError(NullID, 1, "<é>", []byte(`[1]`)), `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"<é>","data":[1]}}`, Response},
	} {
		if string(c.m.Bytes()) != c.want || c.m.Kind() != c.kind {
			t.Errorf("got %s of kind %d, want %s", c.m.Bytes(), c.m.Kind(), c.want)
		}
	}
	if m := NewError(NullID, 1, "m", nil); m.ID() != NullID || !m.IsError() || m.Result() != nil {
		t.Errorf("error response: id %s", m.ID())
	}
}

func TestStringsAreEscaped(t *testing.T) {
	all := ""
	for r := rune(0); r < 0x300; r++ {
		all += string(r)
	}
	for _, text := range []string{"", all, "\u2028\u2029😀<&>", "a\xffb\xc0\xafc\xed\xa0\x80"} {
		m := NewError(IntID(1), 5, text, nil)
		var got string
		if err := json.Unmarshal(m.Lookup("error", "message"), &got); err != nil {
			t.Fatal(err)
		}
		if want := string([]rune(text)); got != want {
			t.Errorf("message: got %q, want %q", got, want)
		}
		if err := json.Unmarshal([]byte(StringID(text).String()), &got); err != nil || got != string([]rune(text)) {
			t.Errorf("id: got %q, %v", got, err)
		}
	}
	if got := StringID("<&>/\u2028").String(); got != "\"<&>/\u2028\"" {
		t.Errorf("escaped without need: %s", got)
	}
}

func TestSplices(t *testing.T) {
	const before, after = `{ "params":{"_meta":{"progressToken": `, `,"x":1.0},"k":[]} ,"id": "old", "method":"m","jsonrpc":"2.0"}`
	m := mustParse(t, before+`"t"`+after)
	s := m.WithProgressToken(IntID(123456)).WithID(IntID(1)).WithProgressToken(IntID(2))
	const want = `{ "params":{"_meta":{"progressToken": 2,"x":1.0},"k":[]} ,"id": 1, "method":"m","jsonrpc":"2.0"}`
	if string(s.Bytes()) != want || s.ID() != IntID(1) || s.ProgressToken() != IntID(2) || s.Method() != "m" ||
		string(s.Params()) != `{"_meta":{"progressToken": 2,"x":1.0},"k":[]}` {
		t.Errorf("got %s", s.Bytes())
	}
	if string(m.Bytes()) != before+`"t"`+after || m.ID() != StringID("old") {
		t.Errorf("the original changed: %s", m.Bytes())
	}
	c := mustParse(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"r"}}`).WithCancelledID(StringID("abc"))
	if got := string(c.Bytes()); got != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"abc","reason":"r"}}` {
		t.Errorf("got %s", got)
	}
	if e := mustParse(t, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`).WithID(NullID); e.ID() != NullID {
		t.Errorf("got %s", e.Bytes())
	}
}

func TestBuildPanics(t *testing.T) {
	request, note := NewRequest(IntID(1), "a", []byte(`{"requestId":1}`)), NewNotification("a", nil)
	for name, f := range map[string]func(){
		"WithID without id":            func() { note.WithID(IntID(1)) },
		"WithID zero":                  func() { request.WithID(ID{}) },
		"WithID null":                  func() { request.WithID(NullID) },
		"WithProgressToken":            func() { request.WithProgressToken(IntID(1)) },
		"WithCancelledID of a request": func() { request.WithCancelledID(IntID(1)) },
		"WithCancelledID":              func() { note.WithCancelledID(IntID(1)) },
		"zero Message":                 func() { Message{}.WithID(IntID(1)) },
		"params no JSON":               func() { NewRequest(IntID(1), "a", []byte(`{`)) },
		"params no object":             func() { NewNotification("a", []byte(`1`)) },
		"injected member":              func() { NewNotification("a", []byte(`{},"id":1`)) },
		"injected code":                func() { NewError(IntID(1), 1, "", []byte(`1,"code":2`)) },
		"request null":                 func() { NewRequest(NullID, "a", nil) },
		"result without id":            func() { NewResult(ID{}, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}
