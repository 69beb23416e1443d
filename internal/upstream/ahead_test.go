package upstream

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// piped is a Dialer of one Conn.
type piped struct{ conn bridge.Conn }

func (p piped) Dial(context.Context) (bridge.Conn, error) { return p.conn, nil }

func say(t *testing.T, server bridge.Conn, method string) {
	t.Helper()
	if err := server.Send(t.Context(), jsonrpc.NewNotification(method, nil)); err != nil {
		t.Error(err)
	}
}

// What a server says before its first client has come is the client's, in order.
func TestAheadKeepsWhatIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, server := bridge.Pipe()
		a := startAhead(piped{ours}, func(err error) { t.Error(err) }, hclog.NewNullLogger())
		say(t, server, "a")
		say(t, server, "b")
		synctest.Wait()
		taken := a.take()
		if taken == nil {
			t.Fatal("nothing was kept")
		}
		conn := taken
		go say(t, server, "c")
		for _, want := range []string{"a", "b", "c"} {
			if m, err := bridgetest.Recv(t.Context(), conn); err != nil || m.Method() != want {
				t.Errorf("received %q, %v, want %q", m.Method(), err, want)
			}
		}
		if a.take() != nil {
			t.Error("it was handed out twice")
		}
		_ = conn.Close(nil)
		_ = a.close()
	})
}

// A client that comes while the server still starts waits for it, and gets it.
func TestAheadIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, server := bridge.Pipe()
		d := &slowDialer{conn: ours, goOn: make(chan struct{})}
		a := startAhead(d, func(err error) { t.Error(err) }, hclog.NewNullLogger())
		taken := make(chan bridge.Conn)
		go func() { taken <- a.take() }()
		synctest.Wait()
		close(d.goOn)
		if got := <-taken; got != ours {
			t.Errorf("the client got %v", got)
		}
		_, _ = ours.Close(nil), server.Close(nil)
		_ = a.close()
	})
}

// A server that cannot be started is told of, and nobody gets it.
func TestAheadCannotStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed error
		a := startAhead(&slowDialer{err: io.ErrUnexpectedEOF}, func(err error) { failed = err }, hclog.NewNullLogger())
		if conn := a.take(); conn != nil {
			t.Error("it was handed out")
		}
		_ = a.close()
		if failed != io.ErrUnexpectedEOF {
			t.Errorf("failed: %v", failed)
		}
	})
}

// A slowDialer returns conn and err when goOn is closed; nil: at once.
type slowDialer struct {
	conn bridge.Conn
	err  error
	goOn chan struct{}
}

func (d *slowDialer) Dial(context.Context) (bridge.Conn, error) {
	if d.goOn != nil {
		<-d.goOn
	}
	return d.conn, d.err
}

// A server that speaks and then ends, or that nobody asks for, is not kept.
func TestAheadIsWatched(t *testing.T) {
	for name, wait := range map[string]time.Duration{"ends at once": time.Second, "ends later": 5 * time.Second, "is not asked for": 31 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, server := bridge.Pipe()
				var failed error
				a := startAhead(piped{ours}, func(err error) { failed = err }, hclog.NewNullLogger())
				say(t, server, "a")
				time.Sleep(wait)
				if name != "is not asked for" {
					_ = server.Close(nil)
				}
				synctest.Wait()
				if conn := a.take(); conn != nil {
					t.Error("it was handed out")
				}
				if (failed != nil) != (name == "ends at once") {
					t.Errorf("failed: %v", failed)
				}
				if _, err := bridgetest.Recv(t.Context(), server); err == nil {
					t.Error("it was not stopped")
				}
				_ = a.close()
			})
		})
	}
}
