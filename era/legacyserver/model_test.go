package legacyserver

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// TestParkedCallsModel runs clients and a server that do what they like, in any
// order, and checks what must hold for parked calls whatever they do (C.4):
//
//   - each question of the server is answered exactly once, or not at all if it
//     was taken back; and with the client's own answer, if that was taken;
//   - each request of a client is answered exactly once, or not at all if it was
//     cancelled;
//   - a call's result reaches the call, and a state works once;
//   - no record outlives its deadline, and there are never more than may be.
func TestParkedCallsModel(t *testing.T) {
	for seed := range uint64(400) {
		w := newWorld(t, seed)
		for range 150 {
			w.step()
		}
		w.finish()
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(w.history, "\n"))
		}
	}
}

// world is a server and its clients.
type world struct {
	t       *testing.T
	rand    *rand.Rand
	f       *Filter
	now     time.Time
	history []string

	nextRequest int
	requests    map[string]*worldRequest // by id; answered ones stay
	atServer    map[string]string        // by the server's id of a call in progress: its name
	reached     map[string]bool          // the names of the calls that the server has got
	questions   map[string]*worldQuestion
	states      []*worldState
	retrying    *worldRequest // the retry that the filter has before it
	ended       bool
}

type worldRequest struct {
	name      string // of the call, in the tool's name
	answers   int
	cancelled bool
	refused   bool        // answered -32602
	state     *worldState // what it is a retry with
}

type worldQuestion struct {
	answers   int
	withdrawn bool
}

type worldState struct {
	text     string
	name     string
	keys     map[string]string // key -> question
	deadline time.Time
	used     bool
}

const worldTimeout = 2 * time.Minute

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1700000000, 0),
		requests: map[string]*worldRequest{}, atServer: map[string]string{}, reached: map[string]bool{}, questions: map[string]*worldQuestion{},
	}
	w.f = New(Options{
		Capabilities: []byte(`{"elicitation":{}}`), Sealer: testSealer(t), ParkTimeout: worldTimeout, MaxParked: 5,
		Unit: "u", ServerRun: "i", Principal: "p",
	})
	var out era.Out
	w.f.Start(w.now, &out)
	w.server(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`)
	return w
}

func (w *world) fail(format string, args ...any) { w.t.Errorf(format, args...) }

func (w *world) client(text string) {
	w.history = append(w.history, "c-> "+text)
	var out era.Out
	w.f.FromClient(w.now, eratest.Parse(w.t, text), &out)
	w.take(&out)
}

func (w *world) server(text string) {
	w.history = append(w.history, "s-> "+text)
	var out era.Out
	w.f.FromServer(w.now, eratest.Parse(w.t, text), &out)
	w.take(&out)
}

// take checks what the filter sends.
func (w *world) take(out *era.Out) {
	for _, m := range out.ToServer {
		w.history = append(w.history, "->s "+string(m.Bytes()))
		w.toServer(m)
	}
	for _, m := range out.ToClient {
		w.history = append(w.history, "->c "+string(m.Bytes()))
		w.toClient(m)
	}
	for _, m := range out.Unsent {
		w.history = append(w.history, "unsent "+string(m.Bytes()))
		w.unsent(m)
	}
	if r := w.retrying; r != nil && !r.refused {
		r.state.used = true // it has claimed its call
	}
	if n := w.f.Parked(); n > 5 {
		w.fail("%d calls are parked", n)
	}
	w.records()
}

// records checks that exactly those calls are kept whose state may still come back.
func (w *world) records() {
	if w.ended {
		return
	}
	alive := 0
	for _, s := range w.states {
		if !s.used && w.now.Before(s.deadline) {
			alive++
		}
	}
	if got := w.f.Parked(); got != alive {
		w.fail("%d records, %d states that may come back", got, alive)
	}
}

func (w *world) toServer(m jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Request:
		name, _ := jsonrpc.Text(m.Lookup("params", "name"))
		if m.Method() != "tools/call" || name == "" {
			w.fail("the server was asked %s", m.Bytes())
		}
		w.reached[name] = true
		if _, again := w.atServer[m.ID().String()]; again {
			w.fail("id %v twice", m.ID())
		}
		w.atServer[m.ID().String()] = name
	case jsonrpc.Notification:
		if m.Method() == "notifications/cancelled" {
			if _, ok := w.atServer[m.CancelledID().String()]; !ok {
				w.fail("cancelled what is not in progress: %s", m.Bytes())
			}
			delete(w.atServer, m.CancelledID().String())
		}
	case jsonrpc.Response:
		id, _ := jsonrpc.Text([]byte(m.ID().String()))
		q := w.questions[id]
		if q == nil {
			w.fail("an answer to no question: %s", m.Bytes())
			return
		}
		q.answers++
		action, _ := jsonrpc.Text(m.Lookup("result", "action"))
		told, _ := jsonrpc.Text(m.Lookup("result", "content", "q"))
		switch {
		case q.answers > 1 || q.withdrawn:
			w.fail("question %s: answered %d times, withdrawn: %t", id, q.answers, q.withdrawn)
		case action == "accept" && told != id:
			w.fail("question %s got the answer to %s", id, told)
		}
	}
}

// unsent takes a request that the server cannot have got before it has ended.
func (w *world) unsent(m jsonrpc.Message) {
	r := w.requests[m.ID().String()]
	if r == nil || r.cancelled || w.reached[r.name] {
		w.fail("unsent: %s", m.Bytes())
		return
	}
	if r.answers++; r.answers > 1 {
		w.fail("request %v is answered, and unsent", m.ID())
	}
}

func (w *world) toClient(m jsonrpc.Message) {
	r := w.requests[m.ID().String()]
	if m.Kind() != jsonrpc.Response || r == nil {
		w.fail("a client was sent %s", m.Bytes())
		return
	}
	if m.Related() != m.ID() {
		w.fail("a response in the course of %v: %s", m.Related(), m.Bytes())
	}
	r.answers++
	if r.answers > 1 || r.cancelled {
		w.fail("request %v: answered %d times, cancelled: %t", m.ID(), r.answers, r.cancelled)
	}
	kind, _ := jsonrpc.Text(m.Lookup("result", "resultType"))
	switch kind {
	case "complete":
		if name, _ := jsonrpc.Text(m.Lookup("result", "name")); name != r.name {
			w.fail("call %s got the result of %s", r.name, name)
		}
	case "input_required":
		s := &worldState{name: r.name, keys: map[string]string{}, deadline: w.now.Add(worldTimeout)}
		s.text, _ = era.RequestStateOf(eratest.Parse(w.t, `{"jsonrpc":"2.0","id":1,"method":"x","params":`+string(m.Result())+`}`))
		for e := range jsonrpc.Members(m.Lookup("result", "inputRequests")) {
			q, _ := jsonrpc.Text(shape.Member(shape.Member(e.Value, "params"), "message"))
			s.keys[e.Key] = q
		}
		if s.text == "" || len(s.keys) == 0 {
			w.fail("asks for nothing: %s", m.Bytes())
		}
		w.states = append(w.states, s)
	}
	r.refused = shape.ErrorCode(m) == jsonrpc.CodeInvalidParams
}

// step does something.
func (w *world) step() {
	switch w.rand.IntN(10) {
	case 0, 1:
		w.call(&worldRequest{name: "n" + strconv.Itoa(w.nextRequest)}, "")
	case 2, 3, 4:
		w.askSomething()
	case 5:
		if id := w.pick(w.atServer); id != "" {
			name := w.atServer[id]
			delete(w.atServer, id)
			w.server(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"name":%q}}`, id, name))
		}
	case 6:
		w.retry()
	case 7:
		if id := w.pick(w.requests); id != "" && w.rand.IntN(3) == 0 {
			if r := w.requests[id]; r.answers == 0 {
				r.cancelled = true
			}
			w.client(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		}
	case 8:
		if q := w.pick(w.questions); q != "" && w.rand.IntN(3) == 0 {
			if w.questions[q].answers == 0 {
				w.questions[q].withdrawn = true
			}
			w.server(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + q + `"}}`)
		}
	case 9:
		w.pass([]time.Duration{10 * time.Millisecond, 50 * time.Millisecond, time.Second, time.Minute}[w.rand.IntN(4)])
	}
}

func (w *world) call(r *worldRequest, more string) {
	w.nextRequest++
	id := strconv.Itoa(w.nextRequest)
	w.requests[id] = r
	w.client(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}%s}}`, id, r.name, more))
}

func (w *world) askSomething() {
	id := "q" + strconv.Itoa(len(w.questions))
	w.questions[id] = &worldQuestion{}
	text := `{"jsonrpc":"2.0","id":"` + id + `","method":"elicitation/create","params":{"message":"` + id + `"}}`
	w.history = append(w.history, "s-> "+text)
	m := eratest.Parse(w.t, text)
	if call := w.pick(w.atServer); call != "" && w.rand.IntN(2) == 0 {
		n, _ := strconv.ParseInt(call, 10, 64)
		m = m.WithRelated(jsonrpc.IntID(n))
	}
	var out era.Out
	w.f.FromServer(w.now, m, &out)
	w.take(&out)
}

// retry comes back with a state, a good one or not, and some of the answers.
func (w *world) retry() {
	if len(w.states) == 0 {
		return
	}
	s := w.states[w.rand.IntN(len(w.states))]
	text, answers := s.text, []string{`"x":1`}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		switch w.rand.IntN(8) {
		case 0:
		case 1:
			answers = append(answers, `"`+key+`":{"action":"?"}`)
		default:
			answers = append(answers, `"`+key+`":{"action":"accept","content":{"q":"`+s.keys[key]+`"}}`)
		}
	}
	bad := s.used || !w.now.Before(s.deadline)
	if w.rand.IntN(10) == 0 {
		text, bad = "A"+text, true
	}
	r := &worldRequest{name: s.name, state: s}
	if !bad {
		w.retrying = r
	}
	w.call(r, fmt.Sprintf(`,"inputResponses":{%s},"requestState":%q`, strings.Join(answers, ","), text))
	w.retrying = nil
	if bad && !r.refused {
		w.fail("a state that was used, has expired, or was changed is taken")
	}
}

func (w *world) pass(d time.Duration) {
	w.history = append(w.history, "+"+d.String())
	end := w.now.Add(d)
	for due := w.f.Due(); !due.IsZero() && !due.After(end); due = w.f.Due() {
		w.now = due
		var out era.Out
		w.f.Tick(w.now, &out)
		w.take(&out)
	}
	w.now = end
	w.records()
}

// finish lets the server do its work and everything expire, or ends the server.
func (w *world) finish() {
	if w.rand.IntN(3) == 0 {
		w.ended = true
		var out era.Out
		w.f.ServerEnded(w.now, nil, nil, &out)
		w.take(&out)
	} else {
		w.pass(time.Second)
		for len(w.atServer) > 0 || !w.f.turns.IsIdle() {
			for _, id := range slices.Sorted(maps.Keys(w.atServer)) {
				name := w.atServer[id]
				delete(w.atServer, id)
				w.server(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"name":%q}}`, id, name))
			}
			w.pass(30 * time.Second) // others may have waited for these
		}
		w.pass(time.Hour)
		for id, q := range w.questions {
			if q.answers == 0 && !q.withdrawn {
				w.fail("question %s was never answered", id)
			}
		}
		if n := len(w.f.calls.byClientID) + len(w.f.calls.byServerID) + len(w.f.calls.byToken) + len(w.f.parking.openRequests) + len(w.f.ownRequests.handlers) + w.f.parking.collectingCalls; n > 0 || !w.f.Due().IsZero() {
			w.fail("%d things are kept when all is over", n)
		}
	}
	if w.f.Parked() != 0 {
		w.fail("%d records when all is over", w.f.Parked())
	}
	for id, r := range w.requests {
		if r.answers == 0 && !r.cancelled {
			w.fail("request %s was never answered", id)
		}
	}
}

// pick returns a key at random, "" if there is none.
func (w *world) pick(from any) string {
	var keys []string
	switch m := from.(type) {
	case map[string]string:
		keys = slices.Sorted(maps.Keys(m))
	case map[string]*worldRequest:
		keys = slices.Sorted(maps.Keys(m))
	case map[string]*worldQuestion:
		keys = slices.Sorted(maps.Keys(m))
	}
	if len(keys) == 0 {
		return ""
	}
	return keys[w.rand.IntN(len(keys))]
}
