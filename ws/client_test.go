package ws

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func dialClient(t *testing.T, url string, o ClientOptions) bridge.Conn {
	t.Helper()
	c, err := (&Client{URL: url, Options: o}).Dial(t.Context())
	bridgetest.Must(t, err)
	t.Cleanup(func() { c.Close(nil) })
	return c
}

// wantError wants an error response with these words in it.
func wantError(t *testing.T, m jsonrpc.Message, id string, words ...string) {
	t.Helper()
	if !m.IsError() || m.ID().String() != id {
		t.Errorf("got %s, want an error for %s", m.Bytes(), id)
	}
	for _, word := range words {
		if !strings.Contains(string(m.Bytes()), word) {
			t.Errorf("got %s, want %q in it", m.Bytes(), word)
		}
	}
}

func TestDial(t *testing.T) {
	for url, want := range map[string]string{
		"http://h/secret":     "ws://",
		"ws://":               "no host",
		"ws://h/%zz?t=secret": "not valid",
	} {
		if _, err := (&Client{URL: url}).Dial(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	if _, err := (&Client{URL: "ws://h", Options: ClientOptions{Header: http.Header{"a b": {"x"}}}}).Dial(t.Context()); err == nil {
		t.Error("a header that is none was taken")
	}
}

// What goes with the request for the upgrade; and WS2: a server need not
// select the subprotocol.
func TestHandshake(t *testing.T) {
	requests := make(chan *http.Request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/old" { // LE14
			http.Redirect(w, r, "/new?x=y", http.StatusTemporaryRedirect)
			return
		}
		requests <- r
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_, text, _ := c.Read(r.Context())
		_ = c.Write(r.Context(), websocket.MessageText, text)
		<-c.CloseRead(r.Context()).Done()
	}))
	defer srv.Close()
	address := "ws://user:pass@" + srv.Listener.Addr().String() + "/old?key=1"
	c := dialClient(t, address, ClientOptions{Header: http.Header{
		"X-Mine": {"1"}, "Host": {"other.example"}, "Sec-Websocket-Key": {"x"}, "Sec-Websocket-Protocol": {"x"},
	}})
	send(t, c, msg(initializeText))
	wantText(t, recv(t, c), initializeText)
	r := <-requests
	if user, pass, _ := r.BasicAuth(); user != "user" || pass != "pass" || r.Host != "other.example" || r.URL.RawQuery != "x=y" {
		t.Errorf("request %s %s, user %q", r.Host, r.URL, user)
	}
	for name, want := range map[string]string{"X-Mine": "1", "Sec-Websocket-Protocol": "mcp", "User-Agent": "mcp-bridge", "Sec-Websocket-Extensions": ""} {
		if got := strings.Join(r.Header[name], ","); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	c.Close(nil)
}

// A server that cannot be had answers initialize with an error that says what
// is the matter, and notifications are dropped.
func TestRefused(t *testing.T) {
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Error("a redirect to another origin was followed")
	}))
	defer evil.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/401":
			w.WriteHeader(401)
		case "/404":
			http.Error(w, "no such thing", 404)
		case "/200":
			_, _ = io.WriteString(w, "<html>")
		case "/302":
			http.Redirect(w, r, "/200", http.StatusFound)
		case "/evil":
			http.Redirect(w, r, evil.URL, http.StatusTemporaryRedirect)
		case "/101":
			conn, _, err := http.NewResponseController(w).Hijack()
			bridgetest.Must(t, err)
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn) // until the client hangs up
			conn.Close()
		case "/slow":
			<-r.Context().Done()
		}
	}))
	defer srv.Close()
	host := srv.Listener.Addr().String()
	for path, words := range map[string][]string{
		"/401?key=secret": {`"reason":"authorization_required","status":401`, "--header"},
		"/404":            {`"reason":"http_status","status":404`, "often /ws", "no such thing"},
		"/200":            {`"reason":"http_status","status":200`, "no WebSocket server"},
		"/302":            {`"reason":"redirect","status":302`},
		"/evil":           {`"reason":"redirect","status":307`, evil.URL},
	} {
		c := dialClient(t, "ws://"+host+path, ClientOptions{})
		send(t, c, msg(initializedText))
		for range 2 { // the client may try again
			send(t, c, msg(initializeText))
			m := recv(t, c)
			wantError(t, m, "1", append(words, "ws://"+host)...)
			if strings.Contains(string(m.Bytes()), "secret") {
				t.Errorf("the error shows a secret: %s", m.Bytes())
			}
		}
		send(t, c, msg(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`))
		wantError(t, recv(t, c), "2", words...)
		c.Close(nil)
	}
	c := dialClient(t, "ws://"+host+"/101", ClientOptions{})
	before := time.Now()
	send(t, c, msg(initializeText))
	wantError(t, recv(t, c), "1", `"reason":"not_mcp"`, "does not speak the WebSocket protocol")
	if took := time.Since(before); took >= 3*time.Second { // which is how long the library looks for a body
		t.Errorf("that it is not valid was known after %v", took)
	}
	c = dialClient(t, "ws://"+host+"/slow", ClientOptions{ConnectTimeout: 50 * time.Millisecond})
	send(t, c, msg(initializeText))
	wantError(t, recv(t, c), "1", `"reason":"timeout"`)
}

// A server that is not running yet: the client gets an error, and a session
// all the same, once the server runs (LE5).
func TestDown(t *testing.T) {
	for range 5 {
		if cameUp(t) {
			return
		}
	}
	t.Fatal("somebody else took the port, five times")
}

// cameUp is TestDown with one port. It returns false if somebody else has taken
// that while no server was there.
func cameUp(t *testing.T) bool {
	t.Helper()
	addr := bridgetest.FreeAddr(t)
	c := dialClient(t, "ws://"+addr+"/ws", ClientOptions{})
	send(t, c, msg(initializeText))
	wantError(t, recv(t, c), "1", `"reason":"unreachable"`, "is the server running?", "tried again")
	send(t, c, msg(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`))
	wantError(t, recv(t, c), "2", `"reason":"server_down"`, "is the server running? The next attempt is in")

	l, err := net.Listen("tcp", addr)
	if err != nil {
		c.Close(nil)
		return false
	}
	s := &site{sessions: make(chan *session, 10), quit: make(chan error), over: make(chan error, 10), listener: l}
	s.start(t, HandlerOptions{})
	session := <-s.sessions
	s.answerReplay(t, session)
	send(t, session, msg(`{"jsonrpc":"2.0","method":"notifications/ready"}`))
	recv(t, c) // it is connected
	ask(t, c, session, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	c.Close(nil)
	<-s.over
	return true
}

// answerReplay plays a server that the client initializes by itself.
func (s *site) answerReplay(t *testing.T, session *session) {
	t.Helper()
	m := recv(t, session)
	if string(new(m.WithID(jsonrpc.IntID(1))).Bytes()) != initializeText || m.ID() == jsonrpc.IntID(1) {
		t.Errorf("the new session got %s, want the client's initialize with another id", m.Bytes())
	}
	send(t, session, jsonrpc.NewResult(m.ID(), []byte(`{"protocolVersion":"2025-06-18"}`)))
	if m = recv(t, session); m.Method() != "notifications/initialized" {
		t.Errorf("the new session got %s, want initialized", m.Bytes())
	}
}

// ask sends a request all the way and its answer back.
func ask(t *testing.T, c bridge.Conn, session *session, request string) {
	t.Helper()
	send(t, c, msg(request))
	m := recv(t, session)
	wantText(t, m, request)
	answer := jsonrpc.NewResult(m.ID(), nil)
	send(t, session, answer)
	wantText(t, recv(t, c), string(answer.Bytes()))
}

// LE5, WS4: a lost connection is a lost session. What is in progress gets an
// error, and the new session knows what the old one knew.
func TestRenew(t *testing.T) {
	for name, lose := range map[string]func(s *site, session *session){
		"closed":    func(s *site, _ *session) { s.quit <- errors.New("x") },
		"torn down": func(_ *site, session *session) { session.wire.closeNow() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, HandlerOptions{})
			c := dialClient(t, s.url(), ClientOptions{})
			old := s.open(t, c)
			ask(t, c, old, `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}`)
			ask(t, c, old, `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a"}}`)
			ask(t, c, old, `{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"b"}}`)
			ask(t, c, old, `{"jsonrpc":"2.0","id":5,"method":"resources/unsubscribe","params":{"uri":"a"}}`)
			send(t, old, msg(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`))
			recv(t, c)
			send(t, c, msg(`{"jsonrpc":"2.0","id":"call","method":"tools/call"}`))
			recv(t, old)
			lose(s, old)
			wantError(t, recv(t, c), `"call"`, `"reason":"connection_lost"`, "may have been carried out", s.url()[:len("ws://127.0.0.1:")])
			if m := recv(t, c); m.Method() != "notifications/cancelled" || m.CancelledID().String() != `"q"` {
				t.Errorf("got %s, want a cancellation of the server's request", m.Bytes())
			}

			session := <-s.sessions
			s.answerReplay(t, session)
			send(t, session, msg(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)) // before it is settled
			for _, want := range []string{`"uri":"b"`, `"level":"info"`} {
				m := recv(t, session)
				if !strings.Contains(string(m.Bytes()), want) {
					t.Errorf("the new session got %s, want %s", m.Bytes(), want)
				}
				send(t, session, jsonrpc.NewResult(m.ID(), nil))
			}
			// The same id from another session is another request.
			m := recv(t, c)
			if m.Method() != "roots/list" || m.ID().String() == `"q"` {
				t.Errorf("got %s, want roots/list with an id of its own", m.Bytes())
			}
			send(t, c, msg(`{"jsonrpc":"2.0","id":"q","result":{"old":1}}`))
			send(t, c, jsonrpc.NewResult(m.ID(), nil))
			wantText(t, recv(t, session), `{"jsonrpc":"2.0","id":"q","result":{}}`)
			ask(t, c, session, `{"jsonrpc":"2.0","id":6,"method":"tools/list"}`)
			c.Close(nil)
		})
	}
}

func TestNoRenew(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	c := dialClient(t, s.url(), ClientOptions{NoRenew: true})
	session := s.open(t, c)
	send(t, c, msg(`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`))
	recv(t, session)
	send(t, session, msg(`{"jsonrpc":"2.0","method":"notifications/last"}`))
	s.quit <- errors.New("x")
	if m := recv(t, c); m.Method() != "notifications/last" {
		t.Errorf("got %s", m.Bytes())
	}
	wantError(t, recv(t, c), "2", "1011")
	for range 2 {
		if m, err := bridgetest.Recv(t.Context(), c); err != ErrSessionLost {
			t.Errorf("Recv = %s, %v", m.Bytes(), err)
		}
	}
	if err := c.Send(t.Context(), msg(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)); err != ErrSessionLost {
		t.Errorf("Send = %v", err)
	}
	if len(s.sessions) != 0 {
		t.Error("it has connected again")
	}
}

// A client without initialize (2026-07-28) is passed through, and gets a new
// connection when it next asks for something.
func TestNoHandshake(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	c := dialClient(t, s.url(), ClientOptions{})
	const request = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	for range 2 {
		done := make(chan struct{})
		go func() { defer close(done); send(t, c, msg(request)) }()
		session := <-s.sessions
		wantText(t, recv(t, session), request)
		s.quit <- nil
		wantError(t, recv(t, c), "1", "status 1000")
		<-done
	}
}

// What the server sends that is not right.
func TestServerViolations(t *testing.T) {
	script := make(chan func(ctx context.Context, c *websocket.Conn), 1)
	ended := make(chan websocket.StatusCode, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_, _, _ = c.Read(r.Context())
		(<-script)(r.Context(), c)
		_, _, err = c.Read(r.Context())
		ended <- websocket.CloseStatus(err)
	}))
	defer srv.Close()
	url := "ws://" + srv.Listener.Addr().String()
	write := func(kind websocket.MessageType, texts ...string) func(context.Context, *websocket.Conn) {
		return func(ctx context.Context, c *websocket.Conn) {
			for _, text := range texts {
				_ = c.Write(ctx, kind, []byte(text))
			}
		}
	}
	for _, v := range []struct {
		name   string
		do     func(context.Context, *websocket.Conn)
		status websocket.StatusCode
		word   string
	}{
		{"binary", write(websocket.MessageBinary, "{}"), 1003, "binary"},
		{"no UTF-8", write(websocket.MessageText, "\xff"), 1007, "UTF-8"},
		{"too long", write(websocket.MessageText, strings.Repeat(" ", 2000)), 1009, "larger than 1000 bytes, which is the limit (--max-message-size)"},
		{"fine in the end", write(websocket.MessageText, `{`, `1`, ``, `{"jsonrpc":"2.0","method":1}`, `{"jsonrpc":"2.0","id":1,"result":1,"error":2}`), 1000, "not valid JSON-RPC"},
		{"a batch", write(websocket.MessageText, `[{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"batched"}}]`), 1000, "batched"},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := dialClient(t, url, ClientOptions{MaxMessageSize: 1000, NoRenew: true})
			script <- v.do
			send(t, c, msg(initializeText))
			wantError(t, recv(t, c), "1", v.word)
			c.Close(nil)
			if got := <-ended; got != v.status {
				t.Errorf("closed with %d, want %d", got, v.status)
			}
		})
	}
}

// J7: a batch of a server has at most MaxServerBatch messages.
func TestServerBatchLimit(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"x"}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_, _, _ = c.Read(r.Context())
		for _, n := range []int{jsonrpc.MaxServerBatch + 1, jsonrpc.MaxServerBatch} {
			_ = c.Write(r.Context(), websocket.MessageText, []byte("["+strings.Repeat(note+",", n-1)+note+"]"))
		}
		_ = c.Write(r.Context(), websocket.MessageText, []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
		_, _, _ = c.Read(r.Context())
	}))
	defer srv.Close()
	c := dialClient(t, "ws://"+srv.Listener.Addr().String(), ClientOptions{NoRenew: true})
	send(t, c, msg(initializeText))
	notes := 0
	for m := recv(t, c); m.Kind() == jsonrpc.Notification; m = recv(t, c) {
		notes++
	}
	if notes != jsonrpc.MaxServerBatch {
		t.Errorf("received %d messages of batches, want the %d of the one that is not too long", notes, jsonrpc.MaxServerBatch)
	}
	c.Close(nil)
}

// J4: a server is told that its request is not received, for it waits for the answer.
func TestServerIsAnswered(t *testing.T) {
	read := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_, _, _ = c.Read(r.Context())
		for _, text := range []string{
			`{"jsonrpc":"2.0","method":"x","params":1}`, `{"jsonrpc":"2.0","id":5,"method":"x","params":1}`,
			`{"jsonrpc":"2.0","id":1.5,"method":"x"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`,
		} {
			_ = c.Write(r.Context(), websocket.MessageText, []byte(text))
		}
		for range 2 {
			_, text, _ := c.Read(r.Context())
			read <- string(text)
		}
		_, _, _ = c.Read(r.Context())
	}))
	defer srv.Close()
	c := dialClient(t, "ws://"+srv.Listener.Addr().String(), ClientOptions{NoRenew: true})
	send(t, c, msg(initializeText))
	if m := recv(t, c); m.IsError() {
		t.Errorf("received %s", m.Bytes())
	}
	for _, id := range []string{"5", "null"} {
		if got := <-read; !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32600,`) {
			t.Errorf("the server was sent %s, want the error of %s", got, id)
		}
	}
	c.Close(nil)
}

// TLS, with a server that would rather speak HTTP/2; and what it says to those
// who ask for the endpoint over HTTP/2.
func TestTLS(t *testing.T) {
	s := &site{sessions: make(chan *session, 10), quit: make(chan error), over: make(chan error, 10)}
	s.tls = true
	s.start(t, HandlerOptions{})
	trust := s.srv.Client().Transport.(*http.Transport)
	h2 := &http.Transport{TLSClientConfig: trust.TLSClientConfig.Clone(), ForceAttemptHTTP2: true}
	defer h2.CloseIdleConnections()
	resp, err := (&http.Client{Transport: h2}).Get(s.srv.URL)
	bridgetest.Must(t, err)
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != 501 || !strings.Contains(string(text), "HTTP/1.1") {
		t.Errorf("%s %s: %s", resp.Proto, resp.Status, text)
	}

	wss := "wss" + strings.TrimPrefix(s.srv.URL, "https")
	c := dialClient(t, wss, ClientOptions{Transport: h2})
	session := s.open(t, c)
	big := `{"jsonrpc":"2.0","id":"big","method":"x","params":{"s":"` + strings.Repeat("x", 1<<20) + `"}}`
	ask(t, c, session, big)
	c.Close(nil)

	c = dialClient(t, wss, ClientOptions{})
	send(t, c, msg(initializeText))
	wantError(t, recv(t, c), "1", `"reason":"tls"`)
}
