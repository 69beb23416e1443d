package matrix

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// noLimit lifts the limit of the size of what is read.
const noLimit = -1

// wsClient is a strict client over WebSocket.
type wsClient struct {
	*end
	conn   *websocket.Conn
	dialer dialer

	leaving atomic.Bool
	left    chan error // what our closing handshake came to; one at most
}

// dialWS connects and offers the subprotocol mcp, which a server must choose (WS2).
func dialWS(t testing.TB, e *end, url string) *wsClient {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	c := &wsClient{end: e, left: make(chan error, 1)}
	conn, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		Subprotocols: []string{"mcp"},
		HTTPClient:   &http.Client{Transport: &http.Transport{DialContext: c.dialer.dial}},
	})
	if err != nil {
		t.Fatalf("connecting to %s: %v", url, err)
	}
	if conn.Subprotocol() != "mcp" {
		t.Fatalf("the server chose the subprotocol %q, want mcp", conn.Subprotocol())
	}
	conn.SetReadLimit(noLimit)
	c.conn = conn
	go c.read(context.Background())
	return c
}

// read delivers what comes: one message a text frame (WS2).
func (c *wsClient) read(ctx context.Context) {
	for {
		kind, text, err := c.conn.Read(ctx)
		if err != nil {
			how := closing(err)
			// Whoever closes reads the peer's close frame itself if nobody is
			// reading at that moment; then Read only learns that all is over.
			if errors.Is(err, net.ErrClosed) && c.leaving.Load() && <-c.left == nil {
				how = "closed with 1000"
			}
			c.end.ended(how)
			return
		}
		if kind != websocket.MessageText {
			c.fault("a binary frame came")
		}
		c.deliver(frame{text: string(text)})
	}
}

// closing says how a connection has ended.
func closing(err error) string {
	if code := websocket.CloseStatus(err); code != -1 {
		return fmt.Sprintf("closed with %d", code)
	}
	return "broken"
}

func (c *wsClient) send(t testing.TB, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if err := c.conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		t.Fatalf("%s: writing a frame: %v", c.who, err)
	}
}

// reject: an error comes; nobody knows whose id it should have (J4).
func (c *wsClient) reject(t testing.TB, text string, code int, ids ...string) {
	t.Helper()
	c.rejected(t, code, ids, func() { c.send(t, text) })
}

// hangUp closes with the handshake that WebSocket has for it.
func (c *wsClient) hangUp(t testing.TB) {
	t.Helper()
	began := time.Now()
	c.leaving.Store(true)
	err := c.conn.Close(websocket.StatusNormalClosure, "")
	c.left <- err
	if err != nil {
		t.Errorf("%s: the closing handshake failed after %v: %v", c.who, time.Since(began), err)
	}
}

// ended: the server has closed with 1000, 1001 when it goes away, or 1011
// when the session could not go on.
func (c *wsClient) ended(t testing.TB, gone bool) {
	t.Helper()
	how := c.waitOver(t)
	if gone && how != "closed with 1001" || !gone && how != "closed with 1000" && how != "closed with 1001" && how != "closed with 1011" {
		t.Errorf("%s: the connection was %s", c.who, how)
	}
}

func (c *wsClient) cut() {
	c.dialer.drop()
	c.conn.CloseNow()
}
