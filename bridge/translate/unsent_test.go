package translate_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/translate"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// deaf is a server's Conn to which nothing can be written any more once it is deaf.
type deaf struct {
	bridge.Conn
	isDeaf  atomic.Bool
	writing chan error // not nil: then Send waits, and returns what comes here
}

func (d *deaf) TrySend(m jsonrpc.Message) bool {
	return !d.isDeaf.Load() && d.Conn.Send(context.Background(), m) == nil
}

func (d *deaf) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case !d.isDeaf.Load():
		return d.Conn.Send(ctx, m)
	case d.writing != nil:
		return <-d.writing
	}
	return syscall.EPIPE
}

func request(n int) jsonrpc.Message { return jsonrpc.NewRequest(jsonrpc.IntID(int64(n)), "x", nil) }

// ST9: when the server has ended, Receive tells which requests it cannot have got: not those that it has got, and not
// the one that is being written.
func TestTranslateTellsWhatIsUnsent(t *testing.T) {
	for name, c := range map[string]struct {
		writing chan error
		send    func(c bridge.Conn, n int) bool // reports whether the request was taken
		want    string
	}{
		"TrySend": {nil, func(c bridge.Conn, n int) bool { return c.TrySend(request(n)) }, "[2]"},
		"Send":    {nil, func(c bridge.Conn, n int) bool { return c.Send(context.Background(), request(n)) == nil }, "[2 3]"},
		"Send that waits": {make(chan error), func(c bridge.Conn, n int) bool {
			go c.Send(context.Background(), request(n))
			return true
		}, "[3]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why := errors.New("exit status 0")
				peer := bridgetest.NewPeer(t, 10)
				server := &deaf{Conn: peer}
				if c.writing != nil {
					server.writing = make(chan error)
				}
				conn := translate.Wrap(server, new(bridgetest.KeepingFilter), nil)
				received := make(chan error, 1)
				go func() { received <- conn.Receive(context.Background(), handing{make(chan jsonrpc.Message)}) }()
				bridgetest.Must(t, conn.Send(t.Context(), request(1)))
				peer.Gets(string(new(request(1)).Bytes()))
				server.isDeaf.Store(true)
				for n := 2; n <= 3; n++ {
					taken := c.send(conn, n)
					synctest.Wait()
					if want := n == 2 && name == "TrySend" || c.writing != nil; taken != want {
						t.Errorf("request %d: taken %v, want %v", n, taken, want)
					}
				}
				peer.End <- why
				synctest.Wait()
				if server.writing != nil {
					server.writing <- nil
				}
				err := <-received
				unsent, ok := errors.AsType[*bridge.UnsentError](err)
				if !ok || !errors.Is(err, why) || err.Error() != why.Error() {
					t.Fatalf("Receive = %v", err)
				}
				var got []string
				for _, m := range unsent.Requests {
					got = append(got, m.ID().String())
				}
				if fmt.Sprint(got) != c.want {
					t.Errorf("unsent: %v, want %s", got, c.want)
				}
				bridgetest.Must(t, conn.Close(nil))
			})
		})
	}
}

// doubling is a Filter that makes two requests of each.
type doubling struct{ bridgetest.PassingFilter }

func (doubling) FromClient(_ time.Time, m jsonrpc.Message, out *era.Out) {
	out.Server(m)
	out.Server(m.WithID(jsonrpc.StringID("more")))
}

// A Send of which the server has got a part does not fail: its message must not be sent again.
func TestTranslateSendThatFailsInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for part, wantErr := range []bool{true, false} {
			peer := bridgetest.NewPeer(t, 10)
			conn := receive(translate.Wrap(&failingAfter{Conn: peer, left: part}, doubling{}, nil))
			if err := conn.Send(t.Context(), request(1)); (err != nil) != wantErr {
				t.Errorf("after %d messages: Send = %v", part, err)
			}
			if !wantErr { // somebody must answer it: the Conn ends
				if _, err := bridgetest.Recv(t.Context(), conn); !errors.Is(err, syscall.EPIPE) {
					t.Errorf("Recv = %v", err)
				}
			}
			_ = conn.Close(nil)
		}
	})
}

// failingAfter is a server's Conn that takes so many messages.
type failingAfter struct {
	bridge.Conn
	left int
}

func (f *failingAfter) TrySend(jsonrpc.Message) bool { return false }

func (f *failingAfter) Send(ctx context.Context, m jsonrpc.Message) error {
	if f.left--; f.left < 0 {
		return syscall.EPIPE
	}
	return f.Conn.Send(ctx, m)
}
