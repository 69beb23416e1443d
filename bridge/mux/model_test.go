package mux_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Clients with equal ids and tokens, calls with progress and log messages,
// subscriptions, cancellations, clients that leave, and a server that ends and
// comes again: whatever the order, nothing reaches the wrong client, nothing
// is lost, and every request is answered exactly once (D.2, J12,
// J13, ST9, ST11, ST12).
func TestMuxModel(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		bubble(t, fmt.Sprint("seed ", seed), func(t *testing.T) { runModel(t, uint64(seed)) })
	}
}

func runModel(t *testing.T, seed uint64) {
	w := &world{t: t, rand: rand.New(rand.NewPCG(seed, 7)), got: make(map[string]bool)}
	mux := mux.New(mux.Options{Dialer: dialFunc(w.dial), Backoff: 5 * time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	var wg sync.WaitGroup
	clients := 6
	if seed == 0 && !testing.Short() {
		clients = 60
	}
	for i := range clients {
		wg.Go(func() {
			for life := range 3 {
				w.client(mux, fmt.Sprintf("%d-%d", i, life))
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Minute) // what was cancelled has reached the server
	if l := mux.Load(); l.Conns+l.Calls+l.Listens != 0 {
		t.Errorf("left: %+v", l)
	}
	w.checkServers()
	_ = mux.Close()
	w.wg.Wait()
}

// world is what the model knows.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	rand    *rand.Rand
	n       int // of requests
	servers []*modelServer
	got     map[string]bool // what was said in the calls that a server has got
	wg      sync.WaitGroup
}

func (w *world) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rand.IntN(n)
}

func (w *world) nap(most int) { time.Sleep(time.Duration(w.roll(most)) * time.Millisecond) }

func (w *world) dial(ctx context.Context) (bridge.Conn, error) {
	w.nap(5)
	if w.roll(10) == 0 {
		return nil, errors.New("no luck")
	}
	ours, theirs := bridge.Pipe()
	s := &modelServer{world: w, conn: theirs, open: make(map[string]string)}
	w.mu.Lock()
	s.number = len(w.servers)
	w.servers = append(w.servers, s)
	w.mu.Unlock()
	w.wg.Go(s.run)
	switch w.roll(6) { // all the ways in which the Mux may write and read
	case 0:
		ours = &untried{ours}
	case 1:
		ours = &hesitant{ours, w}
	case 2:
		ours = translate.Wrap(&hesitant{ours, w}, bridgetest.PassingFilter{}, nil)
	case 3, 4: // reads nothing more soon before it ends
		d := &deaf{Conn: &hesitant{ours, w}}
		w.wg.Go(func() {
			w.nap(300)
			d.isDeaf.Store(true)
			w.nap(30)
			s.end()
		})
		if ours = d; w.roll(2) == 0 {
			ours = translate.Wrap(d, new(bridgetest.KeepingFilter), nil)
		}
	}
	return ours, nil
}

// untried is a Conn that takes nothing at once.
type untried struct{ bridge.Conn }

func (untried) TrySend(jsonrpc.Message) bool { return false }

// hesitant is a Conn that takes some messages at once, and others not.
type hesitant struct {
	bridge.Conn
	*world
}

func (h *hesitant) TrySend(m jsonrpc.Message) bool { return h.roll(2) == 0 && h.Conn.TrySend(m) }

// modelServer speaks 2026-07-28, and repeats in all that it says what was said
// in the request that it is about.
type modelServer struct {
	*world
	conn   bridge.Conn
	number int
	ended  bool

	mu   sync.Mutex
	open map[string]string // requests in progress, by id: what was said in them
	seen map[string]bool
}

func (s *modelServer) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.roll(2) == 0 {
		crash := time.AfterFunc(time.Duration(s.roll(300))*time.Millisecond, s.end)
		defer crash.Stop()
	}
	s.seen = make(map[string]bool)
	for {
		m, err := bridgetest.Recv(ctx, s.conn)
		if err != nil {
			s.mu.Lock()
			s.ended = true
			s.mu.Unlock()
			return
		}
		switch {
		case m.Method() == "notifications/cancelled":
			s.mu.Lock()
			id := m.CancelledID().String()
			if !s.seen[id] {
				s.t.Errorf("server %d was told to cancel %s, which it does not know", s.number, id)
			}
			delete(s.open, id)
			s.mu.Unlock()
		case m.Kind() == jsonrpc.Request:
			id := m.ID().String()
			s.mu.Lock()
			if s.seen[id] {
				s.t.Errorf("server %d got id %s twice", s.number, id)
			}
			s.seen[id] = true
			if said := string(m.Lookup("params", "said")); m.Method() != "subscriptions/listen" && !s.gotFirst(said) {
				s.t.Errorf("server %d got call %s, which a server had got before", s.number, said)
			}
			s.open[id] = string(m.Lookup("params", "said"))
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(m) })
		}
	}
}

// end ends the server.
func (s *modelServer) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	_ = s.conn.Close(nil)
}

// gotFirst notes that a server has got a call; false: one had got it before.
func (w *world) gotFirst(said string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	again := w.got[said]
	w.got[said] = true
	return !again
}

// say sends a message about a request, unless that was cancelled.
func (s *modelServer) say(m jsonrpc.Message, last bool, format string, args ...any) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := m.ID().String()
	if _, ok := s.open[id]; !ok || s.ended {
		return false
	}
	if last {
		delete(s.open, id)
	}
	return s.conn.Send(context.Background(), parse(s.t, fmt.Sprintf(format, args...))) == nil
}

func (s *modelServer) serve(m jsonrpc.Message) {
	said := m.Lookup("params", "said")
	if m.Method() == "subscriptions/listen" {
		meta := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + m.ID().String() + `}`
		ok := s.say(m, false, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{%s,"said":%s,"notifications":{"toolsListChanged":true}}}`, meta, said)
		for i := 0; ok; i++ {
			s.nap(50)
			ok = s.say(m, false, `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{%s,"said":%s,"server":%d,"i":%d}}`, meta, said, s.number, i)
			if s.roll(100) == 0 {
				s.say(m, true, `{"jsonrpc":"2.0","id":%s,"result":{%s,"said":%s}}`, m.ID(), meta, said)
				return
			}
		}
		return
	}
	n := 0
	for range s.roll(5) {
		s.nap(30)
		if token := m.ProgressToken(); !token.IsZero() {
			s.say(m, false, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"said":%s,"progress":%d}}`, token, said, n)
			n++
		}
	}
	s.nap(30)
	if string(m.Lookup("params", "never")) != "true" {
		s.say(m, true, `{"jsonrpc":"2.0","result":{"said":%s,"progress":%d},"id":%s}`, said, n, m.ID())
	}
}

// checkServers wants nothing to be in progress at a server that lives.
func (w *world) checkServers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.servers {
		s.mu.Lock()
		if len(s.open) > 0 && !s.ended {
			w.t.Errorf("server %d still works on %v", s.number, s.open)
		}
		s.mu.Unlock()
	}
}

// modelCall is a request of a client.
type modelCall struct {
	id, token string
	listen    bool
	never     bool // the server is not to answer
	progress  int
	acked     bool
	ended     bool      // answered
	cancelled time.Time // zero: not
	server, i int       // of a subscription: what came last
}

type modelClient struct {
	*world
	name string
	conn bridge.Conn

	mu     sync.Mutex
	calls  map[string]*modelCall // by what they have said
	inUse  map[string]*modelCall // by id
	doneAt map[string]time.Time  // when one with this id was cancelled
	closed time.Time
}

// client is one client's life.
func (w *world) client(mux *mux.Mux, name string) {
	conn, err := mux.Dial(context.Background())
	if err != nil {
		w.t.Error(err)
		return
	}
	c := &modelClient{world: w, name: name, conn: conn, calls: make(map[string]*modelCall), inUse: make(map[string]*modelCall), doneAt: make(map[string]time.Time)}
	var wg sync.WaitGroup
	wg.Go(c.read)
	for range 60 {
		c.nap(20)
		switch c.roll(10) {
		case 0, 1:
			c.cancel()
		default:
			c.ask(c.roll(8) == 0)
		}
	}
	switch c.roll(3) {
	case 0: // leaves in the middle of everything
	default: // waits for what is answered, cancels the rest
		time.Sleep(2 * time.Second)
		c.mu.Lock()
		for _, call := range c.inUse {
			if !call.never && !call.listen {
				c.t.Errorf("client %s: call %s was never answered", name, call.id)
			}
		}
		c.mu.Unlock()
		for c.cancel() {
		}
		time.Sleep(time.Second)
	}
	c.mu.Lock()
	c.closed = time.Now()
	c.mu.Unlock()
	_ = conn.Close(nil)
	wg.Wait()
}

var modelIDs = []string{"1", "2", "3", "4.0", "1e1", `"1"`, `"x"`, `"\u0078y"`}

func (c *modelClient) ask(listen bool) {
	c.mu.Lock()
	call := &modelCall{id: modelIDs[c.roll(len(modelIDs))], listen: listen, never: c.roll(10) == 0, server: -1}
	if c.inUse[call.id] != nil {
		c.mu.Unlock()
		return
	}
	c.world.mu.Lock()
	c.n++
	said := strconv.Quote(fmt.Sprint(c.name, " ", c.n))
	c.world.mu.Unlock()
	meta := `"x":0`
	if c.roll(2) == 0 {
		call.token = []string{"0", "1", `"0"`, "1.0"}[c.roll(4)]
		meta = `"progressToken":` + call.token
	}
	c.inUse[call.id] = call
	c.calls[said] = call
	c.mu.Unlock()
	method := "tools/call"
	if listen {
		method = "subscriptions/listen"
	}
	m := parse(c.t, `{"jsonrpc":"2.0","id":`+call.id+`,"method":"`+method+`","params":{"_meta":{`+meta+`},"said":`+said+`,"never":`+strconv.FormatBool(call.never)+`}}`)
	if c.roll(20) == 0 { // a Send that is given up
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.roll(5))*time.Millisecond)
		defer cancel()
		if c.conn.Send(ctx, m) != nil {
			c.done(call)
		}
		return
	}
	if err := c.conn.Send(context.Background(), m); err != nil {
		c.t.Errorf("Send = %v", err)
	}
}

func (c *modelClient) done(call *modelCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call.cancelled = time.Now()
	c.doneAt[call.id] = call.cancelled
	if c.inUse[call.id] == call {
		delete(c.inUse, call.id)
	}
}

// cancel cancels any call; false: there is none.
func (c *modelClient) cancel() bool {
	c.mu.Lock()
	var call *modelCall
	for _, id := range modelIDs { // not in the map's order, which is not ours to repeat
		if call = c.inUse[id]; call != nil {
			break
		}
	}
	c.mu.Unlock()
	if call == nil {
		return false
	}
	if err := c.conn.Send(context.Background(), parse(c.t, cancelledNote(call.id))); err != nil {
		c.t.Errorf("Send = %v", err)
	}
	c.done(call)
	return true
}

func (c *modelClient) read() {
	for {
		if c.roll(4) == 0 {
			c.nap(40) // so that things lie there unread
		}
		m, err := bridgetest.Recv(context.Background(), c.conn)
		if err != nil {
			if !errors.Is(err, io.ErrClosedPipe) {
				c.t.Errorf("client %s: %v", c.name, err)
			}
			return
		}
		c.mu.Lock()
		c.got(m)
		c.mu.Unlock()
	}
}

func (c *modelClient) got(m jsonrpc.Message) {
	fail := func(why string) { c.t.Errorf("client %s: %s: %s (%s)", c.name, why, m.Bytes(), m.Related()) }
	in := "params"
	if m.Kind() == jsonrpc.Response {
		in = "result"
	}
	said := string(m.Lookup(in, "said"))
	call := c.calls[said]
	if said == "" { // of the bridge's own: an error, or about a subscription
		call = c.inUse[m.Related().String()]
		if call == nil && (m.Method() == "notifications/cancelled" || strings.Contains(m.Method(), "list_changed")) {
			return // behind the result
		}
		if call == nil && !time.Now().After(c.doneAt[m.Related().String()]) {
			return // it was received before the call was cancelled
		}
	}
	switch {
	case call == nil:
		fail("somebody else's, or nobody's")
		return
	case m.Related().String() != call.id:
		fail("Related is wrong")
	case !call.cancelled.IsZero() && time.Now().After(call.cancelled):
		fail("of a cancelled request")
	case call.ended && m.Method() != "notifications/cancelled":
		fail("after the answer")
	}
	switch m.Method() {
	case "":
		if m.ID().String() != call.id {
			fail("wrong id")
		}
		if !m.IsError() && !call.listen && (string(m.Lookup("result", "progress")) != strconv.Itoa(call.progress)) && call.token != "" {
			fail(fmt.Sprintf("%d progress notifications have come", call.progress))
		}
		if call.listen && m.IsError() && call.acked {
			fail("an open subscription has failed")
		}
		call.ended = true
		if c.inUse[call.id] == call {
			delete(c.inUse, call.id)
		}
	case "notifications/progress":
		if m.ProgressToken().String() != call.token {
			fail("wrong token")
		}
		if string(m.Lookup("params", "progress")) != strconv.Itoa(call.progress) {
			fail(fmt.Sprintf("%d progress notifications have come", call.progress))
		}
		call.progress++
	case "notifications/subscriptions/acknowledged":
		if call.acked {
			fail("acknowledged twice")
		}
		call.acked = true
	case "notifications/resources/updated":
		if !call.acked {
			fail("before the acknowledgement")
		}
		if id := string(m.Lookup("params", "_meta", "io.modelcontextprotocol/subscriptionId")); id != call.id {
			fail("wrong subscription id")
		}
		server, _ := strconv.Atoi(string(m.Lookup("params", "server")))
		i, _ := strconv.Atoi(string(m.Lookup("params", "i")))
		if server == call.server && i != call.i+1 || server != call.server && i != 0 || server < call.server {
			fail(fmt.Sprintf("lost: the last was %d of server %d", call.i, call.server))
		}
		call.server, call.i = server, i
	}
}
