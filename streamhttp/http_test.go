package streamhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// LI1: a bad Origin is 403 on every method, before anything else is looked at.
func TestServerOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		for _, method := range []string{"POST", "GET", "DELETE", "PUT"} {
			for _, origin := range []string{"http://evil.example", "null", "http://localhost.evil.example"} {
				u.request(method, ping, "Origin: "+origin).isError(http.StatusForbidden, -32600, "")
			}
		}
		stranger := &user{site: s}
		stranger.post(ping, "Origin: http://evil.example").isError(http.StatusForbidden, -32600, "null")
		p.getsNothing()
		r := u.post(ping, "Origin: http://localhost:3000")
		p.getsText(ping)
		p.says(result("1"))
		r.isJSON(result("1"))
		u.request("DELETE", "", "Origin: http://127.0.0.1").is(http.StatusNoContent)
	})
}

// LI2: a listener on a loopback address takes no other Host.
func TestServerHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{Guard: access.Policy{Loopback: true}})
		u := &user{site: s}
		u.post(initialize(r25c), "Host: evil.example").isError(http.StatusForbidden, -32600, "null")
		u.get("Host: evil.example:80").isError(http.StatusForbidden, -32600, "null")
		s.open(r25c)
	})
}

// LI3: GET, POST and DELETE; anything else is 405 and says so.
func TestServerMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		for _, method := range []string{"PUT", "PATCH", "OPTIONS", "HEAD", "BREW"} {
			r := u.request(method, "")
			r.is(http.StatusMethodNotAllowed)
			if got := r.header.Get("Allow"); got != "GET, POST, DELETE" {
				t.Errorf("%s: Allow: %q", method, got)
			}
			if method == "HEAD" && len(r.body) > 0 {
				t.Errorf("HEAD has a body: %q", r.body)
			}
		}
		p.getsNothing()
	})
}

// LI4: Accept must admit what the reply may be.
func TestServerAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		const no, both, sseOnly = 0, 1, 2
		for _, c := range []struct {
			accept string // several headers, separated by "|"
			want   int
		}{
			{"application/json, text/event-stream", both},
			{"text/event-stream,application/json", both},
			{"*/*", both},
			{"application/*, text/*", both},
			{"application/json|text/event-stream", both},
			{"text/html, */*;q=0.1", both},
			{"application/json;q=0.5, text/event-stream;q=0.001", both},
			{"APPLICATION/JSON, Text/Event-Stream", both},
			{"application/json; charset=utf-8, text/event-stream", both},
			{"", both},
			{"application/json", no},
			{"text/html", no},
			{"application/json, text/event-stream;q=0", no},
			{"application/json;q=0, text/event-stream", sseOnly},
			{"*/*, text/event-stream;q=0.0", no},
			{"*/*;q=0", no},
			{"text/*", sseOnly},
			{"text/event-stream", sseOnly},
			{"garbage", no},
			{";;;,,,", no},
		} {
			var headers []string
			for a := range strings.SplitSeq(c.accept, "|") {
				headers = append(headers, "Accept: "+a)
			}
			r := u.post(initialized, headers...)
			if c.want == both {
				p.getsText(initialized)
				r.is(http.StatusAccepted)
			} else {
				r.isError(http.StatusNotAcceptable, -32600, "")
			}
			r = u.get(headers...)
			if c.want == no {
				r.isError(http.StatusNotAcceptable, -32600, "")
			} else {
				r.open()
				r.cut()
			}
		}
		p.getsNothing()
	})
}

// LI5: only application/json, with whatever parameters.
func TestServerContentType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		for _, ct := range []string{"text/plain", "", "application/json-rpc", "application/jsonx", "json", ";", "application/x-www-form-urlencoded"} {
			u.post(ping, "Content-Type: "+ct).isError(http.StatusUnsupportedMediaType, -32600, "")
		}
		for _, ct := range []string{"application/json; charset=utf-8", "Application/JSON", "application/json;charset=\"utf-8\"", "application/json; =broken"} {
			r := u.post(initialized, "Content-Type: "+ct)
			p.getsText(initialized)
			r.is(http.StatusAccepted)
		}
	})
}

// LI6, J6: what needs no answer is 202 with nothing in it, known or not.
func TestServerOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		for _, body := range []string{
			`{"jsonrpc":"2.0","method":"notifications/nobody/knows","params":{"x":1.0}}`,
			`{"jsonrpc":"2.0","id":"never asked","result":{}}`,
			`{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":""}}`,
		} {
			r := u.post(body)
			if r.finished() {
				t.Error("accepted before the server has it")
			}
			p.getsText(body)
			if got := r.is(http.StatusAccepted); got != "" || r.header.Get("Content-Type") != "" {
				t.Errorf("202 with the body %q", got)
			}
		}
		u.request("DELETE", "").is(http.StatusNoContent)
		p.gone()
	})
	bubble(t, "the session ends before the server takes it", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, _ := s.open(r25c)
		r := u.post(`{"jsonrpc":"2.0","method":"notifications/x"}`)
		u.request("DELETE", "").is(http.StatusNoContent)
		r.isError(http.StatusNotFound, -32600, "")
	})
}

// LI7: JSON when the answer is the first thing that comes, soon; a stream
// when something else does, or when it takes too long.
func TestServerJSONOrStream(t *testing.T) {
	bubble(t, "at once", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		time.Sleep(50*time.Millisecond - 1)
		p.says(result("1"))
		r.isJSON(result("1"))
	})
	bubble(t, "late", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{CommitAfter: time.Second})
		u, p := s.open(r25b)
		r := u.call("1")
		p.gets()
		time.Sleep(time.Second - 1)
		if r.begun() != 0 {
			t.Error("the reply was committed too early")
		}
		time.Sleep(time.Nanosecond)
		r.gets()
		p.says(result("1"))
		r.gets(result("1")).over()
	})
	bubble(t, "something else first", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		r := u.call("1")
		p.gets()
		p.says(progress("1", 1))
		r.gets(progress("1", 1))
		// LI7, LI13: a server that asks gets its answer, and then gives its own.
		p.says(ask(`"q"`))
		r.gets(ask(`"q"`))
		a := u.post(result(`"q"`))
		p.getsText(result(`"q"`))
		a.is(http.StatusAccepted)
		p.says(result("1"))
		r.gets(result("1")).over()
	})
	// LI27: errors of the server travel in band.
	bubble(t, "an error", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r := u.post(`{"jsonrpc":"2.0","id":1,"method":"no/such"}`)
		p.gets()
		const unknown = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`
		p.says(unknown)
		r.isJSON(unknown)
	})
	// J5 and ST1: what is printed prettily goes into one line of data, and is
	// otherwise as it was.
	bubble(t, "bytes", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		const odd = `"n":9007199254740993,"f":1.0,"e":1e400,"u":"\u00e9\/ é"`
		body := "{ \"jsonrpc\":\"2.0\",\r\n\t\"id\":9007199254740993,\n\"method\":\"x\",\"params\":{" + odd + "}}"
		r := u.post(body)
		p.getsText(body)
		p.says("{\"jsonrpc\":\"2.0\",\n \"method\":\"y\"}")
		p.says("{\"jsonrpc\":\"2.0\",\n\"id\":9007199254740993,\r\n\"result\":{" + odd + "}}")
		r.gets(`{"jsonrpc":"2.0", "method":"y"}`, `{"jsonrpc":"2.0","id":9007199254740993,"result":{`+odd+`}}`).over()
	})
}

// J4: whatever is wrong with a request, the answer is a JSON-RPC error with
// the request's id where that can be read.
func TestServerErrorsCarryIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		for _, c := range []struct {
			body string
			code int
			id   string
		}{
			{`{"jsonrpc":"2.0","id":7,"method":"x"`, -32700, "7"},
			{`{"jsonrpc":"2.0","id":7,"method":4}`, -32600, "7"},
			{`{"jsonrpc":"1.0","id":"seven","method":"x"}`, -32600, `"seven"`},
			{`{"jsonrpc":"2.0","id":7,"method":"x","params":3}`, -32600, "7"},
			{`{"jsonrpc":"2.0","id":null,"method":"x"}`, -32600, ""}, // J1
			{`{"jsonrpc":"2.0","id":1.5,"method":"x"}`, -32600, ""},
			{`{"jsonrpc":"2.0","id":7,"id":8,"method":"x"}`, -32600, ""},
			{`{"jsonrpc":"2.0","id":7}`, -32600, "7"},
			{`nonsense`, -32700, ""},
			{`"a string"`, -32600, ""},
			{`{}`, -32600, ""},
			{" ", -32700, ""},
			{"\xff\xfe", -32700, ""},
			{strings.Repeat("[", 100_000), -32700, ""},
		} {
			u.post(c.body).isError(http.StatusBadRequest, c.code, c.id)
		}
		// Before 2025-11-25 the id was required, so an unknown one is null.
		u.post(`nonsense`, "Mcp-Protocol-Version: "+r25b).isError(http.StatusBadRequest, -32700, "null")
		u.post(`nonsense`, "Mcp-Protocol-Version:").isError(http.StatusBadRequest, -32700, "null")
		stranger := &user{site: s}
		stranger.post(ping).isError(http.StatusBadRequest, -32600, "1")                                           // LI21
		if text := stranger.get().is(http.StatusBadRequest); !strings.Contains(text, "HTTP+SSE is mostly /sse") { // a client of the older transport begins so
			t.Errorf("a GET without a session: %s", text)
		}
		(&user{site: s, id: "nobody"}).post(ping).isError(http.StatusNotFound, -32600, "1")          // LI21
		u.post(ping, "Mcp-Protocol-Version: 1999-01-01").isError(http.StatusBadRequest, -32600, "1") // LI24
		p.getsNothing()
		if s.h.Sessions() != 1 {
			t.Errorf("%d sessions, want 1", s.h.Sessions())
		}
	})
}

// J3: a second request with an id in flight is refused, and the first is not disturbed.
func TestServerDuplicateID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		first := u.call("1")
		u.post(ping).isError(http.StatusBadRequest, -32600, "1")
		p.gets()
		p.getsNothing()
		other := u.post(`{"jsonrpc":"2.0","id":"1","method":"ping"}`) // J1: another id
		p.gets()
		p.says(result("1"))
		p.says(result(`"1"`))
		first.isJSON(result("1"))
		other.isJSON(result(`"1"`))
		r := u.post(ping) // J2: sloppy, but harmless
		p.gets()
		p.says(result("1"))
		r.isJSON(result("1"))
		// Even the id of initialize is like any other afterwards.
		r = u.call(`"init"`)
		p.gets()
		time.Sleep(time.Second)
		r.gets()
		if got := r.header.Get("Mcp-Session-Id"); got != "" {
			t.Errorf("a call that is not initialize has a session header: %q", got)
		}
		p.says(progress(`"init"`, 1))
		r.gets(progress(`"init"`, 1))
		p.says(initializeResult("1999-01-01"))
		r.gets(initializeResult("1999-01-01")).over()
		u.get().open()
	})
}

// LI20: the session id comes with a successful initialize, and only then.
func TestServerSessionID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		visible := regexp.MustCompile(`^[\x21-\x7e]{26,}$`)
		seen := make(map[string]bool)
		for range 1000 {
			u, _ := s.begin(r25c)
			if !visible.MatchString(u.id) || seen[u.id] {
				t.Fatalf("session id %q", u.id)
			}
			seen[u.id] = true
			u.version = ""
			u.request("DELETE", "").is(http.StatusNoContent)
			synctest.Wait()
		}
	})
	bubble(t, "initialize fails", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		r := (&user{site: s}).post(initialize(r25c))
		p := <-s.servers
		p.gets()
		const no = `{"jsonrpc":"2.0","id":"init","error":{"code":-32602,"message":"no"}}`
		p.says(no)
		r.isJSON(no)
		if id, ok := r.header["Mcp-Session-Id"]; ok {
			t.Errorf("a failed initialize has a session id: %q", id)
		}
		p.gone()
		if s.h.Sessions() != 0 {
			t.Error("a failed initialize leaves a session")
		}
	})
	// The header must come before the answer here, so it comes without.
	bubble(t, "slow initialize", func(t *testing.T) {
		for _, version := range []string{r25b, r25c} {
			s := newSite(t, streamhttp.HandlerOptions{})
			r := (&user{site: s}).post(initialize(version))
			p := <-s.servers
			p.gets()
			time.Sleep(10*time.Second - 1)
			if r.begun() != 0 {
				t.Fatal("initialize was committed too early")
			}
			time.Sleep(time.Nanosecond)
			r.isStream()
			id := r.header.Get("Mcp-Session-Id")
			p.says(initializeResult(version))
			r.gets(initializeResult(version)).over()
			if primed := len(r.ids) == 2; primed != (version == r25c) { // LI14: by what the body asks for
				t.Errorf("%s: ids %q", version, r.ids)
			}
			u := &user{site: s, id: id}
			u.request("DELETE", "").is(http.StatusNoContent)
		}
	})
	bubble(t, "slow initialize fails", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		r := (&user{site: s}).post(initialize(r25c))
		p := <-s.servers
		p.gets()
		time.Sleep(time.Minute)
		const no = `{"jsonrpc":"2.0","id":"init","error":{"code":-32602,"message":"no"}}`
		p.says(no)
		r.gets(no).over()
		p.gone()
		u := &user{site: s, id: r.header.Get("Mcp-Session-Id")}
		u.post(ping).isError(http.StatusNotFound, -32600, "1")
	})
	bubble(t, "the client hangs up", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		r := (&user{site: s}).post(initialize(r25c))
		p := <-s.servers
		p.gets()
		r.cut()
		p.gone()
		if s.h.Sessions() != 0 {
			t.Error("an initialize whose client has gone leaves a session")
		}
	})
	bubble(t, "the client hangs up before the server takes it", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		r := (&user{site: s}).post(initialize(r25c))
		p := <-s.servers
		r.cut()
		p.gone()
	})
	bubble(t, "the server dies", func(t *testing.T) {
		for _, taken := range []bool{true, false} {
			s := newSite(t, streamhttp.HandlerOptions{})
			r := (&user{site: s}).post(initialize(r25c))
			p := <-s.servers
			if taken {
				p.gets()
			}
			p.quit <- fmt.Errorf("exec /opt/secret: no such file")
			r.isError(http.StatusOK, -32603, `"init"`)
			if strings.Contains(string(r.body), "secret") || r.header.Get("Mcp-Session-Id") != "" {
				t.Errorf("%s with %v", r.body, r.header)
			}
			p.gone()
		}
	})
}

// LI21, LI22, LI23, LI24: which session, and what of it.
func TestServerSessionLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		none := &user{site: s}
		for _, r := range []*reply{none.get(), none.request("DELETE", "")} {
			r.isError(http.StatusBadRequest, -32600, "null")
		}
		for _, id := range []string{"x", u.id + "x", u.id[1:], "\u00e9\u00ff", "a, b", `"`, strings.Repeat("A", 10_000), strings.ToLower(u.id)} {
			odd := &user{site: s, id: id}
			odd.post(initialized).isError(http.StatusNotFound, -32600, "null")
			odd.get().isError(http.StatusNotFound, -32600, "null")
			odd.request("DELETE", "").isError(http.StatusNotFound, -32600, "null")
			odd.post(initialize(r25c)).isError(http.StatusNotFound, -32600, `"init"`) // LI22
		}
		u.post(initialize(r25c)).isError(http.StatusBadRequest, -32600, `"init"`) // LI22
		for _, v := range []string{"1999-01-01", "x", "2025-06-18 ", "2025-06-18,2025-06-18", "2026-07-28"} {
			if v == "2025-06-18 " {
				continue // net/http trims it
			}
			want := "" // junk that sorts behind counts as newer
			if v < r25c {
				want = "null"
			}
			u.post(initialized, "Mcp-Protocol-Version: "+v).isError(http.StatusBadRequest, -32600, want)
			u.get("Mcp-Protocol-Version: "+v).isError(http.StatusBadRequest, -32600, want)
			u.request("DELETE", "", "Mcp-Protocol-Version: "+v).isError(http.StatusBadRequest, -32600, want)
		}
		for _, v := range []string{"2024-11-05", r25a, r25b, r25c, ""} { // not the one that was negotiated, but known
			r := u.post(initialized, "Mcp-Protocol-Version: "+v)
			p.getsText(initialized)
			r.is(http.StatusAccepted)
		}
		// On initialize the header says nothing.
		r := none.post(initialize(r25c), "Mcp-Protocol-Version: 1999-01-01")
		q := <-s.servers
		q.gets()
		q.says(initializeResult(r25c))
		r.is(http.StatusOK)
		if len(s.servers) != 0 {
			t.Error("a refused request has started a server")
		}
	})
}

// LI23: DELETE ends everything, and so it stays.
func TestServerDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		other, q := s.open(r25c)
		fast, slow, get := u.call("1"), u.call("2"), u.get()
		p.gets()
		p.gets()
		p.says(progress("2", 1))
		waiting := u.call("3") // which the server has not taken
		u.request("DELETE", "").is(http.StatusNoContent)
		fast.isError(http.StatusOK, -32603, "1")
		waiting.isError(http.StatusNotFound, -32600, "3")
		slow.gets(progress("2", 1), `{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the session was deleted","data":{"reason":"session_ended"}}}`).over()
		get.gets().over()
		p.gone()
		u.request("DELETE", "").isError(http.StatusNotFound, -32600, "")
		u.post(ping).isError(http.StatusNotFound, -32600, "1")
		u.get().isError(http.StatusNotFound, -32600, "")
		u.get("Last-Event-ID: "+slow.lastID()).isError(http.StatusNotFound, -32600, "")
		// Another session notices nothing.
		r := other.post(ping)
		q.gets()
		q.says(result("1"))
		r.isJSON(result("1"))
	})
}

// A server that waits for the client's next message hears that there is no
// client any more, although its context ends at the same time.
func TestServerDeleteSaysGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		for range 50 {
			u, p := s.open(r25c)
			got := make(chan error, 1)
			go func() {
				_, err := bridgetest.Recv(p.ctx, p)
				got <- err
			}()
			synctest.Wait()
			u.request("DELETE", "").is(http.StatusNoContent)
			if err := <-got; err == nil || errors.Is(err, context.Canceled) {
				t.Fatalf("Receive = %v, want that the session has ended", err)
			}
		}
	})
}

// A server that ends by itself: what it owes is answered, the session is gone.
func TestServerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r, get := u.call("1"), u.get()
		p.gets()
		p.quit <- nil
		r.isError(http.StatusOK, -32603, "1")
		get.gets().over()
		u.post(ping).isError(http.StatusNotFound, -32600, "1")
		s.open(r25c)
	})
}

// More sessions than allowed are 503 with Retry-After. Neither can clients
// have any number of servers that are stopping.
func TestServerMaxSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{MaxSessions: 2})
		u, _ := s.open(r25c)
		s.open(r25c)
		r := (&user{site: s}).post(initialize(r25c))
		r.isError(http.StatusServiceUnavailable, -32603, `"init"`)
		if r.header.Get("Retry-After") == "" || r.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("headers %v", r.header)
		}
		u.request("DELETE", "").is(http.StatusNoContent)
		s.open(r25c)
	})
	bubble(t, "slow stop", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{MaxSessions: 1})
		s.wait = make(chan struct{})
		for range 2 { // the first one's server may still be stopping
			u, _ := s.open(r25c)
			u.request("DELETE", "").is(http.StatusNoContent)
		}
		(&user{site: s}).post(initialize(r25c)).isError(http.StatusServiceUnavailable, -32603, `"init"`)
		close(s.wait)
		synctest.Wait()
		s.open(r25c)
	})
}

// LI31: pages of allowed origins may read what they need.
func TestServerCORS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{Guard: access.Policy{AllowOrigins: []string{"https://app.example"}}})
		u, p := s.open(r25c)
		r := u.request("OPTIONS", "", "Origin: https://app.example", "Access-Control-Request-Method: POST",
			"Access-Control-Request-Headers: content-type, dpop, mcp-session-id, mcp-param-x, last-event-id, x-other")
		r.is(http.StatusNoContent)
		if got := r.header.Get("Access-Control-Allow-Origin"); got != "https://app.example" {
			t.Errorf("Access-Control-Allow-Origin: %q", got)
		}
		if got := r.header.Get("Access-Control-Allow-Headers"); got != "content-type, dpop, mcp-session-id, mcp-param-x, last-event-id" {
			t.Errorf("Access-Control-Allow-Headers: %q", got)
		}
		u.request("OPTIONS", "", "Origin: https://evil.example", "Access-Control-Request-Method: POST").is(http.StatusForbidden)
		for _, r := range []*reply{u.post(ping, "Origin: https://app.example"), u.post("junk", "Origin: https://app.example"), u.get("Origin: https://app.example")} {
			if r.begun() == 0 {
				p.gets()
				p.says(result("1"))
			}
			if r.header.Get("Access-Control-Allow-Origin") != "https://app.example" ||
				r.header.Get("Access-Control-Expose-Headers") != "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, DPoP-Nonce" {
				t.Errorf("status %d with %v", r.status, r.header)
			}
		}
	})
}

// A web page that tries again and again does not flood the log.
func TestServerRefusalsInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newSite(t, streamhttp.HandlerOptions{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})})
		refuse := func() int {
			log.Reset()
			for range 100 {
				(&user{site: s}).post(ping, "Origin: https://evil.example").is(http.StatusForbidden)
			}
			return strings.Count(log.String(), "request refused")
		}
		if n := refuse(); n == 0 || n > 20 {
			t.Errorf("%d warnings", n)
		}
		time.Sleep(time.Minute)
		if n := refuse(); n == 0 || n > 20 {
			t.Errorf("%d warnings a minute later", n)
		}
	})
}

// A client that breaks its POSTs off, one after the other, does not flood the log.
func TestServerDroppedResponsesInLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newSite(t, streamhttp.HandlerOptions{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})})
		u, p := s.open(r25b)
		last := 0
		breakOff := func() int {
			log.Reset()
			for range 100 {
				last++
				id := strconv.Itoa(last)
				r := u.call(id)
				p.gets()
				r.cut()
				p.says(result(id))
				synctest.Wait()
			}
			return strings.Count(log.String(), "response dropped")
		}
		if n := breakOff(); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
		time.Sleep(time.Minute)
		if n := breakOff(); n != 1 {
			t.Errorf("%d warnings a minute later, want 1", n)
		}
	})
}

// A WebSocket client that is at the wrong endpoint is told so.
func TestServerUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &user{site: newSite(t, streamhttp.HandlerOptions{})}
		if body := u.get("Connection: Upgrade", "Upgrade: WebSocket").is(http.StatusBadRequest); !strings.Contains(body, "/ws") {
			t.Errorf("the answer is %s", body)
		}
		if body := u.get().is(http.StatusBadRequest); !strings.Contains(body, "Mcp-Session-Id") {
			t.Errorf("the answer is %s", body)
		}
	})
}
