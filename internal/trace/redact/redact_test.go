package redact

import (
	"bytes"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func redactor(t testing.TB, o Options) *Redactor {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// What a message has to hide, what is in its place, and what is said of it. A case without a
// result stays as it is.
func TestRedactMessage(t *testing.T) {
	d := redactor(t, Options{
		Secrets: []string{"hunter22", `qu"ote\`, "päss", "1234567", "new\nline", "true", "abc"},
		Rules:   []string{"params.arguments.pin", "params.list.*.x", "re:AKIA[0-9]+"},
	})
	for _, c := range []struct{ in, out, paths string }{
		{in: `{"method":"tools/call","params":{"name":"get_token","arguments":{"a":1,"max":true}}}`},
		{in: `{"params":{"progressToken":"t","_meta":{"progressToken":"u"},"maxTokens":5,"nextCursor":"c"},"result":{"input_tokens":7}}`},
		{in: `{"result":{"tools":[{"inputSchema":{"properties":{"maxTokens":{"type":"integer","default":100}}}}]}}`},
		{in: `{"a":null,"token":null,"secret":"","password":true}`},
		{in: `{"params":{"arguments":{"token":"x"}}}`, out: `{"params":{"arguments":{"token":"[redacted]"}}}`, paths: "params.arguments.token"},
		{in: `{"params":{"arguments":{"progressToken":"x"}}}`, out: `{"params":{"arguments":{"progressToken":"[redacted]"}}}`, paths: "params.arguments.progressToken"},
		{in: `{"Access-Token" : {"a":[1,"}"]} , "api_key":12.5,"x":1.10}`, out: `{"Access-Token" : "[redacted]" , "api_key":"[redacted]","x":1.10}`, paths: "Access-Token api_key"},
		{in: `{"a":[{"PASSWORD":"x"},[0,{"privateKey":"y"}]]}`, out: `{"a":[{"PASSWORD":"[redacted]"},[0,{"privateKey":"[redacted]"}]]}`, paths: "a[0].PASSWORD a[1][1].privateKey"},
		{in: `{"pass\u0077ord":"x"}`, out: `{"pass\u0077ord":"[redacted]"}`, paths: "password"},
		{in: `{"pa` + "ſſ" + `word":"x","to\u212aen":"y"}`, out: `{"pa` + "ſſ" + `word":"[redacted]","to\u212aen":"[redacted]"}`, paths: "paſſword to\u212aen"},
		{in: `{"token":"x","token":"y"}`, out: `{"token":"[redacted]","token":"[redacted]"}`, paths: "token"},
		{in: `{"tokens":["abcdefg"],"tokens_used":3,"tokenizer":"gpt","secretary":"Ann"}`, out: `{"tokens":"[redacted]","tokens_used":3,"tokenizer":"gpt","secretary":"Ann"}`, paths: "tokens"},
		{in: `{"requestState":{"a":1}}`, out: `{"requestState":"[redacted]"}`, paths: "requestState"},
		{in: `{"a":"so hunter22 it is"}`, out: `{"a":"so [redacted] it is"}`, paths: "a"},
		{in: `{"a":"so\nhunter22"}`, out: `{"a":"so\n[redacted]"}`, paths: "a"},
		{in: `{"a":"h\u0075nter22"}`, out: `{"a":"[redacted]"}`, paths: "a"},
		{in: `{"a":"qu\"ote\\"}`, out: `{"a":"[redacted]"}`, paths: "a"},
		{in: `{"a":"p\u00e4ss","b":"päss"}`, out: `{"a":"[redacted]","b":"[redacted]"}`, paths: "a b"},
		{in: `{"a":"new\nline"}`, out: `{"a":"[redacted]"}`, paths: "a"},
		{in: `{"a":1234567,"b":12}`, out: `{"a":"[redacted]","b":12}`, paths: "a"},
		{in: `{"hunter22":1,"b":{"xhunter22":{"token":"t"}}}`, out: `{"[redacted]":1,"b":{"x[redacted]":{"token":"[redacted]"}}}`, paths: "[redacted] b.[redacted] b.[redacted].token"},
		{in: `{"a":"http://x/?api_key=1&b=2","b":"why? a=b"}`, out: `{"a":"http://x/?api_key=[redacted]&b=2","b":"why? a=b"}`, paths: "a"},
		{in: `{"a":"http://u:p@x/"}`, out: `{"a":"http://[redacted]@x/"}`, paths: "a"},
		{in: `{"a":"http://x/?sig=1\""}`, out: `{"a":"http://x/?sig=[redacted]\""}`, paths: "a"},
		{in: `{"params":{"arguments":{"pin":[1]},"list":[{"x":1,"y":2}]}}`, out: `{"params":{"arguments":{"pin":"[redacted]"},"list":[{"x":"[redacted]","y":2}]}}`, paths: "params.arguments.pin params.list[0].x"},
		{in: `{"a":"key AKIA123!"}`, out: `{"a":"key [redacted]!"}`, paths: "a"},
		{in: `{"a":{"name":"API_KEY","value":"zzzzzzzz"},"b":{"value":["x"],"key":"token"}}`, out: `{"a":{"name":"API_KEY","value":"[redacted]"},"b":{"value":"[redacted]","key":"token"}}`, paths: "a.value b.value"},
		// The value stands in another place, too: in text that is JSON, and in words.
		{in: `{"result":{"content":[{"type":"text","text":"{\"id\":7,\"token\":\"sk-123456\"}"},{"text":"got sk-123456."}],"structuredContent":{"token":"sk-123456"}}}`,
			out:   `{"result":{"content":[{"type":"text","text":"{\"id\":7,\"token\":\"[redacted]\"}"},{"text":"got [redacted]."}],"structuredContent":{"token":"[redacted]"}}}`,
			paths: "result.content[0].text result.content[1].text result.structuredContent.token"},
		{in: `{"text":"It says \"token\": \"a b\", and \"x\":1"}`, out: `{"text":"It says \"token\": \"[redacted]\", and \"x\":1"}`, paths: "text"},
		{in: `{"text":"It says \"token\": {\"x\":1}"}`, out: `{"text":"[redacted]"}`, paths: "text"},
		{in: `{"text":"{\"a\":\"{\\\"token\\\":\\\"x\\\"}\"}"}`, out: `{"text":"{\"a\":\"{\\\"token\\\":\\\"[redacted]\\\"}\"}"}`, paths: "text"},
		{in: `{"text":"{\"\u0074oken\":\"x\"}"}`, out: `{"text":"{\"token\":\"[redacted]\"}"}`, paths: "text"},
		{in: `{"text":"{\"a\":\"b\"}"}`},
		// Schemas.
		{in: `{"result":{"tools":[{"name":"t","inputSchema":{"properties":{"password":{"type":"string","description":"d"},"a":{"properties":{"token":true}}}}}]}}`},
		{in: `{"result":{"tools":[{"inputSchema":{"properties":{"token":{"type":"string","default":"x","anyOf":[{"const":"y"}]}}}}]}}`,
			out:   `{"result":{"tools":[{"inputSchema":{"properties":{"token":{"type":"string","default":"[redacted]","anyOf":[{"const":"[redacted]"}]}}}}]}}`,
			paths: "result.tools[0].inputSchema.properties.token.default result.tools[0].inputSchema.properties.token.anyOf[0].const"},
		{in: `{"params":{"arguments":{"inputSchema":{"password":{"x":"y"}}}}}`, out: `{"params":{"arguments":{"inputSchema":{"password":"[redacted]"}}}}`, paths: "params.arguments.inputSchema.password"},
		{in: `{"method":"elicitation/create","params":{"requestedSchema":{"properties":{"token":{"type":"string"}}}}}`},
		{in: `{"method":"tools/call","params":{"requestedSchema":{"token":{"x":"y"}}}}`, out: `{"method":"tools/call","params":{"requestedSchema":{"token":"[redacted]"}}}`, paths: "params.requestedSchema.token"},
	} {
		out, redacted, _ := d.Message([]byte(c.in), nil)
		if c.out == "" {
			c.out = c.in
		}
		if string(out) != c.out || strings.Join(redacted, " ") != c.paths {
			t.Errorf("%s\nbecame %s\nwant   %s\nby %q, want %q", c.in, out, c.out, redacted, c.paths)
		}
		if !jsonrpc.Valid(out) {
			t.Errorf("%s is not JSON", out)
		}
	}
}

// Where nothing is to be taken out nothing is copied.
func TestRedactCopiesNothing(t *testing.T) {
	if raced {
		t.Skip("memory is not used again")
	}
	d := redactor(t, Options{Secrets: []string{"hunter22"}})
	m := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`)
	if n := testing.AllocsPerRun(100, func() {
		if out, _, _ := d.Message(m, nil); &out[0] != &m[0] {
			t.Error("copied")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// With --trace-unredacted a requestState is taken out wherever its value stands, and nothing else is.
func TestStateElsewhere(t *testing.T) {
	d := redactor(t, Options{Off: true})
	in := `{"error":{"message":"no state opaque1 here","data":{"requestState":"opaque1","got":["opaque1",1],"opaque1":"{\"token\":\"x\",\"s\":\"opaque1\"}","token":"hunter22"}}}`
	want := `{"error":{"message":"no state [redacted] here","data":{"requestState":"[redacted]","got":["[redacted]",1],"[redacted]":"{\"token\":\"x\",\"s\":\"[redacted]\"}","token":"hunter22"}}}`
	out, _, found := d.Message([]byte(in), nil)
	if string(out) != want {
		t.Errorf("%s", out)
	}
	answer := `{"result":{"content":[{"text":"opaque1"}],"password":"p"}}`
	if out, _, _ := d.Message([]byte(answer), found); string(out) != strings.Replace(answer, "opaque1", Placeholder, 1) {
		t.Errorf("%s", out)
	}
}

// --trace-unredacted leaves session ids and requestState out.
func TestRedactOff(t *testing.T) {
	d := redactor(t, Options{Off: true, Secrets: []string{"hunter22"}})
	out, paths, _ := d.Message([]byte(`{"token":"hunter22","request\u0053tate":"x"}`), nil)
	if want := `{"token":"hunter22","request\u0053tate":"[redacted]"}`; string(out) != want || !slices.Equal(paths, []string{"requestState"}) {
		t.Errorf("%s %q", out, paths)
	}
	h := fields(d, http.Header{"Authorization": {"Bearer x"}, "Mcp-Session-Id": {"id"}})
	if want := (http.Header{"Authorization": {"Bearer x"}, "Mcp-Session-Id": {Placeholder}}); !reflect.DeepEqual(h, want) {
		t.Error(h)
	}
	if u, _ := d.URL("/messages?sessionId=abc&token=x"); u != "/messages?sessionId=[redacted]&token=x" {
		t.Error(u)
	}
}

func TestRedactHeader(t *testing.T) {
	d := redactor(t, Options{Secrets: []string{"hunter22"}, Headers: []string{"x-mine"}})
	in := http.Header{
		"Authorization": {"Bearer abc"}, "Cookie": {"a=b"}, "Set-Cookie": {"a=b", "c=d"}, "X-Api-Key": {"k"}, "Dpop": {"p"}, "X-Mine": {"m"},
		"Mcp-Session-Id": {"s"}, "X-Amz-Security-Token": {"t"}, "Mcp-Param-Region": {"eu"}, "Mcp-Method": {"tools/call"},
		"Location": {"https://h/login?next=/x&state=1#access_token=y"}, "X-Note": {"it is hunter22"}, "Accept": {"application/json"},
		"Www-Authenticate": {`Bearer error="invalid_token", resource_metadata="https://h/.well-known/x"`},
	}
	out := fields(d, in)
	want := http.Header{
		"Authorization": {"Bearer [redacted]"}, "Cookie": {Placeholder}, "Set-Cookie": {Placeholder, Placeholder}, "X-Api-Key": {Placeholder}, "Dpop": {Placeholder}, "X-Mine": {Placeholder},
		"Mcp-Session-Id": {Placeholder}, "X-Amz-Security-Token": {Placeholder}, "Mcp-Param-Region": {Placeholder}, "Mcp-Method": {"tools/call"},
		"Location": {"https://h/login?next=[redacted]&state=[redacted]#access_token=[redacted]"}, "X-Note": {"it is [redacted]"}, "Accept": {"application/json"},
		"Www-Authenticate": {`Bearer error="invalid_token", resource_metadata="https://h/.well-known/x"`},
	}
	if !reflect.DeepEqual(out, want) {
		t.Errorf("%v\nwant\n%v", out, want)
	}
}

// fields returns headers as they are shown.
func fields(d *Redactor, h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		for _, v := range values {
			out[name] = append(out[name], d.HeaderValue(name, v))
		}
	}
	return out
}

func TestRedactText(t *testing.T) {
	d := redactor(t, Options{Secrets: []string{"hunter22", "Bearer tok-12345", "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\n-----END KEY-----", `{"type":"x","private_key":"line1\nline2"}`}})
	for in, want := range map[string]string{
		"starting on port 80":          "starting on port 80",
		"I know hunter22":              "I know [redacted]",
		"sent tok-12345":               "sent [redacted]",
		"MIIEvQIBADANBgkqhkiG9w0":      "[redacted]",
		"see line1\nline2":             "see [redacted]",
		"API_KEY=abc next":             "API_KEY=[redacted] next",
		`{"token": "a b", "x": 1}`:     `{"token": "[redacted]", "x": 1}`,
		"Authorization: Bearer abc":    "Authorization: Bearer [redacted]",
		"password = 'a b' and":         "password = '[redacted]' and",
		`Get "http://h/x?token=1": no`: `Get "http://h/x?token=[redacted]": no`,
		"redis://:pw@h:1/0 is down":    "redis://[redacted]@h:1/0 is down",
		"token: {a: b}":                "token: [redacted]",
		"hunter%32%32 h\xffunter":      "hunter%32%32 h\xffunter",
	} {
		if out := d.String(in); out != want {
			t.Errorf("%q became %q, want %q", in, out, want)
		}
	}
	for in, want := range map[string]string{
		"/mcp":                      "/mcp",
		"/mcp?a=b&c":                "/mcp?a=[redacted]&[redacted]",
		"https://u@h/p?q=a b\"c&d=": "https://[redacted]@h/p?q=[redacted]&d=",
		"/x/hunter22/y":             "/x/[redacted]/y",
	} {
		if out, _ := d.URL(in); out != want {
			t.Errorf("%q became %q, want %q", in, out, want)
		}
	}
}

// A message of many levels and one with many secrets cost what their length costs.
func TestRedactHostile(t *testing.T) {
	d := redactor(t, Options{Secrets: []string{"hunter22"}})
	deep := strings.Repeat(`{"a":[`, 1e5) + `{"token":"hunter22"}` + strings.Repeat(`]}`, 1e5)
	out, paths, _ := d.Message([]byte(deep), nil)
	if bytes.Contains(out, []byte("hunter22")) || len(paths) != 1 || len(paths[0]) > 300 {
		t.Errorf("%q", paths)
	}
	many := `[` + strings.Repeat(`{"password":"p-hunter22"},`, 1e4) + `0]`
	out, paths, _ = d.Message([]byte(many), nil)
	if bytes.Contains(out, []byte("hunter22")) || len(paths) != maxListedPaths+1 || paths[maxListedPaths] != "*" {
		t.Errorf("%q", paths)
	}
	nested := `"hunter22"`
	for range 12 {
		nested = `{"token":` + nested + `,"t":` + string(jsonrpc.Quote(nested)) + `}`
	}
	if out, _, _ = d.Message([]byte(nested), nil); bytes.Contains(out, []byte("hunter22")) || !jsonrpc.Valid(out) {
		t.Error("nested")
	}
}

// However a message is made and spelled, a secret that stands in it, or behind a sensitive name, is not in what is
// left of it; and that is JSON.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"a":"x","b":[1,{"password":"y"}]}`), "hunter22")
	f.Add([]byte(`{"text":"{\"pass\\u0077ord\":\"xxxxxx\"}"}`), `a"b\c`)
	f.Add([]byte(`{"\u0061":"?token=a","n":1.5e7}`), "1.5e7")
	f.Add([]byte(`{"a":"\\nabcd\u00e4\\"}`), "nabcd")
	f.Fuzz(func(t *testing.T, text []byte, value string) {
		if !jsonrpc.Valid(text) {
			return
		}
		d := redactor(t, Options{Secrets: []string{value}})
		out, paths, _ := d.Message(text, nil)
		if !jsonrpc.Valid(out) {
			t.Fatalf("%q became %q", text, out)
		}
		if (len(paths) > 0) == bytes.Equal(text, out) && !bytes.Contains(text, []byte(Placeholder)) {
			t.Fatalf("%q became %q, of %q", text, out, paths)
		}
		check(t, d, text, out)
		if again, _, _ := d.Message(out, nil); !bytes.Equal(again, out) && !strings.Contains(value, "redacted") && !strings.Contains(Placeholder, value) {
			t.Fatalf("%q became %q, which became %q", text, out, again)
		}
	})
}

// check looks for what should not be in a message, by encoding/json's own reading of strings.
func check(t *testing.T, d *Redactor, text, out []byte) {
	for i := 0; i < len(out); i++ {
		if out[i] != '"' {
			continue
		}
		end := endOfString(out, i+1)
		if plain := decode(out[i+1 : end-1]); d.containsSecret(plain) {
			t.Fatalf("%q became %q", text, out)
		} else if sensitivityOf(plain) == alwaysSecret && isKey(out, end) {
			at := skipSpace(out, skipSpace(out, end)+1)
			c := out[at]
			if string(plain) != "progressToken" && (c == '[' || c >= '0' && c <= '9' || c == '"' && !bytes.HasPrefix(out[at:], []byte(`""`)) && !bytes.HasPrefix(out[at:], []byte(`"`+Placeholder))) {
				t.Fatalf("%q became %q", text, out)
			}
		}
		i = end - 1
	}
}

func BenchmarkRedact(b *testing.B) {
	d := redactor(b, Options{Secrets: []string{"hunter22", "another secret", "0123456789abcdef"}})
	for name, m := range map[string]string{
		"100B": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`,
		"1KB":  `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("words and ", 100) + `"}]}}`,
		"64KB": `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat(`words \"and\"? `, 4000) + `"}]}}`,
		"list": `{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Repeat(`{"name":"tool","description":"what it does","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}},`, 100) + `{}]}}`,
	} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(m)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				d.Message(raw, nil)
			}
		})
	}
}

// A name is found whatever stands around it, and however it is spelled.
func TestNamesInMessage(t *testing.T) {
	d := redactor(t, Options{})
	long := strings.Repeat("x", 70)
	for _, name := range []string{"token", "access_token", `to\u006ben`, `x\"token`, "x" + long + "_token", long + `\\token`, "päss_token", "TOKEN", "requestState"} {
		for _, before := range []string{"", `"a":1,`, `"a":"b\\",`, `"a":["token","x\"",1234567890,true],`, `"` + long + `":"\"",`, `"a":[12345678,   "b"]  ,  `} {
			text := `{"params":{` + before + `"` + name + `" : "geheim-geheim"}}`
			if out, _, _ := d.Message([]byte(text), nil); strings.Contains(string(out), "geheim") || !strings.Contains(string(out), before) {
				t.Errorf("%s becomes %s", text, out)
			}
		}
	}
	for _, name := range []string{"text", "tokes", long, "maße"} {
		text := `{"params":{"` + name + `":"geheim-geheim"}}`
		if out, _, _ := d.Message([]byte(text), nil); string(out) != text {
			t.Errorf("%s becomes %s", text, out)
		}
	}
}

// Where secrets are left in, a requestState is found behind all strings.
func TestStateBehindStrings(t *testing.T) {
	d := redactor(t, Options{Off: true})
	for _, before := range []string{`["x\""]`, `["x\\\\"]`, `["` + strings.Repeat(`\"`, 50) + `"]`, `["` + strings.Repeat("x", 63) + `\""]`, `"\""`} {
		text := `{"a":` + before + `,"requestState":"geheim"}`
		if out, _, _ := d.Message([]byte(text), nil); strings.Contains(string(out), "geheim") {
			t.Errorf("%s becomes %s", text, out)
		}
	}
}

// A name in which there was nothing to take out is looked at again when more is to be taken out.
func TestNameAgain(t *testing.T) {
	d := redactor(t, Options{})
	const name = "geheim-7-geheim"
	for range 2 {
		if got := d.Name(name); got != name {
			t.Errorf("%q", got)
		}
	}
	d.Message([]byte(`{"params":{"token":"`+name+`"}}`), nil)
	for range 2 {
		if got := d.Name(name); got != Placeholder {
			t.Errorf("%q, though it is a secret by now", got)
		}
	}
}

// The prefilter passes over no secret, wherever it stands.
func TestPrefilter(t *testing.T) {
	s := newPrefilter([][]byte{[]byte("hunter22"), []byte("0123456789abcdef"), []byte("sixsix")})
	for _, v := range []string{"hunter22", "0123456789abcdef", "sixsix"} {
		for n := range 50 {
			if !s.mayBeIn([]byte(strings.Repeat("-", n) + v)) {
				t.Errorf("%s behind %d bytes", v, n)
			}
		}
	}
	if s.mayBeIn([]byte(strings.Repeat("words and words ", 9))) {
		t.Error("finds what is not there")
	}
}

// What is taken out is found also where it is all that there is to find in a message.
func TestOneThingToTakeOut(t *testing.T) {
	d := redactor(t, Options{})
	for _, text := range []string{
		`{"result":{"requestState":"opaque"}}`,
		`{"a":[1,{"to\nken" : "opaque"}]}`,
		`{"long ` + strings.Repeat("x", 20) + `":"` + strings.Repeat("x", 40) + `","password":"opaque"}`,
		`{"list":["a","b",{"value":"opaque","name":"apiKey"}]}`,
		`{"key" : "to\nken", "value" : "opaque"}`,
	} {
		if out, paths, _ := d.Message([]byte(text), nil); strings.Contains(string(out), "opaque") || len(paths) == 0 {
			t.Errorf("%s became %s: %q", text, out, paths)
		}
	}
	for _, text := range []string{`{}`, `"token"`, `["password","requestState"]`, `{"a":"password","name":"x\\","value":"y"}`, `{"key":"x","name":1}`} {
		if out, paths, _ := d.Message([]byte(text), nil); string(out) != text || paths != nil {
			t.Errorf("%s became %s: %q", text, out, paths)
		}
	}
}
