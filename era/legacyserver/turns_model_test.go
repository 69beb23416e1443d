package legacyserver

import (
	"fmt"
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

// TestTurnsModel runs many calls at a time of tools that ask nothing, once or
// several times, one after another or all at once, at a server that does its work
// in any order. Some calls are cancelled, and some clients never come back; then
// the server may ask on before it knows. Each question must reach the client in
// the course of whose call it was asked, or nobody if that has gone, and every call
// comes to its end (B.1.8, D.2).
func TestTurnsModel(t *testing.T) {
	for seed := range uint64(100) {
		w := newTurnsWorld(t, seed)
		w.learn()
		for range 300 {
			w.step()
		}
		w.finish()
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(w.history, "\n"))
		}
	}
}

type turnsWorld struct {
	t       *testing.T
	rand    *rand.Rand
	f       *Filter
	now     time.Time
	history []string
	ids     int
	learnt  bool // how tools ask
	calls   []*turnsCall
}

const turnsParkTimeout = 20 * time.Second

// turnsCall is a call as the server and its client see it.
type turnsCall struct {
	name      string // what no other call has
	tool      int    // how often it asks
	eager     bool   // it asks all its questions at once
	request   string // id of the client's request that is open; "": none
	state     string // of the client's next request; "": none
	questions map[string]string
	shown     map[string]bool // questions that the client has seen

	atServer string          // id; "": it is not there
	since    time.Time       // when the server could go on with it
	waits    map[string]bool // for the answers to these questions
	asked    int
	gone     bool // the client has no interest any more
	last     bool // the server does not know that, and asks once more
	over     bool
}

func newTurnsWorld(t *testing.T, seed uint64) *turnsWorld {
	w := &turnsWorld{t: t, rand: rand.New(rand.NewPCG(seed, 2)), now: time.Unix(1700000000, 0)}
	w.f = New(Options{
		Capabilities: []byte(`{"elicitation":{}}`), Sealer: testSealer(t), Unit: "u", ServerRun: "i", ParkTimeout: turnsParkTimeout,
	})
	var out era.Out
	w.f.Start(w.now, &out)
	w.server(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`)
	return w
}

func (w *turnsWorld) client(text string) {
	w.history = append(w.history, w.now.Format("05.000 ")+"c-> "+text)
	var out era.Out
	w.f.FromClient(w.now, eratest.Parse(w.t, text), &out)
	w.take(&out)
}

func (w *turnsWorld) server(text string) {
	w.history = append(w.history, w.now.Format("05.000 ")+"s-> "+text)
	var out era.Out
	w.f.FromServer(w.now, eratest.Parse(w.t, text), &out)
	w.take(&out)
}

func (w *turnsWorld) find(is func(c *turnsCall) bool) *turnsCall {
	if i := slices.IndexFunc(w.calls, is); i >= 0 {
		return w.calls[i]
	}
	return nil
}

func (w *turnsWorld) take(out *era.Out) {
	for _, m := range out.ToServer {
		w.history = append(w.history, w.now.Format("05.000 ")+"->s "+string(m.Bytes()))
		w.toServer(m)
	}
	for _, m := range out.ToClient {
		w.history = append(w.history, w.now.Format("05.000 ")+"->c "+string(m.Bytes()))
		w.toClient(m)
	}
}

func (w *turnsWorld) toServer(m jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Request:
		who, _ := jsonrpc.Text(m.Lookup("params", "arguments", "who"))
		c := w.find(func(c *turnsCall) bool { return c.name == who })
		c.atServer, c.since = m.ID().String(), w.now
	case jsonrpc.Notification:
		if c := w.find(func(c *turnsCall) bool { return c.atServer != "" && c.atServer == m.CancelledID().String() }); c != nil {
			c.atServer, c.over = "", true
			c.last = c.last || c.asked < c.tool && len(c.waits) == 0 && w.rand.IntN(2) == 0
			c.since = w.now
		}
	case jsonrpc.Response:
		id := m.ID().String()
		c := w.find(func(c *turnsCall) bool { return c.waits[id] })
		if c == nil {
			w.t.Errorf("a second answer, or one to no question: %s", m.Bytes())
			return
		}
		delete(c.waits, id)
		c.since = w.now
		action, _ := jsonrpc.Text(m.Lookup("result", "action"))
		switch {
		case action == "accept" != c.shown[id] || action != "accept" && !c.gone:
			w.t.Errorf("%s was shown: %v; its client has gone: %v; the server gets %s", id, c.shown[id], c.gone, m.Bytes())
		case c.gone && c.asked < c.tool: // as if the user had refused
			c.last = c.last || w.rand.IntN(2) == 0
		}
	}
}

func (w *turnsWorld) toClient(m jsonrpc.Message) {
	c := w.find(func(c *turnsCall) bool { return c.request != "" && c.request == m.ID().String() })
	if c == nil {
		w.t.Errorf("nobody has asked for %s", m.Bytes())
		return
	}
	c.request = ""
	if kind, _ := jsonrpc.Text(m.Lookup("result", "resultType")); kind != "input_required" {
		if who, _ := jsonrpc.Text(m.Lookup("result", "who")); who != c.name {
			w.t.Errorf("call %s is answered %s", c.name, m.Bytes())
		}
		c.over = true
		return
	}
	c.state, _ = era.RequestStateOf(eratest.Parse(w.t, `{"jsonrpc":"2.0","id":1,"method":"x","params":`+string(m.Result())+`}`))
	c.questions = map[string]string{}
	for e := range jsonrpc.Members(m.Lookup("result", "inputRequests")) {
		id, _ := jsonrpc.Text(shape.Member(shape.Member(e.Value, "params"), "message"))
		if who, _, _ := strings.Cut(id, "/"); who != c.name {
			w.t.Errorf("call %s was asked what is %s", c.name, id)
		}
		c.questions[e.Key] = id
	}
	if w.learnt && w.rand.IntN(30) == 0 { // the client never comes back
		c.gone, c.state = true, ""
	}
}

func (w *turnsWorld) call(tool int, eager bool) *turnsCall {
	c := &turnsCall{name: "c" + strconv.Itoa(len(w.calls)), tool: tool, eager: eager, shown: map[string]bool{}, waits: map[string]bool{}}
	w.calls = append(w.calls, c)
	w.request(c, "")
	return c
}

func (w *turnsWorld) request(c *turnsCall, more string) {
	w.ids++
	c.request = strconv.Itoa(w.ids)
	w.client(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"t%d%v","arguments":{"who":%q},"_meta":{%s}%s}}`, c.request, c.tool, c.eager, c.name,
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`, more))
}

// work is what the server does next in the course of a call.
func (w *turnsWorld) work(c *turnsCall) {
	c.since = w.now
	if c.last || c.asked < c.tool {
		c.last = false
		for {
			w.ask(c)
			if !c.eager || c.asked >= c.tool {
				return
			}
		}
	}
	id := c.atServer
	c.atServer = ""
	w.server(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"who":%q}}`, id, c.name))
}

// ask has the server ask something in the course of a call.
func (w *turnsWorld) ask(c *turnsCall) {
	c.asked++
	id := fmt.Sprintf(`"%s/%d"`, c.name, c.asked)
	c.waits[id] = true
	w.server(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":%s}}`, id, id))
}

// works reports whether the server has something to do for a call.
func works(c *turnsCall) bool {
	return c.last || c.atServer != "" && len(c.waits) == 0
}

// retry comes back for a call with the answers, mostly.
func (w *turnsWorld) retry(c *turnsCall) {
	var answers []string
	for key, id := range c.questions {
		if w.rand.IntN(10) > 0 {
			answers = append(answers, `"`+key+`":{"action":"accept"}`)
			c.shown[`"`+id+`"`] = true
		}
	}
	state := c.state
	c.state = ""
	w.request(c, fmt.Sprintf(`,"inputResponses":{%s},"requestState":%q`, strings.Join(answers, ","), state))
}

// any picks one of the calls at random.
func (w *turnsWorld) any(is func(c *turnsCall) bool) *turnsCall {
	var fit []*turnsCall
	for _, c := range w.calls {
		if is(c) {
			fit = append(fit, c)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[w.rand.IntN(len(fit))]
}

func unfinished(c *turnsCall) bool { return !c.over || c.last || len(c.waits) > 0 }

// learn runs each tool alone: what it does is not known before.
func (w *turnsWorld) learn() {
	for i := range 8 {
		tool, eager := i%4, i >= 4
		if eager && tool < 2 {
			continue
		}
		c := w.call(tool, eager)
		for unfinished(c) {
			if works(c) {
				w.work(c)
			} else if c.state != "" {
				w.retry(c)
			}
			w.tick(50 * time.Millisecond)
		}
	}
	w.learnt = true
}

func (w *turnsWorld) step() {
	switch w.rand.IntN(8) {
	case 0, 1:
		open := 0
		for _, c := range w.calls {
			if unfinished(c) {
				open++
			}
		}
		if open < 8 { // or some wait for longer than anybody has to
			tool := w.rand.IntN(4)
			w.call(tool, tool > 1 && w.rand.IntN(2) == 0)
		}
	case 2, 3:
		if c := w.any(works); c != nil {
			w.work(c)
		}
	case 4, 5:
		if c := w.any(func(c *turnsCall) bool { return c.state != "" }); c != nil {
			w.retry(c)
		}
	case 6:
		if c := w.any(func(c *turnsCall) bool { return c.request != "" }); c != nil && w.rand.IntN(20) == 0 {
			w.cancel(c)
		}
	case 7:
		w.pass(time.Duration(w.rand.IntN(100)) * time.Millisecond)
	}
}

// cancel cancels a request.
func (w *turnsWorld) cancel(c *turnsCall) {
	id := c.request
	c.request, c.gone = "", true
	c.over = c.atServer == ""
	for id := range c.waits { // perhaps it waits with answers, and those are not given any more
		c.shown[id] = false
	}
	w.client(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
}

// pass lets time pass. The server is not idle for long.
func (w *turnsWorld) pass(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		if c := w.find(func(c *turnsCall) bool { return works(c) && w.now.Sub(c.since) > time.Second/5 }); c != nil {
			w.work(c)
			continue
		}
		w.tick(5 * time.Millisecond)
	}
}

func (w *turnsWorld) tick(d time.Duration) {
	w.now = w.now.Add(d)
	var out era.Out
	w.f.Tick(w.now, &out)
	w.take(&out)
}

// finish lets everything come to its end.
func (w *turnsWorld) finish() {
	for range 100_000 {
		c := w.any(unfinished)
		if c == nil {
			break
		}
		switch {
		case c.state != "":
			w.retry(c)
		case works(c):
			w.work(c)
		}
		w.pass(5 * time.Millisecond)
	}
	if c := w.find(unfinished); c != nil {
		w.t.Errorf("call %s has no end: %+v", c.name, c)
	}
	w.pass(time.Second)
	if !w.f.turns.IsIdle() {
		w.t.Error("a call has the turn, or waits for it, when all is over")
	}
}
