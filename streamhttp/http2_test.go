package streamhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// Over HTTP/2 all exchanges share one connection. TLS is left out here, so
// that time can be told what to do.
func newHTTP2(t *testing.T, opts streamhttp.HandlerOptions) *site {
	var http2 http.Protocols
	http2.SetUnencryptedHTTP2(true)
	return newSiteOver(t, &http2, opts)
}

// A session is the same over HTTP/2, where a stream that is reset is a
// connection that broke (LI16, LI17).
func TestServerHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHTTP2(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		get, one, two := u.get(), u.call("1"), u.call("2")
		p.gets()
		p.gets()
		p.says(progress("1", 1), progress("2", 1), listChanged)
		one.gets(progress("1", 1)).open()
		two.gets(progress("2", 1)).open()
		get.gets(listChanged).open()
		one.cut()
		p.says(progress("1", 2), result("1"), progress("2", 2))
		two.gets(progress("2", 2)).open()
		u.get("Last-Event-ID: "+one.lastID()).gets(progress("1", 2), result("1")).over()
		p.getsNothing() // a disconnect is no cancellation
		p.says(result("2"))
		two.gets(result("2")).over()
		u.request("DELETE", "").is(http.StatusNoContent)
		get.gets().over()
		p.gone()
		if n := s.dialled.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
	bubble(t, "stateless", func(t *testing.T) {
		s := newHTTP2(t, streamhttp.HandlerOptions{Stateless: true})
		u := &user{site: s}
		r, q := u.call("1"), u.call("2")
		one, two := <-s.servers, <-s.servers
		one.isGreeted(r25a)
		two.isGreeted(r25a)
		if new(one.gets()).ID() != jsonrpc.IntID(1) {
			one, two = two, one
			one.gets()
		} else {
			two.gets()
		}
		r.cut()
		one.gone()
		two.says(result("2"))
		q.isJSON(result("2"))
	})
}

// A stream on which nothing is said for long lives on, also without keep-alive:
// what bounds a write must not bound a silence.
func TestServerHTTP2Silence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHTTP2(t, streamhttp.HandlerOptions{KeepAlive: -1, StallAfter: time.Second})
		u, p := s.open(r25c)
		get, r := u.get(), u.call("1")
		p.gets()
		p.says(progress("1", 1), listChanged)
		time.Sleep(time.Hour)
		p.says(listChanged, result("1"))
		get.gets(listChanged, listChanged).open()
		r.gets(progress("1", 1), result("1")).over()
	})
}

// What is refused on one stream leaves the others alone.
func TestServerHTTP2Refusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHTTP2(t, streamhttp.HandlerOptions{MaxMessageSize: 3 << 20})
		u, p := s.open(r25c)
		get := u.get()
		body, w := io.Pipe() // never ends
		resp := make(chan int, 1)
		go func() {
			r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/mcp", body)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Mcp-Session-Id", u.id)
			got, err := s.client.Do(r)
			if err != nil {
				t.Error(err)
				resp <- 0
				return
			}
			got.Body.Close()
			resp <- got.StatusCode
		}()
		_, _ = io.WriteString(w, "{")
		if status := <-resp; status != http.StatusRequestTimeout { // 30 s later
			t.Errorf("a body that does not come is answered %d", status)
		}
		w.Close()
		u.post(big(4 << 20)).is(http.StatusRequestEntityTooLarge)
		(&user{site: s}).post(big(2 << 20)).is(http.StatusRequestEntityTooLarge)
		(&user{site: s, id: "gone"}).post(big(2 << 20)).is(http.StatusNotFound)
		p.says(listChanged)
		get.gets(listChanged).open()
		r := u.post(ping)
		p.gets()
		p.says(result("1"))
		r.isJSON(result("1"))
		if n := s.dialled.Load(); n != 1 {
			t.Errorf("%d connections: refusals have ended some", n)
		}
	})
}

// A reader that takes nothing is cut off; its neighbours are not.
func TestServerHTTP2Stalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHTTP2(t, streamhttp.HandlerOptions{StallAfter: 10 * time.Second})
		u, p := s.open(r25c)
		get := u.get()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://127.0.0.1/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", u.id)
		resp, err := s.client.Do(r) // whose body nobody reads
		bridgetest.Must(t, err)
		defer resp.Body.Close()
		p.gets()
		begun := time.Now()
		for range 12 { // more than a client lets wait
			if err := p.Send(t.Context(), message(logLine(big(1<<20))).WithRelated(jsonrpc.IntID(1))); err != nil { // to the GET in the end
				t.Fatal(err)
			}
		}
		if d := time.Since(begun); d < 5*time.Second || d > 25*time.Second {
			t.Errorf("the server could go on after %v", d)
		}
		u.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		p.gets()
		get.open()
	})
}

// As a browser, or any client over TLS, has it.
func TestServerHTTP2OverTLS(t *testing.T) {
	h := streamhttp.NewHandler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		for {
			m, err := bridgetest.Recv(ctx, c)
			if err != nil {
				return err
			}
			if m.Kind() != jsonrpc.Request {
				continue
			}
			if m.Method() == "tools/call" {
				_ = c.Send(ctx, message(logLine("l")))
			}
			_ = c.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(`{"protocolVersion":"2025-06-18"}`)))
		}
	}), streamhttp.HandlerOptions{})
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	defer h.Close()
	session := ""
	do := func(method, body string, status int) string {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), method, srv.URL, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
		}
		resp, err := srv.Client().Do(r)
		bridgetest.Must(t, err)
		defer resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != status {
			t.Errorf("%s %s: %s over %s", method, body, resp.Status, resp.Proto)
		}
		for name := range resp.Header {
			switch name {
			case "Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade":
				t.Errorf("the reply has the header %s", name)
			}
		}
		if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
			session = id
		}
		if method == "GET" {
			line, err := bufio.NewReader(resp.Body).ReadString('\n')
			return fmt.Sprint(line, err)
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	if do("POST", initialize(r25b), 200); session == "" {
		t.Fatal("no session")
	}
	do("POST", initialized, 202)
	if text := do("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, 200); !strings.Contains(text, logLine("l")) {
		t.Errorf("the stream is %q", text)
	}
	do("DELETE", "", 204)
	do("POST", ping, 404)
}
