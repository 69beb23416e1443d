package legacysse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const note = `{"jsonrpc":"2.0","method":"n"}`

// SS1: the first event names a path for POSTs, with a random session id.
func TestEndpointEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		seen := map[string]bool{}
		for range 10 {
			c := s.open()
			if !regexp.MustCompile(`^/message\?sessionId=[0-9A-Za-z]{26,}$`).MatchString(c.url) || seen[c.url] {
				t.Errorf("endpoint %s", c.url)
			}
			seen[c.url] = true
			for name, want := range map[string]string{ // LI26
				"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no",
			} {
				if got := c.header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			c.post(note)
			c.session.gets(note)
		}
		if n := s.h.Sessions(); n != 10 {
			t.Errorf("%d sessions", n)
		}
	})
}

// SS1: the endpoint is beside the stream, behind the prefix of a proxy, or
// what MessageURL says.
func TestMessageURL(t *testing.T) {
	for _, c := range []struct {
		path, header string
		opts         HandlerOptions
		want         string
	}{
		{"/sse", "", HandlerOptions{}, "/message?sessionId=ID"},
		{"/servers/a%20b/sse", "", HandlerOptions{}, "/servers/a%20b/message?sessionId=ID"},
		{"/sse/", "", HandlerOptions{}, "/sse/message?sessionId=ID"},
		{"//evil.example/sse", "", HandlerOptions{}, "/evil.example/message?sessionId=ID"},
		{"/sse?a=b", "", HandlerOptions{}, "/message?sessionId=ID"},
		{"/sse", "/tools", HandlerOptions{}, "/message?sessionId=ID"},
		{"/sse", "/tools", HandlerOptions{Guard: access.Policy{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}},
			"/tools/message?sessionId=ID"},
		{"/sse", "", HandlerOptions{MessageURL: func(*http.Request) string { return "/x/y" }}, "/x/y?sessionId=ID"},
		{"/sse", "", HandlerOptions{MessageURL: func(*http.Request) string { return "/x?k=v" }}, "/x?k=v&sessionId=ID"},
	} {
		h := NewHandler(nil, c.opts)
		r, err := http.NewRequest(http.MethodGet, "http://h", nil)
		bridgetest.Must(t, err)
		if r.URL, err = r.URL.Parse("http://h" + c.path); err != nil {
			t.Fatal(err)
		}
		r.RemoteAddr = "127.0.0.1:1"
		if c.header != "" {
			r.Header.Set("X-Forwarded-Prefix", c.header)
		}
		if got := endpointURL(h.messageURL(r), "ID"); got != c.want {
			t.Errorf("%s %s: endpoint %s, want %s", c.path, c.header, got, c.want)
		}
	}
}

// SS2: each message is one event of its own, byte for byte.
func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSite(t, HandlerOptions{}, nil).open()
		texts := []string{
			`{"jsonrpc":"2.0","id":1e3,"result":{"n":9007199254740993,"f":1.0,"e":1e400,"s":"\u00e9\/\n "}}`,
			note,
			`{"jsonrpc":"2.0","id":"q","method":"ping"}`,
			`{"jsonrpc":"2.0","method":"big","params":{"pad":"` + strings.Repeat("é", 1<<19) + `"}}`,
			note,
		}
		c.session.says(texts...)
		c.hears(texts...)
		c.session.says("{\"jsonrpc\":\"2.0\",\r\n  \"method\": \"pretty\"\n}\n")
		c.hears(`{"jsonrpc":"2.0",  "method": "pretty"}`)
	})
}

// SS3: what is accepted is answered 202 with an empty body, once the server
// has it, and whatever is wrong has a status of its own.
func TestPosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{MaxMessageSize: 1000}, nil)
		c := s.open()
		for _, text := range []string{note, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":5,"result":{}}`} {
			p := c.post(text)
			if p.finished() {
				t.Errorf("accepted before the server has taken it: %d", p.status)
			}
			c.session.gets(text)
			p.want(http.StatusAccepted, "")
		}
		large := `{"jsonrpc":"2.0","method":"` + strings.Repeat("x", 1000) + `"}`
		c.post(large).want(http.StatusRequestEntityTooLarge, "1000 bytes")
		unknown := "/message?sessionId=" + strings.Repeat("A", 26)
		for _, p := range []struct {
			url, body, header string
			status            int
			text              string
		}{
			{"/message", note, "", 400, "sessionId"},
			{"/message?sessionId=", note, "", 400, "sessionId"},
			{c.url + "&sessionId=x", note, "", 400, "sessionId"},
			{unknown, note, "", 404, "no such session"},
			{c.url, `{"jsonrpc":"2.0"`, "", 400, "-32700"},
			{c.url, ``, "", 400, "-32700"},
			{c.url, `{"jsonrpc":"2.0","id":null,"method":"x"}`, "", 400, "-32600"},
			{c.url, `{"jsonrpc":"2.0","id":7,"method":3}`, "", 400, `"id":7`}, // J4
			{c.url, `[` + note + `]`, "", 400, "2025-03-26"},
			{c.url, note, "Content-Type: text/plain", 415, "application/json"},
			{c.url, note, "Content-Type:", 415, "application/json"},
			{c.url, note, "Content-Type: application/json; charset=utf-16", 415, "UTF-8"},
			{c.url, note, "Content-Encoding: gzip", 415, "Content-Encoding"},
			{unknown, note, "Content-Type: text/plain", 415, "application/json"},
			{c.url, note, "Mcp-Protocol-Version: 1999-01-01", 400, "MCP-Protocol-Version"}, // SS8
			{c.url, note, "Mcp-Protocol-Version: 2026-07-28", 400, "MCP-Protocol-Version"},
		} {
			s.request(http.MethodPost, p.url, strings.NewReader(p.body), p.header).want(p.status, p.text)
		}
		// A body of unknown length.
		s.request(http.MethodPost, c.url, io.MultiReader(strings.NewReader(large))).want(http.StatusRequestEntityTooLarge, "1000 bytes")
		c.session.getsNothing()
		for _, header := range []string{"Content-Type: application/json; charset=UTF-8", "Mcp-Protocol-Version: 2025-11-25"} {
			p := c.post(note, header)
			c.session.gets(note)
			p.want(http.StatusAccepted, "")
		}
	})
}

// A broken answer to a question is told to whoever has asked, and not to the
// client, which may have a request of its own under that id.
func TestBrokenAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		c := s.open()
		void := `{"jsonrpc":"2.0","id":9}`
		c.post(void).want(http.StatusBadRequest, `"id":9`) // J4
		for _, broken := range []string{void, `{"jsonrpc":"2.0","id":9,"result":{},"error":{}}`} {
			question := `{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}`
			c.session.says(question)
			c.hears(question)
			p := c.post(broken)
			if m, err := bridgetest.Recv(t.Context(), c.session); err != nil || m.ID() != jsonrpc.IntID(9) || !m.IsError() {
				t.Errorf("%s reaches the server as %s, %v", broken, m.Bytes(), err)
			}
			p.want(http.StatusAccepted, "")
			c.hears()
		}
		c.post(void).want(http.StatusBadRequest, `"id":9`)
		c.session.getsNothing()
	})
}

// LI3, LI4: GET for the stream and POST for messages, and nothing else.
func TestMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		c := s.open()
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			r := s.request(method, "/sse", nil)
			r.want(http.StatusMethodNotAllowed, "use GET")
			if allow := r.header.Get("Allow"); allow != "GET" {
				t.Errorf("Allow is %q", allow)
			}
		}
		for _, method := range []string{"GET", "PUT", "DELETE", "OPTIONS"} {
			r := s.request(method, c.url, nil)
			r.want(http.StatusMethodNotAllowed, "use POST")
			if allow := r.header.Get("Allow"); allow != "POST" {
				t.Errorf("Allow is %q", allow)
			}
		}
		if r := s.request("HEAD", "/sse", nil); r.finished() && r.status != http.StatusMethodNotAllowed {
			t.Errorf("HEAD: %d", r.status)
		}
		for _, accept := range []string{"application/json", "text/event-stream;q=0, */*", "text/event-stream; q=0"} {
			s.request("GET", "/sse", nil, "Accept: "+accept).want(http.StatusNotAcceptable, "text/event-stream")
		}
		for _, accept := range []string{"", "*/*", "text/*", "application/json, text/event-stream", "text/html;q=0.9, text/event-stream;q=0.1"} {
			s.open("Accept: " + accept)
		}
	})
}

// SS4, LI1: a page of a foreign origin gets neither a stream nor a message in.
func TestOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{Guard: access.Policy{Loopback: true}}, nil)
		c := s.open("Origin: http://localhost:5173")
		if got := c.header.Get("Access-Control-Allow-Origin"); got != "http://localhost:5173" { // LI31
			t.Errorf("Access-Control-Allow-Origin is %q", got)
		}
		s.request("GET", "/sse", nil, "Origin: http://evil.example").want(http.StatusForbidden, "origin")
		c.post(note, "Origin: http://evil.example").want(http.StatusForbidden, "origin")
		c.post(note, "Host: evil.example").want(http.StatusForbidden, "host") // LI2
		c.session.getsNothing()
		p := s.request("OPTIONS", c.url, nil, "Origin: http://localhost:5173", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type")
		p.want(http.StatusNoContent, "")
		if got := p.header.Get("Access-Control-Allow-Headers"); got != "content-type" {
			t.Errorf("Access-Control-Allow-Headers is %q", got)
		}
	})
}

// SS4: a session belongs to whoever opened it.
func TestPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, func(r *http.Request) *http.Request {
			return access.WithPrincipal(r, r.Header.Get("X-User"))
		})
		c := s.open("X-User: ann")
		c.post(note, "X-User: bob").want(http.StatusNotFound, "no such session")
		c.post(note).want(http.StatusNotFound, "no such session")
		p := c.post(note, "X-User: ann")
		c.session.gets(note)
		p.want(http.StatusAccepted, "")
	})
}

// With tokens, both endpoints want one, before anything else.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, err := access.ParseTokens("ann " + strings.Repeat("a", 40) + "\nbob " + strings.Repeat("b", 40))
		bridgetest.Must(t, err)
		s := newSite(t, HandlerOptions{Guard: access.Policy{Tokens: tokens}}, nil)
		s.request("GET", "/sse", nil).want(http.StatusUnauthorized, "authentication")
		ann := "Authorization: Bearer " + strings.Repeat("a", 40)
		c := s.open(ann)
		if p := c.post(note); p.header.Get("Www-Authenticate") == "" {
			t.Errorf("no WWW-Authenticate: %v", p.header)
		} else {
			p.want(http.StatusUnauthorized, "authentication")
		}
		c.post(note, "Authorization: Bearer "+strings.Repeat("b", 40)).want(http.StatusNotFound, "no such session")
		p := c.post(note, ann)
		c.session.gets(note)
		p.want(http.StatusAccepted, "")
	})
}

// SS5: the end of the stream ends the session, and what waits for it.
func TestClientGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		c := s.open()
		waiting := c.post(note)
		c.cancel()
		c.session.gone(errClientGone)
		waiting.want(http.StatusNotFound, "no such session")
		c.post(note).want(http.StatusNotFound, "no such session")
		if n := s.h.Sessions(); n != 0 {
			t.Errorf("%d sessions", n)
		}
	})
}

// SS5: with a Pump, the server hears that its calls are cancelled, and then
// that nobody is there any more.
func TestClientGoneCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, child := bridge.Pipe()
		s := newSite(t, HandlerOptions{}, nil)
		s.serve = func(ctx context.Context, p *server) error {
			defer ours.Close(nil)
			return bridge.Pump(ctx, p, ours, bridge.PumpOptions{})
		}
		c := s.open()
		c.post(`{"jsonrpc":"2.0","id":3,"method":"tools/call"}`).want(http.StatusAccepted, "")
		if m, err := bridgetest.Recv(t.Context(), child); err != nil || m.Method() != "tools/call" {
			t.Fatalf("%s, %v", m.Bytes(), err)
		}
		c.cancel()
		start := time.Now()
		if m, err := bridgetest.Recv(t.Context(), child); err != nil || m.Method() != "notifications/cancelled" || m.CancelledID() != jsonrpc.IntID(3) {
			t.Errorf("%s, %v; want a cancellation", m.Bytes(), err)
		}
		if _, err := bridgetest.Recv(t.Context(), child); err != io.EOF {
			t.Errorf("Recv = %v, want io.EOF", err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// J7, LI9, LI12: batches are taken where 2025-03-26 was negotiated, and what is
// wrong inside is answered on the stream.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{MaxBatch: 4}, nil)
		for _, version := range []string{"2024-11-05", "2025-06-18", "2025-11-25"} {
			c := s.open()
			c.session.says(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"` + version + `"}}`)
			c.post(`[`+note+`]`, "Mcp-Protocol-Version: 2025-03-26").want(http.StatusBadRequest, "-32600")
			c.session.getsNothing()
		}
		c := s.open()
		init := `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-03-26"}}`
		c.session.says(init)
		c.hears(init)
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
		p := c.post(` [` + note + `, ` + call + `]`)
		c.session.gets(note)
		if p.finished() {
			t.Error("accepted before the server has all of it")
		}
		c.session.gets(call)
		p.want(http.StatusAccepted, "")

		p = c.post(`[1, ` + call + `, {"jsonrpc":"2.0","id":4,"method":"initialize"}, {"jsonrpc":"2.0","method":5}]`)
		c.session.gets(call)
		p.want(http.StatusAccepted, "")
		for _, want := range []string{`"id":null,"error":{"code":-32600`, `"id":4,"error":{"code":-32600`} {
			if e := c.event(); e.Name != "message" || !strings.Contains(string(e.Data), want) {
				t.Errorf("event %s, want %s", e.Data, want)
			}
		}
		c.hears() // J6: a notification is not answered
		for _, bad := range []string{`[]`, `[{"jsonrpc":"2.0","id":4,"method":"initialize"}]`, `[` + note + `,` + note + `,` + note + `,` + note + `,` + note + `]`} {
			c.post(bad).want(http.StatusBadRequest, "-32600")
		}
		c.post(`[`+note+`,`).want(http.StatusBadRequest, "-32700")
		c.session.getsNothing()
	})
}

// SS9: requests of a revision without sessions are answered, on the stream.
func TestModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSite(t, HandlerOptions{}, nil).open()
		for _, headers := range [][]string{nil, {"Mcp-Protocol-Version: 2026-07-28"}} {
			c.post(`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, headers...).want(http.StatusAccepted, "")
			m := msg(string(c.event().Data))
			if m.ID() != jsonrpc.StringID("a") || string(m.Lookup("error", "code")) != "-32022" ||
				string(m.Lookup("error", "data")) != `{"supported":["2024-11-05","2025-03-26","2025-06-18","2025-11-25"],"requested":"2026-07-28"}` {
				t.Errorf("the answer is %s", m.Bytes())
			}
		}
		c.session.getsNothing()
		for _, legacy := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"arguments":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
			`{"jsonrpc":"2.0","method":"n","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		} {
			p := c.post(legacy)
			c.session.gets(legacy)
			p.want(http.StatusAccepted, "")
		}
	})
}

// LI26: a comment every 15 s of silence.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		conn, err := s.net.Dial(t.Context(), "", "")
		bridgetest.Must(t, err)
		defer conn.Close()
		go func() { _, _ = io.WriteString(conn, "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n") }()
		buf := make([]byte, 4096)
		read := func() string {
			n, err := conn.Read(buf)
			bridgetest.Must(t, err)
			return string(buf[:n])
		}
		for text := ""; !strings.Contains(text, "sessionId="); {
			text += read()
		}
		for range 3 {
			start := time.Now()
			for text := ""; !strings.Contains(text, ": keep-alive\n"); {
				text += read()
			}
			if d := time.Since(start); d != 15*time.Second {
				t.Errorf("a comment after %v", d)
			}
		}
	})
}

// A reader that takes nothing makes the server wait, and is cut off.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		conn := s.rawStream()
		defer conn.Close()
		p := <-s.servers
		start := time.Now()
		sent := 0
		var err error
		big := msg(`{"jsonrpc":"2.0","method":"` + strings.Repeat("x", 1000) + `"}`)
		for ; err == nil; sent++ {
			err = p.Send(context.Background(), big)
		}
		if err != errStalled || sent > 2*maxQueuedBytes/1000 {
			t.Errorf("%d messages sent, then %v; want %v", sent, err, errStalled)
		}
		if d := time.Since(start); d > 31*time.Second || d < 15*time.Second {
			t.Errorf("cut off after %v", d)
		}
		p.gone(errStalled)
	})
}

// A slow reader is not cut off as long as it takes something, and loses nothing.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		conn := s.rawStream()
		defer conn.Close()
		p := <-s.servers
		const n = 1000
		go func() {
			for range n {
				if err := p.Send(context.Background(), msg(`{"jsonrpc":"2.0","method":"x","params":["`+strings.Repeat("x", 4000)+`"]}`)); err != nil {
					t.Error(err)
				}
			}
		}()
		start := time.Now()
		got := 0
		for buf := make([]byte, 64<<10); got < n; {
			time.Sleep(5 * time.Second)
			k, err := conn.Read(buf)
			if err != nil {
				t.Fatalf("after %d messages: %v", got, err)
			}
			got += strings.Count(string(buf[:k]), "event: message")
		}
		if d := time.Since(start); d < time.Minute {
			t.Errorf("took %v: the test is none", d)
		}
	})
}

// The count of what waits is bounded as well as its bytes.
func TestQueueCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession("")
		s.onEnd = func() {}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n := 0
		for s.Send(ctx, msg(note)) == nil {
			n++
		}
		if n != maxQueuedMessages {
			t.Errorf("%d messages wait, want %d", n, maxQueuedMessages)
		}
	})
}

// The end of a server ends the stream, after what it has said.
func TestServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		c := s.open()
		waiting := c.post(note)
		last := `{"jsonrpc":"2.0","id":1,"result":{"pad":"` + strings.Repeat("x", 100_000) + `"}}`
		c.session.says(last)
		c.session.quit <- errors.New("exit status 1")
		if !c.finished() || c.err != io.EOF {
			t.Errorf("the stream ended with %v, want io.EOF", c.err)
		}
		c.hears(last)
		waiting.want(http.StatusNotFound, "no such session")
		c.session.gone(errSessionEnded)
	})
}

// Close lets sessions finish: what is owed reaches the stream.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, child := bridge.Pipe()
		s := newSite(t, HandlerOptions{}, nil)
		s.serve = func(ctx context.Context, p *server) error {
			err := bridge.Pump(ctx, p, ours, bridge.PumpOptions{})
			ours.Close(nil)
			return errors.Join(err, p.Close(nil))
		}
		c := s.open()
		c.post(`{"jsonrpc":"2.0","id":3,"method":"tools/call"}`).want(http.StatusAccepted, "")
		if _, err := bridgetest.Recv(t.Context(), child); err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.h.Close()
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait for the answer that is owed")
		default:
		}
		s.request("GET", "/sse", nil).want(http.StatusServiceUnavailable, "shutting down")
		answer := `{"jsonrpc":"2.0","id":3,"result":{}}`
		bridgetest.Must(t, child.Send(t.Context(), msg(answer)))
		<-closed
		c.hears(answer)
		if !c.finished() || c.err != io.EOF {
			t.Errorf("the stream ended with %v, want io.EOF", c.err)
		}
		if n := s.h.Sessions(); n != 0 {
			t.Errorf("%d sessions", n)
		}
	})
}

// Close returns when slow clients have taken what they were owed.
func TestCloseSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		conn := s.rawStream()
		defer conn.Close()
		p := <-s.servers
		p.says(note)
		go func() {
			time.Sleep(3 * time.Second)
			_, _ = io.Copy(io.Discard, conn)
		}()
		start := time.Now()
		s.h.Close()
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("Close took %v", d)
		}
	})
}

// Close does not wait for ever for a client that reads nothing.
func TestCloseStuckReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{}, nil)
		conn := s.rawStream()
		defer conn.Close()
		p := <-s.servers
		p.says(note)
		start := time.Now()
		s.h.Close()
		if d := time.Since(start); d > finalWriteTimeout {
			t.Errorf("Close took %v", d)
		}
	})
}

// Too many sessions are refused, and one that ends makes room.
func TestMaxSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{MaxSessions: 2}, nil)
		c := s.open()
		s.open()
		r := s.request("GET", "/sse", nil)
		r.want(http.StatusServiceUnavailable, "too many")
		if r.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		c.cancel()
		synctest.Wait()
		s.open()
	})
}

// A stream without a message either way ends where that is asked for.
func TestSessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, HandlerOptions{SessionTimeout: time.Minute}, nil)
		c := s.open()
		for range 3 {
			time.Sleep(50 * time.Second)
			c.session.says(note)
			c.hears(note)
			time.Sleep(50 * time.Second)
			c.post(note)
			c.session.gets(note)
		}
		time.Sleep(59 * time.Second)
		if c.finished() {
			t.Error("ended before its time")
		}
		time.Sleep(2 * time.Second)
		if !c.finished() || c.err != io.EOF {
			t.Errorf("not ended: %v", c.err)
		}
		c.session.gone(errIdle)

		forever := newSite(t, HandlerOptions{}, nil).open()
		time.Sleep(100 * time.Hour)
		if forever.finished() {
			t.Error("ended although nobody asked for that")
		}
	})
}

// A body that does not arrive is given up, and all bodies together are bounded.
func TestBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := budget.New(500_000)
		s := newSite(t, HandlerOptions{MaxMessageSize: 100_000, Budget: memory}, nil)
		c := s.open()
		r, w := io.Pipe()
		slow := s.request(http.MethodPost, c.url, r)
		go func() { _, _ = w.Write([]byte(`{`)) }()
		start := time.Now()
		<-slow.done
		slow.want(http.StatusRequestTimeout, "did not arrive in time")
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("given up after %v", d)
		}
		w.Close()

		large := `{"jsonrpc":"2.0","method":"x","params":["` + strings.Repeat("x", 90_000) + `"]}`
		one, two := c.post(large), c.post(large)
		synctest.Wait()
		three := c.post(large)
		three.want(http.StatusServiceUnavailable, "try again")
		c.session.gets(large)
		c.session.gets(large)
		one.want(http.StatusAccepted, "")
		two.want(http.StatusAccepted, "")
		four := c.post(large)
		c.session.gets(large)
		four.want(http.StatusAccepted, "")
		c.post(note)
		c.session.gets(note) // who asks for the next has passed on the last
		if n := memory.Taken(); n != 0 {
			t.Errorf("%d bytes are still counted", n)
		}
	})
}

// SS3: the session is what the query says, however it is spelled, and said once.
func TestSessionID(t *testing.T) {
	for query, want := range map[string]string{
		"": "", "sessionId=": "", "sessionId=Ab": "Ab", "sessionId=%41": "A", "sessionId=a+b": "a b", "sessionid=A": "",
		"x=1&sessionId=A": "A", "sessionId=A&x=1": "A", "sessionId=A&sessionId=A": "", "sessionId=A;x": "", "session%49d=A": "A", "sessionId": "",
	} {
		if got := sessionID(&url.URL{RawQuery: query}); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// Clients of HTTP/1.0 know no chunks.
func TestHTTP10(t *testing.T) {
	h := NewHandler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		<-ctx.Done()
		return nil
	}), HandlerOptions{})
	srv := httptest.NewServer(mux(h))
	defer srv.Close()
	defer h.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	bridgetest.Must(t, err)
	defer c.Close()
	fmt.Fprintf(c, "GET /sse HTTP/1.0\r\nHost: localhost\r\n\r\n")
	var got strings.Builder
	for buf := make([]byte, 1000); !strings.Contains(got.String(), "sessionId=") || !strings.HasSuffix(got.String(), "\n\n"); {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatalf("%v after %s", err, got.String())
		}
		got.Write(buf[:n])
	}
	if !strings.HasPrefix(got.String(), "HTTP/1.0 200") || !strings.Contains(got.String(), "\r\n\r\nevent: endpoint\n") {
		t.Errorf("the reply is %s", got.String())
	}
}
