package toolheader

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// ME2: what goes as it is and what goes as base64.
func TestEncodeValue(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "",
		"us-west1":           "us-west1",
		"a b\tc~!":           "a b\tc~!",
		"Hello, 世界":          "=?base64?SGVsbG8sIOS4lueVjA==?=",
		"zażółć":             "=?base64?emHFvMOzxYLEhw==?=",
		" padded ":           "=?base64?IHBhZGRlZCA=?=",
		"\tindented":         "=?base64?CWluZGVudGVk?=",
		"line1\nline2":       "=?base64?bGluZTEKbGluZTI=?=",
		"\x7f":               "=?base64?fw==?=",
		"=?base64?literal?=": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=",
		"=?base64?=":         "=?base64?PT9iYXNlNjQ/PQ==?=",
		"=?base64?open":      "=?base64?open",
		"=?BASE64?x?=":       "=?BASE64?x?=",
	} {
		got := EncodeValue(text)
		if got != want {
			t.Errorf("EncodeValue(%q) = %q, want %q", text, got, want)
		}
		if back, err := DecodeValue(got); err != nil || back != text {
			t.Errorf("DecodeValue(%q) = %q, %v; want %q", got, back, err, text)
		}
	}
}

// MI6: what a header may hold.
func TestDecodeValue(t *testing.T) {
	for header, want := range map[string]string{
		"  tools/list\t":          "tools/list",
		"=?base64??=":             "",
		"=?base64?=":              "=?base64?=",
		"=?BASE64?IHBhZGRlZCA=?=": "=?BASE64?IHBhZGRlZCA=?=",
		"=?base64?YQ==?= ":        "a",
	} {
		if got, err := DecodeValue(header); err != nil || got != want {
			t.Errorf("DecodeValue(%q) = %q, %v; want %q", header, got, err, want)
		}
	}
	for _, header := range []string{
		"=?base64?YQ=?=", "=?base64?YQ?=", "=?base64?YR==?=", "=?base64?Y-_Q?=", "=?base64?%%?=",
		"=?base64?YQ==YQ==?=", "=?base64?/w==?=", "zażółć", "a\x00", "=?base64?YQ\r\n==?=", "a\x7f",
	} {
		if got, err := DecodeValue(header); err == nil || strings.Contains(err.Error(), header) {
			t.Errorf("DecodeValue(%q) = %q, %v; want an error", header, got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("=?base64?YQ==?=")
	f.Add("=?base64?=")
	f.Add(" zażółć\n")
	f.Fuzz(func(t *testing.T, s string) {
		if text, err := DecodeValue(s); err == nil && !utf8.ValidString(text) {
			t.Errorf("DecodeValue(%q) = %q", s, text)
		}
		header := EncodeValue(s)
		if strings.TrimSpace(header) != header || !isPlainValue(header) {
			t.Errorf("EncodeValue(%q) = %q", s, header)
		}
		if back, err := DecodeValue(header); utf8.ValidString(s) && (err != nil || back != s) {
			t.Errorf("DecodeValue(EncodeValue(%q)) = %q, %v", s, back, err)
		}
	})
}

var params = []Param{
	{"Mcp-Param-S", []string{"s"}, String},
	{"Mcp-Param-I", []string{"i"}, Integer},
	{"Mcp-Param-B", []string{"b"}, Boolean},
	{"Mcp-Param-Deep", []string{"o", "p"}, String},
}

// ME3: which headers arguments make.
func TestHeaders(t *testing.T) {
	for arguments, want := range map[string]http.Header{
		``:                                nil,
		`{}`:                              nil,
		`[]`:                              nil,
		`{"s":null,"i":null,"other":"x"}`: nil,
		`{"s":"a b","i":42,"b":false}`:    {"Mcp-Param-S": {"a b"}, "Mcp-Param-I": {"42"}, "Mcp-Param-B": {"false"}},
		`{"s":"caf\u00e9","b":true}`:      {"Mcp-Param-S": {"=?base64?Y2Fmw6k=?="}, "Mcp-Param-B": {"true"}},
		`{"s":""}`:                        {"Mcp-Param-S": {""}}, // ME2
		`{"o":{"p":"x","q":{}}}`:          {"Mcp-Param-Deep": {"x"}},
		`{"o":"x"}`:                       nil,
		`{"i":42.0}`:                      {"Mcp-Param-I": {"42"}},
		`{"i":1e2}`:                       {"Mcp-Param-I": {"100"}},
		`{"i":-1.20E+1}`:                  {"Mcp-Param-I": {"-12"}},
		`{"i":-0}`:                        {"Mcp-Param-I": {"0"}},
		`{"i":0e999999999999}`:            {"Mcp-Param-I": {"0e999999999999"}},
		`{"i":1200e-2}`:                   {"Mcp-Param-I": {"12"}},
		`{"i":9007199254740991}`:          {"Mcp-Param-I": {"9007199254740991"}},
		`{"i":-9007199254740991}`:         {"Mcp-Param-I": {"-9007199254740991"}},
		// What is no safe integer is still there in the body: the table of the
		// specification knows no value without a header but null.
		`{"i":9007199254740993}`:   {"Mcp-Param-I": {"9007199254740993"}},
		`{"i":-123456789012345e9}`: {"Mcp-Param-I": {"-123456789012345000000000"}},
		`{"i":1e400}`:              {"Mcp-Param-I": {"1e400"}},
		`{"i":1.50}`:               {"Mcp-Param-I": {"1.5"}},
		`{"i":-12.5e-4}`:           {"Mcp-Param-I": {"-0.00125"}},
		`{"i":125e-2}`:             {"Mcp-Param-I": {"1.25"}},
		`{"i":5e-324}`:             {"Mcp-Param-I": {"0." + strings.Repeat("0", 323) + "5"}},
		`{"i":1e-400}`:             {"Mcp-Param-I": {"1e-400"}},
		// What no header can carry.
		`{"i":[1],"s":{"a":"b"}}`: nil,
		`{"i":"seven","s":7}`:     {"Mcp-Param-I": {"seven"}, "Mcp-Param-S": {"7"}},
	} {
		got := Headers(params, []byte(arguments))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Headers(%s) = %v, want %v", arguments, got, want)
		}
		if err := CheckHeaders(params, []byte(arguments), got); err != nil {
			t.Errorf("Check of the headers of %s: %v", arguments, err)
		}
	}
}

// ME3: of an argument that stands twice the last goes, as most readers take it.
func TestHeadersTwice(t *testing.T) {
	got := Headers(params, []byte(`{"s":"a","s":"b","o":{"p":"x"},"o":{}}`))
	if want := (http.Header{"Mcp-Param-S": {"b"}}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// MI22: which headers do not fit.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		arguments, name, value string
		word                   string // "": it fits
	}{
		{`{"i":42}`, "I", "42.0", ""},
		{`{"i":42}`, "I", "=?base64?NDI=?=", ""},
		{`{"i":42.0}`, "I", "4.2e1", ""},
		{`{"i":1e400}`, "I", "1e400", ""},
		{`{"i":1e400}`, "I", "10e399", ""},
		{`{"i":9007199254740993}`, "I", "9007199254740993.0", ""},
		{`{"i":42.5}`, "I", "42.50", ""},
		{`{"s":""}`, "S", "", ""},
		{`{"s":""}`, "S", "=?base64??=", ""},
		{`{"s":"a"}`, "S", "=?base64?YQ==?=", ""},
		{`{"s":"a"}`, "Other", "b", "S header is missing"},
		{`{"i":9007199254740993}`, "Other", "b", "I header is missing"},
		{`{"i":42.5}`, "Other", "b", "I header is missing"},
		{`{"s":""}`, "Other", "b", "S header is missing"},
		{`{"s":"a"}`, "S", "A", "not what"},
		{`{"s":"a"}`, "S", "=?base64?YQ?=", "no base64"},
		{`{"s":"é"}`, "S", "é", "characters"},
		{`{"b":true}`, "B", "True", "not what"},
		{`{"i":42}`, "I", "43", "not what"},
		{`{"i":42}`, "I", "", "not what"},
		{`{"i":42}`, "I", "0x2a", "not what"},
		{`{"i":9007199254740993}`, "I", "9007199254740992", "not what"},
		{`{"i":42.5}`, "I", "42", "not what"},
		{`{"i":"42"}`, "I", "42.0", "not what"},
		{`{"s":null}`, "S", "null", "no such argument"},
		{`{}`, "S", "", "no such argument"},
		{`{"s":{"a":1}}`, "S", "x", "not what"},
		// Two readers of these could take two different values.
		{`{"s":"a","s":"b"}`, "S", "b", "stands twice"},
		{`{"s":"a","\u0073":"a"}`, "S", "a", "stands twice"},
		{`{"s":null,"s":"b"}`, "S", "b", "stands twice"},
		{`{"s":"b","s":null}`, "Other", "", "stands twice"},
		{`{"o":{"p":"a","p":"b"}}`, "Deep", "b", "stands twice"},
		{`{"o":{"p":"a"},"o":{"p":"b"}}`, "Deep", "b", "stands twice"},
		{`{"o":{"p":"a"},"o":{}}`, "Other", "", "stands twice"},
		{`{"x":1,"x":2,"o":{"p":"a","q":1,"q":2}}`, "Deep", "a", ""}, // no header depends on these
	} {
		err := CheckHeaders(params, []byte(c.arguments), http.Header{"Mcp-Param-" + c.name: {c.value}})
		if (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("CheckHeaders(%s, %s: %s) = %v, want %q", c.arguments, c.name, c.value, err, c.word)
		}
	}
	if err := CheckHeaders(params, []byte(`{"s":"a"}`), http.Header{"Mcp-Param-S": {"a", "a"}}); err == nil {
		t.Error("two headers for one argument fit")
	}
}

// What Headers makes, CheckHeaders takes, whatever schema and arguments are.
func FuzzHeaders(f *testing.F) {
	schema := `{"properties":{"s":{"type":"string","x-mcp-header":"S"},"i":{"type":"integer","x-mcp-header":"I"},"o":{"properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}}`
	for _, arguments := range []string{`{"s":"\ud800 x","i":-12.50e1,"o":{"b":true}}`, `{"s":" ","i":1e99,"o":[]}`, `{"s":1,"i":-0.5e-9,"i":1e-999,"o":{}}`, `{"s":"=?base64?x?=","s":"","o":{"b":null}}`} {
		f.Add([]byte(schema), []byte(arguments))
	}
	f.Fuzz(func(t *testing.T, schema, arguments []byte) {
		if !json.Valid(schema) || !json.Valid(arguments) || !utf8.Valid(schema) || !utf8.Valid(arguments) {
			return
		}
		params, err := ParseAnnotations(schema)
		if err != nil {
			return
		}
		header := Headers(params, arguments)
		if err := CheckHeaders(params, arguments, header); err != nil && !strings.HasSuffix(err.Error(), "stands twice") {
			t.Errorf("%s %s %v: %v", schema, arguments, header, err)
		}
		for name, values := range header {
			if len(values) != 1 || !isPlainValue(values[0]) || http.CanonicalHeaderKey(name) != name {
				t.Errorf("%s: %q", name, values)
			}
		}
	})
}
