package toolfilter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// waiting is how many messages wait for Recv before the server has to.
const waiting = 16

// conn is the Conn to a server, without the hidden tools. Answers of the
// filter's own and the server's messages meet in a channel, so that Recv has
// one place to wait at.
type conn struct {
	server bridge.PullConn
	filter *filter
	lists  lists

	in    chan jsonrpc.Message
	ended chan struct{} // closed when the reader has ended
	err   error         // what the server's Recv ended with; set before ended is closed

	done     chan struct{} // closed by Close
	closing  sync.Once
	closeErr error
}

func newConn(server bridge.PullConn, f *filter) *conn {
	c := &conn{server: server, filter: f, in: make(chan jsonrpc.Message, waiting),
		ended: make(chan struct{}), done: make(chan struct{})}
	go c.read()
	return c
}

// read takes the server's messages until it ends. Close ends it, too.
func (c *conn) read() {
	defer close(c.ended)
	for {
		m, err := c.server.Recv(context.Background())
		if err != nil {
			c.err = err
			return
		}
		if m.Kind() == jsonrpc.Response && c.lists.answered(m.ID()) {
			m = c.filter.fromServer(m)
		}
		select {
		case c.in <- m:
		case <-c.done:
			c.err = io.ErrClosedPipe
			return
		}
	}
}

// Recv implements bridge.PullConn.
func (c *conn) Recv(ctx context.Context) (jsonrpc.Message, error) {
	if err := c.stopped(ctx); err != nil {
		return jsonrpc.Message{}, err
	}
	select {
	case m := <-c.in:
		return m, nil
	case <-ctx.Done():
		return jsonrpc.Message{}, ctx.Err()
	case <-c.done:
		return jsonrpc.Message{}, io.ErrClosedPipe
	case <-c.ended:
	}
	select { // what came before the end still counts
	case m := <-c.in:
		return m, nil
	default:
		return jsonrpc.Message{}, c.err
	}
}

// stopped returns why a call must end, nil if it need not.
func (c *conn) stopped(ctx context.Context) error {
	select {
	case <-c.done:
		return io.ErrClosedPipe
	default:
		return ctx.Err()
	}
}

// Send implements bridge.PullConn. What would reach a hidden tool does not reach
// the server: a request is answered through Recv, and anything else is an error.
func (c *conn) Send(ctx context.Context, m jsonrpc.Message) error {
	if no := c.filter.fromClient(m); no != nil {
		return c.refuse(ctx, m, no)
	}
	switch m.Method() {
	case "tools/list":
		if m.Kind() == jsonrpc.Request {
			c.lists.sent(m.ID())
		}
	case "notifications/cancelled":
		c.lists.cancelled(m.RequestID())
	}
	return c.server.Send(ctx, m)
}

// refuse answers whoever waits for an answer.
func (c *conn) refuse(ctx context.Context, m jsonrpc.Message, no *refusal) error {
	id := m.ID()
	switch {
	case m.Kind() == jsonrpc.Response && !id.IsZero() && id != jsonrpc.NullID:
		text := "the client's answer was refused: " + no.text
		return c.server.Send(ctx, jsonrpc.NewError(id, jsonrpc.CodeInternalError, text, nil))
	case m.Kind() != jsonrpc.Request:
		return errors.New("refused: " + no.text)
	}
	if err := c.stopped(ctx); err != nil {
		return err
	}
	select {
	case c.in <- jsonrpc.NewError(id, no.code, no.text, nil):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		return io.ErrClosedPipe
	}
}

// Close implements bridge.PullConn. It closes the server's Conn and returns its error.
func (c *conn) Close() error {
	c.closing.Do(func() {
		close(c.done)
		c.closeErr = c.server.Close()
		<-c.ended
	})
	return c.closeErr
}

// refusal says why a client's message does not reach the server.
type refusal struct {
	code int
	text string
}

// fromClient returns why a message must not reach the server, nil if it may.
func (f *filter) fromClient(m jsonrpc.Message) *refusal {
	if name := nearKey(m); name != "" {
		return &refusal{jsonrpc.CodeInvalidRequest, caseOnly(name)}
	}
	if m.Method() != "tools/call" {
		return nil
	}
	named := false
	for p := range m.ParamsObject().Members() {
		// Servers may disagree about which of several equal keys counts, and
		// some take Name for name. None of them may name a hidden tool.
		if !strings.EqualFold(p.Key, "name") {
			continue
		}
		name, ok := jsonrpc.Text(p.Value)
		switch {
		case !ok:
			return &refusal{jsonrpc.CodeInvalidParams, "the name of a tool is a string"}
		case len(name) > maxName:
			return &refusal{jsonrpc.CodeInvalidParams, fmt.Sprintf("the name of the tool is longer than %d bytes, which is the limit", maxName)}
		case !f.visible(name):
			return &refusal{jsonrpc.CodeInvalidParams, "Unknown tool: " + clip(name)}
		}
		named = named || p.Key == "name"
	}
	if !named {
		return &refusal{jsonrpc.CodeInvalidParams, "tools/call needs the name of a tool"}
	}
	return nil
}

var envelope = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// nearKey returns the key of the envelope that another key of m is equal to
// but for upper and lower case, "" if there is none. Some readers take the one
// for the other, so the message could mean something else to them than to us.
func nearKey(m jsonrpc.Message) string {
	for key := range m.Keys() {
		if slices.Contains(envelope, key) {
			continue
		}
		for _, name := range envelope {
			if strings.EqualFold(key, name) {
				return name
			}
		}
	}
	return ""
}

func caseOnly(name string) string {
	return "a key of the message differs from \"" + name + "\" by upper and lower case only"
}

// clip bounds a name that is repeated to whoever sent it.
func clip(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "..."
}
