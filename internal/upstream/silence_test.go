package upstream

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// stubborn is a Dialer of servers that take 5 s to stop.
type stubborn struct{ bridge.Dialer }

func (d stubborn) Dial(ctx context.Context) (bridge.Conn, error) {
	conn, err := d.Dialer.Dial(ctx)
	return stubbornConn{conn}, err
}

type stubbornConn struct{ bridge.Conn }

func (c stubbornConn) Close(reason error) error {
	time.Sleep(5 * time.Second)
	return c.Conn.Close(reason)
}

// ED7: of a server that is there and answers nothing, clients, the log and
// /readyz say just that, once the questions have had their 45 seconds, of two processes.
func TestSilentServer(t *testing.T) {
	for name, c := range map[string]struct {
		isolation Isolation
		of        func(*Server) bridge.Handler
		call      string
	}{
		"modern client":      {Auto, func(s *Server) bridge.Handler { return s.ExchangeHandler(bridge.PumpOptions{}) }, modernCall},
		"modern, on a line":  {Auto, func(s *Server) bridge.Handler { return s.Handler(true, bridge.PumpOptions{}) }, modernCall},
		"legacy that shares": {Shared, func(s *Server) bridge.Handler { return s.Handler(true, bridge.PumpOptions{}) }, initialize},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				f := &fleet{deaf: 10}
				s := serverOf(t, f, Spec{Isolation: c.isolation, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
				s.dialers.modern = s.wrapDialer(stubborn{f})
				const what = "the server was started but has answered neither server/discover within 3s nor initialize within 25s"
				for range 2 {
					began := time.Now()
					client := party(t, t.Context(), c.of(s))
					send(t, client, c.call)
					m, err := bridgetest.Recv(t.Context(), client)
					bridgetest.Must(t, err)
					if string(m.Lookup("error", "message")) != `"`+what+`"` || string(m.Lookup("error", "data", "reason")) != `"server_unavailable"` {
						t.Errorf("%s", m.Bytes())
					}
					if took := time.Since(began); took != 45*time.Second {
						t.Errorf("answered after %v, want %v", took, 45*time.Second)
					}
				}
				if got := s.State().LastError; got != what {
					t.Errorf("/readyz says %q", got)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if n := strings.Count(log.String(), what); n != 1 || strings.Contains(log.String(), "could not be") {
					t.Errorf("it stands %d times in the log:\n%s", n, log.String())
				}
			})
		})
	}
}
