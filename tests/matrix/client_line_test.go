package matrix

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// lineClient speaks newline-delimited messages: to a process on its stdin and
// stdout, or on a socket.
type lineClient struct {
	*end
	out io.WriteCloser
	p   *harness.Proc // nil: a socket
	mu  sync.Mutex
}

// newLines is the client of a stdio server.
func newLines(e *end, p *harness.Proc) *lineClient {
	c := &lineClient{end: e, out: p.Stdin, p: p}
	go c.read(p.Stdout)
	return c
}

// dialLines connects to a socket.
func dialLines(t testing.TB, e *end, network, addr string) *lineClient {
	t.Helper()
	conn, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &lineClient{end: e, out: conn}
	go c.read(conn)
	return c
}

// read delivers lines until their end: every one is exactly one message.
func (c *lineClient) read(r io.Reader) {
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if line != "" {
				c.fault("a line without its end came: %s", clip(line))
			}
			c.end.ended("end of file")
			return
		}
		c.deliver(frame{text: strings.TrimSuffix(line, "\n")})
	}
}

func (c *lineClient) send(t testing.TB, text string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.WriteString(c.out, text+"\n"); err != nil {
		t.Fatalf("%s: writing a line: %v", c.who, err)
	}
}

// reject: an error comes, as a line; nobody knows whose id it should have (J4).
func (c *lineClient) reject(t testing.TB, text string, code int, ids ...string) {
	t.Helper()
	c.rejected(t, code, ids, func() { c.send(t, text) })
}

func (c *lineClient) hangUp(t testing.TB) {
	t.Helper()
	c.out.Close()
}

// ended: end of file, and a process has ended, with status 0 after a graceful end.
func (c *lineClient) ended(t testing.TB, gone bool) {
	t.Helper()
	c.waitOver(t)
	if c.p == nil {
		return
	}
	if status := c.p.Wait(t); gone && status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

func (c *lineClient) cut() { c.out.Close() }
