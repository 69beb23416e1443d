package demo

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// client talks to a Server over a pipe, in JSON text. Its tests run in a
// synctest bubble, where time is fake and a goroutine left behind fails the test.
type client struct {
	t    *testing.T
	conn bridge.Conn
	end  *halfClose
	done chan error // what ServeConn returned

	mu  sync.Mutex
	got []string // received and not yet taken
}

// halfClose lets a test end the client's side of the conversation only.
type halfClose struct {
	bridge.Conn
	eof  context.Context
	stop context.CancelFunc
}

func (h *halfClose) Receive(ctx context.Context, sink bridge.Sink) error {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.eof, cancel)()
	err := h.Conn.Receive(both, sink)
	if ctx.Err() == nil && h.eof.Err() != nil {
		return io.EOF
	}
	return err
}

// run calls f with a client that is connected and whose output is being read, in a bubble.
func run(t *testing.T, srv *Server, f func(c *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, srv)
		reading := make(chan struct{})
		go func() {
			defer close(reading)
			_ = c.conn.Receive(context.Background(), bridgetest.SinkFunc(func(_ context.Context, m jsonrpc.Message) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.got = append(c.got, string(m.Bytes()))
				return nil
			}))
		}()
		f(c)
		c.conn.Close(nil)
		<-reading
		if err := <-c.done; err != nil {
			t.Errorf("ServeConn: %v", err)
		}
	})
}

// dial starts srv on a pipe.
func dial(t *testing.T, srv *Server) *client {
	a, b := bridge.Pipe()
	eof, stop := context.WithCancel(context.Background())
	c := &client{t: t, conn: a, end: &halfClose{b, eof, stop}, done: make(chan error, 1)}
	t.Cleanup(stop)
	go func() {
		err := srv.ServeConn(t.Context(), c.end)
		b.Close(nil)
		c.done <- err
		close(c.done)
	}()
	return c
}

func (c *client) send(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		m, err := jsonrpc.Parse([]byte(line))
		if err != nil {
			c.t.Fatalf("the test sends no valid message: %v: %s", err, line)
		}
		if err := c.conn.Send(context.Background(), m); err != nil {
			c.t.Fatalf("send: %v", err)
		}
	}
}

// take waits until nothing moves any more and returns what came since the last time.
func (c *client) take() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.got
	c.got = nil
	return got
}

// expect checks that exactly these messages have come, byte for byte.
func (c *client) expect(want ...string) {
	c.t.Helper()
	got := c.take()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		c.t.Errorf("received\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// initialize opens the session with that revision and these capabilities (JSON).
func (c *client) initialize(revision, capabilities string) {
	c.t.Helper()
	c.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"`+revision+
		`","capabilities":`+capabilities+`,"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if got := c.take(); len(got) != 1 || !strings.Contains(got[0], `"protocolVersion":"`+revision+`"`) {
		c.t.Fatalf("initialize: %s", got)
	}
}

// open initializes with the latest revision and no capabilities.
func (c *client) open() {
	c.t.Helper()
	c.initialize(latestLegacy, "{}")
}

// callTool returns the message that calls a tool.
func callTool(id, name, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `}}`
}

// callWithToken is callTool with a progress token.
func callWithToken(id, token, name, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments +
		`,"_meta":{"progressToken":` + token + `}}}`
}

// textOf is the answer to a call whose result is one text.
func textOf(id, words string) string {
	quoted, _ := json.Marshal(words)
	return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":` + string(quoted) + `}]}}`
}

// errorTextOf is textOf with isError.
func errorTextOf(id, words string) string {
	return strings.TrimSuffix(textOf(id, words), "}}") + `,"isError":true}}`
}

func errorOf(id, code, message string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":` + code + `,"message":"` + message + `"}}`
}
