//go:build unix

package tests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// paths are all that serve --config answers at, and one that it does not.
var paths = []string{
	"/servers/x/mcp", "/servers/x/sse", "/servers/x/message", "/servers/x/ws",
	"/healthz", "/readyz", "/servers", "/nothing",
}

// startGuarded runs a bridge of one server, x, which asks for a token, on
// a Unix socket: its buffers are small, so that a reply waits soon.
func startGuarded(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(socketDir(t), "s")
	startServe(t, nil, 1, "--listen", "unix:"+socket, "--token-file", tokenFile(t, "me secretsecretsecret"),
		"--config", configFile(t, fmt.Sprintf(`{"mcpServers": {"x": {"command": %q}}}`, childBin)))
	return socket
}

// dialRaw connects to a bridge; every read and write is bounded.
func dialRaw(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, addr)
	bridgetest.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	return conn
}

const authorized = "Authorization: Bearer secretsecretsecret\r\n"

// LI32: of a request's body that does not come nobody waits without end, whatever
// the path and the method are, and whoever the client is.
func TestServeUnfinishedBody(t *testing.T) {
	t.Parallel()
	socket := startGuarded(t)
	var wg sync.WaitGroup // all wait at once
	defer wg.Wait()
	for _, path := range paths {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"} {
			for _, framing := range []string{"Content-Length: 50\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n"} {
				for _, who := range []string{"", authorized} {
					conn := dialRaw(t, "unix", socket)
					wg.Go(func() {
						fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s%s", method, path, who, framing)
						if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("%s %s, %.17s, with a token: %t: the connection is open after %v", method, path, framing, who != "", harness.Patience)
						}
					})
				}
			}
		}
	}
}

// WS3 and RFC 6455, 4.1: a WebSocket begins with a GET, which has no
// body: what one would be is not read as frames.
func TestServeUpgradeWithBody(t *testing.T) {
	t.Parallel()
	socket := startGuarded(t)
	for _, framing := range []string{"Content-Length: 4\r\n\r\n1234", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"} {
		conn := dialRaw(t, "unix", socket)
		fmt.Fprintf(conn, "GET /servers/x/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
			"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s%s", authorized, framing)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%.17s: %v, %v", framing, resp, err)
		}
	}
}

// LI32: who does not read the replies is cut off, whatever the path is, and whoever
// the client is.
func TestServeUnreadReplies(t *testing.T) {
	t.Parallel()
	socket := startGuarded(t)
	var wg sync.WaitGroup // all wait at once
	defer wg.Wait()
	for _, path := range paths {
		for _, who := range []string{"", authorized} {
			if who != "" && strings.HasSuffix(path, "/sse") {
				continue // a stream, which has no end
			}
			conn := dialRaw(t, "unix", socket)
			wg.Go(func() {
				for err := error(nil); err == nil; {
					_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, who)
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("%s, with a token: %t: the connection is open after %v", path, who != "", harness.Patience)
					}
				}
			})
		}
	}
}

// LI33 and RFC 9112, 6.1 and 6.3: behind a request with a Transfer-Encoding the connection
// ends with the reply, so that what others on the way may take for a part of
// its body is no request here. One with chunks is served.
func TestServeTransferEncoding(t *testing.T) {
	t.Parallel()
	socket := startGuarded(t)
	body := initialize("2025-06-18")
	for _, c := range []struct{ name, proto, framing string }{
		{"chunked", "HTTP/1.1", "Transfer-Encoding: chunked\r\n"},
		{"with Content-Length", "HTTP/1.1", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"},
		{"HTTP 1.0", "HTTP/1.0", "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n"},
	} {
		for _, path := range paths {
			t.Run(c.name+" "+path, func(t *testing.T) {
				t.Parallel()
				conn := dialRaw(t, "unix", socket)
				content, framing := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body), c.framing
				if c.proto == "HTTP/1.0" { // which knows no chunks
					content = body
					framing += fmt.Sprintf("Content-Length: %d\r\n", len(body))
				}
				common := "Host: localhost\r\n" + authorized
				// A reply may be lost when the connection ends with something unread.
				_, _ = fmt.Fprintf(conn, "POST %s %s\r\n%sContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%s\r\n%s"+
					"GET /healthz HTTP/1.1\r\n%s\r\n", path, c.proto, common, framing, content, common)
				r := bufio.NewReader(conn)
				resp, err := http.ReadResponse(r, nil)
				bridgetest.Must(t, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				if strings.HasSuffix(path, "/mcp") && resp.StatusCode != http.StatusOK {
					t.Errorf("status %d", resp.StatusCode)
				}
				if !resp.Close {
					t.Error("the reply does not say that it is the last one")
				}
				if next, err := http.ReadResponse(r, nil); err == nil {
					t.Errorf("the request behind it is answered: %s", next.Status)
				} else if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the connection stays open")
				}
			})
		}
	}
}
