package matrix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// eraHello opens the main client: it gets to know the server.
func eraHello(t *testing.T, w *world) string {
	k := w.open(t)
	k.settle(t)
	w.main = k
	return ""
}

// eraPages lists 100 tools on pages of 20, with a cursor that says nothing to
// anybody but the server.
func eraPages(t *testing.T, k *eraClient) {
	cursor := ""
	for page := range 5 {
		params := ""
		if cursor != "" {
			params = `"cursor":` + cursor
		}
		cursor = fmt.Sprintf(`"p/%d?\u00e9é\u0000=="`, page)
		var tools []string
		for i := range 20 {
			tools = append(tools, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object","properties":{"b":{},"a":{"minimum":1.0}}},"annotations":{"z":1}}`, page*20+i))
		}
		result := `"tools":[` + strings.Join(tools, ", ") + `],"nextCursor":` + cursor
		if page == 4 {
			result = `"tools":[]`
		}
		k.quick(t, "tools/list", params, result)
	}
	for method, what := range map[string]string{"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"} {
		k.quick(t, method, `"cursor":""`, `"`+what+`":[{"name":"\u00e9","uri":"a:\/b"}]`)
	}
}

// quick is a call that is answered at once.
func (k *eraClient) quick(t testing.TB, method, params, result string, with ...opening) {
	t.Helper()
	c := k.call(t, method, params, with...)
	sc := c.heard(t)
	sc.finish(t, result)
	c.gets(t, result)
}

// eraCalls: what the bridge does not understand it does not touch (J5).
func eraCalls(t *testing.T, k *eraClient) {
	k.quick(t, "tools/call", `"name":"a b","arguments":`+tricky+`, "x-unknown" : [1.50]`, `"content":[{"type":"text","text":"\u00e9"},`+tricky+`],"structuredContent":`+tricky+`,"isError":false, "x" : 1.0`)
	k.quick(t, "tools/call", `"name":"zażółć"`, `"content":[],"isError":true`)
	k.quick(t, "tools/call", `"name":" x "`, `"content":[]`)
	k.quick(t, "tools/call", `"name":"=?base64?a?="`, `"content":[]`)
	k.quick(t, "prompts/get", `"name":"\u00e9","arguments":{"a":"1.0"}`, `"messages":[`+tricky+`],"description":"\/"`)
	k.quick(t, "resources/read", `"uri":"file:///\u00e9?a=b&c"`, `"contents":[{"uri":"file:\/\/\/é","text":""}]`)
	k.quick(t, "completion/complete", `"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"\u0000"}`, `"completion":{"values":["\u00e9"],"total":1.0}`)
}

// eraProgress: it comes in order, before the answer, with the token as it was spelled.
func eraProgress(t *testing.T, k *eraClient) {
	for i, token := range []string{`"t"`, `7`, `0`, `""`, `9007199254740993`, `"7"`, `"\u0061"`} {
		c := k.call(t, "tools/call", `"name":"slow"`, withToken(token))
		sc := c.heard(t)
		step := func(n int) string { return fmt.Sprintf(`"progress":%d.0,"total":5,"message":"%d é"`, n+1, i) }
		for n := range 5 {
			sc.progress(t, step(n))
		}
		sc.finish(t, `"content":[]`)
		for n := range 5 {
			c.progress(t, step(n))
		}
		c.gets(t, `"content":[]`)
	}
	if k.floor {
		return
	}
	c := k.call(t, "tools/call", `"name":"slow"`)
	sc := c.heard(t)
	for _, token := range strayTokens { // J13; settle sees to it that none of it comes
		sc.say(t, note("notifications/progress", `{`+token+`"progress":1}`))
	}
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
}

// levels are those of log lines, the most verbose first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// eraLog: log lines in the course of a call, at the level that was asked for
// and above. A modern client asks with each call, a legacy one once (MI18).
func eraLog(t *testing.T, k *eraClient) {
	defer func() { k.level = map[bool]string{false: "info", true: ""}[k.modern] }()
	for _, level := range []string{"debug", "warning", "emergency"} {
		if !k.modern {
			k.settled(t, "logging/setLevel", `{"level":"`+level+`"}`)
		}
		k.level = level
		c := k.call(t, "tools/call", `"name":"log"`)
		sc := c.heard(t)
		if !k.h.modern {
			k.h.await(t, "a log level as verbose", func() bool {
				at := slices.Index(levels, sc.conn.level)
				return at >= 0 && at <= slices.Index(levels, level)
			})
		}
		for i, at := range []string{level, "emergency"} {
			data := fmt.Sprintf(`{"n":%d,"t":%s}`, i, tricky)
			sc.log(t, at, data)
			c.log(t, at, data)
		}
		if k.modern && !k.h.modern && level == "emergency" { // its level is nobody's but the bridge's to keep
			sc.log(t, "debug", `"nobody asked for this"`)
		}
		sc.finish(t, `"content":[]`)
		c.gets(t, `"content":[]`)
	}
	if !k.modern {
		k.settled(t, "logging/setLevel", `{"level":"info"}`)
		return
	}
	k.level = ""
	c := k.call(t, "tools/call", `"name":"log"`)
	sc := c.heard(t)
	if !k.h.modern {
		sc.log(t, "emergency", `"nobody asked for this either"`) // settle sees to it that it does not come
	}
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
}

// eraIDs has calls of all ids in flight at once, answered in another order.
func eraIDs(t *testing.T, k *eraClient) {
	ids := []string{
		`0`, `-1`, `1`, `"1"`, `9007199254740993`, `9007199254740992`, `"9007199254740993"`, `-9007199254740993`,
		`""`, `" "`, `"null"`, `"é👨‍👩‍👧‍👦"`, `"\u00e8\ud83d\ude00\/\"\\\u0000"`, `"` + strings.Repeat("long ", 200) + `"`,
	}
	var calls []*clientCall
	served := map[*clientCall]*serverCall{}
	for _, id := range ids {
		c := k.call(t, "tools/call", `"name":"wait"`, withID(id), loosely)
		calls = append(calls, c)
		served[c] = c.heard(t)
	}
	for _, c := range slices.Backward(calls) {
		result := `"content":[],"for":[` + c.id + `]`
		served[c].finish(t, result)
		c.gets(t, result)
	}
}

// eraErrors: errors of every kind cross with their data. What a modern client
// must not see becomes what it may (J10), and what says that there is no such
// resource what the era says (C.0).
func eraErrors(t *testing.T, k *eraClient) {
	for _, body := range []string{
		`{"code":-32602,"message":"Unknown tool: \u00e9","data":` + tricky + `}`,
		`{"code":-32603,"message":"inner","data":"text"}`, `{"code":-32600,"message":"invalid"}`,
		`{"code":-32001,"message":"not the session"}`, `{"code":0,"message":"zero","data":[1.0]}`,
		`{"code":404,"message":"gone"}`, `{"data":null,"message":"","code":-1}`,
	} {
		c := k.call(t, "tools/call", `"name":"fails"`)
		sc := c.heard(t)
		sc.fail(t, body)
		want := members([]byte(body))
		got := members([]byte(c.fails(t, -32602, -32603, -32600, -32001, 0, 404, -1)))
		for _, key := range []string{"code", "message", "data"} {
			if string(got[key]) != string(want[key]) {
				t.Errorf("the error has %q: %s, want %s", key, clip(string(got[key])), clip(string(want[key])))
			}
		}
	}
	if k.h.modern == k.modern {
		return
	}
	gone := k.call(t, "resources/read", `"uri":"a:\/b"`)
	sc := gone.heard(t)
	if k.modern {
		sc.fail(t, `{"code":-32002,"message":"no such thing","data":{"uri":"a:\/b"}}`)
		if got := gone.fails(t, -32602); !strings.Contains(got, `a:`) {
			t.Errorf("the error does not say which resource: %s", got)
		}
		reserved := k.call(t, "tools/call", `"name":"fails"`)
		reserved.heard(t).fail(t, `{"code":-32050,"message":"mine"}`)
		reserved.fails(t, -32603)
		return
	}
	sc.fail(t, `{"code":-32602,"message":"no such thing","data":{"uri":"a:\/b"}}`)
	gone.fails(t, -32002)
}

// eraUnknown: methods that nobody has heard of, and such as were removed, are
// not found: 404 over Streamable HTTP (MI11).
func eraUnknown(t *testing.T, k *eraClient) {
	methods := []string{"x/unknown"}
	if k.modern {
		methods = append(methods, removed...)
	}
	for _, method := range methods {
		c := k.call(t, method, `"uri":"a:b","level":"info"`)
		c.fails(t, -32601)
		if w, ok := k.c.wire.(*modernClient); ok {
			w.mu.Lock()
			status := w.status[c.id]
			w.mu.Unlock()
			if status != 404 {
				t.Errorf("%s: status %d, want 404", method, status)
			}
		}
	}
	if k.modern {
		return
	}
	k.settled(t, "ping", `{}`)
	k.c.say(t, note("notifications/roots/list_changed", `{}`)) // taken, and nothing comes of it
}

// eraBig: a mebibyte of everything, both ways.
func eraBig(t *testing.T, k *eraClient) {
	k.quick(t, "tools/call", `"name":"big","arguments":`+mebibyte, `"content":[],"structuredContent":`+mebibyte)
	c := k.call(t, "tools/call", `"name":"big"`, withToken("1"))
	sc := c.heard(t)
	sc.progress(t, `"progress":1,"message":"m","x":`+mebibyte)
	c.progress(t, `"progress":1,"message":"m","x":`+mebibyte)
	schema := `"message":"m","requestedSchema":` + mebibyte
	c.asks(t, sc, question{`"one"`, "elicitation/create", `{` + schema + `}`}, answer{result: `{"action":"accept","content":` + mebibyte + `}`})
	sc.fail(t, `{"code":-1,"message":"too much","data":`+mebibyte+`}`)
	if got := c.fails(t, -1); !strings.Contains(got, `"<mebibyte>"`) {
		t.Errorf("the error is %s", clip(got))
	}
}

// eraConcurrent: 50 calls at once, with progress, answered in any order. Where
// each question belongs to one call without a doubt, one in each.
func eraConcurrent(t *testing.T, k *eraClient) {
	const n = 50
	asks := k.h.modern || k.egress == "http"
	var calls []*clientCall
	served := map[*clientCall]*serverCall{}
	for i := range n {
		calls = append(calls, k.call(t, "tools/call", fmt.Sprintf(`"name":"n%d"`, i), withToken(fmt.Sprint(i)), loosely))
	}
	for _, c := range calls {
		served[c] = c.heard(t)
	}
	rand.Shuffle(n, func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	for _, c := range calls {
		served[c].progress(t, `"progress":1,"message":`+c.token+``)
	}
	for _, c := range calls {
		c.progress(t, `"progress":1,"message":`+c.token)
	}
	for _, c := range calls {
		if asks {
			served[c].ask(t, question{`"one"`, "elicitation/create", fmt.Sprintf(`{"message":"%s","requestedSchema":{}}`, c.token)})
		}
	}
	for _, c := range calls {
		if !asks {
			break
		}
		m := c.takeQuestion(t, fmt.Sprintf(`"%s"`, c.token))
		c.answer(t, map[string]answer{m: {result: `{"action":"accept","content":{"n":` + c.token + `}}`}})
	}
	rand.Shuffle(n, func(i, j int) { calls[i], calls[j] = calls[j], calls[i] })
	for _, c := range calls {
		sc := served[c]
		if asks {
			if got := sc.answers(t)[`"one"`].result; got != `{"action":"accept","content":{"n":`+c.token+`}}` {
				t.Errorf("the answer in call %s is %s", c.token, got)
			}
		}
		sc.finish(t, `"content":[],"n":`+c.token)
	}
	for _, c := range calls {
		c.gets(t, `"content":[],"n":`+c.token)
	}
}

// takeQuestion waits for the one question of a call beside others, known by
// its message, and returns its key.
func (c *clientCall) takeQuestion(t testing.TB, message string) string {
	t.Helper()
	if c.k.modern {
		qs := c.asked(t, 1)
		if got := string(members([]byte(qs[0].params))["message"]); len(qs) != 1 || got != message {
			t.Errorf("call %s is asked %v", c.id, qs)
		}
		return qs[0].key
	}
	m := c.take(t, "the question "+message, func(m envelope) bool {
		return m.isRequest() && string(members(m.Params)["message"]) == message
	})
	return string(m.ID)
}

// eraTwoClients: two clients at once, who use the same ids and tokens for
// everything, each hear and say only what is theirs (D1 to D3).
func eraTwoClients(t *testing.T, w *world) string {
	a, b := w.open(t), w.open(t)
	both := []*eraClient{a, b}
	a.next, b.next = 5000, 5000
	calls := map[*eraClient]*clientCall{}
	served := map[*eraClient]*serverCall{}
	for _, k := range both {
		calls[k] = k.call(t, "tools/call", `"name":"of","arguments":{"of":"`+k.name+`"}`, withID("1"), withToken("1"), loosely)
	}
	for _, k := range both {
		served[k] = calls[k].heard(t)
	}
	for _, k := range both {
		served[k].progress(t, `"progress":1,"message":"`+k.name+`"`)
	}
	for _, k := range both {
		calls[k].progress(t, `"progress":1,"message":"`+k.name+`"`)
	}
	heard := map[*eraClient]*subscription{}
	for _, k := range both {
		heard[k] = k.listen(t, filter{ToolsListChanged: true})
	}
	// What one of them cancels is nothing to the other.
	calls[a].cancel(t)
	served[a].cancelled(t)
	if !w.floor {
		served[a].late()
	}
	served[b].progress(t, `"progress":2`)
	calls[b].progress(t, `"progress":2`)
	served[b].finish(t, `"content":[],"of":"`+b.name+`"`)
	calls[b].gets(t, `"content":[],"of":"`+b.name+`"`)
	w.awaitListeners(t, both...)
	w.h.emit(t, "tools")
	for _, k := range both {
		heard[k].hears(t, "tools")
		heard[k].close(t)
	}
	if w.main != nil && !w.main.modern { // that one hears of it, too
		(&subscription{k: w.main}).hears(t, "tools")
	}
	for _, k := range both {
		k.settle(t)
		k.leave(t)
	}
	return ""
}
