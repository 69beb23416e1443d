package streamhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/streamclient"
)

func newStateless(t *testing.T, opts streamhttp.HandlerOptions) (*site, *user) {
	opts.Stateless = true
	s := newSite(t, opts)
	return s, &user{site: s}
}

// isGreeted wants the bridge to introduce itself in the client's place, in this
// revision, and answers.
func (p *server) isGreeted(version string) {
	p.t.Helper()
	m := p.gets()
	params := string(m.Params())
	want := `^\{"protocolVersion":"` + version + `","capabilities":\{\},"clientInfo":\{"name":"mcp-bridge","version":"[^"]+"\}\}$`
	if m.Kind() != jsonrpc.Request || m.Method() != "initialize" || !regexp.MustCompile(want).MatchString(params) {
		p.t.Fatalf("the server got %s", m.Bytes())
	}
	p.getsNothing() // until it has answered
	p.says(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"result":{"protocolVersion":"` + version + `"}}`)
	p.getsText(initialized)
}

// isPlain wants nothing in the headers of a reply that would mean a session.
func (r *reply) isPlain() *reply {
	r.t.Helper()
	if r.begun() == 0 {
		r.t.Fatal("there is no reply yet")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id := r.header.Get("Mcp-Session-Id"); id != "" {
		r.t.Errorf("the reply has the session id %q", id)
	}
	if len(r.ids) > 0 {
		r.t.Errorf("events have the ids %q", r.ids)
	}
	return r
}

// A client that never gets a session id works: each request has a server of
// its own, which goes when it has answered.
func TestServerStateless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		r := u.post(initialize(r25c))
		p := <-s.servers
		p.getsText(initialize(r25c))
		p.getsNothing()
		p.says(initializeResult(r25c))
		r.isPlain().isJSON(initializeResult(r25c))
		p.gone()
		u.version = r25c
		if body := u.post(initialized).is(http.StatusAccepted); body != "" {
			t.Errorf("202 with %q", body)
		}
		for _, method := range []string{"tools/list", "tools/call", "ping"} {
			request := `{"jsonrpc":"2.0","id":"x","method":"` + method + `"}`
			r := u.post(request)
			p := <-s.servers
			p.isGreeted(r25c)
			p.getsText(request)
			time.Sleep(5 * time.Second) // to start a server takes its time
			p.says(result(`"x"`))
			r.isPlain().isJSON(result(`"x"`))
			p.gone()
		}
		if n := s.h.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
	bubble(t, "two at once", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		one := u.call("1") // the same id
		p := <-s.servers
		two := u.call("1")
		q := <-s.servers
		p.isGreeted(r25a)
		q.isGreeted(r25a)
		p.gets()
		q.gets()
		q.says(logLine("q"))
		p.says(result("1"))
		one.isPlain().isJSON(result("1"))
		p.gone()
		q.says(result("1"))
		two.isPlain().gets(logLine("q"), result("1")).over()
		q.gone()
	})
	bubble(t, "stream", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		u.version = r25c
		r := u.call("1")
		p := <-s.servers
		p.isGreeted(r25c)
		p.gets()
		p.says(progress("1", 1), progress("2", 1), logLine("a"), listChanged)
		p.saysIn("null", logLine("b")) // there is no other stream
		r.gets(progress("1", 1), logLine("a"), listChanged, logLine("b")).open()
		p.says(logLine("c"), result("1"))
		_ = p.Send(t.Context(), message(logLine("late"))) // the session may have ended by now
		r.isPlain().gets(logLine("c"), result("1")).over()
		p.gone()
	})
	bubble(t, "a stream after a while", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		u.version = r25c
		r := u.call("1")
		p := <-s.servers
		time.Sleep(11 * time.Second) // it has not even got an initialize yet
		r.gets().open()
		p.isGreeted(r25c)
		p.gets()
		p.says(result("1"))
		r.isPlain().gets(result("1")).over()
		p.gone()
	})
	bubble(t, "an id like the bridge's own", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		r := u.call(`"mcp-bridge-initialize"`)
		p := <-s.servers
		p.isGreeted(r25a)
		p.gets()
		p.says(result(`"mcp-bridge-initialize"`))
		r.isJSON(result(`"mcp-bridge-initialize"`))
	})
	bubble(t, "large", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		request := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"` + big(2<<20) + `"}}`
		r := u.post(request)
		p := <-s.servers
		p.isGreeted(r25a)
		p.getsText(request)
		p.says(result("1"))
		r.isJSON(result("1"))
	})
}

// Nobody can answer the server, so it is told at once.
func TestServerStatelessAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		r := u.call("1")
		p := <-s.servers
		greeting := p.gets()
		answers := func(ask, id, want string) {
			t.Helper()
			p.says(ask)
			m := p.gets()
			if got := m.ID().String() + string(m.Lookup("error", "code")) + string(m.Result()); got != id+want {
				t.Errorf("%s was answered %s", ask, m.Bytes())
			}
		}
		asks := func() {
			t.Helper()
			answers(ping, "1", "{}")
			answers(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`, `"r"`, "-32601")
			answers(ask(`"q"`), `"q"`, "-32603")
			answers(`{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}`, "7", "-32603")
		}
		asks() // the server may not wait for an answer with its own
		p.says(result(greeting.ID().String()))
		p.getsText(initialized)
		p.gets()
		asks()
		p.says(result("1"))
		r.isJSON(result("1"))
	})
}

// Whatever goes wrong, the request is answered and no server stays.
func TestServerStatelessFails(t *testing.T) {
	bubble(t, "handshake", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		for _, ahead := range []time.Duration{0, time.Minute} {
			r := u.call("7")
			p := <-s.servers
			m := p.gets()
			time.Sleep(ahead)
			p.says(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"error":{"code":-32602,"message":"no","data":{"supported":[]}}}`)
			want := `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no","data":{"supported":[]}}}`
			if ahead == 0 {
				r.isJSON(want)
			} else {
				r.gets(want).over()
			}
			p.gone()
		}
	})
	bubble(t, "crash", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		for after := range 3 { // before initialize, before the answer to it, before the answer
			r := u.call("7")
			p := <-s.servers
			switch after {
			case 1:
				p.gets()
			case 2:
				p.isGreeted(r25a)
				p.gets()
			}
			p.quit <- context.Canceled
			r.isError(http.StatusOK, -32603, "7")
		}
	})
	bubble(t, "the client goes", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		for after := range 4 { // before initialize, before the answer to it, before the reply, in its course
			r := u.call("7")
			p := <-s.servers
			switch after {
			case 1:
				p.gets()
			case 2:
				p.isGreeted(r25a)
				p.gets()
			case 3:
				p.isGreeted(r25a)
				p.gets()
				p.says(logLine("l"))
			}
			r.cut()
			p.gone()
		}
		if n := s.h.Sessions(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
	bubble(t, "shutdown", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		s.wait = make(chan struct{})
		r := u.call("1")
		p := <-s.servers
		p.isGreeted(r25a)
		p.gets()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.h.Close()
		}()
		synctest.Wait()
		u.call("2").isError(http.StatusServiceUnavailable, -32603, "2")
		p.says(result("1"))
		r.isJSON(result("1"))
		select {
		case <-closed:
			t.Error("Close did not wait for the server")
		default:
		}
		close(s.wait)
		<-closed
	})
	bubble(t, "too many", func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{MaxSessions: 1})
		r := u.call("1")
		p := <-s.servers
		u.call("2").isError(http.StatusServiceUnavailable, -32603, "2")
		p.isGreeted(r25a)
		p.gets()
		p.says(result("1"))
		r.isJSON(result("1"))
		u.call("3")
		<-s.servers
	})
	bubble(t, "no place", func(t *testing.T) {
		pl := newPlaces(1, time.Minute)
		s, u := newStateless(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit})
		r := u.call("1")
		p := <-s.servers
		refused := u.call("2")
		time.Sleep(time.Minute)
		if refused.isError(http.StatusServiceUnavailable, -32603, "2"); refused.header.Get("Retry-After") == "" {
			t.Errorf("headers %v", refused.header)
		}
		waiting := u.call("3")
		u.post(initialized).is(http.StatusAccepted) // needs none
		p.isGreeted(r25a)
		p.gets()
		p.says(result("1"))
		r.gets(result("1"))
		(<-s.servers).isGreeted(r25a)
		pl.are(t, 2, 1)
		waiting.cut()
		pl.are(t, 2, 0)
	})
}

// The server hears that nobody waits any more.
func TestServerStatelessCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := bridge.Pipe()
		s := newSite(t, streamhttp.HandlerOptions{})
		h := streamhttp.NewHandler(bridge.Serve(dialer(func() bridge.Conn { return theirs }), bridge.PumpOptions{}), streamhttp.HandlerOptions{Stateless: true})
		defer h.Close()
		s.srv.Handler = h
		p := &server{Conn: ours, t: t}
		r := (&user{site: s}).call("7")
		p.isGreeted(r25a)
		p.gets()
		r.cut()
		if m := p.gets(); m.Method() != "notifications/cancelled" || m.CancelledID() != jsonrpc.IntID(7) {
			t.Errorf("the server got %s", m.Bytes())
		}
		if _, err := bridgetest.Recv(t.Context(), ours); err == nil {
			t.Error("the server lives on")
		}
	})
}

type dialer func() bridge.Conn

func (d dialer) Dial(context.Context) (bridge.Conn, error) { return d(), nil }

// What there is without sessions: POST, and nothing to come back to.
func TestServerStatelessHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		for _, method := range []string{"GET", "DELETE", "PUT", "OPTIONS"} {
			for _, headers := range [][]string{nil, {"Mcp-Session-Id: x", "Last-Event-Id: 1_1"}} {
				r := u.request(method, "", headers...)
				r.isError(http.StatusMethodNotAllowed, -32600, "null")
				if allow := r.header.Get("Allow"); allow != "POST" {
					t.Errorf("%s: Allow: %s", method, allow)
				}
			}
		}
		for _, oneWay := range []string{
			initialized, result("1"), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
			"[" + initialized + "," + result("1") + "]",
		} {
			if body := u.post(oneWay, "Mcp-Session-Id: x").is(http.StatusAccepted); body != "" {
				t.Errorf("202 with %q", body)
			}
		}
		// LI24
		u.post(ping, "Mcp-Protocol-Version: 1999-01-01").isError(http.StatusBadRequest, -32600, "1")
		u.post(ping, "Mcp-Protocol-Version: "+r25b, "Mcp-Protocol-Version: "+r25c).isError(http.StatusBadRequest, -32600, "1")
		u.post(initialized, "Mcp-Protocol-Version: 1999-01-01").is(http.StatusBadRequest)
		u.post("{").isError(http.StatusBadRequest, -32700, "null")
		u.post(`{"jsonrpc":"2.0","id":1}`).isError(http.StatusBadRequest, -32600, "1")
		u.post(ping, "Content-Type: text/plain").is(http.StatusUnsupportedMediaType)
		if len(s.servers) > 0 {
			t.Error("a server was started for nothing")
		}
		// The header of a session that another mode of ours, or of another server, has given.
		r := u.post(ping, "Mcp-Session-Id: x", "Mcp-Session-Id: y", "Mcp-Protocol-Version: "+r25b)
		p := <-s.servers
		p.isGreeted(r25b)
		p.getsText(ping)
		p.says(result("1"))
		r.isPlain().isJSON(result("1"))
		r = u.post(initialize(r25b), "Mcp-Session-Id: x", "Mcp-Protocol-Version: 1999-01-01")
		p = <-s.servers
		p.getsText(initialize(r25b))
		p.says(initializeResult(r25b))
		r.isPlain().isJSON(initializeResult(r25b))
	})
}

// LI8 to LI12, LI11: one server for a batch, where the header allows one.
func TestServerStatelessBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newStateless(t, streamhttp.HandlerOptions{})
		const batch = `[` + ping + `,` + initialized + `,{"jsonrpc":"2.0","id":2,"method":"x"},1]`
		for _, version := range []string{"", r25a} {
			r := u.post(batch, "Mcp-Protocol-Version: "+version)
			p := <-s.servers
			p.isGreeted(r25a)
			p.getsText(ping)
			p.getsText(initialized)
			p.getsText(`{"jsonrpc":"2.0","id":2,"method":"x"}`)
			p.says(result("2"))
			if r.finished() {
				t.Error("not everything is answered")
			}
			p.says(result("1"))
			got := r.is(http.StatusOK)
			if !strings.HasPrefix(got, `[`+result("1")+`,`+result("2")+`,`) || !strings.Contains(got, "-32600") {
				t.Errorf("got %s", got)
			}
			p.gone()
		}
		r := u.post(`[`+ping+`,{"jsonrpc":"2.0","id":2,"method":"x"}]`, "Mcp-Protocol-Version: "+r25a)
		p := <-s.servers
		m := p.gets()
		p.says(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"error":{"code":-32000,"message":"no"}}`)
		if got := r.is(http.StatusOK); strings.Count(got, `"error":{"code":-32000,"message":"no"}`) != 2 {
			t.Errorf("got %s", got)
		}
		for _, version := range []string{"2024-11-05", r25b, r25c} {
			u.post(batch, "Mcp-Protocol-Version: "+version).is(http.StatusBadRequest)
		}
		u.post(`[`+ping+`,`+ping+`]`).isError(http.StatusBadRequest, -32600, "1")
		u.post(`[`+initialize(r25a)+`]`).isError(http.StatusBadRequest, -32600, "null")
		u.post(`[]`).isError(http.StatusBadRequest, -32600, "null")
		u.post(`[1]`).is(http.StatusBadRequest)
		if len(s.servers) > 0 {
			t.Error("a server was started for nothing")
		}
	})
}

// Our own client, which takes what it is given, finishes a whole conversation.
func TestServerStatelessClient(t *testing.T) {
	h := streamhttp.NewHandler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		ready := 0
		for {
			m, err := bridgetest.Recv(ctx, c)
			if err != nil {
				return err
			}
			switch {
			case m.Method() == "initialize":
				ready++
				_ = c.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(`{"protocolVersion":"2025-06-18"}`)))
			case m.Method() == "notifications/initialized":
				ready++
			case ready == 2:
				_ = c.Send(ctx, message(logLine(m.Method())))
				_ = c.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(`{"method":"`+m.Method()+`"}`)))
			}
		}
	}), streamhttp.HandlerOptions{Stateless: true})
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Close()
	c, err := (&streamclient.Client{URL: srv.URL}).Dial(t.Context())
	bridgetest.Must(t, err)
	defer c.Close(nil)
	says := func(text string, want ...string) {
		t.Helper()
		bridgetest.Must(t, c.Send(t.Context(), message(text)))
		for _, w := range want {
			m, err := bridgetest.Recv(t.Context(), c)
			if err != nil || string(m.Bytes()) != w {
				t.Fatalf("got %s, %v; want %s", m.Bytes(), err, w)
			}
		}
	}
	says(initialize(r25b), initializeResult(r25b))
	says(initialized)
	for _, method := range []string{"tools/list", "tools/call", "ping"} {
		says(`{"jsonrpc":"2.0","id":"x","method":"`+method+`"}`, logLine(method), `{"jsonrpc":"2.0","id":"x","result":{"method":"`+method+`"}}`)
	}
}
