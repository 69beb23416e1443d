package jsonrpc

import (
	"strings"
	"testing"
)

func mustParse(t *testing.T, text string) Message {
	t.Helper()
	m, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("Parse(%.200q): %v", text, err)
	}
	return m
}

func parseError(t *testing.T, text string) *Error {
	t.Helper()
	_, err := Parse([]byte(text))
	e, ok := err.(*Error)
	if !ok {
		t.Fatalf("Parse(%.200q) gave %v", text, err)
	}
	return e
}

func TestParseKinds(t *testing.T) {
	for _, c := range []struct {
		text   string
		kind   Kind
		id     string
		method string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, Request, `1`, "ping"},
		{`{"id":"1","method":"x/y","jsonrpc":"2.0"}`, Request, `"1"`, "x/y"},
		{`{"jsonrpc":"2.0","id":"","method":""}`, Request, `""`, ""},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, Notification, "", "notifications/initialized"},
		{`{"jsonrpc":"2.0","method":"a","params":null}`, Notification, "", "a"},
		{`{"jsonrpc":"2.0","method":"a","params":[1]}`, Notification, "", "a"},
		{`{"jsonrpc":"2.0","id":1,"result":null}`, Response, `1`, ""},
		{`{"result":{},"jsonrpc":"2.0","id":9007199254740993}`, Response, `9007199254740993`, ""},
		{`{"jsonrpc":"2.0","id":"abc","error":{"code":-1,"message":"m"}}`, Response, `"abc"`, ""},
		{`{"jsonrpc":"2.0","id":null,"error":{"message":"","code":1.0,"data":1}}`, Response, `null`, ""},
		{`{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}`, Response, "", ""},
		{`{"jsonrpc":"\u0032.0","i\u0064":1,"m\u0065thod":"\u0070\ud83d\ude00\n"}`, Request, `1`, "p😀\n"},
		{`{"jsonrpc":"2.0","id":1,"method":"a","Method":"b","ID":2,"Result":3,"ERROR":4,"x":{"id":5}}`, Request, `1`, "a"},
		{"\uFEFF \r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\"}\n\t ", Request, `1`, "a"},
	} {
		m := mustParse(t, c.text)
		if m.Kind() != c.kind || m.ID().String() != c.id || m.Method() != c.method {
			t.Errorf("%s: got kind %d, id %s, method %q", c.text, m.Kind(), m.ID(), m.Method())
		}
		if want := strings.Trim(c.text, "\uFEFF \r\n\t"); string(m.Bytes()) != want {
			t.Errorf("Bytes are %q, want %q", m.Bytes(), want)
		}
		if cap(m.Bytes()) != len(m.Bytes()) {
			t.Error("appending to Bytes would write into the caller's buffer")
		}
		if m.IsError() != strings.Contains(c.text, `"error"`) {
			t.Errorf("%s: IsError is %v", c.text, m.IsError())
		}
	}
}

// What is refused, with which code and id (J1, J4).
func TestParseRefuses(t *testing.T) {
	const parse, shape = CodeParseError, CodeInvalidRequest
	for _, c := range []struct {
		text string
		code int
		id   string
		kind Kind
	}{
		// J1: the envelope.
		{`{"jsonrpc":"2.0","id":null,"method":"a"}`, shape, "", Request},
		{`{"jsonrpc":"2.0","id":null,"result":1}`, shape, "", Response},
		{`{"jsonrpc":"2.0","id":1.5,"method":"a"}`, shape, "", Request},
		{`{"jsonrpc":"2.0","id":1e-1,"method":"a"}`, shape, "", Request},
		{`{"jsonrpc":"2.0","id":true,"method":"a"}`, shape, "", Request},
		{`{"jsonrpc":"2.0","id":{"id":1},"method":"a"}`, shape, "", Request},
		{`{"jsonrpc":"2.0","id":7,"method":5}`, shape, "7", Request},
		{`{"jsonrpc":"2.0","id":7,"method":null}`, shape, "7", Request},
		{`{"jsonrpc":"2.0","id":7,"method":"a","params":"x"}`, shape, "7", Request},
		{`{"jsonrpc":"2.0","id":7,"method":"a","params":false}`, shape, "7", Request},
		{`{"jsonrpc":"1.0","id":7,"method":"a"}`, shape, "7", Request},
		{`{"jsonrpc":2.0,"method":"a","id":7}`, shape, "7", Request},
		{`{"jsonrpc":"2.0 ","method":"a","id":7}`, shape, "7", Request},
		{`{"id":7,"method":"a"}`, shape, "7", Request},
		{`{"method":"a"}`, shape, "", Notification},
		{`{"jsonrpc":"2.0","id":7}`, shape, "7", Invalid},
		{`{}`, shape, "", Invalid},
		{`{"jsonrpc":"2.0","result":1}`, shape, "", Response},
		{`{"jsonrpc":"2.0","id":7,"result":1,"error":{"code":1,"message":"m"}}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":1,"error":null}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"method":"a","result":1}`, shape, "7", Invalid},
		{`{"jsonrpc":"2.0","id":7,"method":"a","error":{"code":1,"message":"m"}}`, shape, "7", Invalid},
		{`{"jsonrpc":"2.0","id":7,"error":"m"}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":"1","message":"m"}}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":1.5,"message":"m"}}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":1e400,"message":"m"}}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":-9007199254740992,"message":"m"}}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":1}}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":null}}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"error":{}}`, shape, "7", Response},
		// The id stands behind the fault.
		{`{"jsonrpc":"2.0","error":{},"id":7}`, shape, "7", Response},
		{`{"jsonrpc":"3","method":1,"params":2,"id":"7"}`, shape, `"7"`, Request},
		// Keys that stand twice, however they are spelled.
		{`{"jsonrpc":"2.0","id":7,"id":7,"method":"a"}`, shape, "", Request},
		{`{"jsonrpc":"2.0","id":7,"\u0069d":8,"method":"a"}`, shape, "", Request},
		{`{"jsonrpc":"2.0","jsonrpc":"2.0","id":7,"method":"a"}`, shape, "7", Request},
		{`{"jsonrpc":"2.0","method":"a","method":"b","id":7}`, shape, "7", Request},
		{`{"jsonrpc":"2.0","method":"a","params":{},"params":{},"id":7}`, shape, "7", Request},
		{`{"jsonrpc":"2.0","result":1,"result":1,"id":7}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","error":{"code":1,"message":"m"},"error":{"code":1,"message":"m"},"id":7}`, shape, "7", Response},
		{`{"jsonrpc":"2.0","method":"a","params":{"_meta":{},"_meta":{}},"id":7}`, shape, "7", Request},
		{`{"jsonrpc":"2.0","method":"a","params":{"_meta":{"progressToken":1,"progressToken":1}},"id":7}`, shape, "7", Request},
		{`{"jsonrpc":"2.0","method":"a","params":{"progressToken":1,"progressT\u006fken":1}}`, shape, "", Notification},
		{`{"jsonrpc":"2.0","method":"a","params":{"requestId":1,"requestId":1}}`, shape, "", Notification},
		// No object.
		{`[{"jsonrpc":"2.0","id":7,"method":"a"}]`, shape, "", Invalid},
		{`[]`, shape, "", Invalid},
		{`1`, shape, "", Invalid},
		{`"x"`, shape, "", Invalid},
		{`null`, shape, "", Invalid},
		// No JSON.
		{``, parse, "", Invalid},
		{" \r\n", parse, "", Invalid},
		{"\uFEFF", parse, "", Invalid},
		{"\u00a0{}", parse, "", Invalid},
		{" \uFEFF{}", parse, "", Invalid},
		{`[1`, parse, "", Invalid},
		{`{"jsonrpc":"2.0","id":7,"method":"a"}}`, parse, "7", Request},
		{`{"jsonrpc":"2.0","id":7,"method":"a"}{}`, parse, "7", Request},
		{`{"jsonrpc":"2.0","id":7,"method":"a"`, parse, "7", Request},
		{`{"jsonrpc":"2.0","method":"a","params":{"b":tru},"id":7}`, parse, "", Invalid},
		{`{"jsonrpc":"2.0","id":7,"method":"a","params":{"b":tru}}`, parse, "7", Request},
		{`{"jsonrpc":"2.0","method":"a","id":12`, parse, "", Request},
		{`{"jsonrpc":"2.0","id":7,"result":{"x":"` + "\xff" + `"}}`, parse, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":{"x":"` + "\xed\xa0\x80" + `"}}`, parse, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":{"` + "\xc0\x80" + `":1}}`, parse, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":"a` + "\n" + `b"}`, parse, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":"a` + "\x00" + `b"}`, parse, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":01}`, parse, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":[1}}`, parse, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":{"a":1]}`, parse, "7", Response},
		{`{"jsonrpc":"2.0","id":7,"result":NaN}`, parse, "7", Response},
		{`{'id':7}`, parse, "", Invalid},
	} {
		e := parseError(t, c.text)
		if e.Code != c.code || e.ID.String() != c.id || e.Kind != c.kind {
			t.Errorf("%q: got code %d, id %s, kind %d (%s)", c.text, e.Code, e.ID, e.Kind, e.Message)
		}
	}
}

// Messages of errors say where, and never what stands there.
func TestErrorMessages(t *testing.T) {
	for text, want := range map[string]string{
		` {"jsonrpc":"2.0","id":1,"secret":"abc` + "\xff" + `"}`: "parse error: invalid UTF-8 in a string at byte 38",
		"\uFEFF" + `{"jsonrpc":"2.0","secret":secret}`:           "parse error: expected a value at byte 29",
		`{"jsonrpc":"2.0"`: "parse error: the text ends where a comma or the end of the object should follow at byte 16",
		`{"jsonrpc":"2.0","id":1,"method":"secret","params":"s"}`: "invalid message: the params must be an object or an array at byte 51",
		`{"jsonrpc":"2.0","id":1,"method":"secret","method":"s"}`: `invalid message: the key "method" stands twice at byte 42`,
		`[{"jsonrpc":"2.0"}]`: "invalid message: a batch where a single message is expected at byte 0",
		`{"jsonrpc":"2.0","id":1,"result":{"secret":1},"error":{}}`: "invalid message: the error must have an integer code and a string message at byte 54",
	} {
		if e := parseError(t, text); e.Error() != want {
			t.Errorf("%q:\n got %q\nwant %q", text, e.Error(), want)
		}
	}
}

// J5: numbers, key order, escapes and characters come out as they went in.
func TestBytesAreKept(t *testing.T) {
	const params = `{ "z":9007199254740993, "a":[1.0,1e400,-0,1E+2] ,"esc":"\u0041\/\ud800\u2028","e\u006d":"👩‍👩‍👧 ` + "\u00a0\u2028\u007f" + `","a":2,"<>&":null}`
	const text = `{"method":"tools/call", "params":` + params + `,"extra":{"id":3},"id":1.0,"jsonrpc":"2.0"}`
	m := mustParse(t, text)
	if string(m.Bytes()) != text || string(m.Line()) != text || string(m.Params()) != params {
		t.Errorf("got %q", m.Bytes())
	}
	if got := string(new(m.WithID(IntID(22))).Bytes()); got != strings.Replace(text, `"id":1.0`, `"id":22`, 1) {
		t.Errorf("after WithID: %q", got)
	}
}

func TestLine(t *testing.T) {
	m := mustParse(t, "{\r\n\t\"jsonrpc\" :\r\"2.0\",\n\n \"id\":1,\"result\":[\n\"a\\nb\",\r\n1\n]\n}\n")
	if got, want := string(m.Line()), "{\t\"jsonrpc\" :\"2.0\", \"id\":1,\"result\":[\"a\\nb\",1]}"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := new(m.WithID(IntID(2))).Line(); strings.Contains(string(got), "\n") {
		t.Errorf("line breaks after WithID: %q", got)
	}
	for _, text := range []string{"{\"jsonrpc\":\"2.0\",\"id\":1,\n\"result\":1}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1\r}", "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\"\n:1,\"message\":\"\"}}"} {
		if m := mustParse(t, text); strings.ContainsAny(string(m.Line()), "\r\n") || m.IsOneLine() {
			t.Errorf("%q keeps its line break, or its having one is not known", text)
		}
	}
}

func TestLookup(t *testing.T) {
	m := mustParse(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"x","protocolV\u0065rsion" : "2025-06-18","capabilities":{"a":{"b":[1 , 2]}},"":{"":0}},"id2":2}`)
	for _, c := range []struct {
		path string
		want string
	}{
		{"params protocolVersion", `"2025-06-18"`}, {"params capabilities a b", `[1 , 2]`}, {"id2", `2`}, {"jsonrpc", `"2.0"`},
		{"params  ", `0`}, {"params none", ``}, {"params capabilities a b 0", ``}, {"id x", ``}, {"Params", ``},
	} {
		if got := string(m.Lookup(strings.Split(c.path, " ")...)); got != c.want {
			t.Errorf("%s: got %q, want %q", c.path, got, c.want)
		}
	}
	if got := m.Lookup("params", "none"); got != nil {
		t.Errorf("what is absent gives %q, not nil", got)
	}
	if got := m.Lookup(); string(got) != string(m.Bytes()) {
		t.Errorf("the empty path gives %q", got)
	}
}

func TestTokens(t *testing.T) {
	for _, c := range []struct{ text, token, requestID string }{
		{`{"jsonrpc":"2.0","id":1,"method":"a","params":{"progressToken":5,"_meta":{"progressToken":"t"},"requestId":2}}`, `"t"`, ``},
		{`{"jsonrpc":"2.0","method":"a","params":{"progressToken":5,"_meta":{"progressToken":"t"},"requestId":"2"}}`, `5`, `"2"`},
		{`{"jsonrpc":"2.0","id":1,"method":"a","params":{"_m\u0065ta":{"x":1,"progressToken":1.0}}}`, `1.0`, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"progressToken":1.5}}}`, ``, ``},
		{`{"jsonrpc":"2.0","method":"a","params":{"progressToken":null,"requestId":{}}}`, ``, ``},
		{`{"jsonrpc":"2.0","id":1,"result":{"_meta":{"progressToken":1}}}`, ``, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"a","params":[{"_meta":{"progressToken":1}}]}`, ``, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"a","params":{"arguments":{"_meta":{"progressToken":1}},"_meta":[]}}`, ``, ``},
	} {
		m := mustParse(t, c.text)
		if m.ProgressToken().String() != c.token || m.CancelledID().String() != c.requestID {
			t.Errorf("%s: got %s and %s", c.text, m.ProgressToken(), m.CancelledID())
		}
	}
}

func TestParseAllocations(t *testing.T) {
	raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":1},"name":"echo"}}`)
	if n := testing.AllocsPerRun(100, func() {
		m, err := Parse(raw)
		if err != nil || m.Method() != "tools/call" || m.Kind() != Request {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Parse and Method allocate %v times", n)
	}
	m := mustParse(t, string(raw))
	id := IntID(1234567)
	if n := testing.AllocsPerRun(100, func() { m.WithID(id) }); n != 0 {
		t.Errorf("WithID allocates %v times", n)
	}
}
