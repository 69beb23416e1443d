package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// callWith is a modern call by a client with capabilities of its own, which
// lead to a process of their own.
func callWith(id int, method, experiment string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{"experimental":{%q:{}}}}}}`, id, method, experiment)
}

// D.1: what a client says on one connection may go to several processes at once. It
// gets what each of them answers, and when one ends an error for what that owes and
// nothing else.
func TestDeskManyUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{kind: legacyServer}
		s := serverOf(t, f, Spec{Protocol: era.OnlyLegacy})
		client := party(t, t.Context(), s.Modern(bridge.PumpOptions{}))
		const units, rounds = 4, 10
		for i := range units * rounds {
			send(t, client, callWith(i, "tools/call", fmt.Sprint("e", i%units)))
		}
		seen := make(map[string]bool)
		for range units * rounds {
			m, err := client.Recv(t.Context())
			if err != nil || m.IsError() || seen[m.ID().String()] {
				t.Fatalf("%s, %v", m.Bytes(), err)
			}
			seen[m.ID().String()] = true
		}
		f.wait(t, units, units)
		for i := range units {
			send(t, client, callWith(100+i, "hang", fmt.Sprint("e", i)))
		}
		synctest.Wait()
		send(t, client, callWith(200, "leave", "e2"))
		for range 2 {
			m, err := client.Recv(t.Context())
			if id := m.ID().String(); err != nil || !m.IsError() || id != "102" && id != "200" {
				t.Errorf("%s, %v", m.Bytes(), err)
			}
		}
		s.mu.Lock()
		var ending *unit
		for key, u := range s.units {
			if strings.Contains(key.capabilities, "e3") {
				ending = u
			}
		}
		s.mu.Unlock()
		ending.retire()
		if m, err := client.Recv(t.Context()); err != nil || !m.IsError() || m.ID() != jsonrpc.IntID(103) {
			t.Errorf("%s, %v", m.Bytes(), err)
		}
		if m := ask(t, client, callWith(300, "tools/call", "e1")); m.IsError() || m.ID() != jsonrpc.IntID(300) {
			t.Errorf("%s", m.Bytes())
		}
	})
}

// A client of which nobody can have a process is told so for each request, also
// for many that it does not read the answers to yet.
func TestDeskRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOf(t, &fleet{kind: legacyServer}, Spec{Protocol: era.OnlyLegacy})
		client := party(t, t.Context(), s.Modern(bridge.PumpOptions{}))
		const n = 3 * deskQueue
		go func() {
			for i := range n {
				_ = client.Send(t.Context(), parse(t, callWith(i, "tools/call", strings.Repeat("x", maxCapabilities))))
			}
		}()
		synctest.Wait()
		for i := range n {
			m, err := client.Recv(t.Context())
			if err != nil || !m.IsError() || m.ID() != jsonrpc.IntID(int64(i)) {
				t.Fatalf("%d: %s, %v", i, m.Bytes(), err)
			}
		}
	})
}

// D.2: a client that reads nothing ends by name, although nobody is waiting in its
// Recv: whoever hands messages on to it waits in its Send.
func TestDeskSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(t, Spec{Protocol: era.OnlyModern}, func(m jsonrpc.Message) []string {
			if m.Kind() != jsonrpc.Request {
				return nil
			}
			token := m.ProgressToken().String()
			var all []string
			for i := range mux.DefaultQueue + 1000 {
				all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i))
			}
			return append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, m.ID()))
		})
		client, ours := bridge.PullPipe()
		defer client.Close()
		ended := make(chan error, 1)
		go func() { ended <- s.Modern(bridge.PumpOptions{}).ServeConn(context.Background(), bridge.Push(ours)) }()
		send(t, client, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":1,`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		if err := <-ended; !errors.Is(err, bridge.ErrSlow) {
			t.Errorf("ServeConn = %v", err)
		}
		_ = ours.Close()
	})
}

// With a process for each request, the client's requests leave nothing behind,
// whichever way they were offered to the desk first.
func TestDeskAloneLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOf(t, &fleet{kind: modernServer}, Spec{Protocol: era.OnlyModern, Isolation: PerRequest})
		d := newDesk(t.Context(), s)
		defer d.Close()
		try := bridge.TrySender(d)
		for i := range 20 {
			m := parse(t, callWith(i, "tools/call", "e"))
			if !try(m) {
				if err := d.Send(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			if m, err := d.Recv(t.Context()); err != nil || m.IsError() {
				t.Fatalf("%s, %v", m.Bytes(), err)
			}
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(d.seats)+len(d.calls)+len(s.units) != 0 {
			t.Errorf("%d places, %d calls and %d processes are left", len(d.seats), len(d.calls), len(s.units))
		}
	})
}

// A request that no unit takes at once is not the desk's yet: it is not answered for
// a unit that ends meanwhile.
func TestDeskTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOf(t, &fleet{kind: legacyServer}, Spec{Protocol: era.OnlyLegacy})
		d := newDesk(t.Context(), s)
		defer d.Close()
		try := bridge.TrySender(d)
		if try(parse(t, callWith(1, "tools/call", "e"))) || len(d.seats)+len(d.calls)+len(s.units) != 0 {
			t.Error("a request that begins a unit was taken")
		}
		if err := d.Send(t.Context(), parse(t, callWith(2, "tools/call", "e"))); err != nil {
			t.Fatal(err)
		}
		if m, err := d.Recv(t.Context()); err != nil || m.IsError() {
			t.Fatalf("%s, %v", m.Bytes(), err)
		}
		synctest.Wait() // who has written the last one has put the pen down
		if !try(parse(t, callWith(3, "tools/call", "e"))) {
			t.Error("a server that takes everything at once was not given a request")
		}
		if m, err := d.Recv(t.Context()); err != nil || m.ID() != jsonrpc.IntID(3) {
			t.Errorf("%s, %v", m.Bytes(), err)
		}
		if try(parse(t, callWith(4, "subscriptions/listen", "e"))) || len(d.calls) != 0 {
			t.Error("a request was taken that is not for this way")
		}
	})
}

// What is there is found at the first look, whatever has just ended beside it: who
// has looked in vain waits.
func TestDeskLooksEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 6
		for turn := range n {
			for ends := range n {
				for _, other := range []int{(ends + 1) % n, (ends + n - 1) % n} {
					s := serverOf(t, &fleet{kind: modernServer}, Spec{Protocol: era.OnlyModern})
					d := newDesk(t.Context(), s)
					for i := range n {
						key := unitKey{principal: fmt.Sprint(i)}
						at, err := s.join(t.Context(), key, nil, false)
						if err != nil {
							t.Fatal(err)
						}
						at.Wake(d.waiter)
						d.seats = append(d.seats, seat{at, key})
					}
					d.turn = turn
					if err := d.seats[other].Send(t.Context(), parse(t, modernCall)); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					d.calls[jsonrpc.IntID(7)] = d.seats[ends].member
					_ = d.seats[ends].Poller.Close()
					for range 2 {
						if m, err, ok := d.poll(); !ok || err != nil {
							t.Errorf("turn %d, %d has ended, %d has an answer: found %s, %v, %v", turn, ends, other, m.Bytes(), err, ok)
						}
					}
					if err := d.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
}

// TestIntroductions: D.1. What is known of a client's last request changes nothing about
// the next.
func TestIntroductions(t *testing.T) {
	const version = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`
	var requests []jsonrpc.Message
	for _, meta := range []string{
		`{` + version + `,"io.modelcontextprotocol/clientCapabilities":{"roots":{}}}`,
		`{` + version + `,"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"progressToken":1}`,
		`{` + version + `,"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"a"}}`,
		`{` + version + `,"io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"a"}}`,
		`{` + version + `,"io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/clientInfo":{"name":"b"},"progressToken":2}`,
		`{` + version + `,"io.modelcontextprotocol/clientCapabilities":{"experimental":{"` + strings.Repeat("x", maxCapabilities) + `":{}}}}`,
		`{` + version + `}`, `{}`, `null`,
	} {
		requests = append(requests, parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":`+meta+`}}`))
	}
	requests = append(requests, parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
	s := &Server{}
	for range 4 * replaceAfter {
		for _, a := range requests {
			for _, b := range requests {
				for _, m := range []jsonrpc.Message{a, b, b} {
					got, meta := s.introductionOf(m), era.MetaOf(m)
					if want := string(legacyserver.ProjectCapabilities(meta.Capabilities)); got.capabilities != want || string(got.clientInfo) != string(meta.ClientInfo) {
						t.Fatalf("%s says %+v", m.Bytes(), got)
					}
				}
			}
		}
	}
}

// What is kept of a request is a copy; nothing is allocated for others that say the
// same, nor for those that are none to be kept.
func TestIntroductionsAreKept(t *testing.T) {
	s := &Server{}
	of := func(more string) jsonrpc.Message {
		return parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"roots":{}}`+more+`}}}`)
	}
	first := of(`,"io.modelcontextprotocol/clientInfo":{"name":"first"}`)
	s.introductionOf(first)
	same := of(`,"io.modelcontextprotocol/clientInfo":{"name":"first"}`)
	clear(first.Bytes())
	if got := s.introductionOf(same); string(got.clientInfo) != `{"name":"first"}` || got.meta == "" {
		t.Errorf("what was kept is %+v", got)
	}
	for name, m := range map[string]jsonrpc.Message{
		"same": same, "with a token": of(`,"progressToken":1`), "very long": of(`,"x":"` + strings.Repeat("x", maxCapabilities) + `"`),
	} {
		if n := testing.AllocsPerRun(100, func() { s.introductionOf(m) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	second := of(`,"io.modelcontextprotocol/clientInfo":{"name":"second"}`)
	for range replaceAfter {
		s.introductionOf(second)
	}
	if got := s.introductionOf(second); got.meta == "" {
		t.Error("a client that goes on to say something else is never known")
	}
}
