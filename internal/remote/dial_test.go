package remote

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/stdio"
	"github.com/mcp-bridge/mcp-bridge/ws"
)

func TestCheckURL(t *testing.T) {
	for _, good := range []string{
		"http://h", "https://h/mcp?x=y", "HTTP://h:80/", "http://user:pass@h/", "https://[::1]:8443/mcp",
		"ws://h/ws", "wss://h/ws", "unix:/run/x.sock", "unix:x", "tcp:h:1", "tcp:[::1]:80",
	} {
		if err := CheckURL(good); err != nil {
			t.Errorf("CheckURL(%q) = %v", good, err)
		}
	}
	for text, mode := range map[string]TransportMode{"http": httpFirst, "streamable-http": httpFirst, "streamableHttp": httpFirst, "sse": sseFirst} {
		if got, err := ParseTransportMode(text); err != nil || got != mode {
			t.Errorf("ParseTransportMode(%q) = %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{
		"", "h", "h:80", "ftp://h/", "http:", "http://", "http://:80/secret", "ws://", "wss:///secret", "unix:", "tcp:", "tcp:h",
		"tcp::80", "stdio:x", "http://user:secret@[::1/", "http://h\x7f/secret", "node server.js",
	} {
		if err := CheckURL(bad); err == nil {
			t.Errorf("CheckURL(%q) is content", bad)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("CheckURL(%q) shows a secret: %v", bad, err)
		}
		if _, err := (&Dialer{URL: bad}).Dial(t.Context()); err == nil {
			t.Errorf("Dial took %q", bad)
		}
	}
}

func FuzzCheckURL(f *testing.F) {
	f.Add("http://h/")
	f.Add("unix:/x")
	f.Add("tcp:[::1]:80")
	f.Fuzz(func(t *testing.T, text string) {
		scheme, _, _ := strings.Cut(text, ":")
		if CheckURL(text) == nil && !strings.Contains("http https ws wss unix tcp", strings.ToLower(scheme)) {
			t.Errorf("%q is taken", text)
		}
	})
}

func TestParseTransportMode(t *testing.T) {
	for mode, text := range map[TransportMode]string{httpFirst: "http-first", sseFirst: "sse-first", httpOnly: "http-only", sseOnly: "sse-only"} {
		if got, err := ParseTransportMode(text); err != nil || got != mode {
			t.Errorf("ParseTransportMode(%q) = %v, %v", text, got, err)
		}
		if mode.String() != text {
			t.Errorf("%d is called %s, want %s", mode, mode, text)
		}
	}
	for _, bad := range []string{"", "htp", "HTTP-FIRST", "sse-last", "unknown"} {
		if _, err := ParseTransportMode(bad); err == nil {
			t.Errorf("ParseTransportMode took %q", bad)
		} else if !strings.Contains(err.Error(), "sse-only") {
			t.Errorf("the error does not say what there is: %v", err)
		}
	}
}

// Mistakes in the headers are found before anything is connected to.
func TestDialChecksHeaders(t *testing.T) {
	for _, mode := range []TransportMode{httpFirst, sseFirst, httpOnly, sseOnly} {
		d := &Dialer{URL: "http://h/", Options: Options{TransportMode: mode, Header: http.Header{"X": {"secret\x00"}}}}
		if _, err := d.Dial(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: Dial = %v", mode, err)
		}
	}
	for _, u := range []string{"tcp:127.0.0.1:1", "unix:/nowhere"} {
		d := &Dialer{URL: u, Options: Options{Header: http.Header{"Authorization": {"Bearer x"}}}}
		if _, err := d.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "headers") {
			t.Errorf("%s: Dial = %v", u, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Dialer{URL: "http://h/"}).Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial with a context that is over: %v", err)
	}
}

// A server that takes its lines over a socket.
func TestSocket(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = filepath.Join(t.TempDir(), "s")
			}
			l, err := net.Listen(network, address)
			bridgetest.Must(t, err)
			defer l.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				nc, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				c := stdio.NewConn(nc, nc, nc.Close, stdio.Options{Peer: stdio.Client})
				defer c.Close(nil)
				for {
					m, err := bridgetest.Recv(context.Background(), c)
					if err != nil {
						return
					}
					if m.Kind() == jsonrpc.Request {
						_ = c.Send(context.Background(), jsonrpc.NewResult(m.ID(), []byte(resultFor(m.Method()))))
					}
				}
			}()
			var d bridge.Dialer = &Dialer{URL: network + ":" + l.Addr().String()}
			c := dial(t, d.(*Dialer))
			c.open()
			c.call("1", "tools/list")
			c.conn.Close(nil)
			<-done
			l.Close()
			if _, err := d.Dial(t.Context()); err == nil {
				t.Error("Dial of a closed socket gave no error")
			}
		})
	}
}

// WebSocket has one transport and no modes.
func TestWebSocket(t *testing.T) {
	s := newSite(t)
	handler := ws.NewHandler(bridge.HandlerFunc(s.serve), ws.HandlerOptions{})
	defer handler.Close()
	s.be(status(404), handler.ServeHTTP)
	c := dial(t, &Dialer{URL: "ws" + strings.TrimPrefix(s.URL, "http"), Options: Options{TransportMode: sseOnly, NoRenew: true}})
	c.open()
	c.call("1", "tools/list")
	handler.Close()
	c.wantEnd(ws.ErrSessionLost)
}
