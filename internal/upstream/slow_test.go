package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/toolfilter"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// flooding is how much a server says in the course of one call: more than a client
// that shares a server may leave unread, in messages of 64 KiB.
const flooding = 300

// flood plays a server that says more than anybody keeps for a client.
func flood(modern bool) func(m jsonrpc.Message) []string {
	pad := strings.Repeat("x", 64<<10)
	return func(m jsonrpc.Message) (lines []string) {
		switch m.Method() {
		case "initialize":
			if modern {
				return []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`}
			}
			return []string{`{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`}
		case "server/discover":
			if !modern {
				return []string{`{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no"}}`}
			}
			return []string{`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`}
		case "tools/call":
			for i := range flooding {
				lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":"%s"}}`,
					m.ProgressToken(), i, pad))
			}
			return lines
		}
		return nil
	}
}

const (
	legacyFlood = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":7}}}`
	modernFlood = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":7,` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
)

// D.2: a client that shares a server and reads nothing is cut off by name, whichever
// way it came to share that: whatever lies between the client and the queue of its
// messages must not hide the end of the one from the other. Nothing in between may
// lose what a user notices.
func TestSlowClientIsCutOff(t *testing.T) {
	for _, c := range []struct {
		name   string
		spec   Spec
		modern bool // the server is
		client bool // the client is a modern one
	}{
		{"legacy client, modern server", Spec{Protocol: era.OnlyModern}, true, false},
		{"legacy client, era is found out", Spec{}, true, false},
		{"legacy client, shared modern server", Spec{Isolation: Shared}, true, false},
		{"legacy client, shared legacy server", Spec{Isolation: Shared, Protocol: era.OnlyLegacy}, false, false},
		{"legacy client, legacy server by principal", Spec{Isolation: PerPrincipal, Protocol: era.OnlyLegacy}, false, false},
		{"modern client, modern server", Spec{}, true, true},
		{"modern client, legacy server", Spec{Protocol: era.OnlyLegacy}, false, true},
	} {
		for _, filtered := range []bool{false, true} {
			for _, principal := range []string{"", "ann"} {
				t.Run(fmt.Sprintf("%s/filter %v/principal %q", c.name, filtered, principal), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						spec := c.spec
						if filtered {
							spec.Tools = toolfilter.Rules{Ignore: []string{"hidden"}}
						}
						s := scripted(t, spec, flood(c.modern))
						client, served := serving(t, s.Handler(true, bridge.PumpOptions{}), principal)
						if c.client {
							send(t, client, modernFlood)
						} else {
							begin(t, client)
							send(t, client, legacyFlood)
						}
						select {
						case err := <-served:
							if !errors.Is(err, bridge.ErrSlow) {
								t.Errorf("ServeConn = %v", err)
							}
						case <-time.After(time.Hour):
							t.Error("a client that reads nothing is still served after an hour")
						}
					})
				})
			}
		}
	}
}

// A client with a server of its own holds up nobody else: it is waited for, and what
// the server has said all arrives.
func TestSlowClientOfItsOwnServer(t *testing.T) {
	for _, filtered := range []bool{false, true} {
		t.Run(fmt.Sprintf("filter %v", filtered), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spec := Spec{}
				if filtered {
					spec.Tools = toolfilter.Rules{Ignore: []string{"hidden"}}
				}
				s := scripted(t, spec, flood(false))
				client, served := serving(t, s.Handler(true, bridge.PumpOptions{}), "")
				begin(t, client)
				send(t, client, legacyFlood)
				select {
				case err := <-served:
					t.Fatalf("ServeConn = %v", err)
				case <-time.After(time.Hour):
				}
				for i := range flooding {
					m, err := bridgetest.Recv(t.Context(), client)
					if err != nil || string(m.Lookup("params", "progress")) != fmt.Sprint(i) {
						t.Fatalf("message %d: %.99s, %v", i, m.Bytes(), err)
					}
				}
			})
		})
	}
}

// serving runs a Handler for a client, whose end it returns, and where the error comes.
func serving(t *testing.T, h bridge.Handler, principal string) (client bridge.Conn, served <-chan error) {
	t.Helper()
	client, ours := bridge.Pipe()
	ctx, cancel := context.WithCancel(identity.WithPrincipal(context.Background(), principal))
	errs, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		errs <- h.ServeConn(ctx, ours)
		_ = ours.Close(nil)
	}()
	t.Cleanup(func() {
		_ = client.Close(nil)
		cancel()
		<-done
	})
	return client, errs
}

// begin is how a legacy client begins a session.
func begin(t *testing.T, client bridge.Conn) {
	t.Helper()
	if m := ask(t, client, initialize); m.IsError() {
		t.Fatalf("initialize: %s", m.Bytes())
	}
	send(t, client, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}
