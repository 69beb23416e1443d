package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/mux"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream/sharing"
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
func TestRouterManyUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{kind: legacyServer}
		s := serverOf(t, f, Spec{Protocol: era.OnlyLegacy})
		client := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
		const units, rounds = 4, 10
		for i := range units * rounds {
			send(t, client, callWith(i, "tools/call", fmt.Sprint("e", i%units)))
		}
		seen := make(map[string]bool)
		for range units * rounds {
			m, err := bridgetest.Recv(t.Context(), client)
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
			m, err := bridgetest.Recv(t.Context(), client)
			if id := m.ID().String(); err != nil || !m.IsError() || id != "102" && id != "200" {
				t.Errorf("%s, %v", m.Bytes(), err)
			}
		}
		for _, shared := range s.pool.Servers() {
			if strings.Contains(shared.Key.Capabilities, "e3") {
				shared.Shutdown(probe.ErrChanged)
			}
		}
		if m, err := bridgetest.Recv(t.Context(), client); err != nil || !m.IsError() || m.ID() != jsonrpc.IntID(103) {
			t.Errorf("%s, %v", m.Bytes(), err)
		}
		if m := ask(t, client, callWith(300, "tools/call", "e1")); m.IsError() || m.ID() != jsonrpc.IntID(300) {
			t.Errorf("%s", m.Bytes())
		}
	})
}

// A client of which nobody can have a process is told so for each request, also
// for many that it does not read the answers to yet.
func TestRouterRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverOf(t, &fleet{kind: legacyServer}, Spec{Protocol: era.OnlyLegacy})
		client := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
		const n = 3 * 64
		go func() {
			for i := range n {
				_ = client.Send(t.Context(), parse(t, callWith(i, "tools/call", strings.Repeat("x", sharing.MaxIntroductionSize))))
			}
		}()
		synctest.Wait()
		for i := range n {
			m, err := bridgetest.Recv(t.Context(), client)
			if err != nil || !m.IsError() || m.ID() != jsonrpc.IntID(int64(i)) {
				t.Fatalf("%d: %s, %v", i, m.Bytes(), err)
			}
		}
	})
}

// D.2: a client that reads nothing ends by name, although nobody is waiting in its
// Receive: whoever hands messages on to it waits in its Send.
func TestRouterSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scripted(t, Spec{Protocol: era.OnlyModern}, func(m jsonrpc.Message) []string {
			if m.Kind() != jsonrpc.Request {
				return nil
			}
			token := m.ProgressToken().String()
			var all []string
			for i := range mux.DefaultMaxUnread + 1000 {
				all = append(all, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i))
			}
			return append(all, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}`, m.ID()))
		})
		client, ours := bridge.Pipe()
		defer client.Close(nil)
		ended := make(chan error, 1)
		go func() { ended <- s.modernHandler(bridge.PumpOptions{}).ServeConn(context.Background(), ours) }()
		send(t, client, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":1,`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		if err := <-ended; !errors.Is(err, bridge.ErrSlow) {
			t.Errorf("ServeConn = %v", err)
		}
		_ = ours.Close(nil)
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
		`{` + version + `,"io.modelcontextprotocol/clientCapabilities":{"experimental":{"` + strings.Repeat("x", sharing.MaxIntroductionSize) + `":{}}}}`,
		`{` + version + `}`, `{}`, `null`,
	} {
		requests = append(requests, parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":`+meta+`}}`))
	}
	requests = append(requests, parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
	s := new(keyChooser)
	for range 4 * replaceAfterMisses {
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
	s := new(keyChooser)
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
		"same": same, "with a token": of(`,"progressToken":1`), "very long": of(`,"x":"` + strings.Repeat("x", sharing.MaxIntroductionSize) + `"`),
	} {
		if n := testing.AllocsPerRun(100, func() { s.introductionOf(m) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	second := of(`,"io.modelcontextprotocol/clientInfo":{"name":"second"}`)
	for range replaceAfterMisses {
		s.introductionOf(second)
	}
	if got := s.introductionOf(second); got.meta == "" {
		t.Error("a client that goes on to say something else is never known")
	}
}
