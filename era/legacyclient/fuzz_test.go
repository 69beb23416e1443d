package legacyclient

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// FuzzMessages feeds any messages, one a line, with the sender as
// the first letter; t lets time go by. Nothing may panic, and every message for
// the client must say in whose course it comes.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(`c{"id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}}
s{"id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}}}}
c{"method":"notifications/initialized"}
s{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2},"notifications":{"toolsListChanged":true}}}
c{"id":"a","method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}}
s{"id":3,"result":{"resultType":"input_required","requestState":"x","inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"form"}}}}}
c{"id":1,"result":{"action":"accept"}}
s{"method":"notifications/progress","params":{"progressToken":1,"progress":1}}
s{"id":4,"result":{"structuredContent":[1]}}
c{"id":"b","method":"tools/list"}
s{"id":5,"result":{"tools":[{"name":"t","outputSchema":{"$ref":"#/a"}}]}}
c{"id":"c","method":"resources/subscribe","params":{"uri":"x:"}}
t
s{"id":6,"error":{"code":-32601,"message":"no"}}
s{"id":2,"result":{}}
t`))
	f.Fuzz(func(t *testing.T, script []byte) {
		filter := New(Options{})
		now := time.Unix(1_800_000_000, 0)
		var out era.Out
		filter.Start(now, &out)
		for line := range bytes.SplitSeq(script, []byte("\n")) {
			out = era.Out{}
			switch {
			case len(line) == 0:
				continue
			case line[0] == 't':
				now = now.Add(time.Second)
				filter.Tick(now, &out)
			case len(line) < 3:
				continue
			default:
				m, err := jsonrpc.Parse(slices.Concat([]byte(`{"jsonrpc":"2.0",`), line[2:]))
				if err != nil {
					continue
				}
				if line[0] == 'c' {
					filter.FromClient(now, m, &out)
				} else {
					filter.FromServer(now, m, &out)
				}
			}
			for _, m := range out.ToClient {
				if m.Related().IsZero() {
					t.Fatalf("the client gets %s, Related to nothing", m.Bytes())
				}
			}
		}
		filter.ServerEnded(now, nil, nil, &out)
	})
}

// TestSpoiled feeds the transcripts with messages that have odd values and members that stand twice, which changing bytes hardly
// comes upon. Nothing may panic.
func TestSpoiled(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	var texts []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, strings.ReplaceAll(string(text), "\n  ", " "))
	}
	for seed := range uint64(6000) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := newTranscript()
		p.Discard()
		for line := range strings.Lines(texts[r.IntN(len(texts))]) {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' || strings.HasPrefix(line, "->") || strings.HasPrefix(line, "dropped ") {
				continue
			}
			p.Spoil = nil
			if r.IntN(3) == 0 && strings.Contains(line, "->") {
				p.Spoil = func(text string) string { return eratest.Spoil(r, text) }
			}
			_ = p.Play(line) // what comes of it is not what the transcript says
			p.Discard()
		}
		p.Filter.ServerEnded(time.Time{}, nil, nil, &era.Out{})
	}
}

// FuzzModel plays a client and a server that choose what to do by the
// bytes of the input. In the end the server answers everything. Then every
// request of the client has had exactly one answer (those that it has cancelled: at most
// one, and none after), and every question to the client was answered or
// withdrawn.
func FuzzModel(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte{4, 4, 0, 20, 5, 8, 9, 21, 40, 3, 2, 77, 200, 6, 6, 31})
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 400 {
			return
		}
		newModel(t, choices).run()
	})
}

// TestModel is the same over many inputs that are always the same.
func TestModel(t *testing.T) {
	seed := uint64(1)
	for range 600 {
		choices := make([]byte, 120)
		for i := range choices {
			seed = seed*6364136223846793005 + 1442695040888963407
			choices[i] = byte(seed >> 56)
		}
		newModel(t, choices).run()
		if t.Failed() {
			return
		}
	}
}

type model struct {
	t       *testing.T
	f       *filter
	now     time.Time
	choices []byte
	log     strings.Builder

	nextID    int
	open      map[jsonrpc.ID]bool // requests of the client; true: it has cancelled it
	asked     []jsonrpc.ID        // questions to the client
	atServer  []jsonrpc.Message   // requests at the server
	lastIDSrv int
}

func newModel(t *testing.T, choices []byte) *model {
	m := &model{t: t, now: time.Unix(1_800_000_000, 0), choices: choices, open: map[jsonrpc.ID]bool{}}
	m.f = New(Options{}).(*filter)
	m.do(func(out *era.Out) { m.f.Start(m.now, out) })
	m.fromClient(`"id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"roots":{}}}`)
	m.open[jsonrpc.StringID("init")] = false
	return m
}

// pick returns a choice below n, 0 when all are made.
func (c *model) pick(n int) int {
	if len(c.choices) == 0 {
		return 0
	}
	b := c.choices[0]
	c.choices = c.choices[1:]
	return int(b) % n
}

func (c *model) run() {
	for len(c.choices) > 0 && !c.t.Failed() {
		switch c.pick(10) {
		case 0, 1, 2:
			c.clientAsks()
		case 3:
			c.clientCancels()
		case 4:
			c.clientAnswers(c.pick(3) == 0)
		case 5:
			c.pass(time.Duration(c.pick(256)) * 10 * time.Millisecond)
		default:
			c.serverActs(c.pick(12))
		}
	}
	for range 100 {
		for len(c.atServer) > 0 && !c.t.Failed() {
			if m := c.atServer[0]; m.Method() == "subscriptions/listen" {
				c.acknowledge(m)
				c.atServer = c.atServer[1:]
				continue
			}
			c.serverActs(0)
		}
		for len(c.asked) > 0 {
			c.clientAnswers(true)
		}
		c.pass(30 * time.Second)
	}
	for id, cancelled := range c.open {
		if !cancelled {
			c.t.Errorf("request %s was not answered:\n%s", id, c.log.String())
			return
		}
	}
	if len(c.f.calls.byClientID)+len(c.f.calls.atServer)+len(c.f.inputs.openRequests)+len(c.f.inputs.callsWithDeadline)+len(c.f.listen.waiters) > 0 {
		c.t.Errorf("something is kept: %d %d %d %d %d\n%s", len(c.f.calls.byClientID), len(c.f.calls.atServer), len(c.f.inputs.openRequests), len(c.f.inputs.callsWithDeadline), len(c.f.listen.waiters), c.log.String())
	}
}

func (c *model) clientAsks() {
	if c.pick(8) == 0 {
		c.fromClient(`"method":"notifications/initialized"`)
	}
	c.nextID++
	id := jsonrpc.IntID(int64(c.nextID))
	c.open[id] = false
	c.fromClient(fmt.Sprintf(`"id":%s,`, id) + []string{
		`"method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}`,
		`"method":"tools/list"`,
		`"method":"prompts/get","params":{"name":"p"}`,
		`"method":"ping"`,
		`"method":"logging/setLevel","params":{"level":"error"}`,
		`"method":"resources/subscribe","params":{"uri":"x:a"}`,
		`"method":"resources/subscribe","params":{"uri":"x:b"}`,
		`"method":"resources/unsubscribe","params":{"uri":"x:a"}`,
		`"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}`,
		`"method":"tasks/list"`,
	}[c.pick(10)])
}

func (c *model) clientCancels() {
	if c.nextID == 0 {
		return
	}
	id := jsonrpc.IntID(int64(1 + c.pick(c.nextID)))
	if _, open := c.open[id]; open && c.f.handshake.initializeRequest.ID() != id { // J11
		c.open[id] = true
	}
	c.fromClient(`"method":"notifications/cancelled","params":{"requestId":` + id.String() + `}`)
}

func (c *model) clientAnswers(well bool) {
	if len(c.asked) == 0 {
		return
	}
	i := c.pick(len(c.asked))
	id := c.asked[i]
	c.asked = slices.Delete(c.asked, i, i+1)
	if well {
		c.fromClient(`"id":` + id.String() + `,"result":{"action":"accept"}`)
	} else {
		c.fromClient(`"id":` + id.String() + `,"error":{"code":-1,"message":"no"}`)
	}
}

// serverActs answers one of the requests at the server; 0 does it plainly.
func (c *model) serverActs(how int) {
	if len(c.atServer) == 0 {
		return
	}
	i := c.pick(len(c.atServer))
	m := c.atServer[i]
	id := m.ID().String()
	if m.Method() == "subscriptions/listen" && how%3 != 0 {
		c.acknowledge(m)
		return // it stays open
	}
	c.atServer = slices.Delete(c.atServer, i, i+1)
	switch {
	case m.Method() == "server/discover" && how != 1:
		c.fromServer(`"id":` + id + `,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}}}`)
	case how == 1:
		c.fromServer(`"id":` + id + `,"error":{"code":-32603,"message":"no"}`)
	case how == 2:
		c.fromServer(`"id":` + id + `,"result":{"resultType":"input_required","requestState":"s"}`)
	case how == 3:
		c.fromServer(`"id":` + id + `,"result":{"resultType":"bogus"}`)
	case how == 4:
		c.fromServer(`"id":` + id + `,"result":{"resultType":"input_required","inputRequests":{"a":{"method":"sampling/createMessage"}}}`)
	case how > 6:
		c.fromServer(`"id":` + id + `,"result":{"resultType":"input_required","requestState":"s","inputRequests":{"a":{"method":"elicitation/create","params":{}},"b":{"method":"roots/list"}}}`)
	default:
		c.fromServer(`"id":` + id + `,"result":{"resultType":"complete"}`)
	}
}

func (c *model) acknowledge(m jsonrpc.Message) {
	filter := bytes.ReplaceAll(m.Lookup("params", "notifications"), []byte(`"x:b"`), []byte(`"x:c"`)) // x:b is not honoured
	c.fromServer(`"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"` + era.KeySubscription + `":` + m.ID().String() +
		`},"notifications":` + string(filter) + `}`)
}

func (c *model) pass(d time.Duration) {
	then := c.now.Add(d)
	for range 1000 {
		due := c.f.Due()
		if due.IsZero() || due.After(then) {
			c.now = then
			return
		}
		if due.After(c.now) {
			c.now = due
		}
		fmt.Fprintf(&c.log, "tick %v\n", c.now)
		c.do(func(out *era.Out) { c.f.Tick(c.now, out) })
	}
	c.t.Fatalf("Tick does not do what is due:\n%s", c.log.String())
}

func (c *model) fromClient(text string) {
	fmt.Fprintf(&c.log, "c-> %s\n", text)
	c.do(func(out *era.Out) { c.f.FromClient(c.now, eratest.Parse(c.t, `{"jsonrpc":"2.0",`+text+`}`), out) })
}

func (c *model) fromServer(text string) {
	fmt.Fprintf(&c.log, "s-> %s\n", text)
	c.do(func(out *era.Out) { c.f.FromServer(c.now, eratest.Parse(c.t, `{"jsonrpc":"2.0",`+text+`}`), out) })
}

// do takes what the Filter wants sent to where it goes.
func (c *model) do(step func(*era.Out)) {
	var out era.Out
	step(&out)
	for _, m := range out.ToClient {
		fmt.Fprintf(&c.log, "->c %s\n", m.Bytes())
		c.toClient(m)
	}
	for _, m := range out.ToServer {
		fmt.Fprintf(&c.log, "->s %s\n", m.Bytes())
		c.toServer(m)
	}
}

func (c *model) toClient(m jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Response:
		cancelled, open := c.open[m.ID()]
		if !open || cancelled {
			c.t.Fatalf("an answer to %s, which is answered or cancelled (J12):\n%s", m.ID(), c.log.String())
		}
		delete(c.open, m.ID())
	case jsonrpc.Request:
		if cancelled, open := c.open[m.Related()]; !open || cancelled {
			c.t.Fatalf("a question in the course of %s, which is over:\n%s", m.Related(), c.log.String())
		}
		c.asked = append(c.asked, m.ID())
	case jsonrpc.Notification:
		if m.Method() == "notifications/cancelled" {
			i := slices.Index(c.asked, m.CancelledID())
			if i < 0 {
				c.t.Fatalf("a question is withdrawn that is not open:\n%s", c.log.String())
			}
			c.asked = slices.Delete(c.asked, i, i+1)
		}
	}
}

func (c *model) toServer(m jsonrpc.Message) {
	if m.Kind() == jsonrpc.Request {
		id := 0
		if _, err := fmt.Sscan(m.ID().String(), &id); err != nil || id <= c.lastIDSrv {
			c.t.Fatalf("id %s after %d (J2)", m.ID(), c.lastIDSrv)
		}
		c.lastIDSrv = id
		if refusal := era.MetaOf(m).Check(era.OnlyModern); refusal != nil {
			c.t.Fatalf("the server gets %s: %s", m.Bytes(), refusal.Text)
		}
		c.atServer = append(c.atServer, m)
		return
	}
	c.atServer = slices.DeleteFunc(c.atServer, func(r jsonrpc.Message) bool {
		return m.Method() == "notifications/cancelled" && r.ID() == m.CancelledID()
	})
}
