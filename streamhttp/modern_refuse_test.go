package streamhttp_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// body26 is a modern body in pieces that tests replace.
func body26(id, method, meta string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"_meta":{` + meta + `}}}`
}

const (
	claim26 = keyV + `:"` + r26 + `"`
	caps26  = keyCaps + `:{}`
	vHeader = "Mcp-Protocol-Version: "
	mHeader = "Mcp-Method: "
	nHeader = "Mcp-Name: "
)

// refusal is a POST that gets an error.
type refusal struct {
	rule, body string
	headers    []string
	status     int
	code       int
	id         string
}

func (c refusal) run(t *testing.T, u *user) {
	t.Helper()
	r := u.post(c.body, c.headers...)
	if synctest.Wait(); !r.finished() {
		t.Fatalf("%s: no reply yet", c.rule)
	}
	m, err := jsonrpc.Parse(r.body)
	if r.status != c.status || err != nil || string(m.Lookup("error", "code")) != itoa(c.code) || m.ID().String() != c.id {
		t.Errorf("%s: status %d, %s; want %d, code %d, id %q\n%s %q", c.rule, r.status, r.body, c.status, c.code, c.id, c.body, c.headers)
	}
	if r.header.Get("Content-Type") != "application/json" || r.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("%s: headers %v", c.rule, r.header)
	}
}

func itoa(n int) string { return string(jsonrpc.IntID(int64(n)).String()) }

// What a modern endpoint refuses, with which status and code, and always with
// the id of the request (J4).
func TestServerModernRefusals(t *testing.T) {
	good := []string{vHeader + r26, mHeader + "tools/list"}
	call := `"name":"t","arguments":{}`
	callHeaders := func(name string) []string { return []string{vHeader + r26, mHeader + "tools/call", name} }
	cases := []refusal{
		{"MI5 no Mcp-Method", request26("1", "tools/list", ""), []string{vHeader + r26}, 400, -32020, "1"},
		{"MI5 another Mcp-Method", request26(`"a"`, "tools/list", ""), []string{vHeader + r26, mHeader + "prompts/list"}, 400, -32020, `"a"`},
		{"MI5 Mcp-Method in capitals", request26("1", "tools/list", ""), []string{vHeader + r26, mHeader + "TOOLS/LIST"}, 400, -32020, "1"},
		{"MI5 Mcp-Method twice", request26("1", "tools/list", ""), append([]string{mHeader + "tools/list"}, good...), 400, -32020, "1"},
		{"MI5 no Mcp-Name", request26("2", "tools/call", call), callHeaders(nHeader), 400, -32020, "2"},
		{"MI5 another Mcp-Name", request26("2", "tools/call", call), callHeaders(nHeader + "T"), 400, -32020, "2"},
		{"MI5 Mcp-Name twice", request26("2", "tools/call", call), append(callHeaders(nHeader+"t"), nHeader+"t"), 400, -32020, "2"},
		{"MI5 Mcp-Name of nothing", request26("2", "tools/call", `"arguments":{}`), callHeaders(nHeader + "t"), 400, -32020, "2"},
		{"MI5 Mcp-Name of a number", request26("2", "tools/call", `"name":7`), callHeaders(nHeader + "7"), 400, -32020, "2"},
		{"MI5 prompts/get", request26("2", "prompts/get", `"name":"p"`), []string{vHeader + r26, mHeader + "prompts/get", nHeader + "q"}, 400, -32020, "2"},
		{"MI5 resources/read", request26("2", "resources/read", `"uri":"file:///a","name":"b"`), []string{vHeader + r26, mHeader + "resources/read", nHeader + "b"}, 400, -32020, "2"},
		{"MI5 tasks/get", request26("2", "tasks/get", `"taskId":"x"`), []string{vHeader + r26, mHeader + "tasks/get"}, 400, -32020, "2"},
		{"MI5 tasks/update", request26("2", "tasks/update", `"taskId":"x"`), []string{vHeader + r26, mHeader + "tasks/update", nHeader + "y"}, 400, -32020, "2"},
		{"MI5 tasks/cancel", request26("2", "tasks/cancel", `"taskId":"x"`), []string{vHeader + r26, mHeader + "tasks/cancel", nHeader + "y"}, 400, -32020, "2"},
		{"MI6 padding", request26("2", "tools/call", `"name":"Hello"`), callHeaders(nHeader + "=?base64?SGVsbG8?="), 400, -32020, "2"},
		{"MI6 alphabet", request26("2", "tools/call", `"name":"Hello"`), callHeaders(nHeader + "=?base64?SGVs!!!bG8=?="), 400, -32020, "2"},
		{"MI6 another text", request26("2", "tools/call", `"name":"hello"`), callHeaders(nHeader + "=?base64?SGVsbG8=?="), 400, -32020, "2"},
		{"MI6 the mark has no case", request26("2", "tools/call", `"name":"Hello"`), callHeaders(nHeader + "=?BASE64?SGVsbG8=?="), 400, -32020, "2"},
		{"MI6 raw UTF-8", request26("2", "tools/call", `"name":"é"`), callHeaders(nHeader + "é"), 400, -32020, "2"},
		{"MI6 looks encoded", request26("2", "tools/call", `"name":"=?base64?SGVsbG8=?="`), callHeaders(nHeader + "=?base64?SGVsbG8=?="), 400, -32020, "2"},
		{"MI7 no capabilities", body26("3", "tools/list", claim26), good, 400, -32602, "3"},
		{"MI7 capabilities are no object", body26("3", "tools/list", claim26+`,`+keyCaps+`:[]`), good, 400, -32602, "3"},
		{"MI7 the version is no string", body26("3", "tools/list", keyV+`:20260728,`+caps26), good, 400, -32602, "3"},
		{"MI8 another version header", request26("4", "tools/list", ""), []string{vHeader + r25c, mHeader + "tools/list"}, 400, -32020, "4"},
		{"MI8 unknown version header", request26("4", "tools/list", ""), []string{vHeader + "2027-01-01", mHeader + "tools/list"}, 400, -32020, "4"},
		{"MI8 no version header", request26("4", "tools/list", ""), []string{mHeader + "tools/list"}, 400, -32020, "4"},
		{"MI8 no version header, escapes in the key", body26("4", "tools/list", `"io.modelcontextprotocol/protocol\u0056ersion":"`+r26+`",`+caps26), []string{mHeader + "tools/list"}, 400, -32020, "4"},
		{"MI8 no version header, escapes all over", `{"jsonrpc":"2.0","id":4,"method":"tools/list","par\u0061ms":{"\u005fmeta":{"\u0069o.modelcontextprotocol\/\u0070rotocolVersio\u006E":"2026\u002d07-28",` + caps26 + `}}}`, []string{mHeader + "tools/list"}, 400, -32020, "4"},
		{"MI8 two version headers", request26("4", "tools/list", ""), append([]string{vHeader + r26}, good...), 400, -32020, "4"},
		{"MI8 unknown in the body only", body26("4", "tools/list", keyV+`:"v999.0.0",`+caps26), good, 400, -32020, "4"},
		{"MI8 legacy in the body only", body26("4", "tools/list", keyV+`:"`+r25c+`",`+caps26), good, 400, -32020, "4"},
		{"MI9 in both", body26("5", "tools/list", keyV+`:"v999.0.0",`+caps26), []string{vHeader + "v999.0.0", mHeader + "tools/list"}, 400, -32022, "5"},
		{"MI18 log level", body26("6", "tools/list", claim26+`,`+caps26+`,"io.modelcontextprotocol/logLevel":"loud"`), good, 400, -32602, "6"},
		{"MI3 response", `{"jsonrpc":"2.0","id":1,"result":{}}`, good, 400, -32600, ""},
		{"MI3 array", `[` + request26("1", "tools/list", "") + `]`, good, 400, -32600, ""},
		{"MI3 array without the header", `[` + request26("1", "tools/list", "") + `]`, nil, 400, -32600, "null"},
		{"MI3 array, one of them", `[` + ping + `,` + request26("2", "tools/list", "") + `]`, []string{vHeader + r25a}, 400, -32600, "null"},
		{"MI3 array without a claim", `[` + ping + `]`, good, 400, -32600, ""},
		{"J1", `{"jsonrpc":"2.0","id":null,"method":"tools/list","params":{` + meta26 + `}}`, good, 400, -32600, ""},
		{"J4", `{`, good, 400, -32700, ""},
		{"twice", request26("7", "tools/call", `"name":"a","name":"b"`), callHeaders(nHeader + "b"), 400, -32600, "7"},
		{"twice", request26("7", "tools/call", `"name":"a","arguments":{},"arguments":{"x":1}`), callHeaders(nHeader + "a"), 400, -32600, "7"},
		{"twice", request26("7", "tools/call", `"name":"a","requestState":"b","requestSt\u0061te":"c"`), callHeaders(nHeader + "a"), 400, -32600, "7"},
		{"twice", request26("7", "tools/call", `"name":"a","inputResponses":{},"inputResponses":{"x":1}`), callHeaders(nHeader + "a"), 400, -32600, "7"},
		{"twice", body26("7", "tools/list", claim26+`,`+caps26+`,`+keyCaps+`:{"sampling":{}}`), good, 400, -32600, "7"},
		{"ED1", request26("8", "initialize", ""), []string{vHeader + r26, mHeader + "initialize"}, 404, -32601, "8"},
		{"ED2", initialize(r26), []string{vHeader + r26}, 400, -32020, `"init"`},
		{"ED2", initialize(r25c), []string{vHeader + r26, mHeader + "initialize"}, 400, -32020, `"init"`},
		{"ED3", ping, []string{vHeader + r26}, 400, -32602, "1"},
		{"ED3", body26("9", "server/discover", caps26), []string{vHeader + r26, mHeader + "server/discover"}, 400, -32602, "9"},
		{"ED3 a session changes nothing", ping, []string{vHeader + r26, "Mcp-Session-Id: x"}, 400, -32602, "1"},
		{"ED3 without a header", ping, nil, 400, -32600, "1"},
		{"ED3b", body26("9", "tools/list", keyV+`:"`+r25c+`",`+caps26), []string{vHeader + r25c}, 400, -32600, "9"},
		{"ED3b", body26("9", "tools/list", keyV+`:"`+r25c+`",`+caps26), nil, 400, -32600, "9"},
		{"ED4", `{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 400, -32600, "null"},
		{"ED4", initialized, nil, 400, -32600, "null"},
	}
	for _, method := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
		"tasks/list", "tasks/result", "roots/list", "sampling/createMessage", "elicitation/create"} {
		cases = append(cases,
			refusal{"MI11", request26("11", method, ""), []string{vHeader + r26, mHeader + method}, 404, -32601, "11"},
			refusal{"MI11 before the headers", request26("11", method, ""), []string{vHeader + r26}, 404, -32601, "11"})
	}
	for _, stateless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, u := newModern(t, streamhttp.HandlerOptions{Stateless: stateless})
			for _, c := range cases {
				if stateless && (strings.HasPrefix(c.rule, "ED3b") || strings.HasPrefix(c.rule, "ED4") || c.rule == "ED3 without a header") {
					continue // such a request needs no session
				}
				c.run(t, u)
			}
			s.unserved()
			if n := s.h.Sessions(); n != 0 {
				t.Errorf("%d sessions", n)
			}
		})
	}
}

// A header that is not what it should be is missing, there more than once, or
// says something else: whoever makes requests learns which.
func TestServerModernMismatch(t *testing.T) {
	const another = "header is not what "
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{ToolSchema: regionSchema})
		call := request26("1", "tools/call", `"name":"t","arguments":{"region":"eu"}`)
		notice := `{"jsonrpc":"2.0","method":"notifications/x","params":{` + meta26 + `}}`
		good := []string{vHeader + r26, mHeader + "tools/call", nHeader + "t", "Mcp-Param-Region: eu"}
		for i, c := range []struct{ header, wrong, is string }{
			{vHeader, r25c, another + era.KeyVersion + " is"},
			{mHeader, "tools/list", another + "the method is"},
			{nHeader, "u", another + "params.name is"},
			{"Mcp-Param-Region: ", "us", another + "the argument is"},
		} {
			name := strings.TrimSuffix(c.header, ": ")
			for text, headers := range map[string][]string{
				"the " + name + " header is missing":         slices.Delete(slices.Clone(good), i, i+1),
				"the " + name + " " + c.is:                   slices.Concat(good[:i], good[i+1:], []string{c.header + c.wrong}),
				"there is more than one " + name + " header": slices.Concat(good, good[i:i+1]),
			} {
				r := u.post(call, headers...)
				r.isError(http.StatusBadRequest, -32020, "1")
				if got := string(new(message(string(r.body))).Lookup("error", "message")); got != `"header mismatch: `+text+`"` {
					t.Errorf("%q: %s, want %s", headers, got, text)
				}
				if i > 1 || strings.HasSuffix(text, "missing") { // a notification needs neither
					continue
				}
				if got := u.post(notice, headers...).is(http.StatusBadRequest); !strings.Contains(got, text) {
					t.Errorf("%q: %s, want %s", headers, got, text)
				}
			}
		}
		s.unserved()
	})
}

// Of several faults the first of MI10 is named.
func TestServerModernPrecedence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{ToolSchema: regionSchema})
		const bad = "v999.0.0"
		version := func(v string) string { return keyV + `:"` + v + `"` }
		for _, c := range []refusal{
			{"shape", `{"jsonrpc":"1.0","id":1,"method":"ping","params":{"_meta":{` + version(bad) + `}}}`, []string{vHeader + r26}, 400, -32600, "1"},
			{"header, then _meta", body26("1", "ping", version(bad)), []string{vHeader + r26}, 400, -32020, "1"},
			{"_meta, then version", body26("1", "ping", version(bad)), []string{vHeader + bad}, 400, -32602, "1"},
			{"version, then method", body26("1", "ping", version(bad)+`,`+caps26), []string{vHeader + bad}, 400, -32022, "1"},
			{"method, then headers", body26("1", "ping", claim26+`,`+caps26), []string{vHeader + r26, mHeader + "tools/list"}, 404, -32601, "1"},
			{"Mcp-Method, then Mcp-Name", request26("1", "tools/call", `"name":"t"`), []string{vHeader + r26, mHeader + "x", nHeader + "x"}, 400, -32020, "1"},
			{"Mcp-Name, then Mcp-Param", request26("1", "tools/call", `"name":"t","arguments":{"region":"eu"}`), []string{vHeader + r26, mHeader + "tools/call"}, 400, -32020, "1"},
		} {
			c.run(t, u)
		}
		s.unserved()
	})
}

// The versions that are served stand in the error, the newest first (MI9, ED5).
func TestServerModernUnsupported(t *testing.T) {
	both := `"2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"`
	legacy := `"2025-11-25","2025-06-18","2025-03-26","2024-11-05"`
	unknown := body26("1", "tools/list", keyV+`:"v999.0.0",`+caps26)
	for _, c := range []struct {
		eras      era.Eras
		body      string
		headers   []string
		supported string
		requested string
		id        string
	}{
		{era.Auto, unknown, []string{vHeader + "v999.0.0"}, both, "v999.0.0", "1"},
		{era.OnlyModern, unknown, []string{vHeader + "v999.0.0"}, `"2026-07-28"`, "v999.0.0", "1"},
		{era.OnlyLegacy, request26("1", "server/discover", ""), []string{vHeader + r26, mHeader + "server/discover"}, legacy, r26, "1"},
		{era.OnlyLegacy, `{"jsonrpc":"2.0","method":"notifications/x","params":{` + meta26 + `}}`, []string{vHeader + r26}, legacy, r26, ""},
		{era.OnlyModern, initialize(r25b), nil, `"2026-07-28"`, r25b, `"init"`},
		{era.OnlyModern, ping, []string{vHeader + r25a}, `"2026-07-28"`, r25a, "1"},
		{era.OnlyModern, ping, nil, `"2026-07-28"`, "", "1"},
		{era.OnlyModern, body26("1", "tools/list", `"io.modelcontextprotocol/\u0070rotocolVersion":"`+r25c+`"`), nil, `"2026-07-28"`, r25c, "1"},
		{era.OnlyModern, body26("1", "tools/list", keyV+`:"`+r25c+`"`), []string{vHeader + r25c}, `"2026-07-28"`, r25c, "1"},
		{era.Auto, `{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{` + keyV + `:"v999.0.0"}}}`, []string{vHeader + "v999.0.0"}, both, "v999.0.0", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, u := newModern(t, streamhttp.HandlerOptions{Eras: c.eras})
			r := u.post(c.body, c.headers...)
			r.isError(http.StatusBadRequest, -32022, c.id)
			want := `{"supported":[` + c.supported + `],"requested":"` + c.requested + `"}`
			if got := string(new(message(string(r.body))).Lookup("error", "data")); got != want {
				t.Errorf("%v, %s: data %s, want %s", c.eras, c.body, got, want)
			}
			s.unserved()
		})
	}
}

// GET and DELETE are methods of the older revisions (MI1, ED4).
func TestServerModernMethods(t *testing.T) {
	for _, c := range []struct {
		eras   era.Eras
		header string
		allow  string // "": the method is allowed
	}{
		{era.Auto, vHeader + r26, "POST"},
		{era.Auto, vHeader + r25c, ""},
		{era.Auto, vHeader, ""},
		{era.OnlyModern, vHeader + r26, "POST"},
		{era.OnlyModern, vHeader + r25c, "POST"},
		{era.OnlyModern, vHeader, "POST"},
		{era.OnlyLegacy, vHeader + r26, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, u := newModern(t, streamhttp.HandlerOptions{Eras: c.eras})
			for _, method := range []string{"GET", "DELETE"} {
				r := u.request(method, "", c.header)
				if c.allow == "" {
					r.is(http.StatusBadRequest) // there is no session
					continue
				}
				r.is(http.StatusMethodNotAllowed)
				if got := r.header["Allow"]; len(got) != 1 || got[0] != c.allow {
					t.Errorf("%v %s %s: Allow %q", c.eras, method, c.header, got)
				}
			}
			want := "GET, POST, DELETE"
			if c.allow != "" {
				want = "POST"
			}
			r := u.request("PUT", "", c.header)
			r.is(http.StatusMethodNotAllowed)
			if got := r.header.Get("Allow"); got != want {
				t.Errorf("%v PUT %s: Allow %q, want %q", c.eras, c.header, got, want)
			}
		})
	}
}

// Notifications are accepted and reach nobody (MI4); a cancellation above all.
func TestServerModernNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		p.gets()
		cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		for _, c := range []struct {
			body    string
			headers []string
		}{
			{cancel, []string{vHeader + r26}},
			{cancel, []string{vHeader + r26, mHeader + "notifications/cancelled"}},
			{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,` + meta26 + `}}`, []string{vHeader + r26}},
			{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,` + meta26 + `}}`, nil},
			{initialized, []string{vHeader + r26}},
			{`{"jsonrpc":"2.0","method":"notifications/unknown"}`, []string{vHeader + r26}},
		} {
			if body := u.post(c.body, c.headers...).is(http.StatusAccepted); body != "" {
				t.Errorf("202 with %q", body)
			}
		}
		for _, c := range []refusal{
			{"Mcp-Method", cancel, []string{vHeader + r26, mHeader + "tools/call"}, 400, -32020, ""},
			{"version", `{"jsonrpc":"2.0","method":"notifications/x","params":{` + meta26 + `}}`, []string{vHeader + r25c}, 400, -32020, ""},
		} {
			c.run(t, u)
		}
		p.waits()
		p.answers(result("1"))
		r.isJSON(result("1"))
	})
	bubble(t, "ED5", func(t *testing.T) {
		_, u := newModern(t, streamhttp.HandlerOptions{Eras: era.OnlyModern})
		u.post(initialized).is(http.StatusAccepted)
		u.post(`{"jsonrpc":"2.0","id":1,"result":{}}`).isError(http.StatusBadRequest, -32600, "null") // MI3
		u.post(`[`+ping+`]`).isError(http.StatusBadRequest, -32600, "null")
	})
}

const schemaWithRegion = `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}`

func regionSchema(_ context.Context, _ jsonrpc.Message, tool string) ([]byte, bool) {
	return []byte(schemaWithRegion), tool == "t"
}

// Mcp-Param headers are compared with the arguments (MI22).
func TestServerModernParams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{ToolSchema: regionSchema})
		for _, c := range []struct {
			tool, arguments string
			headers         []string
			ok              bool
		}{
			{"t", `{"region":"eu"}`, []string{"Mcp-Param-Region: eu"}, true},
			{"t", `{"region":"Hello"}`, []string{"Mcp-Param-Region: =?base64?SGVsbG8=?="}, true},
			{"t", `{"region":"=?base64?SGVsbG8="}`, []string{"Mcp-Param-Region: =?base64?SGVsbG8="}, true},
			{"t", `{"region":null}`, nil, true},
			{"t", `{}`, nil, true},
			{"t", `{"n":42}`, []string{"Mcp-Param-N: 42.0"}, true},
			{"t", `{"n":9007199254740993}`, []string{"Mcp-Param-N: 9007199254740993"}, true},
			{"t", `{"n":42.5}`, []string{"Mcp-Param-N: 42.5"}, true},
			{"t", `{"region":""}`, []string{"Mcp-Param-Region: =?base64??="}, true},
			{"t", `{"region":"eu"}`, []string{"Mcp-Param-Region: eu", "Mcp-Param-Other: x"}, true},
			{"other", `{"region":"eu"}`, []string{"Mcp-Param-Region: us"}, true}, // nothing is known of it
			{"t", `{"region":"eu"}`, nil, false},
			{"t", `{"region":"eu"}`, []string{"Mcp-Param-Region: us"}, false},
			{"t", `{"region":"eu"}`, []string{"Mcp-Param-Region: EU"}, false},
			{"t", `{"region":"Hello"}`, []string{"Mcp-Param-Region: =?base64?SGVsbG8?="}, false},
			{"t", `{"region":null}`, []string{"Mcp-Param-Region: null"}, false},
			{"t", `{}`, []string{"Mcp-Param-Region: eu"}, false},
			{"t", `{"n":42}`, []string{"Mcp-Param-N: 43"}, false},
			{"t", `{"n":9007199254740993}`, nil, false},
			{"t", `{"n":9007199254740993}`, []string{"Mcp-Param-N: 9007199254740992"}, false},
			{"t", `{"n":42.5}`, nil, false},
			{"t", `{"n":42,"n":43}`, []string{"Mcp-Param-N: 43"}, false},
			{"t", `{"region":""}`, nil, false},
		} {
			params := `"name":"` + c.tool + `","arguments":` + c.arguments
			r := u.ask26("1", "tools/call", params, c.headers...)
			if !c.ok {
				r.isError(http.StatusBadRequest, -32020, "1")
				s.unserved()
				continue
			}
			s.server().answers(result("1"))
			r.isJSON(result("1"))
		}
		// ME2: the value of a header may be empty.
		c := s.raw()
		c.write("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" + vHeader + r26 + "\r\n" + mHeader + "tools/call\r\n" + nHeader +
			"t\r\nMcp-Param-Region:\r\n" + sized(request26("1", "tools/call", `"name":"t","arguments":{"region":""}`)))
		go s.server().answers(result("1"))
		if resp, body := c.reply(); resp.StatusCode != 200 || body != result("1") {
			t.Errorf("%s %s", resp.Status, body)
		}
	})
}

// While the bridge must ask the server about a tool before it can look at the
// headers of a call, the client is not kept without a byte either; what is
// wrong with them is said on the stream then, and with a status before (MI13, MI22).
func TestServerModernSlowSchema(t *testing.T) {
	for _, c := range []struct {
		name, region string
		takes        time.Duration
		status       int // of a reply that is no stream; 0: it is one
	}{
		{"wrong, soon", "us", 9 * time.Second, http.StatusBadRequest},
		{"wrong, late", "us", 40 * time.Second, 0},
		{"right, late", "eu", 40 * time.Second, 0},
	} {
		bubble(t, c.name, func(t *testing.T) {
			s, u := newModern(t, streamhttp.HandlerOptions{ToolSchema: func(ctx context.Context, _ jsonrpc.Message, _ string) ([]byte, bool) {
				select {
				case <-time.After(c.takes):
				case <-ctx.Done():
				}
				return []byte(schemaWithRegion), true
			}})
			r := u.ask26("1", "tools/call", `"name":"t","arguments":{"region":"eu"}`, "Mcp-Param-Region: "+c.region)
			time.Sleep(c.takes - time.Nanosecond)
			if late := c.takes > 10*time.Second; late {
				r.isStream()
			} else if synctest.Wait(); r.begun() != 0 {
				t.Errorf("the reply has begun with %d", r.status)
			}
			time.Sleep(time.Nanosecond)
			switch {
			case c.status != 0:
				r.isError(c.status, -32020, "1")
				s.unserved()
				return
			case c.region == "eu":
				p := s.server()
				p.gets()
				p.answers(result("1"))
				r.isModern().gets(result("1")).over()
				return
			}
			r.isModern().gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"header mismatch: the Mcp-Param-Region header is not what the argument is"}}`)
			r.over()
			s.unserved()
		})
	}
	bubble(t, "the client hangs up meanwhile", func(t *testing.T) {
		asked := make(chan context.Context, 1)
		s, u := newModern(t, streamhttp.HandlerOptions{ToolSchema: func(ctx context.Context, _ jsonrpc.Message, _ string) ([]byte, bool) {
			asked <- ctx
			<-ctx.Done()
			return nil, false
		}})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		time.Sleep(time.Minute)
		r.isStream()
		r.cut()
		synctest.Wait()
		if (<-asked).Err() == nil {
			t.Error("the server is still being asked")
		}
		p := s.server()
		if _, err := bridgetest.Recv(p.ctx, p); err == nil {
			t.Error("the request was served")
		}
		p.quits(nil)
	})
}
