package stdio

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func TestParseSocket(t *testing.T) {
	for text, want := range map[string]Socket{
		"unix:/run/mcp.sock":      {Network: "unix", Address: "/run/mcp.sock"},
		"unix:mcp.sock":           {Network: "unix", Address: "mcp.sock"},
		"unix:///run/mcp.sock":    {Network: "unix", Address: "///run/mcp.sock"},
		`unix:C:\run\mcp.sock`:    {Network: "unix", Address: `C:\run\mcp.sock`},
		"unix:@name":              {Network: "unix", Address: "@name"},
		"tcp:localhost:7000":      {Network: "tcp", Address: "localhost:7000"},
		"tcp:[::1]:65535":         {Network: "tcp", Address: "[::1]:65535"},
		"tcp:[fe80::1%eth0]:7000": {Network: "tcp", Address: "[fe80::1%eth0]:7000"},
	} {
		got, err := ParseSocket(text)
		if err != nil || got.Network != want.Network || got.Address != want.Address {
			t.Errorf("%s: got %s, %v", text, got, err)
		}
		if got.String() != text {
			t.Errorf("%s becomes %s", text, got)
		}
	}
	for text, want := range map[string]string{
		"":                "write unix:PATH or tcp:HOST:PORT",
		"/run/mcp.sock":   "write unix:PATH or tcp:HOST:PORT",
		"udp:localhost:1": "write unix:PATH or tcp:HOST:PORT",
		"unix:":           "path is missing",
		"unix://mcp.sock": "no slashes",
		"unix:a\x00b":     "NUL",
		"unix:" + strings.Repeat("x", maxSocketPath+1): "a Unix socket's may have 103",
		"tcp:":                  "write tcp:HOST:PORT",
		"tcp:localhost":         "write tcp:HOST:PORT",
		"tcp://localhost:7000":  "no slashes",
		"tcp::7000":             "host is missing",
		"tcp:a b:7000":          "no host name",
		"tcp:localhost:":        "1 to 65535",
		"tcp:localhost:0":       "1 to 65535",
		"tcp:localhost:65536":   "1 to 65535",
		"tcp:localhost:http":    "1 to 65535",
		"tcp:localhost:7000/x":  "1 to 65535",
		"tcp:fe80::1:7000":      "in brackets",
		"tcp:user@example:7000": "no host name",
	} {
		if got, err := ParseSocket(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want an error with %q", text, got, err, want)
		}
	}
}

// listen returns a listener and the Socket that leads to it.
func listen(t *testing.T, network string) (net.Listener, Socket) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "s") // a short one: paths of sockets are bounded
		bridgetest.Must(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	}
	l, err := net.Listen(network, address)
	bridgetest.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return l, Socket{Network: network, Address: l.Addr().String()}
}

// connected returns a Conn to a server, and the server's end of the connection.
func connected(t *testing.T, network string) (bridge.Conn, net.Conn) {
	t.Helper()
	l, socket := listen(t, network)
	c, err := socket.Dial(t.Context())
	bridgetest.Must(t, err)
	nc, err := l.Accept()
	bridgetest.Must(t, err)
	t.Cleanup(func() { nc.Close(); c.Close(nil) })
	return c, nc
}

func TestSocketContract(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			bridgetest.TestConn(t, func(t *testing.T) (bridge.Conn, bridge.Conn, func()) {
				c, nc := connected(t, network)
				client := newSocketConn(nc, Options{Peer: Client})
				// The suite closes one side after the other.
				client.closeWait, c.(*socketConn).closeWait = 10*time.Millisecond, 10*time.Millisecond
				return client, c, nil
			}, bridgetest.Options{})
		})
	}
}

// A server that is down: each request is answered with what is wrong, where,
// and what to do, and with no path of a file.
func TestSocketDown(t *testing.T) {
	unix, missing := listen(t, "unix")
	unix.Close()
	tcp, refused := listen(t, "tcp")
	tcp.Close()
	for _, c := range []struct {
		name   string
		socket Socket
		want   []string
	}{
		{"no such file", missing, []string{"cannot connect to the server's Unix socket", "is the server running?"}},
		{"refused", refused, []string{"cannot connect to " + refused.String(), "refused", "is the server running?"}},
		{"no such host", Socket{Network: "tcp", Address: "host.invalid:1"}, []string{"tcp:host.invalid:1", "is the host name right?"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "refused" && runtime.GOOS == "windows" {
				c.want = c.want[:1]
			}
			client, far := bridge.Pipe()
			var wg sync.WaitGroup
			wg.Go(func() {
				err := bridge.Serve(c.socket, bridge.PumpOptions{}).ServeConn(t.Context(), far)
				if err == nil || !strings.Contains(err.Error(), c.socket.String()) {
					t.Errorf("returned %v, want an error that names %s", err, c.socket)
				}
			})
			bridgetest.Must(t, client.Send(t.Context(), parse(t, ping)))
			m, err := bridgetest.Recv(t.Context(), client)
			bridgetest.Must(t, err)
			text, _ := jsonrpc.Text(m.Lookup("error", "message"))
			for _, want := range c.want {
				if m.ID() != jsonrpc.IntID(1) || !strings.Contains(text, want) {
					t.Errorf("answered %s, want %q", m.Bytes(), want)
				}
			}
			if c.socket.Network == "unix" && strings.Contains(text, c.socket.Address) {
				t.Errorf("the client is told a path: %s", text)
			}
			client.Close(nil)
			wg.Wait()
		})
	}
}

// The connect timeout, the ctx and a wrong network end a Dial.
func TestSocketDialEnds(t *testing.T) {
	l, socket := listen(t, "tcp")
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := socket.Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a ctx that is done: %v", err)
	}
	socket.ConnectTimeout = time.Nanosecond
	_, err := socket.Dial(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no answer in time; is the server running?") {
		t.Errorf("after the timeout: %v", err)
	}
	if _, err := (Socket{Network: "udp", Address: "127.0.0.1:1"}).Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "unix or tcp") {
		t.Errorf("UDP: %v", err)
	}
}

// What the server owes is answered at once when the connection ends or is
// lost, and what is said then names no address.
func TestSocketLost(t *testing.T) {
	for name, c := range map[string]struct {
		network string
		end     func(nc net.Conn)
		want    string
	}{
		"unix, closed": {"unix", func(nc net.Conn) { nc.Close() }, "the server ended before it answered"},
		"tcp, closed":  {"tcp", func(nc net.Conn) { nc.Close() }, "the server ended before it answered"},
		"tcp, reset": {"tcp", func(nc net.Conn) {
			nc.(*net.TCPConn).SetLinger(0)
			nc.Close()
		}, "the connection was lost: "},
	} {
		t.Run(name, func(t *testing.T) {
			server, nc := connected(t, c.network)
			client, far := bridge.Pipe()
			defer client.Close(nil)
			var wg sync.WaitGroup
			wg.Go(func() { bridge.Pump(t.Context(), far, server, bridge.PumpOptions{}) })
			bridgetest.Must(t, client.Send(t.Context(), parse(t, ping)))
			if line, err := bufio.NewReader(nc).ReadString('\n'); line != ping+"\n" {
				t.Fatalf("the server read %q, %v", line, err)
			}
			c.end(nc)
			m, err := bridgetest.Recv(t.Context(), client)
			bridgetest.Must(t, err)
			text, _ := jsonrpc.Text(m.Lookup("error", "message"))
			if m.ID() != jsonrpc.IntID(1) || !strings.Contains(text, c.want) ||
				strings.Contains(text, nc.LocalAddr().String()) {
				t.Errorf("answered %s, want %q", m.Bytes(), c.want)
			}
			wg.Wait()
		})
	}
}

// A Send that fails does not say where the socket is either.
func TestSocketErrorsNameNoAddress(t *testing.T) {
	c, nc := connected(t, "unix")
	nc.Close()
	var err error
	for err == nil {
		err = c.Send(t.Context(), parse(t, ping))
	}
	if strings.Contains(err.Error(), nc.LocalAddr().String()) || runtime.GOOS != "windows" && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("Send: %v", err)
	}
}

// Close tells the server that nothing more comes, and waits for it to finish:
// what it still says does no harm. A server that goes on is not waited for.
func TestSocketClose(t *testing.T) {
	t.Run("server finishes", func(t *testing.T) {
		c, nc := connected(t, "unix")
		c.(*socketConn).closeWait = time.Hour
		closed := make(chan error, 1)
		go func() { closed <- c.Close(nil) }()
		if rest, err := io.ReadAll(nc); len(rest) > 0 || err != nil {
			t.Errorf("the server read %q, %v; want the end of its input", rest, err)
		}
		select {
		case err := <-closed:
			t.Errorf("Close returned %v before the server had finished", err)
		default:
		}
		if _, err := nc.Write([]byte(strings.Repeat(note+"\n", 10_000))); err != nil {
			t.Errorf("the server's last words: %v", err)
		}
		nc.Close()
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Run("server goes on", func(t *testing.T) {
		c, _ := connected(t, "unix")
		c.(*socketConn).closeWait = time.Millisecond
		if err := c.Close(nil); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
