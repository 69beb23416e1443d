package matrix

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A serverCall is the server's end of one call.
type serverCall struct {
	h            *host
	conn         *hostConn
	id, method   string
	mark         string // by which the script knows it
	text         string // its params, as spelled
	params, meta map[string]json.RawMessage
	token        string        // as spelled, "" for none
	gone         chan struct{} // closed when it is cancelled, or its connection has ended
	told         bool          // it was cancelled in so many words; under host.mu, until gone is closed
	open         map[string]chan answer
	state        string // modern: what was given with the last questions
	keys         []string
}

// heard waits for the server to get a call, with a mark that the client has
// put into it.
func (h *host) heard(t testing.TB, mark string) *serverCall {
	t.Helper()
	var sc *serverCall
	h.await(t, "the call "+mark, func() bool {
		for i, one := range h.calls {
			if one.mark == mark {
				sc = one
				h.calls = append(h.calls[:i:i], h.calls[i+1:]...)
				return true
			}
		}
		return false
	})
	return sc
}

func (sc *serverCall) say(t testing.TB, text string) {
	t.Helper()
	sc.conn.s.say(t, sc.id, text)
}

// end takes the call out of the books before its answer is sent.
func (sc *serverCall) end() {
	sc.h.update(func() { delete(sc.conn.live, sc.id) })
}

// finish answers with a result of these members, and what the era adds.
func (sc *serverCall) finish(t testing.TB, members string) {
	t.Helper()
	sc.end()
	sc.say(t, response(sc.id, `{`+sc.h.decorated(sc.method, members)+`}`))
}

// fail answers with an error.
func (sc *serverCall) fail(t testing.TB, body string) {
	t.Helper()
	sc.end()
	sc.say(t, failure(sc.id, body))
}

// late answers a call that is over, to nobody.
func (sc *serverCall) late() {
	_ = sc.conn.s.wire.send(sc.id, response(sc.id, `{`+sc.h.decorated(sc.method, `"late":true`)+`}`))
}

// progress says how far the call is; members are what there is beside the token.
func (sc *serverCall) progress(t testing.TB, members string) {
	t.Helper()
	sc.say(t, note("notifications/progress", `{"progressToken":`+sc.token+`,`+members+`}`))
}

// log says something in the course of the call.
func (sc *serverCall) log(t testing.TB, level, data string) {
	t.Helper()
	sc.say(t, note("notifications/message", fmt.Sprintf(`{"level":%q,"logger":"l","data":%s}`, level, data)))
}

// cancelled waits until the server knows that nobody waits for the answer.
func (sc *serverCall) cancelled(t testing.TB) {
	t.Helper()
	select {
	case <-sc.gone:
	case <-time.After(harness.Patience):
		t.Fatalf("the server does not hear that %s %s is cancelled", sc.method, sc.mark)
	}
}

// calledOff is cancelled for who is told so, and does not only lose a
// connection: over Streamable HTTP 2026-07-28 has no other way (ME5).
func (sc *serverCall) calledOff(t testing.TB) {
	t.Helper()
	sc.cancelled(t)
	if _, post := sc.conn.s.wire.(*postWire); !post && !sc.told {
		t.Errorf("the server was not told that %s %s is cancelled: its connection has ended", sc.method, sc.mark)
	}
}

// A question is what a server asks in the course of a call.
type question struct {
	key    string // the script's, as the server spells it; the id or key that it came with, at the client
	method string
	params string
}

// ask asks all at once.
func (sc *serverCall) ask(t testing.TB, questions ...question) {
	t.Helper()
	sc.keys = nil
	for _, q := range questions {
		sc.keys = append(sc.keys, q.key)
	}
	if sc.h.modern {
		text := ""
		for i, q := range questions {
			if i > 0 {
				text += ", "
			}
			text += fmt.Sprintf(`%s:{"method":%q,"params":%s}`, q.key, q.method, q.params)
		}
		sc.h.mu.Lock()
		sc.h.next++
		sc.state = fmt.Sprintf(`"state \u00e9\/é %d"`, sc.h.next)
		sc.h.mu.Unlock()
		sc.end()
		sc.say(t, response(sc.id, `{"resultType":"input_required","inputRequests":{`+text+`},"requestState":`+sc.state+`}`))
		return
	}
	if sc.open == nil {
		sc.open = map[string]chan answer{}
	}
	for _, q := range questions {
		sc.open[q.key] = sc.request(t, q)
	}
}

// request asks by a request, as servers before 2026-07-28 do.
func (sc *serverCall) request(t testing.TB, q question) chan answer {
	t.Helper()
	to := make(chan answer, 1)
	var id string
	sc.h.update(func() {
		sc.h.next++
		id = fmt.Sprintf(`"q\/%d"`, sc.h.next)
		sc.conn.asked[id] = to
	})
	sc.say(t, request(id, q.method, q.params))
	return to
}

// refused asks by a request in the course of a call of 2026-07-28, and returns
// what it hears.
func (sc *serverCall) refused(t testing.TB, method string) answer {
	t.Helper()
	select {
	case a := <-sc.request(t, question{method: method, params: `{}`}):
		return a
	case <-time.After(harness.Patience):
		t.Fatalf("the server's request %s in %s got no answer; %v", method, sc.mark, sc.h.v.wrong())
	}
	return answer{}
}

// answers waits for the answers to all that was asked last, by key.
func (sc *serverCall) answers(t testing.TB) map[string]answer {
	t.Helper()
	out := map[string]answer{}
	if sc.h.modern {
		sc.retried(t)
		for key, result := range members(sc.params["inputResponses"]) {
			out[fmt.Sprintf("%q", key)] = answer{result: string(result)}
		}
		return out
	}
	for _, key := range sc.keys {
		select {
		case a := <-sc.open[key]:
			out[key] = a
		case <-time.After(harness.Patience):
			t.Fatalf("the server's question %s in %s got no answer; %v", key, sc.mark, sc.h.v.wrong())
		}
	}
	return out
}

// retried waits for the client to come back with what it was asked for, as a
// request of its own that is otherwise the same.
func (sc *serverCall) retried(t testing.TB) {
	t.Helper()
	next := sc.h.heard(t, sc.mark)
	if next.id == sc.id && next.conn == sc.conn {
		t.Errorf("the retry has the id of the call, %s", sc.id)
	}
	if got := string(next.params["requestState"]); got != sc.state {
		t.Errorf("the retry comes with the state %s, want %s", got, sc.state)
	}
	for key, was := range sc.params {
		if key != "_meta" && key != "requestState" && key != "inputResponses" && string(next.params[key]) != string(was) {
			t.Errorf("the retry has %q: %s, the call had %s", key, next.params[key], was)
		}
	}
	*sc = *next
}
