package stdio

import (
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// pipes returns two Conns over two pipes of the operating system: a talks to
// a client, b to a server.
func pipes(t testing.TB, a, b Options) (*Conn, *Conn) {
	t.Helper()
	ar, bw := osPipe(t)
	br, aw := osPipe(t)
	a.Peer, b.Peer = Client, Server
	x := NewConn(ar, aw, closeAll(ar, aw), a)
	y := NewConn(br, bw, closeAll(br, bw), b)
	t.Cleanup(func() { x.Close(nil); y.Close(nil) })
	return x, y
}

func osPipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	bridgetest.Must(t, err)
	return r, w
}

func closeAll(all ...io.Closer) func() error {
	return func() error {
		for _, c := range all {
			c.Close()
		}
		return nil
	}
}

// reading returns a Conn that reads from r and writes to w.
func reading(t testing.TB, r io.Reader, w io.Writer, opts Options) *Conn {
	t.Helper()
	c := NewConn(r, w, nil, opts)
	t.Cleanup(func() { c.Close(nil) })
	return c
}

// all receives everything up to io.EOF.
func all(t testing.TB, c *Conn) (texts []string) {
	t.Helper()
	for {
		m, err := bridgetest.Recv(t.Context(), c)
		if err == io.EOF {
			return texts
		}
		if err != nil {
			t.Fatalf("Recv: %v", err)
		}
		texts = append(texts, string(m.Bytes()))
	}
}

func parse(t testing.TB, text string) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return m
}

// noise collects what OnNoise is told.
type noise struct {
	mu      sync.Mutex
	sizes   []int
	reasons []string
}

func (n *noise) hook(size int, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sizes = append(n.sizes, size)
	n.reasons = append(n.reasons, reason)
}

// output is a writer that keeps what was written, each write on its own.
type output struct {
	mu     sync.Mutex
	writes []string
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes = append(o.writes, string(p))
	return len(p), nil
}

func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.Join(o.writes, "")
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
