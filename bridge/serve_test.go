package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

type noServer struct{ err error }

func (d noServer) Dial(context.Context) (bridge.Conn, error) { return nil, d.err }

type publicError struct{}

func (publicError) Error() string       { return "no /secret/file" }
func (publicError) PublicError() string { return "no file" }

// Each request of a client without a server is answered, with what may be
// said and no more. Where there was no place, or none any more, the first answer is the end.
func TestServeSaysWhy(t *testing.T) {
	for _, c := range []struct {
		err          error
		text, reason string
	}{
		{errors.New("no /secret/file"), "the server could not be started; the bridge's log says why", `"server_unavailable"`},
		{fmt.Errorf("dial: %w", publicError{}), "no file", `"server_unavailable"`},
		{fmt.Errorf("20 run in /secret: %w", bridge.ErrBusy), bridge.ErrBusy.Error(), `"busy"`},
		{bridge.ErrReclaimed, bridge.ErrReclaimed.Error(), `"busy"`},
	} {
		once := errors.Is(c.err, bridge.ErrBusy) || errors.Is(c.err, bridge.ErrReclaimed)
		client, far := bridge.Pipe()
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := bridge.Serve(noServer{c.err}, bridge.PumpOptions{}).ServeConn(t.Context(), far); !errors.Is(err, c.err) {
				t.Errorf("ServeConn returned %v, want %v", err, c.err)
			}
		})
		for i := range int64(2) {
			if i > 0 && once {
				break
			}
			for _, m := range []jsonrpc.Message{jsonrpc.NewNotification("n", nil), jsonrpc.NewRequest(jsonrpc.IntID(i), "m", nil)} {
				bridgetest.Must(t, client.Send(t.Context(), m))
			}
			m, err := bridgetest.Recv(t.Context(), client)
			bridgetest.Must(t, err)
			text, _ := jsonrpc.Text(m.Lookup("error", "message"))
			if m.ID() != jsonrpc.IntID(i) || text != c.text || string(m.Lookup("error", "data", "reason")) != c.reason {
				t.Errorf("%v: answered %s", c.err, m.Bytes())
			}
		}
		if !once {
			client.Close(nil)
		}
		wg.Wait()
		client.Close(nil)
	}
}
