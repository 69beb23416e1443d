package stdio

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// slowSink takes nothing for longer than a Conn has patience with a peer that is gone.
type slowSink struct{ got []string }

func (s *slowSink) TrySend(jsonrpc.Message) bool { return false }
func (s *slowSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if len(s.got) == 0 { // the client takes nothing for a while
		select {
		case <-time.After(13 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.got = append(s.got, m.ID().String())
	return nil
}

// A server that has answered and closed its socket: a slow client still gets the answers.
// The time is that of a bubble: by the time the client is slow nobody waits for the socket.
func TestSocketServerEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		bridgetest.Must(t, err)
		defer l.Close()
		go func() {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			nc.Write([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n"))
			nc.Close()
		}()
		c, err := Socket{Network: "unix", Address: l.Addr().String()}.Dial(t.Context())
		bridgetest.Must(t, err)
		defer c.Close(nil)
		s := &slowSink{}
		start := time.Now()
		err = c.Receive(t.Context(), s)
		t.Logf("Receive = %v after %v, handed on %v", err, time.Since(start), s.got)
		if len(s.got) != 2 {
			t.Error("answers of the server are lost")
		}
	})
}
