package legacysse

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// SS3: a message whose POST was answered 202 reaches the server, also if the client closes its
// stream before the server takes that message; only then does Receive say how the session has ended.
func TestAcceptedBeforeEnd(t *testing.T) {
	for name, accept := range map[string]func(t *testing.T, c *reply){
		"seen by a Receive that has ended": func(t *testing.T, c *reply) {
			p := c.post(note)
			if _, err := bridge.First(t.Context(), c.session); err != nil {
				t.Fatal(err)
			}
			p.want(http.StatusAccepted, "")
			c.cancel()
		},
		"offered as its Receive ends": func(t *testing.T, c *reply) {
			receiving, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				ended <- c.session.Receive(receiving, &refusesAll{trying: func() {
					stop()
					c.cancel()
					<-c.session.ctx.Done()
				}})
			}()
			synctest.Wait()
			p := c.post(note)
			if err := <-ended; err != errClientGone && err != errRefused {
				t.Errorf("Receive = %v", err)
			}
			p.want(http.StatusAccepted, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := openServed(t)
				accept(t, c)
				synctest.Wait()
				c.session.gets(note)
				c.session.gone(errClientGone)
			})
		})
	}
}

// A message that was answered 202 reaches the server through a Pump, although the end of the
// session ends the ctx of the Pump while the server does not take that message at once.
func TestAcceptedThroughPump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		ours, child := bridge.Pipe()
		var c *reply
		s.serve = func(ctx context.Context, p *server) error {
			busy := &busyServer{Conn: ours, trying: func() {
				c.cancel()
				<-ctx.Done()
			}}
			err := bridge.Pump(ctx, p, busy, bridge.PumpOptions{})
			return errors.Join(err, ours.Close(nil))
		}
		c = s.open()
		c.post(note).want(http.StatusAccepted, "")
		if m, err := bridgetest.Recv(t.Context(), child); err != nil || string(m.Bytes()) != note {
			t.Errorf("the server got %s, %v", m.Bytes(), err)
		}
	})
}

// busyServer takes nothing at once.
type busyServer struct {
	bridge.Conn
	trying func() // is called in TrySend
}

func (b *busyServer) TrySend(jsonrpc.Message) bool {
	b.trying()
	return false
}

// openServed opens a session whose bridge.Handler goes on until the test ends it, also if
// the client is gone: it may still receive what was accepted.
func openServed(t *testing.T) *reply {
	s := newSite(t, HandlerOptions{}, nil)
	s.serve = func(_ context.Context, p *server) error { return <-p.quit }
	c := s.open()
	t.Cleanup(func() { c.session.quit <- nil })
	return c
}

// refusesAll is a Sink that takes nothing.
type refusesAll struct {
	trying func() // is called in TrySend
}

var errRefused = errors.New("refused")

func (r *refusesAll) TrySend(jsonrpc.Message) bool {
	r.trying()
	return false
}

func (r *refusesAll) Send(context.Context, jsonrpc.Message) error { return errRefused }
