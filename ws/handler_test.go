package ws

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// WS2: messages travel as text, unchanged, whatever their ids look like.
func TestMessages(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	c := s.dialRaw(t, nil)
	session := <-s.sessions
	for _, id := range []string{`1`, `"1"`, `9007199254740993`, `"a\u00e9\/"`, `-5`, `"client:7"`} {
		request := `{"id": ` + id + ` ,"method":"tools/call","params":{"n":1.0,"e":1e400},"jsonrpc":"2.0"}`
		c.write(frame(fin|opText, []byte(request)))
		m := recv(t, session)
		wantText(t, m, request)
		answer := jsonrpc.NewResult(m.ID(), []byte(`{"x": [1 ]}`))
		send(t, session, answer)
		if got := c.text(); got != string(answer.Bytes()) || !strings.Contains(got, `"id":`+id) {
			t.Errorf("id %s came back in %s", id, got)
		}
	}
}

func TestMegabyte(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	c := s.dialRaw(t, nil)
	session := <-s.sessions
	big := `{"jsonrpc":"2.0","method":"big","params":{"s":"` + strings.Repeat("ä", 1<<19) + `"}}`
	c.write(frame(fin|opText, []byte(initializeText))) // a first message is smaller
	recv(t, session)
	go c.write(frame(fin|opText, []byte(big)))
	wantText(t, recv(t, session), big)
	send(t, session, msg(big))
	send(t, session, msg(initializedText))
	if got := c.text(); got != big {
		t.Errorf("a message of 1 MiB came as %d bytes", len(got))
	}
	if got := c.text(); got != initializedText {
		t.Errorf("after it came %.100q", got)
	}
}

// Frames may come with the request, and messages in pieces, with control
// frames between them.
func TestFragments(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	early := frame(fin|opText, []byte(initializeText))
	early = append(early, frame(opText, []byte(initializedText[:9]))...)
	c := s.dialRaw(t, early)
	session := <-s.sessions
	wantText(t, recv(t, session), initializeText)
	c.write(frame(opContinuation, nil))
	c.write(frame(fin|opPing, []byte("are you there")))
	if first, payload, _ := c.next(); first != fin|opPong || string(payload) != "are you there" {
		t.Errorf("a ping was answered with %x %q", first, payload)
	}
	c.write(frame(opContinuation, []byte(initializedText[9:20])))
	c.write(frame(fin|opContinuation, []byte(initializedText[20:])))
	wantText(t, recv(t, session), initializedText)
}

// WS2: what is no text message ends the session with the right status.
func TestViolations(t *testing.T) {
	const limit = 1 << 20
	s := newSite(t, HandlerOptions{MaxMessageSize: limit})
	huge := bytes.Repeat([]byte(" "), limit+1)
	for name, v := range map[string]struct {
		status int
		bytes  []byte
	}{
		"binary":                    {1003, frame(fin|opBinary, []byte(initializeText))},
		"binary, announced":         {1003, append(header(opBinary, 1<<40, 0x80), 1, 2, 3, 4)},
		"not UTF-8":                 {1007, frame(fin|opText, []byte("{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}"))},
		"not UTF-8, in a batch":     {1007, frame(fin|opText, []byte("[\"\xff\"]"))},
		"too long":                  {1009, frame(fin|opText, huge)},
		"too long in pieces":        {1009, append(frame(opText, huge[:limit]), frame(fin|opContinuation, []byte("{}"))...)},
		"too long, announced":       {1009, append(header(fin|opText, 1<<40, 0x80), bytes.Repeat(huge, 2)...)},
		"not masked":                {1002, append(header(fin|opText, 2, 0), "{}"...)},
		"reserved bits":             {1002, frame(fin|0x40|opText, []byte("{}"))},
		"unknown type":              {1002, frame(fin|0x3, []byte("{}"))},
		"continuation of nothing":   {1002, frame(fin|opContinuation, []byte("{}"))},
		"a ping in pieces":          {1002, frame(opPing, []byte("x"))},
		"a message within another ": {1002, append(frame(opText, []byte("{")), frame(fin|opText, []byte("{}"))...)},
	} {
		t.Run(name, func(t *testing.T) {
			c := s.dialRaw(t, nil)
			session := <-s.sessions
			go c.conn.Write(v.bytes) // which may not be taken to its end
			c.wantClose(v.status)
			if m, err := bridgetest.Recv(t.Context(), session); err == nil || err == io.EOF {
				t.Errorf("Recv = %s, %v; want the end, by error", m.Bytes(), err)
			}
			<-s.over
			c.conn.Close()
		})
	}
	if n := s.h.Sessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// J4, LI12: what is no message is answered, and the session goes on. J7:
// arrays are for 2025-03-26 only.
func TestInvalid(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxBatch: 3})
	c := s.dialRaw(t, nil)
	session := <-s.sessions
	ask := func(text string, codes ...string) {
		t.Helper()
		c.write(frame(fin|opText, []byte(text)))
		for _, want := range codes {
			if got := c.text(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":`) || !strings.Contains(got, want) {
				t.Errorf("%s was answered with %s, want %s", text, got, want)
			}
		}
	}
	ask(`{`, `"id":null,"error":{"code":-32700`)
	ask(`{"jsonrpc":"2.0","id":"x","method":5}`, `"id":"x","error":{"code":-32600`)
	ask(`{"jsonrpc":"2.0","id":null,"method":"x"}`, `"id":null,"error":{"code":-32600`)
	ask(``, `"id":null,"error":{"code":-32700`)
	ask(`[{"jsonrpc":"2.0","id":2,"method":"x"}]`, `"id":null,"error":{"code":-32600`)
	ask(`{"jsonrpc":"2.0","method":5}`) // J6: never answered
	c.write(frame(fin|opText, []byte(initializeText)))
	wantText(t, recv(t, session), initializeText)
	send(t, session, msg(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26"}}`))
	c.text()
	ask(`[{"jsonrpc":"2.0","id":2,"method":"x"},1,{"jsonrpc":"2.0","id":3,"method":"initialize"}]`,
		`"id":null,"error":{"code":-32600`, `"id":3,"error":{"code":-32600`)
	wantText(t, recv(t, session), `{"jsonrpc":"2.0","id":2,"method":"x"}`)
	ask(`[]`, `"id":null,"error":{"code":-32600`)
	ask(`[1,2,3,4]`, `"id":null,"error":{"code":-32600`)
	// An answer that is none is still one.
	c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":7,"result":{},"error":{}}`)))
	if m := recv(t, session); m.ID().String() != "7" || !m.IsError() {
		t.Errorf("the server got %s in place of an invalid answer", m.Bytes())
	}
	// So is what has the id of a question and no method. The client may have a
	// request of its own under that id and is told nothing.
	void := `{"jsonrpc":"2.0","id":9}`
	ask(void, `"id":9,"error":{"code":-32600`)
	send(t, session, msg(`{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}`))
	c.text()
	c.write(frame(fin|opText, []byte(void)))
	if m := recv(t, session); m.ID().String() != "9" || !m.IsError() {
		t.Errorf("the server got %s in place of an answer that says nothing", m.Bytes())
	}
	ask(void, `"id":9,"error":{"code":-32600`) // nothing is asked any more
	send(t, session, msg(`{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}`))
	c.text()
	good := `{"jsonrpc":"2.0","id":9,"result":{}}`
	c.write(frame(fin|opText, []byte(good)))
	wantText(t, recv(t, session), good)
	ask(void, `"id":9,"error":{"code":-32600`)
}

// The end of the server, in each way, is the end of the WebSocket, after what
// the client was sent.
func TestServerEnds(t *testing.T) {
	for name, end := range map[string]struct {
		status int
		how    func(s *site, session *session)
	}{
		"normally":    {1000, func(s *site, _ *session) { s.quit <- nil }},
		"by Close":    {1000, func(_ *site, session *session) { session.Close(nil) }},
		"by error":    {1011, func(s *site, _ *session) { s.quit <- errors.New("secret /path") }},
		"too slow":    {1008, func(_ *site, session *session) { session.Close(fmt.Errorf("x: %w", bridge.ErrSlow)) }},
		"by an error": {1011, func(_ *site, session *session) { session.Close(errors.New("secret /path")) }},
		"by shutdown": {1001, func(s *site, _ *session) { s.h.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, HandlerOptions{})
			c := s.dialRaw(t, nil)
			session := <-s.sessions
			big := strings.Repeat("x", 3<<20)
			send(t, session, msg(`{"jsonrpc":"2.0","id":1,"result":"`+big+`"}`))
			send(t, session, msg(`{"jsonrpc":"2.0","id":2,"result":{}}`))
			done := make(chan struct{})
			go func() { defer close(done); end.how(s, session) }()
			if got := c.text(); len(got) < len(big) {
				t.Errorf("got %d bytes", len(got))
			}
			if got := c.text(); !strings.Contains(got, `"id":2`) {
				t.Errorf("got %.100q", got)
			}
			if reason := c.wantClose(end.status); strings.Contains(reason, "secret") {
				t.Errorf("the reason shows a secret: %q", reason)
			}
			c.write(frame(fin|opClose, binary.BigEndian.AppendUint16(nil, uint16(end.status))))
			if _, err := c.r.ReadByte(); err != io.EOF {
				t.Errorf("after the close frames: %v, want the end", err)
			}
			<-done
		})
	}
}

// A client that is gone is known to be while nobody receives what it has sent.
func TestHungUp(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	c := s.dialRaw(t, nil)
	session := <-s.sessions
	hungUp := session.hungUp()
	if runtime.GOOS != "linux" {
		if hungUp != nil {
			t.Error("here nothing can be known of it")
		}
		return
	}
	if err := hungUp(); err != nil {
		t.Errorf("while it is there: %v", err)
	}
	for _, size := range []int{maxQueuedBytes, 1, 1} { // nobody receives: the first fills the queue, and nothing more is read
		c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","method":"x","params":{"s":"`+strings.Repeat("x", size)+`"}}`)))
	}
	_ = c.conn.Close()
	deadline := time.After(10 * time.Second)
	for hungUp() == nil {
		select {
		case <-deadline:
			t.Fatal("nothing is known of its end")
		default:
			runtime.Gosched()
		}
	}
	if isDone(session.end.done) {
		t.Error("it is known because it was received")
	}
}

// WS4: the end of the client, in each way, cancels its calls at the server.
func TestClientEnds(t *testing.T) {
	for name, how := range map[string]func(c *raw){
		"close frame": func(c *raw) { c.write(frame(fin|opClose, []byte{0x03, 0xe8})); c.wantClose(1000) },
		"no status":   func(c *raw) { c.write(frame(fin|opClose, nil)); c.wantClose(0) },
		"TCP end":     func(c *raw) { c.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			child, peer := bridge.Pipe()
			h := bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
				// It must not be taken for a shutdown, or for an orderly end.
				return bridge.Pump(ctx, client, peer, bridge.PumpOptions{DrainTimeout: time.Hour, ShutdownGrace: time.Hour})
			})
			s := newSite(t, HandlerOptions{})
			s.h.server = h
			c := s.dialRaw(t, nil)
			c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":"a","method":"tools/call"}`)))
			recv(t, child)
			how(c)
			if m := recv(t, child); m.Method() != "notifications/cancelled" || m.CancelledID().String() != `"a"` {
				t.Errorf("the server got %s, want a cancellation", m.Bytes())
			}
			s.h.Close() // returns when the session is over
			if s.h.Sessions() != 0 {
				t.Errorf("the session is still there")
			}
		})
	}
}

// That the client is gone comes before the end of the context that this
// brings about: a Pump must not take it for a shutdown, and wait.
func TestGoneBeforeContext(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	s.hold = make(chan struct{})
	defer close(s.hold)
	c := s.dialRaw(t, nil)
	session := <-s.sessions
	c.conn.Close()
	<-session.ctx.Done()
	if _, err := bridgetest.Recv(session.ctx, session); err == nil || errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || !session.isOwnEnd(err) {
		t.Errorf("Recv = %v, want that the client is gone", err)
	}
}

// However soon the end comes after a message, the message comes first.
func TestLastWords(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for range 200 {
		c := s.dialRaw(t, nil)
		session := <-s.sessions
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			for range 5 { // of which some find the writer writing
				send(t, session, msg(initializedText))
				runtime.Gosched()
			}
			session.Close(nil)
		}()
		for range 5 {
			if got := c.text(); got != initializedText {
				t.Fatalf("got %q", got)
			}
		}
		c.wantClose(1000)
		c.conn.Close()
		<-closed
		<-s.over
	}
}

// WS3: what is wrong is said before the upgrade.
func TestRefusals(t *testing.T) {
	s := newSite(t, HandlerOptions{MaxSessions: 1})
	refused := func(status int, text string, headers ...string) *http.Response {
		t.Helper()
		c, resp := s.upgrade(t, nil, headers...)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != status || !strings.Contains(string(body), text) {
			t.Errorf("%q: %s %q, want %d %q", headers, resp.Status, body, status, text)
		}
		c.conn.Close()
		return resp
	}
	refused(403, "origin http://evil.example is not allowed", "Origin: http://evil.example")
	refused(403, "origin null is not allowed", "Origin: null")
	refused(400, "Sec-WebSocket-Key", "Sec-WebSocket-Key: x")
	if s.h.Sessions() != 0 || len(s.sessions) != 0 {
		t.Fatal("a refused upgrade has made a session")
	}

	get := func(method string, header http.Header) *http.Response {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), method, s.srv.URL, nil)
		r.Header = header
		resp, err := s.srv.Client().Do(r)
		bridgetest.Must(t, err)
		resp.Body.Close()
		return resp
	}
	if resp := get("GET", nil); resp.StatusCode != 426 || resp.Header.Get("Upgrade") != "websocket" {
		t.Errorf("a plain GET: %s, Upgrade %q", resp.Status, resp.Header.Get("Upgrade"))
	}
	if resp := get("POST", http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}); resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET" {
		t.Errorf("POST: %s, Allow %q", resp.Status, resp.Header.Get("Allow"))
	}

	first := s.dialRaw(t, nil, "Origin: http://localhost:3000")
	<-s.sessions
	if resp := refused(503, "too many sessions"); resp.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	first.conn.Close()
	<-s.over
	s.h.Close()
	if resp := refused(503, "shutting down"); resp.Header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
}

// WS2: mcp is selected if it is offered, and nobody has to offer it.
func TestSubprotocol(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for offered, want := range map[string]string{
		"":                            "",
		"Sec-WebSocket-Protocol: mcp": "mcp",
		"Sec-WebSocket-Protocol: graphql-ws , mcp": "mcp",
		"Sec-WebSocket-Protocol: graphql-ws":       "",
	} {
		var headers []string
		if offered != "" {
			headers = append(headers, offered)
		}
		c, resp := s.upgrade(t, nil, headers...)
		if got := resp.Header.Get("Sec-WebSocket-Protocol"); resp.StatusCode != 101 || got != want {
			t.Errorf("%q: %s, selected %q, want %q", offered, resp.Status, got, want)
		}
		c.conn.Close()
	}
}

// WS3: who has no token does not get as far as the upgrade; who has one owns
// the session.
func TestTokens(t *testing.T) {
	tokens, err := access.ParseTokens("alice 0123456789abcdef0123456789abcdef\n")
	bridgetest.Must(t, err)
	s := newSite(t, HandlerOptions{Guard: access.Policy{Tokens: tokens}})
	for _, header := range []string{"X-Nothing: x", "Authorization: Bearer wrong", "Sec-WebSocket-Protocol: mcp, 0123456789abcdef0123456789abcdef"} {
		if c, resp := s.upgrade(t, nil, header); resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %s, WWW-Authenticate %q", header, resp.Status, resp.Header.Get("WWW-Authenticate"))
		} else {
			c.conn.Close()
		}
	}
	s.dialRaw(t, nil, "Authorization: Bearer 0123456789abcdef0123456789abcdef")
	if owner := (<-s.sessions).owner; owner != "alice" {
		t.Errorf("the session belongs to %q", owner)
	}
}

// A client that goes while nobody takes its messages is found out by the
// pings: the server is told by its context, so that it need not be stuck.
func TestGoneWhileStuck(t *testing.T) {
	flood := bytes.Repeat(frame(fin|opText, []byte(`{"jsonrpc":"2.0","method":"x","params":{"s":"`+strings.Repeat("x", 9000)+`"}}`)), 100)
	// The client answers no pings: as long as it is not stuck, it may be silent for two intervals.
	s := newSite(t, HandlerOptions{PingInterval: time.Second})
	c := s.dialRaw(t, nil)
	session := <-s.sessions
	for range 100 {
		c.conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := c.conn.Write(flood); err != nil {
			break // nothing fits any more
		}
	}
	if session.ctx.Err() != nil {
		t.Fatal("the session has ended although the client is there")
	}
	c.conn.Close()
	<-s.over
}

func TestIdle(t *testing.T) {
	s := newSite(t, HandlerOptions{SessionTimeout: 50 * time.Millisecond})
	c := s.dialRaw(t, nil)
	if reason := c.wantClose(1001); !strings.Contains(reason, "idle") {
		t.Errorf("reason %q", reason)
	}
	c.conn.Close()
	<-s.over
}

// A client with many open requests is answered by the writer's goroutine, several at
// a time, and in order; one with few by whoever has the answer. Answers and
// cancellations end requests.
func TestManyOpenCalls(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	c := s.dialRaw(t, nil)
	session := <-s.sessions
	const n = 3 * maxInlineCalls
	var want []string
	ask := func(id int) {
		request := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, id)
		c.write(frame(fin|opText, []byte(request)))
		wantText(t, recv(t, session), request)
	}
	for i := range n {
		ask(i)
	}
	for i := range 2 {
		cancel := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)
		c.write(frame(fin|opText, []byte(cancel)))
		wantText(t, recv(t, session), cancel)
	}
	if open := session.calls.openRequests.Load(); open != n-2 {
		t.Errorf("%d requests are open, want %d", open, n-2)
	}
	session.writing.Lock() // nobody writes, and not yet
	for i := 2; i < n-maxInlineCalls; i++ {
		answer := jsonrpc.NewResult(jsonrpc.IntID(int64(i)), nil)
		if want = append(want, string(answer.Bytes())); !session.TrySend(answer) {
			t.Fatalf("answer %d is not taken, with many open", i)
		}
	}
	session.writing.Unlock()
	for i := n - maxInlineCalls; i < n; i++ {
		answer := jsonrpc.NewResult(jsonrpc.IntID(int64(i)), nil)
		want = append(want, string(answer.Bytes()))
		send(t, session, answer)
	}
	for _, text := range want {
		if got := c.text(); got != text {
			t.Errorf("came %s, want %s", got, text)
		}
	}
	c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}`)))
	recv(t, session)
	c.write(frame(fin|opText, []byte(`{"jsonrpc":"2.0","id":"invalid","method":5}`)))
	c.text() // the refusal; it is settled before the next message is read
	ask(n)
	if open := session.calls.openRequests.Load(); open != 1 {
		t.Errorf("%d requests are open, want one", open)
	}
}
