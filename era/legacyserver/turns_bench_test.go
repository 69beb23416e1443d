package legacyserver

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// What is learned must pay: calls that ask nothing lose nothing, and no question
// reaches the wrong client where each call of a tool asks.
func TestTurnsPay(t *testing.T) {
	for _, l := range loads[:5] {
		none, learned := runLoad(t, l, 10*time.Second, "none"), runLoad(t, l, 10*time.Second, "learned")
		if learned.wrong > 0 {
			t.Errorf("%s: %d of %d questions reach the wrong client", l.name, learned.wrong, learned.questions)
		}
		if l.tools[0].asks == 0 && learned.calls < none.calls*17/20 { // the first call of each tool is waited for
			t.Errorf("%s: %d calls, and %d without turns", l.name, learned.calls, none.calls)
		}
	}
}

// A load is what the clients of a shared server do all the time, in turn.
type load struct {
	name    string
	clients int
	tools   []loadTool // client i calls the tool i modulo their number
}

// loadTool is a tool: how long it works before its question, if it asks one, and
// afterwards, and how many of a hundred calls ask.
type loadTool struct {
	before, after time.Duration
	asks          int
}

const (
	ms       = time.Millisecond
	thinking = 200 * ms // how long a client takes to answer a question
)

var loads = []load{
	{"never asks", 16, []loadTool{{before: 20 * ms}}},
	{"one that never asks is slow", 16, []loadTool{{before: 5 * time.Second}, {before: 20 * ms}}},
	{"asks", 16, []loadTool{{before: 20 * ms, after: 20 * ms, asks: 100}}},
	{"works after it has asked", 16, []loadTool{{before: 5 * ms, after: 500 * ms, asks: 100}}},
	{"half of the tools ask", 16, []loadTool{{before: 20 * ms, after: 20 * ms, asks: 100}, {before: 20 * ms}}},
	{"asks in 1 of 10 calls", 16, []loadTool{{before: 20 * ms, after: 20 * ms, asks: 10}}},
	{"asks in 1 of 100 calls", 16, []loadTool{{before: 20 * ms, after: 20 * ms, asks: 1}}},
}

// BenchmarkTurns shows what calls gain and lose by taking turns at asking: calls
// a second and their mean latency without any turns, with turns of all calls, and
// with what the filter learns; and how many questions reach the wrong client. Time
// is simulated, so the figures are the same on each machine.
func BenchmarkTurns(b *testing.B) {
	for _, l := range loads {
		for _, rule := range []string{"none", "all", "learned"} {
			b.Run(l.name+"/"+rule, func(b *testing.B) {
				var r loadResult
				for b.Loop() {
					r = runLoad(b, l, loadTime, rule)
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(r.calls)/loadTime.Seconds(), "calls/s")
				b.ReportMetric(float64(r.latency.Milliseconds())/float64(max(r.calls, 1)), "ms/call")
				b.ReportMetric(100*float64(r.wrong)/float64(max(r.questions, 1)), "%wrong")
			})
		}
	}
}

const loadTime = 60 * time.Second

type loadResult struct {
	calls, questions, wrong int
	latency                 time.Duration
}

// loadRun is a run of a load.
type loadRun struct {
	tb     testing.TB
	load   load
	rand   *rand.Rand
	f      *Filter
	rule   string
	now    time.Time
	events loadEvents
	ids    int
	asked  int
	result loadResult

	open     map[string]int            // the client, by the id of its request
	begun    []time.Time               // when a client's call began
	atServer map[jsonrpc.ID]int        // the client whose call it is
	waits    map[jsonrpc.ID]jsonrpc.ID // which call waits for the answer to a question
}

func runLoad(tb testing.TB, l load, d time.Duration, rule string) loadResult {
	r := &loadRun{tb: tb, load: l, rule: rule, rand: rand.New(rand.NewPCG(1, 2)), open: map[string]int{}, begun: make([]time.Time, l.clients), atServer: map[jsonrpc.ID]int{}, waits: map[jsonrpc.ID]jsonrpc.ID{}}
	r.f, r.now = opened(tb, `{"tools":{}}`)
	end := r.now.Add(d)
	for i := range l.clients {
		r.call(i)
	}
	for r.now.Before(end) {
		if due := r.f.Due(); !due.IsZero() && (len(r.events) == 0 || due.Before(r.events[0].at)) {
			r.now = due
			r.do(func(out *era.Out) { r.f.Tick(r.now, out) })
			continue
		}
		e := heap.Pop(&r.events).(loadEvent)
		r.now = e.at
		e.do()
	}
	return r.result
}

func (r *loadRun) toolOf(client int) (string, loadTool) {
	i := client % len(r.load.tools)
	return fmt.Sprintf("t%d", i), r.load.tools[i]
}

func (r *loadRun) after(d time.Duration, do func()) {
	r.ids++
	heap.Push(&r.events, loadEvent{r.now.Add(d), r.ids, do})
}

func (r *loadRun) call(client int) {
	r.begun[client] = r.now
	r.request(client, "")
}

func (r *loadRun) request(client int, more string) {
	r.ids++
	id := fmt.Sprint(r.ids)
	r.open[id] = client
	name, _ := r.toolOf(client)
	m := eratest.Parse(r.tb, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":{"client":%d}%s,%s}}`, id, name, client, more, testMeta))
	r.do(func(out *era.Out) { r.f.FromClient(r.now, m, out) })
}

func (r *loadRun) server(text string) {
	m := eratest.Parse(r.tb, text)
	r.do(func(out *era.Out) { r.f.FromServer(r.now, m, out) })
}

func (r *loadRun) do(step func(out *era.Out)) {
	switch r.rule {
	case "none":
		r.f.turns.NoteRelation(r.now, true, false, &era.Out{})
	case "all":
		r.f.turns.AssumeAllAsk()
	}
	var out era.Out
	step(&out)
	for _, m := range out.ToServer {
		r.toServer(m)
	}
	for _, m := range out.ToClient {
		r.toClient(m)
	}
}

// toServer is what the server does with a message.
func (r *loadRun) toServer(m jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Request:
		var client int
		fmt.Sscan(string(m.Lookup("params", "arguments", "client")), &client)
		r.atServer[m.ID()] = client
		_, tool := r.toolOf(client)
		id := m.ID()
		r.after(tool.before, func() {
			if r.rand.IntN(100) >= tool.asks {
				r.answer(id)
				return
			}
			r.asked++
			q := jsonrpc.StringID(fmt.Sprintf("q%d", r.asked))
			r.waits[q] = id
			r.server(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":"%d"}}`, q, client))
		})
	case jsonrpc.Response:
		id := r.waits[m.ID()]
		delete(r.waits, m.ID())
		_, tool := r.toolOf(r.atServer[id])
		r.after(tool.after, func() { r.answer(id) })
	}
}

func (r *loadRun) answer(id jsonrpc.ID) {
	if _, ok := r.atServer[id]; ok {
		delete(r.atServer, id)
		r.server(`{"jsonrpc":"2.0","id":` + id.String() + `,"result":{"content":[]}}`)
	}
}

// toClient is what a client does with a response.
func (r *loadRun) toClient(m jsonrpc.Message) {
	client := r.open[m.ID().String()]
	delete(r.open, m.ID().String())
	state := m.Lookup("result", "requestState")
	if state == nil {
		r.result.calls++
		r.result.latency += r.now.Sub(r.begun[client])
		r.after(ms, func() { r.call(client) })
		return
	}
	answers := ""
	for e := range jsonrpc.Members(m.Lookup("result", "inputRequests")) {
		r.result.questions++
		if text, _ := jsonrpc.Text(eratest.Member(e.Value, "params", "message")); text != fmt.Sprint(client) {
			r.result.wrong++
		}
		if answers != "" {
			answers += ","
		}
		answers += `"` + e.Key + `":{"action":"accept"}`
	}
	r.after(thinking, func() { r.request(client, `,"inputResponses":{`+answers+`},"requestState":`+string(state)) })
}

type loadEvent struct {
	at    time.Time
	order int
	do    func()
}

type loadEvents []loadEvent

func (e loadEvents) Len() int      { return len(e) }
func (e loadEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e loadEvents) Less(i, j int) bool {
	if e[i].at.Equal(e[j].at) {
		return e[i].order < e[j].order
	}
	return e[i].at.Before(e[j].at)
}
func (e *loadEvents) Push(x any) { *e = append(*e, x.(loadEvent)) }
func (e *loadEvents) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}
