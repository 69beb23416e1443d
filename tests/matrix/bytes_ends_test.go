package matrix

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// stepTwoClients: two clients at once, who use the same ids and tokens for
// everything, each hear and say only what is theirs.
func stepTwoClients(t *testing.T, w *world) string {
	a, b := w.openBytes(t, "2024-11-05"), w.openBytes(t, "2025-06-18")
	both := []*bytesSession{a, b}
	mark := func(k *bytesSession, n string) string { return fmt.Sprintf(`{"of":%q,"n":%q}`, k.name, n) }
	call := func(k *bytesSession) string {
		return request("1", "tools/call", `{"_meta":{"progressToken":1},"of":"`+k.name+`"}`)
	}
	a.next, b.next = 1000, 1000
	for _, k := range both {
		k.c.say(t, call(k))
	}
	for _, k := range both {
		k.s.hear(t, "", call(k))
	}
	each := func(on string, text func(k *bytesSession) string) { // said by both before one is heard
		t.Helper()
		for _, k := range both {
			k.s.say(t, on, text(k))
		}
		for _, k := range both {
			k.c.hear(t, k.on(on), text(k))
		}
	}
	each("1", func(k *bytesSession) string {
		return note("notifications/progress", `{"progressToken":1,"progress":1,"message":"`+k.name+`"}`)
	})
	each("1", func(k *bytesSession) string { return note("notifications/message", mark(k, "log")) })
	each("1", func(k *bytesSession) string { return request("1", "sampling/createMessage", mark(k, "ask")) })
	for _, k := range both {
		k.c.say(t, response("1", mark(k, "answer")))
	}
	for _, k := range both {
		k.s.hear(t, "", response("1", mark(k, "answer")))
	}
	// What one of them cancels, and what is said to one of them, is nothing to the other.
	cancel := note("notifications/cancelled", `{"requestId":1,"reason":"a"}`)
	a.c.giveUp("1")
	a.up(t, cancel)
	if !w.floor {
		_ = a.s.wire.send("1", response("1", mark(a, "late")))
	}
	b.down(t, "1", note("notifications/progress", `{"progressToken":1,"progress":2}`))
	b.down(t, "1", response("1", mark(b, "result")))
	each("", func(k *bytesSession) string { return note("notifications/resources/updated", mark(k, "updated")) })
	a.down(t, "", note("notifications/tools/list_changed", mark(a, "changed")))
	for _, k := range both {
		id := k.id()
		k.call(t, id, request(id, "resources/subscribe", mark(k, "subscribe")), response(id, mark(k, "subscribed")))
	}
	for _, k := range both {
		k.settle(t)
	}
	a.c.wire.hangUp(t)
	a.closed(t, a.s)
	b.settle(t)
	b.c.wire.hangUp(t)
	b.closed(t, b.s)
	return ""
}

// stepBatch: what a client of 2025-03-26 batches reaches the server one by
// one, in order, and each request is answered; a server's batch is taken apart
// too; and nobody else may send any (J7, C.6).
func stepBatch(t *testing.T, w *world) string {
	k := w.openBytes(t, "2025-03-26")
	first, second, third := k.id(), k.id(), k.id()
	x, y := note("notifications/x", `{"n":1.0}`), note("notifications/y", tricky)
	one, two := request(first, "tools/call", `{"n":1}`), request(second, "tools/list", tricky)
	k.c.say(t, `[`+one+`, `+x+` ,`+two+`,`+y+`]`)
	for _, text := range []string{one, x, two, y} {
		on := ""
		if w.egress == "http" || w.egress == "sse" {
			on = anywhere // what follows a request may overtake it: each is a POST of its own, and waits a moment only
		}
		k.s.hear(t, on, text)
	}
	k.s.say(t, second, response(second, tricky))
	k.s.say(t, first, failure(first, `{"code":-32602,"message":"no","data":1.0}`))
	k.c.hear(t, anywhere, response(second, tricky))
	k.c.hear(t, anywhere, failure(first, `{"code":-32602,"message":"no","data":1.0}`))
	k.c.say(t, `[`+x+`,`+y+`]`)
	k.s.hear(t, "", x)
	k.s.hear(t, "", y)
	k.c.wire.reject(t, `[]`, -32600)
	k.c.wire.reject(t, `[`+strings.Replace(k.init, `"init-\u00e9"`, `"again"`, 1)+`]`, -32600, `"again"`)
	k.settle(t)

	// The server's: with the answer to a call, what belongs to it, and a
	// question that is open.
	k.up(t, request(third, "tools/call", `{}`))
	ask := request(`"b"`, "roots/list", `{}`)
	k.s.say(t, third, `[`+x+` , `+y+`,`+ask+`,`+response(third, tricky)+`]`)
	for _, text := range []string{x, y, ask, response(third, tricky)} {
		k.c.hear(t, k.on(third), text)
	}
	k.c.say(t, `[`+response(`"b"`, `{"roots":[]}`)+`]`)
	k.s.hear(t, "", response(`"b"`, `{"roots":[]}`))
	k.s.say(t, "", `[`+x+`,`+y+`]`)
	k.c.hear(t, "", x)
	k.c.hear(t, "", y)
	k.settle(t)
	k.c.wire.hangUp(t)
	k.closed(t, k.s)

	for _, other := range []string{"2024-11-05", "2025-06-18", "2025-11-25"} {
		k := w.openBytes(t, other)
		k.c.wire.reject(t, `[`+x+`,`+request(first, "tools/call", `{}`)+`]`, -32600)
		k.settle(t)
		k.c.wire.hangUp(t)
		k.closed(t, k.s)
	}
	return ""
}

// stepHangUp: the end of the client's session is the end of the server's, each
// in its own way.
func stepHangUp(t *testing.T, w *world) string {
	k := w.openBytes(t, revision)
	k.settle(t)
	k.c.wire.hangUp(t)
	k.closed(t, k.s)
	k.c.wire.ended(t, w.ingress == "stdio")
	return ""
}

// stepHangUpInCall: the end of stdin lets the call end first (ST8); DELETE,
// the end of the event stream and of the WebSocket cancel it (LI23, SS5, WS4).
// Over Streamable HTTP a lost connection is no end at all (LI16).
func stepHangUpInCall(t *testing.T, w *world) string {
	k := w.openBytes(t, revision)
	id := k.id()
	k.up(t, request(id, "tools/call", `{"_meta":{"progressToken":"p"}}`))
	progress := func(n int) string {
		return note("notifications/progress", fmt.Sprintf(`{"progressToken":"p","progress":%d}`, n))
	}
	k.down(t, id, progress(1))
	switch wire := k.c.wire.(type) {
	case *lineClient:
		wire.hangUp(t)
		k.down(t, id, progress(2))
		k.down(t, id, response(id, `{}`))
		wire.ended(t, true)
		k.closed(t, k.s)
		return ""
	case *httpClient:
		wire.resume(t, id)
		k.down(t, id, progress(2))
		k.down(t, id, response(id, tricky))
		k.settle(t)
		id = k.id()
		k.up(t, request(id, "tools/call", `{}`))
	}
	k.c.giveUp(id)
	k.c.wire.hangUp(t)
	k.cancelled(t, id)
	k.closed(t, k.s)
	return ""
}

// cancelled wants the server to hear that a call is cancelled, in whatever words.
func (k *bytesSession) cancelled(t testing.TB, id string) {
	t.Helper()
	k.s.take(t, "notifications/cancelled for "+id, "", func(text string) bool {
		m, _ := open(text)
		var p struct{ RequestID json.RawMessage }
		return m.Method == "notifications/cancelled" && json.Unmarshal(m.Params, &p) == nil && string(p.RequestID) == id
	})
}

// stepVanish: a client that is suddenly not there any more takes its session
// at the server with it. Over Streamable HTTP that takes half an hour
// (LI30), so there it only goes on.
func stepVanish(t *testing.T, w *world) string {
	k := w.openBytes(t, revision)
	id := k.id()
	k.up(t, request(id, "tools/call", `{}`))
	switch wire := k.c.wire.(type) {
	case *lineClient: // the bridge is killed, and can say nothing
		k.s.update(func() { k.s.pardon = true })
		wire.p.Cmd.Process.Kill()
		if w.egress == "http" {
			wire.p.Wait(t)
			return ""
		}
		k.s.waitOver(t)
		return "" // its process ends because this test's server does
	case *httpClient:
		wire.vanish()
		k.s.say(t, id, response(id, `{}`)) // to nobody, and nobody minds
		defer func() {
			wire.delete(t)
			k.closed(t, k.s)
		}()
	default:
		began := time.Now()
		wire.cut()
		k.cancelled(t, id)
		k.closed(t, k.s)
		if took := time.Since(began); took >= grace {
			t.Errorf("the call was cancelled and the session ended after %v: nobody was there to wait for", took)
		}
	}
	n := w.openBytes(t, revision)
	n.settle(t)
	n.c.wire.hangUp(t)
	n.closed(t, n.s)
	k.s.silent(t)
	return ""
}

// stepLeftovers: the bridge stops, and nothing is left of what it had to do
// with the server: no session, no connection, no process.
func stepLeftovers(t *testing.T, w *world) string {
	w.stop(t)
	if w.ingress != "stdio" || w.egress != "http" { // the session of a bridge that was killed can only be told by its server
		w.awaitEnds(t)
	}
	if wrong := w.v.wrong(); len(wrong) > 0 {
		t.Error(strings.Join(wrong, "\n"))
	}
	return ""
}

// stepRestart: the server crashes, in mid-call and while nothing happens, and
// comes back. The call gets an error. Then the session goes on in a new one of
// the server's, which learns of log level and subscriptions (LE5, SS7): where
// the server is a remote one that can be initialized anew, and the client's
// session is more than a connection. Else it ends in its transport's way (C.6).
// A new client is served in any case.
func stepRestart(t *testing.T, w *world) string {
	if w.bytes != nil { // it would end with the server
		w.bytes.c.wire.hangUp(t)
		w.bytes.closed(t, w.bytes.s)
		w.bytes = nil
	}
	how := ""
	for _, idle := range []bool{false, true} {
		how = restartIn(t, w, idle)
		want := "ends"
		if (w.ingress == "stdio" || w.ingress == "http") && w.egress != "stdio" && w.egress != "unix" {
			want = "renews"
		}
		if how != want {
			t.Errorf("after the restart (idle %t) the session %s; want: %s", idle, how, want)
		}
	}
	n := w.openBytes(t, revision)
	n.settle(t)
	n.c.wire.hangUp(t)
	n.closed(t, n.s)
	return how
}

// restartIn restarts the server in a session, idle or in mid-call.
func restartIn(t *testing.T, w *world, idle bool) string {
	t.Helper()
	k := w.openBytes(t, revision)
	level := request(k.id(), "logging/setLevel", `{"level":"info"}`)
	k.call(t, fmt.Sprint(k.next), level, response(fmt.Sprint(k.next), `{}`))
	subscribe := request(k.id(), "resources/subscribe", `{"uri":"a:\/b"}`)
	k.call(t, fmt.Sprint(k.next), subscribe, response(fmt.Sprint(k.next), `{}`))
	if idle {
		w.v.restart(t)
		return k.after(t)
	}
	call := k.id()
	k.up(t, request(call, "tools/call", `{"_meta":{"progressToken":1}}`))
	k.down(t, call, note("notifications/progress", `{"progressToken":1,"progress":1}`))
	w.v.restart(t)
	k.c.hearError(t, k.on(call), call, -32603)
	return k.after(t)
}

// after finds out what has become of a session whose server has restarted.
func (k *bytesSession) after(t *testing.T) string {
	t.Helper()
	timeout := time.After(harness.Patience)
	for {
		_, over, clientChanged := k.c.peek()
		next, serverChanged := k.v.pending(k.name)
		switch {
		case next != nil:
			k.renewed(t, next)
			return "renews"
		case over != "":
			k.c.wire.ended(t, false)
			return "ends"
		}
		select {
		case <-clientChanged:
		case <-serverChanged:
		case <-timeout:
			t.Fatal("the server is back, but the session is neither renewed nor ended")
		}
	}
}

// renewed plays the server's part in the renewal of a session: the bridge says
// what the client has said, and the client notices nothing.
func (k *bytesSession) renewed(t *testing.T, next *session) {
	t.Helper()
	old := k.s
	k.s = next
	first := next.take(t, "initialize", "", func(text string) bool { m, _ := open(text); return m.Method == "initialize" })
	m, _ := open(first.text)
	was, _ := open(k.init)
	if string(m.Params) != string(was.Params) {
		t.Errorf("the bridge initializes with\n%s, the client did with\n%s", m.Params, was.Params)
	}
	next.say(t, "", strings.Replace(k.result, `"init-\u00e9"`, string(m.ID), 1))
	next.hear(t, "", note("notifications/initialized", `{}`))
	for range 2 {
		f := next.take(t, "log level and subscription", anywhere, func(text string) bool {
			m, _ := open(text)
			return m.Method == "logging/setLevel" && string(m.Params) == `{"level":"info"}` ||
				m.Method == "resources/subscribe" && string(m.Params) == `{"uri":"a:\/b"}`
		})
		m, _ := open(f.text)
		next.say(t, string(m.ID), response(string(m.ID), `{}`))
	}
	k.back(t)
	k.settle(t)
	k.c.wire.hangUp(t)
	k.closed(t, k.s)
	old.silent(t)
}

// back calls until the bridge has seen that the server is back: until then it
// may refuse calls, but leaves none without an answer.
func (k *bytesSession) back(t *testing.T) {
	t.Helper()
	timeout := time.After(harness.Patience)
	for {
		id := k.id()
		text := request(id, "tools/call", `{}`)
		k.c.say(t, text)
		for refused := false; !refused; {
			up, _, serverChanged := k.s.peek()
			down, _, clientChanged := k.c.peek()
			switch {
			case len(up) > 0:
				k.s.hear(t, "", text)
				k.down(t, id, response(id, `{}`))
				return
			case len(down) > 0:
				k.c.hearError(t, k.on(id), id, -32603)
				refused = true
				continue
			}
			select {
			case <-serverChanged:
			case <-clientChanged:
			case <-timeout:
				t.Fatal("the server is back, but a call has neither reached it nor been refused")
			}
		}
	}
}

// stepTerminate: SIGTERM lets calls in flight end, for a time; then everybody
// is told, and everything ends in its own way.
func stepTerminate(t *testing.T, w *world) string {
	k := &bytesSession{peer: w.apart(t, shortGrace)}
	k.initialize(t, revision)
	answered, owed := k.id(), k.id()
	for _, id := range []string{answered, owed} {
		k.up(t, request(id, "tools/call", `{}`))
	}
	k.bridge.Cmd.Process.Signal(syscall.SIGTERM)
	k.down(t, answered, response(answered, tricky))
	k.cancelled(t, owed)
	k.c.hearError(t, k.on(owed), owed, -32603)
	k.c.wire.ended(t, true)
	k.closed(t, k.s)
	if status := k.bridge.Wait(t); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	return ""
}
