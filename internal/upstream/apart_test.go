package upstream

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// fragile is a Dialer of 2026-07-28 servers that a call of "crash" ends.
type fragile struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	starts int
}

// ends makes a server's Conn end as a process does that has crashed.
func ends(conn bridge.Conn) bridge.Conn {
	return bridge.Intercept(conn, bridge.Hooks{Ended: func(err error) error {
		if err == io.EOF {
			err = errors.New("the server ended: exit status 1")
		}
		return err
	}})
}

func (f *fragile) Dial(context.Context) (bridge.Conn, error) {
	ours, theirs := bridge.Pipe()
	f.mu.Lock()
	f.starts++
	f.mu.Unlock()
	f.wg.Go(func() {
		defer theirs.Close(nil)
		for {
			m, err := bridgetest.Recv(context.Background(), theirs)
			if err != nil {
				return
			}
			switch name, _ := jsonrpc.Text(m.Lookup("params", "name")); {
			case m.Kind() != jsonrpc.Request || name == "hang":
			case name == "crash":
				return
			case name == "crash later":
				time.Sleep(time.Millisecond)
				return
			case m.Method() == "server/discover":
				_ = theirs.Send(context.Background(), jsonrpc.NewResult(m.ID(), []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)))
			default:
				_ = theirs.Send(context.Background(), jsonrpc.NewResult(m.ID(), []byte(`{"resultType":"complete","content":[]}`)))
			}
		}
	})
	return ends(ours), nil
}

// serve returns the Server of these processes.
func (f *fragile) serve(t *testing.T, spec Spec) *Server {
	t.Helper()
	spec.Command = supervisor.Spec{Name: "fake", Path: "fake"}
	spec.Protocol = era.OnlyModern
	s, err := New(spec)
	bridgetest.Must(t, err)
	s.dialers.lasting, s.dialers.singleSession, s.dialers.modern = f, f, s.wrapDialer(f)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		f.wg.Wait()
	})
	return s
}

// calls returns a modern call of a tool, as one POST is, and the answer to come.
func calls(t *testing.T, s *Server, principal, tool string) (answer <-chan jsonrpc.Message) {
	t.Helper()
	client := party(t, identity.WithPrincipal(t.Context(), principal), s.ExchangeHandler(bridge.PumpOptions{}))
	send(t, client, strings.Replace(modernCall, `"x"`, `"`+tool+`"`, 1))
	c := make(chan jsonrpc.Message, 1)
	go func() {
		m, _ := bridgetest.Recv(t.Context(), client)
		c <- m
	}()
	return c
}

// atOnce wants a call to be answered with a result without any time passing.
func atOnce(t *testing.T, s *Server, principal, when string) {
	t.Helper()
	began := time.Now()
	if m := <-calls(t, s, principal, "x"); m.Kind() != jsonrpc.Response || m.IsError() || time.Since(began) > 0 {
		t.Errorf("%s: %s's call is answered after %v: %s", when, principal, time.Since(began), m.Bytes())
	}
}

// D.1: a principal whose calls end the server that all share keeps nobody else from
// it: not by the pauses between its starts, and not for long by its ends.
func TestCrashesAreOnesOwn(t *testing.T) {
	const crashes = 8
	t.Run("others are idle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := new(fragile).serve(t, Spec{})
			for range crashes {
				if m := <-calls(t, s, "ann", "crash"); !m.IsError() {
					t.Fatalf("%s", m.Bytes())
				}
				atOnce(t, s, "bob", "after ann's crash")
			}
			if m := <-calls(t, s, "ann", "x"); !strings.Contains(string(m.Bytes()), "in a row") {
				t.Errorf("ann's own pause: %s", m.Bytes())
			}
			time.Sleep(time.Minute)
			atOnce(t, s, "ann", "after a minute")
		})
	})
	t.Run("others are busy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := new(fragile).serve(t, Spec{})
			var busy <-chan jsonrpc.Message
			for i := range crashes {
				if busy == nil {
					busy = calls(t, s, "bob", "hang")
				}
				synctest.Wait()
				<-calls(t, s, "ann", "crash")
				synctest.Wait()
				select {
				case m := <-busy:
					if i > 1 { // it takes two to know which of them it is
						t.Errorf("crash %d has ended bob's call: %s", i, m.Bytes())
					}
					busy = nil
				default:
				}
				if i > 0 {
					atOnce(t, s, "bob", "after ann's crash")
					atOnce(t, s, "cyd", "after ann's crash")
				}
				time.Sleep(time.Second)
			}
		})
	})
	t.Run("the call was given up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := new(fragile).serve(t, Spec{})
			for range crashes {
				client := party(t, identity.WithPrincipal(t.Context(), "ann"), s.modernHandler(bridge.PumpOptions{}))
				send(t, client, strings.Replace(modernCall, `"x"`, `"crash later"`, 1))
				synctest.Wait() // it has reached the server
				send(t, client, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
				time.Sleep(2 * time.Millisecond)
				atOnce(t, s, "bob", "after ann's crash")
			}
		})
	})
	t.Run("sessions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := new(fragile)
			s := f.serve(t, Spec{})
			bob, _ := serving(t, s.LegacyHandler(true, bridge.PumpOptions{}), "bob")
			begin(t, bob)
			for i := range crashes {
				ann, served := serving(t, s.LegacyHandler(true, bridge.PumpOptions{}), "ann")
				if m := ask(t, ann, initialize); m.IsError() {
					if i < 5 {
						t.Fatalf("session %d: %s", i, m.Bytes())
					}
					continue // her own server is not tried any more for a while
				}
				send(t, ann, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				send(t, ann, strings.Replace(legacyCall, `"x"`, `"crash"`, 1))
				if i == 0 { // it goes on with a server of her own
					select {
					case <-served:
					case <-time.After(time.Hour):
						t.Fatal("ann's session goes on where all share a server")
					}
				}
				synctest.Wait()
				began := time.Now()
				if m := ask(t, bob, legacyCall); m.IsError() || time.Since(began) > 0 {
					t.Errorf("crash %d: bob's session is answered after %v: %s", i, time.Since(began), m.Bytes())
				}
			}
		})
	})
}

// Clients that are told apart by nothing share the pauses as they share the server, and
// so do all where that is asked for.
func TestCrashesAreShared(t *testing.T) {
	for name, c := range map[string]struct {
		ann, bob string
		spec     Spec
	}{
		"no principals": {"", "", Spec{}}, "shared": {"ann", "bob", Spec{Isolation: Shared}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := new(fragile).serve(t, c.spec)
				for range 5 {
					<-calls(t, s, c.ann, "crash")
				}
				if m := <-calls(t, s, c.bob, "x"); !strings.Contains(string(m.Bytes()), "5 times in a row") {
					t.Errorf("%s", m.Bytes())
				}
			})
		})
	}
}
