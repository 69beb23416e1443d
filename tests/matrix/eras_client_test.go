package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// modernRevision is what modern clients and servers speak.
const modernRevision = "2026-07-28"

// Keys of _meta.
const (
	keyVersion      = "io.modelcontextprotocol/protocolVersion"
	keyInfo         = "io.modelcontextprotocol/clientInfo"
	keyCaps         = "io.modelcontextprotocol/clientCapabilities"
	keyLevel        = "io.modelcontextprotocol/logLevel"
	keyServer       = "io.modelcontextprotocol/serverInfo"
	keySubscription = "io.modelcontextprotocol/subscriptionId"

	keyMark  = "com.example/mark" // by which the script knows a call
	keyTrace = "traceparent"

	trace = `"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"`
)

// What clients can.
const (
	legacyCaps = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}`
	modernCaps = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`
)

// An eraClient is a client of one era, as the script sees it.
type eraClient struct {
	*peer
	caps  string // as spelled
	level string // modern: the log level of its calls, "" for none; legacy: what it has set
}

// eraClient makes one of a client that has said nothing yet.
func (k *peer) eraClient() *eraClient {
	if k.modern {
		return &eraClient{peer: k, caps: modernCaps}
	}
	return &eraClient{peer: k, caps: legacyCaps, level: "info"}
}

// open makes a client that has said hello.
func (w *world) open(t testing.TB) *eraClient {
	t.Helper()
	k := w.dial(t).eraClient()
	k.begin(t)
	return k
}

// begin opens the session of a legacy client, and asks who the server is for a
// modern one.
func (k *eraClient) begin(t testing.TB) {
	t.Helper()
	if k.modern {
		c := k.call(t, "server/discover", "")
		result := members([]byte(c.raw(t)))
		c.decorated(t, result)
		if got := string(result["supportedVersions"]); !strings.Contains(got, `"`+modernRevision+`"`) {
			t.Errorf("supportedVersions are %s", got)
		}
		k.introduced(t, result, string(members(result["_meta"])[keyServer]))
		return
	}
	id := `"init-\u00e9"`
	k.c.say(t, request(id, "initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":%q,"version":"1.0"}}`, revision, k.caps, k.name)))
	f := k.c.take(t, "the answer to initialize", k.on(id), func(text string) bool { m, _ := open(text); return m.Result != nil })
	m := f.message
	result := members(m.Result)
	if got := string(result["protocolVersion"]); got != `"`+revision+`"` { // ED6
		t.Errorf("the negotiated version is %s", got)
	}
	k.introduced(t, result, string(result["serverInfo"]))
	k.c.say(t, note("notifications/initialized", `{}`))
}

// introduced wants the server to be who it is.
func (k *eraClient) introduced(t testing.TB, result map[string]json.RawMessage, info string) {
	t.Helper()
	if got := string(result["capabilities"]); !sameJSON(got, serverCaps) {
		t.Errorf("the server can %s, want %s", got, serverCaps)
	}
	if !sameJSON(info, serverInfo) {
		t.Errorf("the server is %s, want %s", info, serverInfo)
	}
	if got := string(result["instructions"]); got != instructions {
		t.Errorf("the instructions are %s", got)
	}
}

// sameJSON reports whether two texts mean the same.
func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && fmt.Sprint(x) == fmt.Sprint(y)
}

// A clientCall is the client's end of one call.
type clientCall struct {
	k      *eraClient
	id     string // of the request that is open
	method string
	params string // its members, less _meta
	token  string // as spelled, "" for none
	level  string
	mark   string
	state  string // modern: what came with the last questions; "" for none
	// loose is for a call beside others, on a channel that they share: what
	// belongs to it need not be the next that comes.
	loose bool
}

// opening is what a call begins with.
type opening func(*clientCall)

func withToken(token string) opening { return func(c *clientCall) { c.token = token } }
func withID(id string) opening       { return func(c *clientCall) { c.id = id } }
func loosely(c *clientCall)          { c.loose = true }

// call makes a call, of whose params these are the members.
func (k *eraClient) call(t testing.TB, method, params string, with ...opening) *clientCall {
	t.Helper()
	c := &clientCall{k: k, method: method, params: params, level: k.level}
	for _, w := range with {
		w(c)
	}
	if c.id == "" {
		c.id = k.id()
	}
	k.marks++
	c.mark = fmt.Sprintf(`"%s #%d %s"`, k.name, k.marks, strings.ReplaceAll(method, `"`, ""))
	c.send(t, "")
	return c
}

// meta is what stands in the params' _meta.
func (c *clientCall) meta() string {
	out := `"` + keyMark + `":` + c.mark + `,"` + keyTrace + `":` + trace
	if c.token != "" {
		out += `,"progressToken":` + c.token
	}
	if c.k.modern {
		out += fmt.Sprintf(`,%q:%q,%q:{"name":%q,"version":"1.0"},%q:%s`, keyVersion, modernRevision, keyInfo, c.k.name, keyCaps, c.k.caps)
		if c.level != "" {
			out += fmt.Sprintf(`,%q:%q`, keyLevel, c.level)
		}
	}
	return out
}

// text is the params. more are members that a retry has.
func (c *clientCall) text(more string) string {
	out := "{"
	for _, part := range []string{c.params, more} {
		if part != "" {
			out += part + ","
		}
	}
	return out + `"_meta":{` + c.meta() + `}}`
}

func (c *clientCall) send(t testing.TB, more string) {
	t.Helper()
	c.k.c.say(t, request(c.id, c.method, c.text(more)))
}

// heard waits for the server to hear the call, and checks that it is the same
// there, in the words of the server's era.
func (c *clientCall) heard(t testing.TB) *serverCall {
	t.Helper()
	sc := c.k.h.heard(t, c.mark)
	c.same(t, sc, "")
	return sc
}

// same compares what the server has heard with what the client has said, more
// included.
func (c *clientCall) same(t testing.TB, sc *serverCall, more string) {
	t.Helper()
	if sc.method != c.method {
		t.Errorf("the server heard %s, the client said %s", sc.method, c.method)
	}
	if (sc.token == "") != (c.token == "") {
		t.Errorf("the server got the token %s, the client's is %s", sc.token, c.token)
	}
	said := shrink(c.text(more))
	if c.k.modern && c.k.h.modern {
		// Nothing but the token may differ, not in a byte.
		if want := strings.Replace(said, `"progressToken":`+c.token+`,`, `"progressToken":`+sc.token+`,`, 1); sc.text != want {
			t.Errorf("the server heard the params\n%s, want\n%s", clip(sc.text), clip(want))
		}
		return
	}
	want := members([]byte(said))
	for key, value := range want {
		if got := sc.params[key]; key != "_meta" && string(got) != string(value) {
			t.Errorf("the server heard %q: %s, want %s", key, clip(string(got)), clip(string(value)))
		}
	}
	for key := range sc.params {
		if want[key] == nil {
			t.Errorf("the server heard %q, which nobody said", key)
		}
	}
	c.sameMeta(t, sc)
}

func (c *clientCall) sameMeta(t testing.TB, sc *serverCall) {
	t.Helper()
	want := map[string]string{keyMark: c.mark, keyTrace: trace}
	if c.k.h.modern {
		want[keyVersion] = `"` + modernRevision + `"`
		if c.level != "" {
			want[keyLevel] = `"` + c.level + `"`
		}
		if !strings.Contains(string(sc.meta[keyInfo]), fmt.Sprintf("%q", c.k.name)) { // ME11
			t.Errorf("the server heard that the client is %s", sc.meta[keyInfo])
		}
		c.sameCaps(t, members(sc.meta[keyCaps]))
	}
	for key, value := range want {
		if got := string(sc.meta[key]); got != value {
			t.Errorf("the server heard in the meta %q: %s, want %s", key, got, value)
		}
	}
	for key := range sc.meta {
		if want[key] == "" && key != "progressToken" && key != keyInfo && key != keyCaps {
			t.Errorf("the server heard in the meta %q, which nobody said", key)
		}
	}
}

// sameCaps wants a server to know what its client can, and no more.
func (c *clientCall) sameCaps(t testing.TB, got map[string]json.RawMessage) {
	t.Helper()
	want := members([]byte(c.k.caps))
	for _, what := range []string{"sampling", "elicitation", "roots"} {
		if (got[what] == nil) != (want[what] == nil) {
			t.Errorf("the server hears of %s: %s; the client said %s", what, got[what], want[what])
		}
	}
}

// take waits for the next message about the call: on a channel that carries
// others it is the first that is wanted.
func (c *clientCall) take(t testing.TB, what string, wanted func(m envelope) bool) envelope {
	t.Helper()
	on := c.k.on(c.id)
	if c.loose && on == "" {
		on = anywhere
	}
	f := c.k.c.find(t, what+" about call "+c.id, on, wanted)
	m, _ := open(shrink(f.text))
	return m
}

// raw waits for the result, as spelled.
func (c *clientCall) raw(t testing.TB) string {
	t.Helper()
	m := c.take(t, "the result", func(m envelope) bool { return m.isResponse() && string(m.ID) == c.id })
	if m.Result == nil {
		t.Fatalf("call %s of %s has failed: %s", c.id, c.method, clip(string(m.Error)))
	}
	return string(m.Result)
}

// gets waits for the result, which has these members and what the era adds.
func (c *clientCall) gets(t testing.TB, want string) {
	t.Helper()
	text := c.raw(t)
	want = shrink(want)
	if exact := `{` + c.k.h.decorated(c.method, want) + `}`; c.k.modern && c.k.h.modern && text != exact {
		t.Errorf("the result is\n%s, want\n%s", clip(text), clip(exact))
		return
	}
	got := members([]byte(text))
	for key, value := range members([]byte(`{` + want + `}`)) {
		if string(got[key]) != string(value) {
			t.Errorf("the result has %q: %s, want %s", key, clip(string(got[key])), clip(string(value)))
		}
		delete(got, key)
	}
	c.decorated(t, got)
	for key := range got {
		if !c.k.modern || !slices.Contains([]string{"resultType", "ttlMs", "cacheScope", "_meta"}, key) {
			t.Errorf("the result has %q: %s, which nobody said", key, got[key])
		}
	}
}

// decorated wants a modern client's result to have what is due (MI16, MI17).
func (c *clientCall) decorated(t testing.TB, result map[string]json.RawMessage) {
	t.Helper()
	if !c.k.modern {
		return
	}
	if got := string(result["resultType"]); got != `"complete"` {
		t.Errorf("%s: the resultType is %s", c.method, got)
	}
	var ttl uint64
	hints := json.Unmarshal(result["ttlMs"], &ttl) == nil && slices.Contains([]string{`"public"`, `"private"`}, string(result["cacheScope"]))
	if hints != slices.Contains(cacheable, c.method) {
		t.Errorf("%s: ttlMs is %s, and cacheScope %s", c.method, result["ttlMs"], result["cacheScope"])
	}
	if got := string(members(result["_meta"])[keyServer]); !sameJSON(got, serverInfo) {
		t.Errorf("%s: the server is %s", c.method, got)
	}
}

// fails waits for an error with one of these codes, and returns it.
func (c *clientCall) fails(t testing.TB, codes ...int) string {
	t.Helper()
	m := c.take(t, fmt.Sprintf("an error %v", codes), func(m envelope) bool { return m.isResponse() && string(m.ID) == c.id })
	var body struct{ Code int }
	if m.Error == nil || json.Unmarshal(m.Error, &body) != nil || !slices.Contains(codes, body.Code) {
		t.Errorf("call %s of %s ended with %s %s, want an error %v", c.id, c.method, clip(string(m.Result)), clip(string(m.Error)), codes)
	}
	return string(m.Error)
}

// progress wants to hear how far the call is, with the token as it was spelled.
func (c *clientCall) progress(t testing.TB, want string) {
	t.Helper()
	m := c.take(t, "progress "+want, func(m envelope) bool {
		return m.Method == "notifications/progress" && string(members(m.Params)["progressToken"]) == c.token
	})
	sameMembers(t, "progress", members(m.Params), `"progressToken":`+c.token+`,`+want)
}

// log wants to hear a line of the server's log.
func (c *clientCall) log(t testing.TB, level, data string) {
	t.Helper()
	m := c.take(t, "a log line "+clip(data), func(m envelope) bool {
		return m.Method == "notifications/message" && strings.Contains(string(m.Params), data)
	})
	sameMembers(t, "log line", members(m.Params), fmt.Sprintf(`"level":%q,"logger":"l","data":%s`, level, data))
}

// sameMembers wants an object to have these members, as spelled, and no others.
func sameMembers(t testing.TB, what string, got map[string]json.RawMessage, want string) {
	t.Helper()
	wanted := members([]byte(`{` + shrink(want) + `}`))
	for key, value := range wanted {
		if string(got[key]) != string(value) {
			t.Errorf("the %s has %q: %s, want %s", what, key, clip(string(got[key])), clip(string(value)))
		}
	}
	for key := range got {
		if wanted[key] == nil {
			t.Errorf("the %s has %q: %s, which nobody said", what, key, clip(string(got[key])))
		}
	}
}

// asked waits for the server's next questions: for a modern client all that
// are asked at once, for a legacy one as many as come one by one.
func (c *clientCall) asked(t testing.TB, n int) []question {
	t.Helper()
	var out []question
	if !c.k.modern {
		for range n {
			m := c.take(t, "a question", func(m envelope) bool { return m.isRequest() })
			out = append(out, question{string(m.ID), m.Method, string(m.Params)})
		}
		return out
	}
	result := members([]byte(c.raw(t)))
	if got := string(result["resultType"]); got != `"input_required"` {
		t.Fatalf("call %s of %s: the result is %s, want one that asks for input", c.id, c.method, result)
	}
	for key := range result {
		if !slices.Contains([]string{"resultType", "inputRequests", "requestState", "_meta"}, key) {
			t.Errorf("a result that asks for input has %q: %s", key, result[key])
		}
	}
	c.state = string(result["requestState"])
	for key, raw := range members(result["inputRequests"]) {
		q := members(raw)
		out = append(out, question{fmt.Sprintf("%q", key), strings.Trim(string(q["method"]), `"`), string(q["params"])})
	}
	if len(out) == 0 {
		t.Errorf("call %s of %s asks for no input: %v", c.id, c.method, result)
	}
	return out
}

// answer answers questions, by key.
func (c *clientCall) answer(t testing.TB, answers map[string]answer) {
	t.Helper()
	if !c.k.modern {
		for id, a := range answers {
			if a.error != "" {
				c.k.c.say(t, failure(id, a.error))
			} else {
				c.k.c.say(t, response(id, a.result))
			}
		}
		return
	}
	c.id = c.k.id()
	c.send(t, c.input(answers))
}

// input is what a retry has beside the members of the call.
func (c *clientCall) input(answers map[string]answer) string {
	list := ""
	for key, a := range answers {
		if list != "" {
			list += ","
		}
		list += key + ":" + a.result
	}
	out := `"inputResponses":{` + list + `}`
	if c.state != "" {
		out += `,"requestState":` + c.state
	}
	return out
}

// cancel gives a call up, in the way of the era and the transport.
func (c *clientCall) cancel(t testing.TB) {
	t.Helper()
	c.k.c.giveUp(c.id)
	if w, ok := c.k.c.wire.(*modernClient); ok {
		w.cancel(c.id)
		return
	}
	c.k.c.say(t, note("notifications/cancelled", `{"reason":"\u00e9","requestId":`+c.id+`}`))
}

// settle wants nothing more to be under way: what has come would be here by then.
func (k *eraClient) settle(t testing.TB) {
	t.Helper()
	c := k.call(t, "tools/call", `"name":"settle"`)
	sc := c.heard(t)
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
	k.c.silent(t)
	k.h.idle(t)
	if wrong := k.v.wrong(); len(wrong) > 0 {
		t.Fatal(strings.Join(wrong, "\n"))
	}
}
