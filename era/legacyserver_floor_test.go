package era

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// TestFloorModel runs many calls at a time of tools that ask nothing, once or
// several times, at a server that does its work in any order, and cancels some.
// Each question must reach the client in the course of whose call it was asked,
// and every call comes to its end (B.1.8, D.2).
func TestFloorModel(t *testing.T) {
	for seed := range uint64(300) {
		w := newFloorWorld(t, seed)
		for range 300 {
			w.step()
		}
		w.finish()
		if t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(w.history, "\n"))
		}
	}
}

type floorWorld struct {
	t       *testing.T
	rand    *rand.Rand
	f       *LegacyServerFilter
	now     time.Time
	history []string
	ids     int
	calls   []*floorCall
}

// floorCall is a call as the server and its client see it.
type floorCall struct {
	name      string // what no other call has
	tool      int    // how often it asks
	request   string // id of the client's request that is open; "": none
	args      string
	state     string            // of the client's next request
	questions map[string]string // to be answered then, by key

	atServer string    // id; "": it is not there
	since    time.Time // when the server could go on with it
	waits    string    // question that the server waits for
	asked    int
	over     bool
}

func newFloorWorld(t *testing.T, seed uint64) *floorWorld {
	sealer, err := NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	w := &floorWorld{t: t, rand: rand.New(rand.NewPCG(seed, 2)), now: time.Unix(1700000000, 0)}
	w.f = LegacyServer(LegacyServerOptions{Capabilities: []byte(`{"elicitation":{}}`), Sealer: sealer, Unit: "u", Instance: "i"})
	var out Out
	w.f.Start(w.now, &out)
	w.server(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`)
	return w
}

func (w *floorWorld) client(text string) {
	w.history = append(w.history, "c-> "+text)
	var out Out
	w.f.FromClient(w.now, serverMessage(w.t, text), &out)
	w.take(&out)
}

func (w *floorWorld) server(text string) {
	w.history = append(w.history, "s-> "+text)
	var out Out
	w.f.FromServer(w.now, serverMessage(w.t, text), &out)
	w.take(&out)
}

func (w *floorWorld) find(is func(c *floorCall) bool) *floorCall {
	if i := slices.IndexFunc(w.calls, is); i >= 0 {
		return w.calls[i]
	}
	return nil
}

func (w *floorWorld) take(out *Out) {
	for _, m := range out.ToServer {
		w.history = append(w.history, "->s "+string(m.Bytes()))
		switch m.Kind() {
		case jsonrpc.Request:
			who, _ := jsonrpc.Text(m.Lookup("params", "arguments", "who"))
			c := w.find(func(c *floorCall) bool { return c.name == who })
			c.atServer, c.since = m.ID().String(), w.now
		case jsonrpc.Response:
			if c := w.find(func(c *floorCall) bool { return c.waits == m.ID().String() }); c != nil {
				c.waits, c.since = "", w.now
			}
		}
	}
	for _, m := range out.ToClient {
		w.history = append(w.history, "->c "+string(m.Bytes()))
		c := w.find(func(c *floorCall) bool { return c.request == m.ID().String() })
		if c == nil {
			w.t.Errorf("nobody has asked for %s", m.Bytes())
			continue
		}
		c.request = ""
		if kind, _ := jsonrpc.Text(m.Lookup("result", "resultType")); kind != "input_required" {
			if who, _ := jsonrpc.Text(m.Lookup("result", "who")); who != c.name {
				w.t.Errorf("call %s is answered %s", c.name, m.Bytes())
			}
			c.over = true
			continue
		}
		c.state, _ = StateOf(serverMessage(w.t, `{"jsonrpc":"2.0","id":1,"method":"x","params":`+string(m.Result())+`}`))
		c.questions = map[string]string{}
		for e := range jsonrpc.Members(m.Lookup("result", "inputRequests")) {
			who, _ := jsonrpc.Text(member(member(e.Value, "params"), "message"))
			if who != c.name {
				w.t.Errorf("call %s was asked what %s is to be asked", c.name, who)
			}
			c.questions[e.Key] = who
		}
	}
}

func (w *floorWorld) request(c *floorCall, more string) {
	w.ids++
	c.request = strconv.Itoa(w.ids)
	w.client(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"t%d","arguments":{"who":%q},"_meta":{%s}%s}}`, c.request, c.tool, c.name,
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`, more))
}

// work is what the server does next in the course of a call.
func (w *floorWorld) work(c *floorCall) {
	if c.asked < c.tool {
		c.asked++
		c.waits = fmt.Sprintf(`"%s/%d"`, c.name, c.asked)
		w.server(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":%q}}`, c.waits, c.name))
		return
	}
	id := c.atServer
	c.atServer = ""
	w.server(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"who":%q}}`, id, c.name))
}

func (w *floorWorld) open() (n int) {
	for _, c := range w.calls {
		if !c.over {
			n++
		}
	}
	return n
}

// retry comes back for a call with the answers, mostly.
func (w *floorWorld) retry(c *floorCall) {
	var answers []string
	for key := range c.questions {
		if w.rand.IntN(10) > 0 {
			answers = append(answers, `"`+key+`":{"action":"accept"}`)
		}
	}
	state := c.state
	c.state = ""
	w.request(c, fmt.Sprintf(`,"inputResponses":{%s},"requestState":%q`, strings.Join(answers, ","), state))
}

// any picks one of the calls at random.
func (w *floorWorld) any(is func(c *floorCall) bool) *floorCall {
	var fit []*floorCall
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

func working(c *floorCall) bool { return c.atServer != "" && c.waits == "" }

func (w *floorWorld) step() {
	switch w.rand.IntN(8) {
	case 0, 1:
		if w.open() == 12 {
			break // or some wait for longer than anybody has to
		}
		c := &floorCall{name: "c" + strconv.Itoa(len(w.calls)), tool: w.rand.IntN(4)}
		w.calls = append(w.calls, c)
		w.request(c, "")
	case 2, 3:
		if c := w.any(working); c != nil {
			w.work(c)
		}
	case 4, 5:
		if c := w.any(func(c *floorCall) bool { return c.state != "" }); c != nil {
			w.retry(c)
		}
	case 6:
		if c := w.any(func(c *floorCall) bool { return c.request != "" }); c != nil && w.rand.IntN(20) == 0 {
			w.cancel(c)
		}
	case 7:
		w.pass(time.Duration(w.rand.IntN(100)) * time.Millisecond)
	}
}

// cancel cancels a request. The server may have a question under way still.
func (w *floorWorld) cancel(c *floorCall) {
	id := c.request
	c.request, c.over = "", true
	asks := working(c) && c.asked < c.tool
	w.client(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	c.atServer = ""
	if asks && w.rand.IntN(2) == 0 {
		w.pass(time.Duration(w.rand.IntN(400)) * time.Millisecond)
		c.asked++
		w.server(fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s/%d","method":"elicitation/create","params":{"message":%q}}`, c.name, c.asked, c.name))
	}
}

// pass lets time pass. The server is not idle for long.
func (w *floorWorld) pass(d time.Duration) {
	end := w.now.Add(d)
	for w.now.Before(end) {
		if c := w.find(func(c *floorCall) bool { return working(c) && w.now.Sub(c.since) > floorNew/5 }); c != nil {
			w.work(c)
			continue
		}
		w.now = w.now.Add(5 * time.Millisecond)
		var out Out
		w.f.Tick(w.now, &out)
		w.take(&out)
	}
}

// finish lets everything come to its end.
func (w *floorWorld) finish() {
	open := func(c *floorCall) bool { return !c.over }
	for range 100_000 {
		c := w.any(open)
		if c == nil {
			break
		}
		switch {
		case c.state != "":
			w.retry(c)
		case working(c):
			w.work(c)
		}
		w.pass(5 * time.Millisecond)
	}
	if c := w.find(open); c != nil {
		w.t.Errorf("call %s has no end", c.name)
	}
	w.pass(time.Second)
	if l := w.f.floor; l.holder != nil || len(l.waiting) > 0 {
		w.t.Error("somebody has the floor, or waits for it, when all is over")
	}
}
