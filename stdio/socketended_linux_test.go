package stdio

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

type slowSink struct {
	t   *testing.T
	got []string
}

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
func TestSocketServerEnded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		nc, _ := l.Accept()
		nc.Write([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n"))
		nc.Close()
	}()
	c, err := Socket{Network: "unix", Address: path}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(nil)
	s := &slowSink{t: t}
	start := time.Now()
	err = c.Receive(t.Context(), s)
	t.Logf("Receive = %v after %v, handed on %v", err, time.Since(start), s.got)
	if len(s.got) != 2 {
		t.Error("answers of the server are lost")
	}
}
