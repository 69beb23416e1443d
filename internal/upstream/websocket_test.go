package upstream

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/ws"
)

// modernListen is a modern client's subscription.
const modernListen = `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` +
	`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// socketServer is a modern server over WebSocket that can go, and be there again at the same address.
type socketServer struct {
	addr    string
	listens chan string // the ids of the subscriptions/listen that came
	stop    func()      // ends the server, and breaks its connections
}

// newSocketServer returns a server that runs.
func newSocketServer(t *testing.T) *socketServer {
	t.Helper()
	s := &socketServer{addr: "127.0.0.1:0", listens: make(chan string, 10)}
	s.start(t)
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *socketServer) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", s.addr)
	bridgetest.Must(t, err)
	s.addr = l.Addr().String()
	h := ws.NewHandler(bridge.HandlerFunc(s.serve), ws.HandlerOptions{})
	server := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	s.stop = func() {
		_ = server.Close()
		_ = h.Close()
		<-done
	}
}

func (s *socketServer) serve(ctx context.Context, client bridge.Conn) error {
	for {
		m, err := bridgetest.Recv(ctx, client)
		if err != nil {
			return err
		}
		switch {
		case m.Kind() != jsonrpc.Request:
			continue
		case m.Method() == "server/discover":
			m = jsonrpc.NewResult(m.ID(), []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`))
		case m.Method() == "subscriptions/listen":
			id := m.ID().String()
			m = jsonrpc.NewNotification("notifications/subscriptions/acknowledged", []byte(`{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`}}`))
			s.listens <- id
		default:
			m = jsonrpc.NewResult(m.ID(), []byte(`{"resultType":"complete","content":[]}`))
		}
		if err := client.Send(ctx, m); err != nil {
			return err
		}
	}
}

// of returns the Server for it. Each finding of the server's era may be doubted at once.
func (s *socketServer) of(t *testing.T) *Server {
	t.Helper()
	server, err := New(Spec{URL: "ws://" + s.addr + "/ws"})
	bridgetest.Must(t, err)
	server.prober.SettledAfter = 0
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// unreachable calls, and wants an error that gives this reason, because the server is not reached. A call that meets the end of the
// old connection is made again.
func unreachable(t *testing.T, s *Server, want string) {
	t.Helper()
	for {
		m := ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), modernCall)
		switch reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason")); reason {
		case "connection_lost":
			continue
		case want:
		default:
			t.Errorf("the server is away, and a call got %s", m.Bytes())
		}
		return
	}
}

// reachable calls until there is a result.
func reachable(t *testing.T, s *Server) {
	t.Helper()
	var m jsonrpc.Message
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if m = ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), modernCall); !m.IsError() {
			return
		}
	}
	t.Errorf("the server is there, and a call got %s", m.Bytes())
}

// ST9, ED8, ED9: a server over WebSocket that is away for a while is no server of another era: subscriptions go on when it is there again.
func TestWebSocketServerIsAway(t *testing.T) {
	t.Parallel()
	site := newSocketServer(t)
	s := site.of(t)
	client := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
	send(t, client, modernListen)
	<-site.listens
	site.stop()
	unreachable(t, s, "unreachable")
	if modern, known := s.prober.Known(); !modern || !known {
		t.Errorf("modern %v, known %v: nobody has said that the era is another one", modern, known)
	}
	site.start(t)
	reachable(t, s)
	select {
	case <-site.listens:
	case <-time.After(20 * time.Second):
		t.Error("the subscription is not there again")
	}
	site.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for { // nothing but what a subscription is told
		m, err := bridgetest.Recv(ctx, client)
		bridgetest.Must(t, err)
		if m.Kind() == jsonrpc.Response {
			t.Fatalf("the subscription has got %s", m.Bytes())
		}
		if m.Method() == "notifications/tools/list_changed" {
			return
		}
		if !strings.HasPrefix(m.Method(), "notifications/") {
			t.Errorf("the client received %s", m.Bytes())
		}
	}
}

// ED8: the era of a server over WebSocket that is not there is not known.
func TestWebSocketServerIsNotThere(t *testing.T) {
	t.Parallel()
	site := newSocketServer(t)
	s := site.of(t)
	site.stop()
	unreachable(t, s, "unreachable")
	if modern, known := s.prober.Known(); known {
		t.Errorf("modern %v, though the server was not reached", modern)
	}
	legacy := party(t, t.Context(), s.Handler(false, bridge.PumpOptions{}))
	if m := ask(t, legacy, initialize); !m.IsError() {
		t.Errorf("initialize got %s", m.Bytes())
	}
	if _, known := s.prober.Known(); known {
		t.Error("the era is known, though the server was not reached")
	}
	site.start(t)
	reachable(t, s)
}

// ED8: of a legacy server that is not there when its session is to begin the era stays known.
func TestLegacyWebSocketServerIsAway(t *testing.T) {
	t.Parallel()
	site := newSocketServer(t)
	s := site.of(t)
	s.prober.NoteEra(false)
	site.stop()
	unreachable(t, s, "initialize_failed")
	if modern, known := s.prober.Known(); modern || !known {
		t.Errorf("modern %v, known %v: nobody has said that the era is another one", modern, known)
	}
}
