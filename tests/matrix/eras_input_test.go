package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// asks is a question and its answer, in the course of a call: the client is
// asked what the server asks, and the server gets what the client answers.
func (c *clientCall) asks(t testing.TB, sc *serverCall, q question, a answer) {
	t.Helper()
	sc.ask(t, q)
	got := c.asked(t, 1)
	c.sameQuestion(t, q, got[0])
	c.answer(t, map[string]answer{got[0].key: a})
	if back := sc.answers(t)[q.key]; shrink(back.result) != shrink(a.result) {
		t.Errorf("the server's question %s got the answer %s, want %s", q.key, clip(back.result), clip(a.result))
	}
}

// sameQuestion compares what the client is asked with what the server asks.
func (c *clientCall) sameQuestion(t testing.TB, want, got question) {
	t.Helper()
	if got.method != want.method || c.k.modern && c.k.h.modern && got.key != want.key {
		t.Errorf("the client is asked %s %s, the server asks %s %s", got.key, got.method, want.key, want.method)
	}
	wanted := members([]byte(shrink(want.params)))
	heard := members([]byte(got.params))
	for key, value := range wanted {
		if string(heard[key]) != string(value) {
			t.Errorf("the client is asked with %q: %s, the server asks with %s", key, clip(string(heard[key])), clip(string(value)))
		}
	}
	for key := range heard {
		if wanted[key] == nil && (key != "elicitationId" || string(wanted["mode"]) != `"url"`) {
			t.Errorf("the client is asked with %q: %s, which nobody said", key, heard[key])
		}
	}
}

// eraElicit: the server asks the user in the course of a call, who accepts,
// declines and cancels; then with the address of a page.
func eraElicit(t *testing.T, k *eraClient) {
	for _, method := range []string{"tools/call", "prompts/get", "resources/read"} { // MI20
		params, result := `"name":"ask","arguments":{"a":"1"}`, `"content":[]`
		switch method {
		case "prompts/get":
			result = `"messages":[]`
		case "resources/read":
			params, result = `"uri":"a:b"`, `"contents":[]`
		}
		c := k.call(t, method, params, withToken(`"t"`))
		sc := c.heard(t)
		sc.progress(t, `"progress":1`)
		c.progress(t, `"progress":1`)
		for i, answered := range []string{`{"action":"accept","content":{"b":1.0,"a":"\u00e9"}}`, `{"action":"decline"}`, `{"action":"cancel"}`} {
			c.asks(t, sc, question{fmt.Sprintf(`"e%d"`, i), "elicitation/create", `{"message":"who \u00e9?","requestedSchema":{"type":"object","properties":{"z":{"type":"number","minimum":1.0},"a":{"type":"string"}}}}`}, answer{result: answered})
		}
		c.asks(t, sc, question{`"mode"`, "elicitation/create", `{"mode":"form","message":"who?","requestedSchema":{"type":"object","properties":{}}}`}, answer{result: `{"action":"accept","content":{}}`})
		sc.progress(t, `"progress":2`)
		c.progress(t, `"progress":2`)
		sc.finish(t, result)
		c.gets(t, result)
	}
	c := k.call(t, "tools/call", `"name":"ask"`)
	sc := c.heard(t)
	params := `{"mode":"url","message":"go there","url":"https:\/\/example.com\/?a=b&c"}`
	if !k.h.modern {
		params = strings.Replace(params, `{`, `{"elicitationId":"e-1",`, 1)
	}
	sc.ask(t, question{`"url"`, "elicitation/create", params})
	got := c.asked(t, 1)[0]
	asked, want := members([]byte(got.params)), members([]byte(params))
	for _, key := range []string{"mode", "message", "url"} {
		if string(asked[key]) != string(want[key]) {
			t.Errorf("the client is asked with %q: %s, want %s", key, asked[key], want[key])
		}
	}
	if (asked["elicitationId"] == nil) != k.modern { // C.4: only the older revision has it
		t.Errorf("the client is asked with the elicitationId %s", asked["elicitationId"])
	}
	if !k.h.modern && !k.floor {
		sc.say(t, note("notifications/elicitation/complete", `{"elicitationId":"e-1"}`)) // dropped
	}
	c.answer(t, map[string]answer{got.key: {result: `{"action":"accept"}`}})
	if back := sc.answers(t)[`"url"`].result; back != `{"action":"accept"}` {
		t.Errorf("the answer is %s", back)
	}
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
}

// eraSample: the server asks the model.
func eraSample(t *testing.T, k *eraClient) {
	c := k.call(t, "tools/call", `"name":"sample"`)
	sc := c.heard(t)
	c.asks(t, sc, question{`"s1"`, "sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"h\u0069"}}],"maxTokens":100,"temperature":1.0}`},
		answer{result: `{"role":"assistant","content":{"type":"text","text":"\u0048i"},"model":"m","stopReason":"endTurn","n":1.0}`})
	c.asks(t, sc, question{`"s2"`, "sampling/createMessage", `{"messages":[],"maxTokens":1,"metadata":` + tricky + `}`},
		answer{result: `{"content":{"type":"text","text":"x"},"role":"assistant","model":"m","_meta":` + tricky + `}`})
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
}

// eraRoots: the server asks what the client works on.
func eraRoots(t *testing.T, k *eraClient) {
	c := k.call(t, "tools/call", `"name":"roots"`)
	sc := c.heard(t)
	c.asks(t, sc, question{`"r1"`, "roots/list", `{}`}, answer{result: `{"roots":[{"uri":"file:\/\/\/a","name":"a"}]}`})
	c.asks(t, sc, question{`"r2"`, "roots/list", `{}`}, answer{result: `{"roots":[]}`})
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
}

// three questions at once, and what each is answered.
var (
	three = []question{
		{`"one"`, "elicitation/create", `{"message":"1","requestedSchema":{"type":"object","properties":{}}}`},
		{`"two"`, "sampling/createMessage", `{"messages":[],"maxTokens":1}`},
		{`"three"`, "roots/list", `{}`},
	}
	answersToThree = map[string]answer{
		"elicitation/create":     {result: `{"action":"accept","content":{"a":1.0}}`},
		"sampling/createMessage": {result: `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`},
		"roots/list":             {result: `{"roots":[{"uri":"file:\/\/\/a"}]}`},
	}
)

// eraTogether: the server asks three things at once. A modern client may be
// asked for them together or one after the other.
func eraTogether(t *testing.T, k *eraClient) {
	c := k.call(t, "tools/call", `"name":"three"`)
	sc := c.heard(t)
	sc.ask(t, three...)
	for left := len(three); left > 0; {
		got := c.asked(t, left)
		answers := map[string]answer{}
		for _, q := range got {
			answers[q.key] = answersToThree[q.method]
			left--
		}
		c.answer(t, answers)
	}
	back := sc.answers(t)
	for _, q := range three {
		if back[q.key] != answersToThree[q.method] {
			t.Errorf("the server's question %s got the answer %v", q.method, back[q.key])
		}
	}
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
}

// eraDecline: a legacy client refuses with an error, for which a modern server
// has no word: the call ends, and is not retried (C.4.6). A legacy server gets
// the error.
func eraDecline(t *testing.T, k *eraClient) {
	c := k.call(t, "tools/call", `"name":"sample"`)
	sc := c.heard(t)
	no := answer{error: `{"code":-1,"message":"User rejected sampling request","data":{"z":1.0}}`}
	sc.ask(t, three[1])
	c.answer(t, map[string]answer{c.asked(t, 1)[0].key: no})
	if !k.h.modern {
		if back := sc.answers(t)[`"two"`]; back != no {
			t.Errorf("the server's question got the answer %v", back)
		}
		sc.finish(t, `"content":[]`)
		c.gets(t, `"content":[]`)
		return
	}
	result := members([]byte(c.raw(t)))
	if string(result["isError"]) != "true" || !strings.Contains(string(result["content"]), `"text"`) {
		t.Errorf("the call ends with %s, want isError and a text", result)
	}
}

// eraIncapable: a client without capabilities. Its server hears that, and what
// it cannot be asked it is not asked: the call fails and says why (MI12, C.4.3).
func eraIncapable(t *testing.T, w *world) string {
	k := w.dial(t).eraClient()
	k.caps = `{}`
	k.begin(t)
	c := k.call(t, "tools/call", `"name":"ask"`)
	sc := c.heard(t)
	const missing = `{"code":-32021,"message":"this needs elicitation","data":{"requiredCapabilities":{"elicitation":{}}}}`
	if !w.modernServer {
		for _, what := range []string{"sampling", "elicitation", "roots"} {
			if sc.conn.caps[what] != nil {
				t.Errorf("the server is told that the client can %s", what)
			}
		}
	}
	switch {
	case w.modernServer:
		sc.fail(t, missing)
		c.fails(t, -32021)
	case w.modernClient:
		// Roots are asked for now and then, and a server can do without.
		sc.ask(t, three[2])
		if back := sc.answers(t)[three[2].key]; back.error == "" {
			t.Errorf("the server's question for roots got the answer %v", back)
		}
		sc.finish(t, `"content":[]`)
		c.gets(t, `"content":[]`)
		for i, what := range []string{"elicitation", "sampling"} {
			c = k.call(t, "tools/call", `"name":"ask"`)
			sc = c.heard(t)
			sc.ask(t, three[i])
			if back := sc.answers(t)[three[i].key]; back.error == "" {
				t.Errorf("the server's question for %s got the answer %v", what, back)
			}
			var body struct {
				Data struct {
					RequiredCapabilities map[string]json.RawMessage `json:"requiredCapabilities"`
				} `json:"data"`
			}
			if text := c.fails(t, -32021); json.Unmarshal([]byte(text), &body) != nil || body.Data.RequiredCapabilities[what] == nil {
				t.Errorf("without %s the error is %s", what, text)
			}
			sc.cancelled(t)
		}
	default:
		sc.finish(t, `"content":[]`)
		c.gets(t, `"content":[]`)
	}
	if w.modernServer && !w.modernClient { // a server that asks all the same
		c = k.call(t, "tools/call", `"name":"ask"`)
		sc = c.heard(t)
		sc.ask(t, three[0])
		if result := members([]byte(c.raw(t))); string(result["isError"]) != "true" {
			t.Errorf("a call in which the client is asked what it cannot ends with %s", result)
		}
	}
	k.settle(t)
	k.leave(t)
	return ""
}

// eraParked: what the bridge keeps for a call that waits for its client: wrong
// answers do not end it, half an answer is asked again, and no answer is given
// to the server twice (C.4.4, C.4.5).
func eraParked(t *testing.T, k *eraClient) {
	c := k.call(t, "tools/call", `"name":"three","arguments":{"a":1.0}`)
	sc := c.heard(t)
	sc.ask(t, three...)
	keys := map[string]string{} // by method
	var got []question
	for len(keys) < len(three) { // all of them in one result, or each after the other was answered not at all
		got = c.asked(t, 3)
		for _, q := range got {
			keys[q.method] = q.key
		}
		if len(keys) < len(three) {
			c.answer(t, nil) // all is asked again, and what has come meanwhile
		}
	}
	state := c.state
	if len(stringOf(json.RawMessage(state))) < 20 {
		t.Errorf("the state is %s, which anybody could make up", state)
	}
	good := map[string]answer{}
	for method, key := range keys {
		good[key] = answersToThree[method]
	}
	refused := func(what string, change func(), answers map[string]answer) {
		t.Helper()
		before := *c
		change()
		c.answer(t, answers)
		c.fails(t, -32602)
		next := c.k.next
		*c = before
		c.k.next = next
		_ = what
	}
	refused("another state", func() { c.state = `"` + strings.Repeat("A", 40) + `"` }, good)
	refused("a changed state", func() {
		b := []byte(state)
		b[len(b)/2] ^= 1
		if b[len(b)/2] == '"' || b[len(b)/2] == '\\' {
			b[len(b)/2] = 'x'
		}
		c.state = string(b)
	}, good)
	refused("other arguments", func() { c.params = `"name":"three","arguments":{"a":2.0}` }, good)
	refused("another method", func() { c.method, c.params = "prompts/get", `"name":"three","arguments":{"a":1.0}` }, good)
	refused("no answer at all", func() {}, map[string]answer{keys["elicitation/create"]: {result: `{"x":1}`}})

	// Half of them, with one that nobody asked for; the rest is asked again.
	first := c.id
	c.answer(t, map[string]answer{keys["elicitation/create"]: good[keys["elicitation/create"]], `"what?"`: {result: `{}`}})
	if c.id == first {
		t.Error("the retry has the id of the call")
	}
	used := *c
	got = c.asked(t, 2)
	var methods []string
	rest := map[string]answer{}
	for _, q := range got {
		methods = append(methods, q.method)
		rest[q.key] = answersToThree[q.method]
	}
	slices.Sort(methods)
	if strings.Join(methods, " ") != "roots/list sampling/createMessage" {
		t.Errorf("asked again are %v", methods)
	}
	// What was used is used.
	used.answer(t, good)
	used.fails(t, -32602)
	c.answer(t, rest)
	back := sc.answers(t)
	for _, q := range three {
		if back[q.key] != answersToThree[q.method] {
			t.Errorf("the server's question %s got the answer %v", q.method, back[q.key])
		}
	}
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
	done := *c
	done.answer(t, rest)
	done.fails(t, -32602)

	// The server does not wait for the answer in the end: what it says is kept.
	c = k.call(t, "tools/call", `"name":"impatient"`)
	sc = c.heard(t)
	sc.ask(t, three[0])
	key := c.asked(t, 1)[0].key
	sc.finish(t, `"content":[],"kept":1.0`)
	c.answer(t, map[string]answer{key: {result: `{"action":"decline"}`}})
	c.gets(t, `"content":[],"kept":1.0`)
}

// eraDeadline: a client that does not come back (C.4.5). The server's question
// is answered, and its call cancelled, when --park-timeout has passed.
func eraDeadline(t *testing.T, w *world) string {
	k := w.apart(t, grace, "--park-timeout", "300ms").eraClient()
	k.begin(t)
	c := k.call(t, "tools/call", `"name":"three"`)
	sc := c.heard(t)
	sc.ask(t, three...)
	got := c.asked(t, 3)
	back := sc.answers(t)
	if a := back[`"one"`]; a.result != `{"action":"cancel"}` {
		t.Errorf("the user who does not answer is said to have answered %v", a)
	}
	for _, key := range []string{`"two"`, `"three"`} {
		if back[key].error == "" {
			t.Errorf("the question %s got the answer %v, want an error", key, back[key])
		}
	}
	sc.cancelled(t)
	c.answer(t, map[string]answer{got[0].key: answersToThree[got[0].method]})
	c.fails(t, -32602)
	k.settle(t)
	k.leave(t)
	k.stop(t)
	return ""
}
