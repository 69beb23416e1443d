package matrix

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// eraSubscribe: updates come while somebody has subscribed, to whoever has.
func eraSubscribe(t *testing.T, k *eraClient) {
	one, two := `"file:\/\/\/\u00e9?a=b&c"`, `"a:b"`
	both := k.listen(t, filter{ResourceSubscriptions: []json.RawMessage{json.RawMessage(one), json.RawMessage(two)}})
	for _, uri := range []string{one, two} {
		k.h.awaitInterest(t, uri, true)
		for range 3 {
			k.h.emit(t, uri)
			both.hears(t, uri)
		}
	}
	if k.modern { // another, to one of them
		again := k.listen(t, filter{ResourceSubscriptions: []json.RawMessage{json.RawMessage(two)}})
		k.h.emit(t, two)
		both.hears(t, two)
		again.hears(t, two)
		again.close(t)
	}
	k.quick(t, "resources/read", `"uri":`+one, `"contents":[]`)
	k.h.emit(t, one)
	both.hears(t, one)
	both.close(t)
	if k.h.modern || !k.modern { // a legacy server is told later: somebody may come back
		k.h.awaitInterest(t, one, false)
		k.h.awaitInterest(t, two, false)
	}
}

// awaitListeners waits until the server knows of everybody who wants to hear
// of its tools: those, and the first client if that is a legacy one. A legacy
// client's bridge listens for it when it gets to it.
func (w *world) awaitListeners(t testing.TB, who ...*eraClient) {
	t.Helper()
	if !w.modernServer {
		return
	}
	n := len(who)
	if w.main != nil && !w.main.modern && !slices.Contains(who, w.main) {
		n++
	}
	w.h.await(t, "listeners", func() bool { return w.h.interested("tools") >= n })
}

// eraChanged: the lists change, and those hear of it who want to.
func eraChanged(t *testing.T, k *eraClient) {
	s := k.listen(t, filter{ToolsListChanged: true, PromptsListChanged: true})
	k.awaitListeners(t, k)
	for _, what := range []string{"tools", "prompts", "resources", "tools"} {
		k.h.emit(t, what)
		if what == "resources" && k.modern {
			continue // settle sees to it that it does not come
		}
		s.hears(t, what)
		k.quick(t, what+"/list", "", `"`+what+`":[]`)
	}
	s.close(t)
	if k.modern && k.h.modern {
		k.h.await(t, "the end of the subscription", func() bool { return k.h.interested("prompts") == 0 })
	}
}

// eraCancel: the server hears which call is cancelled; its answer then goes
// nowhere, nor does progress, and the other call does not notice (J12, J13).
func eraCancel(t *testing.T, k *eraClient) {
	first := k.call(t, "tools/call", `"name":"slow"`, withToken(`"p"`), loosely)
	second := k.call(t, "tools/call", `"name":"slow"`, withToken(`0`), loosely)
	one, two := first.heard(t), second.heard(t)
	one.progress(t, `"progress":1`)
	two.progress(t, `"progress":1`)
	first.progress(t, `"progress":1`)
	second.progress(t, `"progress":1`)
	first.cancel(t)
	one.calledOff(t)
	if !k.floor { // the bridge sees to it
		_ = one.conn.s.wire.send(one.id, note("notifications/progress", `{"progress":2,"progressToken":`+one.token+`}`))
		one.late()
	}
	two.progress(t, `"progress":2`)
	second.progress(t, `"progress":2`)
	two.finish(t, `"content":[]`)
	second.gets(t, `"content":[]`)
	if !k.h.modern || k.floor {
		return
	}
	// The answer to an input that nobody waits for any more.
	third := k.call(t, "tools/call", `"name":"ask"`, loosely)
	sc := third.heard(t)
	if k.modern {
		sc.finish(t, `"content":[]`)
		third.gets(t, `"content":[]`)
		return
	}
	sc.ask(t, three[0])
	third.asked(t, 1)
	third.cancel(t)
	k.c.find(t, "notifications/cancelled for the question", anywhere, func(m envelope) bool {
		return m.Method == "notifications/cancelled"
	})
}

// eraCannot: what one era says and the other has no words for.
func eraCannot(t *testing.T, k *eraClient) {
	switch {
	case k.modern && !k.h.modern:
		c := k.call(t, "completion/complete", `"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}`)
		sc := c.heard(t)
		sc.ask(t, three[0]) // a call that may not ask
		if back := sc.answers(t)[three[0].key]; back.error == "" && back.result != `{"action":"cancel"}` {
			t.Errorf("a question in completion/complete got the answer %v", back)
		}
		sc.finish(t, `"completion":{"values":[]}`)
		c.gets(t, `"completion":{"values":[]}`)
		sc.id, sc.open = "", nil // outside of any call
		sc.say(t, note("notifications/message", `{"level":"emergency","data":"outside of any call"}`))
		sc.ask(t, three...)
		back := sc.answers(t)
		if back[`"one"`].result != `{"action":"cancel"}` || back[`"two"`].error == "" || back[`"three"`].error == "" {
			t.Errorf("questions outside of any call got the answers %v", back)
		}
	case k.h.modern: // which asks with requests (ST10): it is answered, and its client hears nothing
		c := k.call(t, "tools/call", `"name":"asks"`)
		sc := c.heard(t)
		for method, want := range map[string]answer{
			"ping":                   {result: `{}`},
			"roots/list":             {error: `-32601`},
			"sampling/createMessage": {error: `-32601`},
		} {
			got := sc.refused(t, method)
			if got.result != want.result || !strings.Contains(got.error, want.error) {
				t.Errorf("the server's %s got the answer %v, want %v", method, got, want)
			}
		}
		sc.finish(t, `"content":[]`)
		c.gets(t, `"content":[]`)
	}
}

// eraHeaders: what the headers say and what the body says must agree; the
// status and the error say what is wrong, and the server hears of nothing (MI4
// to MI11, ED1 to ED3).
func eraHeaders(t *testing.T, k *eraClient) {
	w := k.c.wire.(*modernClient)
	meta := func(version string) string {
		return `"_meta":{"` + keyVersion + `":"` + version + `","` + keyCaps + `":{},"` + keyMark + `":"no"}`
	}
	good := `{` + `"name":"t",` + meta(modernRevision) + `}`
	set := func(pairs ...string) func(http.Header) {
		return func(h http.Header) {
			for i := 0; i < len(pairs); i += 2 {
				h[pairs[i]] = []string{pairs[i+1]}
			}
		}
	}
	unset := func(name string) func(http.Header) { return func(h http.Header) { h.Del(name) } }
	for _, c := range []struct {
		what   string
		text   string
		change func(http.Header)
		status int
		code   int
	}{
		{"no version header", request("7", "tools/call", good), unset("Mcp-Protocol-Version"), 400, -32020},
		{"another version header", request("7", "tools/call", good), set("Mcp-Protocol-Version", "2025-11-25"), 400, -32020},
		{"no method header", request("7", "tools/call", good), unset("Mcp-Method"), 400, -32020},
		{"another method header", request("7", "tools/call", good), set("Mcp-Method", "tools/list"), 400, -32020},
		{"the method in capitals", request("7", "tools/call", good), set("Mcp-Method", "TOOLS/CALL"), 400, -32020},
		{"no name header", request("7", "tools/call", good), unset("Mcp-Name"), 400, -32020},
		{"another name", request("7", "tools/call", good), set("Mcp-Name", "u"), 400, -32020},
		{"a name that cannot be decoded", request("7", "tools/call", good), set("Mcp-Name", "=?base64?dA?="), 400, -32020},
		{"a name that is not encoded by these letters", request("7", "tools/call", good), set("Mcp-Name", "=?BASE64?dA==?="), 400, -32020},
		{"no capabilities", request("7", "tools/call", `{"name":"t","_meta":{"`+keyVersion+`":"`+modernRevision+`"}}`), set(), 400, -32602},
		{"no meta, a modern header", request("7", "tools/call", `{"name":"t"}`), set(), 400, -32602},
		{"a version that there is not", request("7", "tools/call", `{"name":"t",`+meta("2099-01-01")+`}`), set("Mcp-Protocol-Version", "2099-01-01"), 400, -32022},
		{"a log level that there is not", request("7", "tools/call", strings.Replace(good, `"_meta":{`, `"_meta":{"`+keyLevel+`":"loud",`, 1)), set(), 0, -32602},
		{"ping", request("7", "ping", good), set(), 404, -32601},
		{"initialize, modern", request("7", "initialize", good), set(), 404, -32601},
		{"initialize, a modern header", request("7", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`), set(), 400, -32020},
		{"a response", response("7", `{}`), set("Mcp-Method", ""), 400, 0},
		{"a batch", `[` + request("7", "tools/call", good) + `]`, set("Mcp-Method", "tools/call", "Mcp-Name", "t"), 400, -32600},
		{"no listen filter", request("7", "subscriptions/listen", `{`+meta(modernRevision)+`}`), set(), 0, -32602},
	} {
		m, _ := open(c.text)
		h := headersOf(m)
		c.change(h)
		status, body := w.refused(t, c.what, c.text, h)
		answer, err := open(body)
		var code struct{ Code int }
		if answer.Error != nil {
			err = json.Unmarshal(answer.Error, &code)
		}
		if c.status != 0 && status != c.status || c.code != 0 && (err != nil || code.Code != c.code) {
			t.Errorf("%s: status %d %s, want %d and %d", c.what, status, clip(body), c.status, c.code)
		}
		if strings.HasPrefix(c.text, "{") && m.isRequest() && string(answer.ID) != "7" { // J4
			t.Errorf("%s: the error has the id %s", c.what, answer.ID)
		}
	}
	// What is odd and no fault: spaces around, small letters, an encoded name, a
	// session, an event id; a notification, and the cancellation of a call that is
	// somebody else's, for ids are nobody's over HTTP (MI2, MI4, MI5, MI6).
	other := k.call(t, "tools/call", `"name":"other"`, withID("8"), loosely)
	served := other.heard(t)
	for _, change := range []func(http.Header){
		set("Mcp-Method", "  tools/call \t"), set("Mcp-Name", "=?base64?dA==?="), set("Mcp-Session-Id", "bogus"), set("Last-Event-Id", "1_1"),
	} {
		mark := `"odd"`
		text := request("8", "tools/call", strings.Replace(good, `"no"`, mark, 1)) // the id of a call in flight: J3
		m, _ := open(text)
		h := headersOf(m)
		change(h)
		done := make(chan string, 1)
		go func() {
			status, body := w.refused(t, "what is odd", text, h)
			done <- fmt.Sprint(status, " ", body)
			k.h.update(func() {})
		}()
		k.h.heardOdd(t, mark, done).finish(t, `"content":[],"odd":1.0`)
		if got := <-done; !strings.HasPrefix(got, "200 ") || !strings.Contains(got, `"odd":1.0`) || !strings.Contains(got, `"id":8`) {
			t.Errorf("a request with what is odd and no fault: %s", clip(got))
		}
	}
	for _, text := range []string{note("notifications/cancelled", `{"requestId":8}`), note("notifications/x", `{}`), note("notifications/initialized", `{}`)} {
		m, _ := open(text)
		if status, body := w.refused(t, text, text, headersOf(m)); status != http.StatusAccepted || body != "" {
			t.Errorf("%s: status %d %s, want 202", text, status, body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
		req, _ := http.NewRequestWithContext(t.Context(), method, w.url, nil)
		req.Header.Set("Mcp-Protocol-Version", modernRevision)
		req.Header.Set("Accept", "text/event-stream")
		resp, err := w.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(resp); err != nil || resp.StatusCode != http.StatusMethodNotAllowed || !slices.Contains(strings.Split(resp.Header.Get("Allow"), ", "), "POST") {
			t.Errorf("%s: status %d, Allow %q, want 405", method, resp.StatusCode, resp.Header.Get("Allow")) // MI1
		}
	}
	select {
	case <-served.gone:
		t.Error("a call was cancelled by somebody else's notification")
	default:
	}
	served.finish(t, `"content":[]`)
	other.gets(t, `"content":[]`)
}

// heardOdd is heard for a call that may be refused instead.
func (h *host) heardOdd(t testing.TB, mark string, refused chan string) *serverCall {
	t.Helper()
	var sc *serverCall
	h.await(t, "the call "+mark, func() bool {
		for i, one := range h.calls {
			if one.mark == mark {
				sc = one
				h.calls = slices.Delete(h.calls, i, i+1)
				return true
			}
		}
		return len(refused) > 0
	})
	if sc == nil {
		t.Fatalf("refused: %s", clip(<-refused))
	}
	return sc
}

// eraParams: arguments that the tool wants in headers too, if that is how its
// server is reached; a tool with an annotation that no client may follow is
// not shown then, and is otherwise (ME3, ME4, WS6). A modern client's own
// headers are compared with its arguments (MI22).
func eraParams(t *testing.T, k *eraClient) {
	c := k.call(t, "tools/list", "")
	sc := c.heard(t)
	sc.finish(t, `"tools":[`+regionTool+`,`+badTool+`]`)
	got := members([]byte(c.raw(t)))
	want := `[` + regionTool + `,` + badTool + `]`
	if k.egress == "http" && k.h.modern {
		want = `[` + regionTool + `]`
	}
	if text := string(got["tools"]); !sameJSON(text, want) {
		t.Errorf("the tools are %s, want %s", text, want)
	}
	k.quick(t, "tools/call", `"name":"region","arguments":{"where":"us-west1","n":42}`, `"content":[]`)
	k.quick(t, "tools/call", `"name":"region","arguments":{"where":" zażółć "}`, `"content":[]`)
	k.quick(t, "tools/call", `"name":"region","arguments":{}`, `"content":[]`)
	if w, ok := k.c.wire.(*modernClient); ok {
		text := request("9", "tools/call", `{"name":"region","arguments":{"where":"a"},"_meta":{"`+keyVersion+`":"`+modernRevision+`","`+keyCaps+`":{}}}`)
		m, _ := open(text)
		for _, wrong := range []string{"", "b", "=?base64?YQ?="} {
			h := headersOf(m)
			h.Set("Mcp-Param-Region", wrong)
			if wrong == "" {
				h.Del("Mcp-Param-Region")
			}
			if status, body := w.refused(t, "Mcp-Param-Region", text, h); status != http.StatusBadRequest || !isError(body, "9", -32020) {
				t.Errorf("with Mcp-Param-Region: %q, status %d %s", wrong, status, clip(body))
			}
		}
	}
	if k.egress != "http" || !k.h.modern || k.modern && k.ingress == "http" {
		return // or the client's own headers would be wrong first
	}
	k.h.update(func() { k.h.shift = true }) // and nobody says so
	defer k.h.update(func() { k.h.shift = false })
	k.quick(t, "tools/call", `"name":"region","arguments":{"where":"eu"}`, `"content":[]`)
}

// eraBoth: one connection carries both eras, each request in its own (ST14,
// WS4); over Streamable HTTP that is one endpoint.
func eraBoth(t *testing.T, w *world) string {
	k := w.open(t)
	old := (&peer{world: w, name: k.name + ", in its youth", c: k.c, bridge: k.bridge, next: 9000}).eraClient()
	if w.ingress == "http" {
		old = w.dialTo(t, false, w.bridge, w.base, grace).eraClient()
	}
	old.begin(t)
	mine := k.call(t, "tools/call", `"name":"new"`, withToken("1"), loosely)
	its := old.call(t, "tools/call", `"name":"old"`, withToken("2"), loosely)
	new1, old1 := mine.heard(t), its.heard(t)
	new1.progress(t, `"progress":1`)
	old1.progress(t, `"progress":1`)
	mine.progress(t, `"progress":1`)
	its.progress(t, `"progress":1`)
	its.asks(t, old1, three[0], answersToThree["elicitation/create"])
	new1.finish(t, `"content":[]`)
	old1.finish(t, `"content":[]`)
	mine.gets(t, `"content":[]`)
	its.gets(t, `"content":[]`)
	k.settle(t)
	old.settle(t)
	if w.ingress == "http" {
		old.leave(t)
	}
	k.leave(t)
	return ""
}

// leave ends a client that has nothing under way.
func (k *eraClient) leave(t testing.TB) {
	t.Helper()
	k.c.wire.hangUp(t)
	switch {
	case k.ingress == "stdio":
		k.c.wire.ended(t, !k.floor)
	case k.ingress == "http":
		k.c.wire.ended(t, false)
	}
}

// stop ends a bridge.
func (k *eraClient) stop(t testing.TB) {
	t.Helper()
	stop(t, k.bridge)
}

// eraHangUp: a client that leaves takes with it what is its own: calls and
// subscriptions. The end of stdin lets calls end first (ST8).
func eraHangUp(t *testing.T, w *world) string {
	k, other := w.open(t), w.open(t)
	uri := `"a:hangup"`
	s := k.listen(t, filter{ToolsListChanged: true, ResourceSubscriptions: []json.RawMessage{json.RawMessage(uri)}})
	w.h.awaitInterest(t, uri, true)
	c := k.call(t, "tools/call", `"name":"slow"`, withToken("1"), loosely)
	sc := c.heard(t)
	if w.ingress != "stdio" {
		k.c.giveUp(c.id)
		if k.modern {
			k.c.giveUp(s.id)
		}
	}
	k.c.wire.hangUp(t)
	if w.ingress == "stdio" && !w.floor {
		sc.progress(t, `"progress":2`)
		c.progress(t, `"progress":2`)
		sc.finish(t, `"content":[]`)
		c.gets(t, `"content":[]`)
		k.c.endsWith(t, func(m envelope) bool { // it may be told of the subscription's end, as it likes
			return string(m.ID) == s.id || m.Method == "notifications/cancelled"
		})
		k.c.wire.ended(t, true)
	} else if w.ingress != "stdio" && w.ingress != "unix" || !w.floor {
		if w.floor {
			sc.cancelled(t)
		} else {
			sc.calledOff(t)
		}
	}
	if w.modernServer || w.egress == "stdio" && !w.modernClient {
		w.h.awaitInterest(t, uri, false)
	}
	other.settle(t)
	other.leave(t)
	return ""
}

// eraRestart: the server crashes in the middle of a call, which ends with an
// error; the next one works, and subscriptions go on: since anything may have
// changed meanwhile, the client is told so (ST9).
func eraRestart(t *testing.T, k *eraClient) {
	uri := `"a:restart"`
	s := k.listen(t, filter{ToolsListChanged: true, ResourceSubscriptions: []json.RawMessage{json.RawMessage(uri)}})
	k.h.awaitInterest(t, uri, true)
	k.awaitListeners(t, k)
	c := k.call(t, "tools/call", `"name":"slow"`, withToken("1"), loosely)
	sc := c.heard(t)
	sc.progress(t, `"progress":1`)
	c.progress(t, `"progress":1`)
	k.h.update(func() { clear(sc.conn.listens); clear(sc.conn.uris) })
	k.v.restart(t)
	c.fails(t, -32603)
	for timeout := time.Now().Add(harness.Patience); ; {
		c = k.call(t, "tools/call", `"name":"again"`, loosely)
		sc = k.answeredOrHeard(t, c)
		if sc != nil {
			break
		}
		if time.Now().After(timeout) {
			t.Fatal("the server is back, but calls are refused")
		}
	}
	sc.finish(t, `"content":[]`)
	c.gets(t, `"content":[]`)
	k.h.awaitInterest(t, uri, true)
	k.awaitListeners(t, k)
	s.forget(t, "tools", uri)
	k.h.emit(t, uri)
	s.hears(t, uri)
	k.h.emit(t, "tools")
	s.hears(t, "tools")
	s.close(t)
	k.forgetChanges()
}

// forgetChanges takes what came of changes and nobody waits for: how often a
// client is told after a restart is the bridge's business.
func (k *eraClient) forgetChanges() {
	k.c.update(func() {
		k.c.inbox = slices.DeleteFunc(k.c.inbox, func(f frame) bool {
			m := f.message
			return strings.HasSuffix(m.Method, "/list_changed") || m.Method == "notifications/resources/updated"
		})
	})
}

// answeredOrHeard waits until a call has reached the server, or was refused (nil).
func (k *eraClient) answeredOrHeard(t testing.TB, c *clientCall) *serverCall {
	t.Helper()
	timeout := time.After(harness.Patience)
	for {
		k.h.mu.Lock()
		at := slices.IndexFunc(k.h.calls, func(sc *serverCall) bool { return sc.mark == c.mark })
		serverChanged := k.h.changed
		k.h.mu.Unlock()
		if at >= 0 {
			return c.heard(t)
		}
		frames, _, clientChanged := k.c.peek()
		for _, f := range frames {
			if m := f.message; m.isResponse() && string(m.ID) == c.id {
				c.fails(t, -32603)
				return nil
			}
		}
		select {
		case <-serverChanged:
		case <-clientChanged:
		case <-timeout:
			t.Fatal("the server is back, but a call has neither reached it nor been refused")
		}
	}
}

// eraTerminate: SIGTERM lets calls in flight end, for a time; then everybody
// is told, subscriptions too, and everything ends in its own way (ST13).
func eraTerminate(t *testing.T, w *world) string {
	k := w.apart(t, shortGrace).eraClient()
	k.begin(t)
	s := k.listen(t, filter{ToolsListChanged: true})
	answered := k.call(t, "tools/call", `"name":"answered"`, loosely)
	owed := k.call(t, "tools/call", `"name":"owed"`, loosely)
	one, two := answered.heard(t), owed.heard(t)
	k.bridge.Cmd.Process.Signal(syscall.SIGTERM)
	one.finish(t, `"content":[],"x":`+tricky)
	answered.gets(t, `"content":[],"x":`+tricky)
	two.calledOff(t)
	owed.fails(t, -32603)
	s.ended(t)
	k.c.wire.ended(t, true)
	if status := k.bridge.Wait(t); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	return ""
}

// eraLeftovers: the bridge stops, and nothing is left of what it had to do
// with the server: no session, no connection, no process, no call.
func eraLeftovers(t *testing.T, w *world) string {
	w.stop(t)
	w.awaitEnds(t)
	w.h.idle(t)
	if wrong := w.v.wrong(); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
	return ""
}
