package matrix

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// wsWire is the server's end of a WebSocket.
type wsWire struct{ conn *websocket.Conn }

func (w *wsWire) send(_, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	return w.conn.Write(ctx, websocket.MessageText, []byte(text))
}

func (w *wsWire) crash() { w.conn.CloseNow() }

// wsServer is a strict server over WebSocket.
func wsServer(t testing.TB) *server {
	v := newServer()
	addr := v.serveHTTP(t, http.HandlerFunc(v.serveWS))
	v.target = []string{"ws://" + addr + "/up/ws?x=%2F"}
	v.ends = []string{"closed with 1000", "closed with 1001"}
	return v
}

// serveHTTP serves h, and sets restart. It returns the address.
func (v *server) serveHTTP(t testing.TB, h http.Handler) string {
	t.Helper()
	var l *listener
	var srv *http.Server
	var running *inHand
	begin := func(t testing.TB, addr string) {
		l = listenAgain(t, "tcp", addr)
		running = &inHand{h: h}
		srv = &http.Server{Handler: running, ReadHeaderTimeout: harness.Patience}
		go srv.Serve(l)
	}
	begin(t, "")
	addr := l.Addr().String()
	crash := func() {
		l.crash()
		srv.Close()
		running.end()
	}
	t.Cleanup(func() { crash() })
	v.restart = func(t testing.TB) {
		v.forget()
		crash()
		v.forget() // who has come in meanwhile, and begun anew at once
		begin(t, addr)
	}
	return addr
}

// inHand is a handler whose requests end with it: one that has been read and has not begun could
// else begin a session of a server that has crashed.
type inHand struct {
	h     http.Handler
	mu    sync.Mutex
	ended bool
	wg    sync.WaitGroup
}

func (i *inHand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	if i.ended {
		i.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	i.wg.Add(1)
	i.mu.Unlock()
	defer i.wg.Done()
	i.h.ServeHTTP(w, r)
}

// end waits for the requests whose connections are broken.
func (i *inHand) end() {
	i.mu.Lock()
	i.ended = true
	i.mu.Unlock()
	i.wg.Wait()
}

// serveWS serves one connection: the client offers the subprotocol mcp (WS2).
func (v *server) serveWS(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Sec-WebSocket-Protocol"); r.URL.RequestURI() != "/up/ws?x=%2F" || got != "mcp" || r.Header.Get("Origin") != "" {
		v.fault("a WebSocket for " + r.URL.RequestURI() + " with subprotocol " + got + " and Origin " + r.Header.Get("Origin"))
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"mcp"}})
	if err != nil {
		v.fault("no WebSocket: " + err.Error())
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(noLimit)
	s := v.newSession()
	s.wire = &wsWire{conn}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		kind, text, err := conn.Read(ctx)
		cancel()
		if err != nil {
			s.ended(closing(err))
			return
		}
		if kind != websocket.MessageText {
			s.fault("a binary frame came")
		}
		s.deliver(frame{text: string(text)})
	}
}
