package streamclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// chaos is a server that does everything wrong at random, but owes an answer
// on the standalone stream only as long as that can reach the client.
type chaos struct {
	*fakeServer
	mu      sync.Mutex
	rng     *rand.Rand
	pending map[string]jsonrpc.Message // by event id: what a resumption gets
	refused bool                       // the last initialize was answered 503
	onGets  chan string                // answers for the standalone stream
}

func (c *chaos) roll(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// refuse reports whether this initialize is to be answered 503. It never says
// so twice in a row: after each failure the client waits for longer, and after
// four it would wait for most of the test, with no call going well meanwhile.
func (c *chaos) refuse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = !c.refused && c.rng.IntN(4) == 0
	return c.refused
}

func (c *chaos) post(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
	time.Sleep(time.Duration(c.roll(50)) * time.Millisecond)
	if c.roll(60) == 0 {
		c.forget()
	}
	if m.Method() == "initialize" && len(c.requests("initialize")) > 1 && c.refuse() {
		w.WriteHeader(503)
		return true
	}
	if m.Method() != "tools/call" || !c.knows(r) {
		return false
	}
	const log = `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`
	switch c.roll(10) {
	case 0:
		writeSSE(w, sseEvent("", log))
		time.Sleep(time.Duration(c.roll(3000)) * time.Millisecond)
		writeSSE(w, sseEvent("", result(m, "{}")))
	case 1: // cut off, to be resumed
		id := fmt.Sprint("e", m.ID())
		c.mu.Lock()
		c.pending[id] = m
		c.mu.Unlock()
		writeSSE(w, sseEvent(id, log))
		if c.roll(2) == 0 {
			panic(http.ErrAbortHandler)
		}
	case 2: // cut off, for good
		writeSSE(w, sseEvent("", log))
		panic(http.ErrAbortHandler)
	case 3:
		panic(http.ErrAbortHandler)
	case 4:
		w.WriteHeader([]int{400, 401, 404, 429, 500, 503}[c.roll(6)])
	case 5:
		w.WriteHeader(202)
		c.onGets <- result(m, "{}")
	case 6: // twice, once on each stream
		c.onGets <- result(m, "{}")
		writeJSON(w, result(m, "{}"))
	case 7:
		w.Header().Set("Content-Length", "500")
		writeJSON(w, result(m, "{}"))
		panic(http.ErrAbortHandler)
	case 8:
		writeSSE(w, sseEvent("", "{oops")+sseEvent("", result(m, "{}")))
	default:
		return false
	}
	return true
}

func (c *chaos) get(w http.ResponseWriter, r *http.Request) bool {
	if !c.knows(r) {
		w.WriteHeader(404)
		return true
	}
	if id := r.Header.Get("Last-Event-Id"); id != "" {
		c.mu.Lock()
		m, ok := c.pending[id]
		c.mu.Unlock()
		switch {
		case !ok:
			w.WriteHeader(400)
		case c.roll(3) == 0:
			w.WriteHeader(503)
		case c.roll(3) == 0:
			writeSSE(w, "id: "+id+"\ndata:\n\n")
		default:
			writeSSE(w, sseEvent("", result(m, "{}")))
		}
		return true
	}
	writeSSE(w, ": open\n\n")
	life := time.After(time.Duration(c.roll(5000)) * time.Millisecond)
	for {
		select {
		case text := <-c.onGets:
			writeSSE(w, sseEvent("", text))
		case <-life:
			return true
		case <-r.Context().Done():
			return true
		}
	}
}

// Whatever happens, each request is answered exactly once, in bounded time.
func TestChaos(t *testing.T) {
	const calls = 300
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var c *chaos
			testClient(t, func(s *fakeServer, o *Options) {
				o.MaxInFlight = 20
				c = &chaos{fakeServer: s, rng: rand.New(rand.NewPCG(seed, 1)), pending: map[string]jsonrpc.Message{}, onGets: make(chan string, 2*calls)}
				s.onPost, s.onGet = c.post, c.get
			}, func(t *clientTest) {
				t.open()
				answers := make(chan jsonrpc.Message, 3*calls)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go func() {
					defer close(answers)
					for {
						m, err := bridgetest.Recv(ctx, t.conn)
						if err != nil {
							return
						}
						if m.Kind() == jsonrpc.Response {
							answers <- m
						}
					}
				}()
				cancelled := map[string]bool{}
				for i := range calls {
					time.Sleep(time.Duration(c.roll(100)) * time.Millisecond)
					t.send(request(fmt.Sprint(i), "tools/call"))
					if c.roll(10) == 0 {
						id := fmt.Sprint(i - c.roll(min(i+1, 10)))
						cancelled[id] = true
						t.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
					}
				}
				time.Sleep(time.Hour)
				stop()
				got := map[string]int{}
				good := 0
				for m := range answers {
					got[m.ID().String()]++
					if !m.IsError() {
						good++
					}
				}
				for i := range calls {
					id := fmt.Sprint(i)
					if n := got[id]; n > 1 || n == 0 && !cancelled[id] {
						t.Errorf("request %s was answered %d times (cancelled: %v)", id, n, cancelled[id])
					}
				}
				t.Logf("%d of %d calls went well; %d sessions", good, calls, len(t.server.requests("initialize")))
				if good < calls/10 {
					t.Errorf("only %d calls went well", good)
				}
			})
		})
	}
}
