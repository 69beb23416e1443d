package streamhttp_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/bridge/identity"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// A request and its answer: no session, whatever the client says (MI2, MI13, MI23).
func TestServerModernRequest(t *testing.T) {
	for _, stateless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, u := newModern(t, streamhttp.HandlerOptions{Stateless: stateless})
			for _, headers := range [][]string{nil, {"Mcp-Session-Id: bogus"}, {"Last-Event-Id: 1_1"}, {"Mcp-Session-Id: a", "Last-Event-Id: x"}} {
				r := u.ask26("7", "tools/call", `"name":"t","arguments":{"big":9007199254740993}`, headers...)
				p := s.server()
				p.getsText(request26("7", "tools/call", `"name":"t","arguments":{"big":9007199254740993}`))
				p.waits()
				p.says(result("7"))
				p.ended() // it is answered: there is nothing to cancel
				p.quits(nil)
				r.isModern().isJSON(result("7"))
			}
			if n := s.h.Sessions(); n != 0 {
				t.Errorf("%d sessions", n)
			}
			u.post(ping, vHeader+r26).isError(http.StatusBadRequest, -32602, "1") // MI23: on the same connection
		})
	}
}

// The headers that repeat the body, in all spellings that mean the same (MI5, MI6).
func TestServerModernHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		for _, c := range []struct {
			method, params string
			headers        []string
		}{
			{"tools/list", "", nil},
			{"tools/list", "", []string{"Mcp-Method:   tools/list  "}},
			{"tools/list", "", []string{"Mcp-Name: whatever"}}, // it names nothing: the header means nothing
			{"tools/call", `"name":"t"`, []string{"Mcp-Name:   t\t"}},
			{"tools/call", `"name":"Hello"`, []string{"Mcp-Name: =?base64?SGVsbG8=?="}},
			{"tools/call", `"name":"é世"`, []string{"Mcp-Name: =?base64?w6nkuJY=?="}},
			{"tools/call", `"name":"\u0074\/"`, []string{"Mcp-Name: t/"}},
			{"tools/call", `"name":" t "`, []string{"Mcp-Name: =?base64?IHQg?="}},
			{"tools/call", `"name":"=?base64?x"`, []string{"Mcp-Name: =?base64?x"}},
			{"tools/call", `"name":"=?BASE64?SGVsbG8=?="`, []string{"Mcp-Name: =?BASE64?SGVsbG8=?="}},
			{"tools/call", `"name":"=?base64?literal?="`, []string{"Mcp-Name: =?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}},
			{"prompts/get", `"name":"p"`, nil},
			{"resources/read", `"uri":"file:///a b"`, nil},
			{"tasks/get", `"taskId":"x"`, nil},
			{"tools/call", `"arguments":{}`, nil}, // the server says that there is no name
			{"tools/call", `"name":7`, nil},
			{"vendor/method", `"name":"x"`, []string{"Mcp-Name: "}},
		} {
			r := u.ask26("1", c.method, c.params, c.headers...)
			synctest.Wait()
			if r.begun() != 0 {
				t.Errorf("%s %s %q: %d %s", c.method, c.params, c.headers, r.status, r.body)
				continue
			}
			p := s.server()
			p.getsText(request26("1", c.method, c.params))
			p.answers(result("1"))
			r.isJSON(result("1"))
		}
		// Names of headers have no case.
		c := s.raw()
		c.write("POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nmcp-protocol-version: " + r26 +
			"\r\nMCP-METHOD:tools/list\t \r\n" + sized(request26("1", "tools/list", "")))
		go s.server().answers(result("1"))
		if resp, body := c.reply(); resp.StatusCode != 200 || body != result("1") {
			t.Errorf("%s %s", resp.Status, body)
		}
		// Keys of _meta, and their values, in other spellings.
		odd := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol\/protocolVersion":"2026\u002d07-28",` + caps26 + `}}}`
		r := u.post(odd, vHeader+r26, mHeader+"tools/list")
		p := s.server()
		p.getsText(odd)
		p.answers(result("1"))
		r.isJSON(result("1"))
	})
	bubble(t, "RawNames", func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{RawNames: true})
		for _, name := range []string{"Mcp-Name: é", "Mcp-Name: =?base64?w6k=?="} {
			r := u.ask26("1", "tools/call", `"name":"é"`, name)
			s.server().answers(result("1"))
			r.isJSON(result("1"))
		}
		u.ask26("1", "tools/call", `"name":"é"`, "Mcp-Name: è").isError(http.StatusBadRequest, -32020, "1")
	})
}

// The first message makes the status (MI11, MI12, MI13, MI24).
func TestServerModernStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		for _, c := range []struct {
			method, params string
			answer         string
			status         int
		}{
			{"tools/list", "", result("1"), 200},
			{"tools/call", `"name":"t"`, failure("1", -32021, `,"data":{"requiredCapabilities":{"sampling":{}}}`), 400},
			{"tools/call", `"name":"t"`, failure("1", -32020, ""), 400},
			{"tools/call", `"name":"t"`, failure("1", -32022, ""), 400},
			{"tools/call", `"name":"t"`, failure("1", -32602, ""), 200}, // MI24
			{"tools/call", `"name":"t"`, failure("1", -32601, ""), 200}, // MI11: so older servers name an unknown tool
			{"tools/call", `"name":"t"`, failure("1", -32603, ""), 200},
			{"tools/call", `"name":"t"`, failure("1", 7, ""), 200},
			{"tools/call", `"name":"t"`, failure("1", -32603, `,"data":{"reason":"busy"}`), 503},
			{"tools/list", "", failure("1", -32601, ""), 404}, // MI11: the server has no such method
			{"prompts/list", "", failure("1", -32601, ""), 404},
			{"prompts/get", `"name":"p"`, failure("1", -32601, ""), 404},
			{"resources/read", `"uri":"x:y"`, failure("1", -32601, ""), 404},
			{"completion/complete", "", failure("1", -32601, ""), 404},
			{"vendor/method", "", failure("1", -32601, ""), 404},
			{"subscriptions/listen", "", failure("1", -32601, ""), 404},
			{"subscriptions/listen", "", failure("1", -32602, ""), 200},
		} {
			r := u.ask26("1", c.method, c.params)
			p := s.server()
			p.gets()
			p.answers(c.answer)
			if got := r.isModern().is(c.status); got != c.answer {
				t.Errorf("%s is answered %s, want %s", c.method, got, c.answer)
			}
			if ct := r.header.Get("Content-Type"); ct != "application/json" {
				t.Errorf("Content-Type %q", ct)
			}
			if got := r.header.Get("Retry-After") != ""; got != (c.status == 503) {
				t.Errorf("status %d with Retry-After: %v", c.status, got)
			}
		}
	})
}

// What begins with a notification is a stream, in which errors are in-band;
// it ends with the answer (MI13, MI14, LI26).
func TestServerModernStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		for _, answer := range []string{result("1"), failure("1", -32021, ""), result(`1`)} {
			r := u.ask26("1", "tools/call", `"name":"t"`)
			p := s.server()
			p.gets()
			p.says(progress("1", 1))
			r.isModern().gets(progress("1", 1)).open()
			for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
				if got := r.header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			p.says(note26("a"), note26("b"), "{\n\"jsonrpc\":\"2.0\",\n\"method\":\"notifications/x\"}")
			r.isModern().gets(note26("a"), note26("b"), `{"jsonrpc":"2.0","method":"notifications/x"}`).open()
			p.answers(answer)
			r.isModern().gets(answer).over()
			if err := p.Send(context.Background(), message(note26("late"))); err == nil {
				t.Error("something was sent after the answer")
			}
		}
	})
}

// A stream never has what belongs to others, or what a client cannot answer (MI14).
func TestServerModernForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		p.gets()
		if err := p.Send(t.Context(), message(listChanged).WithRelated(jsonrpc.NullID)); err != nil {
			t.Error(err)
		}
		p.says(ask("9"), result("2"), result(`"1"`), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		if r.begun() != 0 {
			t.Errorf("the reply begins with %v", r.events)
		}
		p.answers(`{"jsonrpc":"2.0","id":1.0,"result":{}}`) // the same id, in another spelling
		r.isJSON(result("1"))
	})
}

// A call that takes long becomes a stream, on which comments keep the
// connection alive (MI13, MI14).
func TestServerModernSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		c := s.raw()
		body := request26("1", "tools/call", `"name":"t"`)
		c.write("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nMcp-Protocol-Version: " + r26 +
			"\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n" + sized(body))
		p := s.server()
		begun := time.Now()
		resp, err := http.ReadResponse(c.r, nil)
		bridgetest.Must(t, err)
		if d := time.Since(begun); d != 10*time.Second || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("after %v: %s %s", d, resp.Status, resp.Header.Get("Content-Type"))
		}
		buf := make([]byte, 100)
		for range 3 {
			begun = time.Now()
			n, err := resp.Body.Read(buf)
			if d := time.Since(begun); d != 15*time.Second || err != nil || buf[0] != ':' || !strings.HasSuffix(string(buf[:n]), "\n") {
				t.Errorf("after %v: %q, %v", d, buf[:n], err)
			}
		}
		go func() {
			_ = p.Send(context.Background(), message(failure("1", -32021, "")))
			p.quits(nil)
		}()
		n, _ := resp.Body.Read(buf)
		if got := string(buf[:n]); got != "data: "+failure("1", -32021, "")+"\n\n" {
			t.Errorf("got %q", got)
		}
		u.ask26("1", "ping", "").is(http.StatusNotFound)
	})
	bubble(t, "the status comes with the answer until then", func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{ModernCommitAfter: time.Minute})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		time.Sleep(time.Minute - time.Nanosecond)
		p.answers(failure("1", -32021, ""))
		r.isError(400, -32021, "1")
	})
	bubble(t, "each in its own time", func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		for range 2 {
			var all []*reply
			came := []time.Duration{0, 4 * time.Second, 5 * time.Second, 5*time.Second + 1, 9 * time.Second}
			begun := time.Now()
			for _, at := range came {
				time.Sleep(time.Until(begun.Add(at)))
				all = append(all, u.ask26("1", "tools/call", `"name":"t"`))
				s.server()
				quick := u.ask26("2", "tools/call", `"name":"t"`)
				s.server().answers(result("2"))
				quick.isJSON(result("2"))
			}
			for i, r := range all {
				time.Sleep(time.Until(begun.Add(came[i]+10*time.Second)) - time.Nanosecond)
				if r.begun() != 0 {
					t.Errorf("the reply to what came after %v has begun too soon", came[i])
				}
				time.Sleep(time.Nanosecond)
				r.isStream()
			}
		}
	})
	bubble(t, "silent after its first event", func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		_ = u.ask26("1", "tools/call", `"name":"t"`)
		s.server()
		time.Sleep(4 * time.Second)
		c := s.raw()
		c.write("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nMcp-Protocol-Version: " + r26 +
			"\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n" + sized(request26("2", "tools/call", `"name":"t"`)))
		p := s.server()
		p.gets()
		go func() { _ = p.Send(context.Background(), message(note26("a"))) }()
		resp, err := http.ReadResponse(c.r, nil)
		bridgetest.Must(t, err)
		buf := make([]byte, 100)
		for i, want := range []time.Duration{0, 15 * time.Second, 15 * time.Second} {
			begun := time.Now()
			n, err := resp.Body.Read(buf)
			if d := time.Since(begun); d != want || err != nil || (buf[0] == ':') != (i > 0) {
				t.Errorf("after %v, want %v: %q, %v", d, want, buf[:n], err)
			}
		}
	})
	// MI13: the time for it may come just when a message is dropped which the
	// client must not get.
	bubble(t, "while a message is dropped", func(t *testing.T) {
		log := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: slowLog{2 * time.Second}})
		s, u := newModern(t, streamhttp.HandlerOptions{ModernCommitAfter: time.Second, KeepAlive: -1, Logger: log})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		p.gets()
		p.says(request("7"))
		time.Sleep(3 * time.Second)
		r.isStream()
		p.answers(result("1"))
		r.gets(result("1")).over()
	})
	bubble(t, "no keep-alive", func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{KeepAlive: -1, StallAfter: time.Second})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		time.Sleep(time.Hour)
		r.isStream()
		p.answers(result("1"))
		r.gets(result("1")).over()
	})
}

// slowLog takes so long for each line.
type slowLog struct{ takes time.Duration }

func (l slowLog) Write(p []byte) (int, error) {
	time.Sleep(l.takes)
	return len(p), nil
}

// subscriptions/listen is a stream in every case, and ends with its result (MI21).
func TestServerModernListen(t *testing.T) {
	ack := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		r := u.ask26("7", "subscriptions/listen", `"notifications":{}`)
		p := s.server()
		p.gets()
		p.says(ack)
		r.isModern().gets(ack).open()
		time.Sleep(24 * time.Hour)
		p.says(listChanged)
		r.isModern().gets(listChanged).open()
		p.answers(result("7"))
		r.isModern().gets(result("7")).over()

		r = u.ask26("7", "subscriptions/listen", `"notifications":{}`)
		s.server().answers(result("7"))
		r.isModern().gets(result("7")).over()
	})
	bubble(t, "cancelled by the server", func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		r := u.ask26("7", "subscriptions/listen", `"notifications":{}`)
		p := s.server()
		p.gets()
		p.says(ack, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		p.ended()
		p.quits(nil)
		r.gets(ack).over()
	})
}

// Who sends to a client that has hung up knows it at once, and so does everybody
// then; and who waits for what becomes of a client learns that it has its answer.
func TestServerModernKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		p.gets()
		r.cut()
		synctest.Wait()
		if err := p.Send(context.Background(), message(result("1"))); err == nil || p.ctx.Err() == nil {
			t.Errorf("Send = %v, and the context is done because of %v", err, context.Cause(p.ctx))
		}
		p.quits(nil)

		r = u.ask26("2", "tools/call", `"name":"t"`)
		p = s.server()
		p.gets()
		waits := make(chan error, 1)
		go func() {
			_, err := bridgetest.Recv(context.Background(), p)
			waits <- err
		}()
		synctest.Wait()
		if err := p.Send(context.Background(), message(result("2"))); err != nil {
			t.Errorf("Send = %v", err)
		}
		synctest.Wait()
		if err := <-waits; err != io.EOF {
			t.Errorf("Recv = %v", err)
		}
		p.quits(nil)
		r.isJSON(result("2"))
	})
}

// A client that hangs up has cancelled, whether or not the reply had begun,
// and gets nothing more (MI15).
func TestServerModernHangUp(t *testing.T) {
	hangUp := func(t *testing.T, s *modernSite, u *user) {
		for _, begun := range []bool{false, true} {
			r, other := u.ask26("1", "tools/call", `"name":"t"`), u.ask26("1", "tools/call", `"name":"t"`)
			p, q := s.server(), s.server()
			p.gets()
			q.gets()
			if begun {
				p.says(progress("1", 1))
				q.says(progress("1", 1))
			}
			r.cut()
			other.cut()
			p.hungUp("1")
			q.cancelled("1")
			p.quits(nil)
			q.quits(nil)
		}
		// One that the server has not taken yet.
		r := u.ask26(`"x"`, "tools/call", `"name":"t"`)
		p := s.server()
		r.cut()
		if err := p.Send(context.Background(), message(result(`"x"`))); err == nil {
			t.Error("an answer was sent to a client that has gone")
		}
		p.quits(nil)
	}
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		hangUp(t, s, u)
	})
	bubble(t, "HTTP/2", func(t *testing.T) {
		var http2 http.Protocols
		http2.SetUnencryptedHTTP2(true)
		s, u := newModernOver(t, &http2, streamhttp.HandlerOptions{})
		stays := u.ask26("2", "subscriptions/listen", `"notifications":{}`)
		p := s.server()
		p.gets()
		hangUp(t, s, u)
		p.says(listChanged)
		stays.isModern().gets(listChanged).open()
		p.answers(result("2"))
		stays.gets(result("2")).over()
		if n := s.dialled.Load(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// A server that goes without an answer leaves nobody waiting.
func TestServerModernUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		s.server().quits(context.DeadlineExceeded)
		r.isError(200, -32603, "1")
		r = u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		p.says(progress("1", 1))
		p.quits(nil)
		synctest.Wait()
		if n := len(r.isStream().events); n != 2 || new(message(string(r.events[1].Data))).ID() != jsonrpc.IntID(1) {
			t.Errorf("%d events", n)
		}
		r.over()
		r = u.ask26("1", "tools/call", `"name":"t"`)
		p = s.server()
		p.Close(nil)
		p.ended()
		r.isError(200, -32603, "1")
		p.quits(nil)
	})
	bubble(t, "an answer does not wait for the server's end", func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		p.says(result("1"))
		p.Close(nil)
		r.isJSON(result("1"))
		p.Close(nil)
		p.quits(nil)
		synctest.Wait()
		p.Close(nil) // also when it is late
	})
}

// More requests than may be are refused at once; there is room again when one is done.
func TestServerModernTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{MaxExchanges: 2})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		u.ask26("2", "tools/call", `"name":"t"`)
		p := s.server()
		full := u.ask26("3", "tools/list", "")
		full.isError(http.StatusServiceUnavailable, -32603, "3")
		if full.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		p.answers(result("1"))
		if r.finished() {
			u.ask26("4", "tools/list", "")
		}
		if s.server(); s.h.Sessions() != 0 {
			t.Error("there are sessions")
		}
		s.server()
	})
}

// At shutdown what is in progress may still be answered; new requests may not come.
func TestServerModernClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		call, listen, lazy := u.ask26("1", "tools/call", `"name":"t"`), u.ask26("2", "subscriptions/listen", `"notifications":{}`), u.ask26("3", "tools/list", "")
		var p, q, z *served
		for range 3 {
			switch o := s.server(); new(o.gets()).ID() {
			case jsonrpc.IntID(1):
				p = o
			case jsonrpc.IntID(2):
				q = o
			default:
				z = o
			}
		}
		q.says(listChanged)
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.h.Close()
		}()
		synctest.Wait()
		for _, o := range []*served{p, q, z} {
			if context.Cause(o.ctx) != bridge.ErrClosing {
				t.Errorf("the context is done because of %v", context.Cause(o.ctx))
			}
			o.waits()
		}
		late := u.ask26("4", "tools/list", "")
		late.isError(http.StatusServiceUnavailable, -32603, "4")
		p.answers(result("1"))
		call.isJSON(result("1"))
		select {
		case <-closed:
			t.Error("Close has not waited")
		default:
		}
		q.answers(result("2"))
		listen.gets(listChanged, result("2")).over()
		z.quits(nil)
		lazy.isError(200, -32603, "3")
		begun := time.Now()
		<-closed
		s.h.Close()
		if d := time.Since(begun); d > 0 {
			t.Errorf("when all are served it takes Close %v", d)
		}
	})
	bubble(t, "a client that hangs up meanwhile", func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		r := u.ask26("1", "tools/call", `"name":"t"`)
		p := s.server()
		p.gets()
		go s.h.Close()
		synctest.Wait()
		r.cut()
		p.getsText(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		p.ended()
		p.quits(nil)
	})
}

// Each server knows whom it serves, in both eras; a token that is taken away
// takes its requests along.
func TestServerModernPrincipal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	alice, bob := "alice "+strings.Repeat("a", 40)+"\n", "bob "+strings.Repeat("b", 40)+"\n"
	write := func(text string) {
		bridgetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(alice + bob)
	synctest.Test(t, func(t *testing.T) {
		tokens, err := access.LoadTokens(file)
		bridgetest.Must(t, err)
		s, u := newModern(t, streamhttp.HandlerOptions{Guard: access.Policy{Tokens: tokens}})
		a, b := "Authorization: Bearer "+strings.Repeat("a", 40), "Authorization: Bearer "+strings.Repeat("b", 40)
		u.ask26("1", "tools/list", "").isError(http.StatusUnauthorized, -32600, "")
		call := u.ask26("1", "tools/call", `"name":"t"`, a)
		p := s.server()
		p.gets()
		stream := u.ask26("2", "tools/call", `"name":"t"`, a)
		q := s.server()
		q.gets()
		q.says(progress("2", 1))
		stays := u.ask26("1", "tools/call", `"name":"t"`, b)
		z := s.server()
		z.gets()
		u.post(initialize(r25c), a)
		old := <-s.servers
		for _, c := range []struct {
			ctx  context.Context
			want string
		}{{p.ctx, "alice"}, {q.ctx, "alice"}, {z.ctx, "bob"}, {old.ctx, "alice"}} {
			if got := identity.Principal(c.ctx); got != c.want {
				t.Errorf("the server serves %q, want %q", got, c.want)
			}
		}
		write(bob)
		bridgetest.Must(t, tokens.Reload())
		p.cancelled("1")
		p.quits(nil)
		call.isError(http.StatusUnauthorized, -32600, "1")
		if call.header.Get("WWW-Authenticate") == "" {
			t.Error("401 without WWW-Authenticate")
		}
		q.cancelled("2")
		q.quits(nil)
		stream.gets(progress("2", 1)).over()
		z.waits()
		z.answers(result("1"))
		stays.isJSON(result("1"))
		old.gone()
	})
}

// What a request's body holds of the budget is given back when it was passed on, and
// nobody keeps it.
func TestServerModernBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := budget.New(10 << 20)
		s, u := newModern(t, streamhttp.HandlerOptions{MaxMessageSize: 3 << 20, Budget: memory})
		params := `"name":"t","arguments":{"x":"` + big(2<<20) + `"}`
		r := u.ask26("1", "tools/call", params)
		p := s.server()
		u.ask26("2", "tools/call", params).is(http.StatusServiceUnavailable)
		p.gets()
		u.ask26("2", "tools/call", params).is(http.StatusServiceUnavailable)
		p.answers(result("1"))
		r.isJSON(result("1"))
		q := u.ask26("3", "tools/call", params)
		s.server().answers(result("3"))
		q.isJSON(result("3"))
		synctest.Wait()
		if n := memory.Taken(); n != 0 {
			t.Errorf("%d bytes are taken by nobody", n)
		}
		// Without the header it could be anybody's.
		u.post(request26("4", "tools/call", params)).is(http.StatusRequestEntityTooLarge)
		u.ask26("5", "tools/call", `"name":"t","arguments":{"x":"`+big(4<<20)+`"}`).is(http.StatusRequestEntityTooLarge)
	})
}

// A reader that takes nothing is cut off, and so is one that the server gives up on.
func TestServerModernStalled(t *testing.T) {
	stall := func(t *testing.T, opts streamhttp.HandlerOptions, send func(p *served) error) time.Duration {
		s, _ := newModern(t, opts)
		c := s.raw() // that reads nothing
		body := request26("1", "tools/call", `"name":"t"`)
		c.write("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nMcp-Protocol-Version: " + r26 +
			"\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n" + sized(body))
		p := s.server()
		p.gets()
		begun := time.Now()
		err := send(p)
		if err == nil {
			t.Error("everything was sent to a client that reads nothing")
		}
		took := time.Since(begun)
		if context.Cause(p.ctx) == nil {
			t.Error("the context goes on")
		}
		p.quits(nil)
		return took
	}
	flood := func(ctx context.Context, p *served) (err error) {
		for range 100 {
			if err = p.Send(ctx, message(note26(big(100_000)))); err != nil {
				break
			}
		}
		return err
	}
	synctest.Test(t, func(t *testing.T) {
		took := stall(t, streamhttp.HandlerOptions{StallAfter: 10 * time.Second}, func(p *served) error {
			return flood(context.Background(), p)
		})
		if took < 5*time.Second || took > 11*time.Second {
			t.Errorf("cut off after %v", took)
		}
	})
	bubble(t, "ctx", func(t *testing.T) {
		took := stall(t, streamhttp.HandlerOptions{StallAfter: time.Hour}, func(p *served) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			err := flood(ctx, p)
			if err != context.DeadlineExceeded {
				t.Errorf("Send returned %v", err)
			}
			return err
		})
		if took != time.Minute {
			t.Errorf("cut off after %v", took)
		}
	})
	bubble(t, "one large answer", func(t *testing.T) {
		took := stall(t, streamhttp.HandlerOptions{StallAfter: time.Hour}, func(p *served) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			return p.Send(ctx, message(`{"jsonrpc":"2.0","id":1,"result":{"x":"`+big(1<<20)+`"}}`))
		})
		if took != time.Minute {
			t.Errorf("cut off after %v", took)
		}
	})
}

// A large answer, and one that is a large event.
func TestServerModernLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		large := `{"jsonrpc":"2.0","id":1,"result":{"x":"` + big(3<<20) + `"}}`
		for _, first := range []string{"", note26("x")} {
			r := u.ask26("1", "tools/call", `"name":"t"`)
			p := s.server()
			p.gets()
			go func() {
				if first != "" {
					_ = p.Send(context.Background(), message(first))
				}
				_ = p.Send(context.Background(), message(large))
				p.quits(nil)
			}()
			if first == "" {
				r.isJSON(large)
			} else {
				r.gets(first, large).over()
			}
		}
	})
}

// Legacy clients are served as ever on the same endpoint: they may say what
// modern ones do, and may ask initialize for more than there is (ED6).
func TestServerModernBesideLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, u := newModern(t, streamhttp.HandlerOptions{})
		old, p := s.open(r25c)
		r := old.post(ping, "Mcp-Method: TOOLS", "Mcp-Name: x", "Mcp-Name: =?base64?!?=", "Mcp-Param-A: b")
		p.getsText(ping)
		p.says(result("1"))
		r.isJSON(result("1"))
		// A response is of the revision that the header names (MI3).
		old.post(`{"jsonrpc":"2.0","id":1,"result":{}}`, vHeader+r26).isError(http.StatusBadRequest, -32600, "")
		p.getsNothing()
		// A claim to be legacy is one more way to be legacy (ED3b).
		claims := body26("1", "tools/list", keyV+`:"`+r25c+`"`)
		r = old.post(claims)
		p.getsText(claims)
		p.says(result("1"))
		r.isJSON(result("1"))
		// A modern request is one, whatever session it names (ED1, MI2).
		m := old.ask26("1", "tools/list", "")
		q := s.server()
		q.getsText(request26("1", "tools/list", ""))
		q.answers(result("1"))
		m.isModern().isJSON(result("1"))
		p.getsNothing()

		r = u.post(initialize(r26))
		p = <-s.servers
		p.getsText(initialize(r25c))
		p.says(initializeResult(r25c))
		r.isJSON(initializeResult(r25c))
	})
}

// A page may send what a modern client sends (LI31).
func TestServerModernPreflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, u := newModern(t, streamhttp.HandlerOptions{})
		asked := "mcp-protocol-version, mcp-method, mcp-name, mcp-param-region, content-type"
		r := u.request("OPTIONS", "", "Origin: http://localhost:3000", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: "+asked)
		r.is(http.StatusNoContent)
		if got := r.header.Get("Access-Control-Allow-Headers"); got != asked {
			t.Errorf("allowed are %q, want %q", got, asked)
		}
	})
}
