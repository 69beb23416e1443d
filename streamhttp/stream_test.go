package streamhttp_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/sse"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// LI13, LI14, LI15, LI26: how a stream looks, in bytes.
func TestServerStreamFormat(t *testing.T) {
	for _, version := range []string{r25a, r25b, r25c} {
		bubble(t, version, func(t *testing.T) {
			s := newSite(t, streamhttp.HandlerOptions{})
			u, p := s.open(version)
			c := s.raw()
			const body = `{"jsonrpc":"2.0","id":1,"method":"x"}`
			c.write(u.posting() + sized(body))
			synctest.Wait()
			p.gets()
			go func() {
				time.Sleep(time.Second)
				_ = p.Send(t.Context(), message(logLine("a")))
				time.Sleep(20 * time.Second)
				_ = p.Send(t.Context(), message(result("1")))
			}()
			resp, got := c.reply()
			for name, want := range map[string]string{
				"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
				"X-Accel-Buffering": "no", "Content-Encoding": "", "Mcp-Session-Id": "",
			} {
				if v := resp.Header.Get(name); v != want {
					t.Errorf("%s: %q, want %q", name, v, want)
				}
			}
			want := "id: 1_1\ndata: " + logLine("a") + "\n\n: keep-alive\nid: 1_2\ndata: " + result("1") + "\n\n"
			want = strings.ReplaceAll(want, "1_", "2_") // the stream of initialize was 1
			if version == r25c {
				want = "id: 2_0\ndata:\n\n" + want
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// LI26: a comment comes within 25 s, again and again, and counts as no event.
func TestServerKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{KeepAlive: 20 * time.Second})
		u, p := s.open(r25c)
		c := s.raw()
		c.write("GET /mcp HTTP/1.0\r\nAccept: text/event-stream\r\nMcp-Session-Id: " + u.id + "\r\n\r\n")
		for {
			line, err := c.r.ReadString('\n')
			bridgetest.Must(t, err)
			if line == "\r\n" {
				break
			}
		}
		start := time.Now()
		for _, want := range []string{"id: 2_0\n", "data:\n", "\n", ": keep-alive\n", ": keep-alive\n"} {
			if line, err := c.r.ReadString('\n'); line != want {
				t.Fatalf("read %q, %v; want %q", line, err, want)
			}
		}
		if took := time.Since(start); took != 40*time.Second {
			t.Errorf("two comments took %v, want 40s", took)
		}
		p.says(listChanged)
		if line, _ := c.r.ReadString('\n'); line != "id: 2_1\n" {
			t.Errorf("read %q, want the next event", line)
		}
	})
}

// LI15: event ids are unique in the session, over all its streams.
func TestServerEventIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		replies := []*reply{u.get(), u.call("1"), u.call("2")}
		p.gets()
		p.gets()
		for i := range 3 {
			p.says(progress("1", i), progress("2", i), listChanged)
		}
		p.says(result("1"), result("2"))
		seen := make(map[string]bool)
		for _, r := range replies {
			for _, id := range r.ids {
				if seen[id] {
					t.Errorf("event id %s came twice", id)
				}
				seen[id] = true
			}
		}
		if len(seen) != 3+3*3+2 {
			t.Errorf("%d ids: %v", len(seen), seen)
		}
	})
}

// LI16: a client that loses the connection has not cancelled. LI17: it comes
// back with the id of the last event, gets what followed on that stream, and
// nothing of others.
func TestServerResume(t *testing.T) {
	for _, version := range []string{r25a, r25c} {
		bubble(t, version, func(t *testing.T) {
			s := newSite(t, streamhttp.HandlerOptions{})
			u, p := s.open(version)
			one, two := u.call("1"), u.call("2")
			p.gets()
			p.gets()
			p.says(progress("1", 1), progress("2", 1), progress("1", 2))
			one.gets(progress("1", 1), progress("1", 2))
			one.cut()
			p.getsNothing() // no cancellation
			p.says(progress("1", 3), progress("2", 2))
			again := u.get("Last-Event-ID: " + one.lastID())
			again.gets(progress("1", 3)).open()
			p.says(progress("1", 4), progress("1", 5))
			again.gets(progress("1", 4), progress("1", 5))
			again.cut()
			p.says(result("1"))
			third := u.get("Last-Event-ID: " + one.lastID()) // of the first connection: all since
			third.gets(progress("1", 3), progress("1", 4), progress("1", 5), result("1")).over()
			two.gets(progress("2", 1), progress("2", 2)).open()
			p.says(result("2"))
			two.gets(result("2")).over()
			if first := third.ids[0]; version == r25c && first != one.lastID() { // LI17: the cursor is restated at once
				t.Errorf("the resumed stream begins with id %s, want %s", first, one.lastID())
			}
			if version == r25a && len(third.ids) != 4 {
				t.Errorf("an old client got ids %q, want those of the events only", third.ids)
			}
		})
	}
	bubble(t, "before the first event", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		time.Sleep(time.Second)
		r.gets().cut()
		p.says(result("1"))
		u.get("Last-Event-ID: " + r.lastID()).gets(result("1")).over()
	})
	bubble(t, "the answer comes while nobody is there, twice cut", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		p.says(progress("1", 1))
		r.cut()
		for range 5 {
			again := u.get("Last-Event-ID: " + r.lastID())
			again.gets().cut()
		}
		p.says(result("1"))
		for range 5 {
			u.get("Last-Event-ID: " + r.lastID()).gets(result("1")).over()
		}
	})
}

// LI18: what cannot be resumed is 400, and not 404 or an empty stream.
func TestServerResumeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		done, open, cancelled := u.call("1"), u.call("2"), u.call("3")
		for range 3 {
			p.gets()
		}
		p.says(progress("1", 1), progress("2", 1), progress("3", 1), result("1"))
		done.over()
		cancelled.cut()
		r := u.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
		p.gets()
		r.is(http.StatusAccepted)
		quick := u.call("4")
		p.gets()
		p.says(result("4"))
		quick.isJSON(result("4")) // its stream, 5, was none
		for _, id := range []string{
			done.lastID(), cancelled.lastID(), "5_0", "5_1", "1_0", "99_0", "3_2", "3_9", "0_0",
			"3", "_", "3_", "_3", "3_-1", "+3_0", "3_0_0", "x_y", "18446744073709551616_0", "3_18446744073709551615",
		} {
			u.get("Last-Event-ID: "+id).isError(http.StatusBadRequest, -32600, "")
		}
		other, q := s.open(r25c) // another session's ids are not ours
		other.call("1")
		q.gets()
		time.Sleep(time.Second)
		other.get("Last-Event-ID: "+open.lastID()).isError(http.StatusBadRequest, -32600, "")
		open.gets(progress("2", 1)).open()
	})
	bubble(t, "evicted by count", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{ReplayEvents: 3})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		for i := range 5 {
			p.says(progress("1", i))
		}
		r.cut()
		key := strings.TrimSuffix(r.lastID(), "5")
		u.get("Last-Event-ID: "+key+"1").isError(http.StatusBadRequest, -32600, "")
		u.get("Last-Event-ID: "+key+"2").gets(progress("1", 2), progress("1", 3), progress("1", 4)).open()
	})
	bubble(t, "evicted by size", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{ReplayBytes: 2 * len(progress("1", 0))})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		for i := range 5 {
			p.says(progress("1", i))
		}
		r.cut()
		key := strings.TrimSuffix(r.lastID(), "5")
		u.get("Last-Event-ID: "+key+"2").isError(http.StatusBadRequest, -32600, "")
		u.get("Last-Event-ID: "+key+"3").gets(progress("1", 3), progress("1", 4)).open()
	})
	bubble(t, "evicted by age", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{ReplayAge: time.Minute})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		p.says(progress("1", 1))
		first := r.lastID()
		time.Sleep(50 * time.Second)
		p.says(progress("1", 2))
		r.cut()
		u.get("Last-Event-ID: " + first).gets(progress("1", 2)).cut()
		time.Sleep(50 * time.Second) // the second one is still young
		u.get("Last-Event-ID: " + first).gets(progress("1", 2)).cut()
		time.Sleep(2 * time.Minute)
		u.get("Last-Event-ID: "+first).isError(http.StatusBadRequest, -32600, "")
		p.says(progress("1", 3))
		u.get("Last-Event-ID: " + r.lastID()).gets(progress("1", 3)).open()
	})
}

// LI18: a resume takes the stream away from a connection that is only half dead.
func TestServerResumeDisplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r, get := u.call("1"), u.get()
		p.gets()
		p.says(progress("1", 1), listChanged)
		again, getAgain := u.get("Last-Event-ID: "+r.lastID()), u.get("Last-Event-ID: "+get.lastID())
		r.gets(progress("1", 1)).over()
		get.gets(listChanged).over()
		p.says(progress("1", 2), listChanged, result("1"))
		again.gets(progress("1", 2), result("1")).over()
		getAgain.gets(listChanged).open()
	})
}

// LI19: several standalone streams, each message on one of them: the newest.
func TestServerStandalone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		first := u.get()
		p.says(listChanged)
		first.gets(listChanged)
		second := u.get()
		p.says(listChanged, logLine("a"))
		first.gets().open()
		second.gets(listChanged, logLine("a"))
		second.cut()
		p.says(logLine("b"))
		first.gets(logLine("b")).open()
		// LI17: a standalone stream is resumed like any other, and is the newest then.
		third := u.get()
		again := u.get("Last-Event-ID: " + second.lastID())
		p.says(logLine("c"))
		again.gets(logLine("c"))
		third.gets().open()
	})
	// A GET that loses its connection loses nothing: what it had not written
	// goes to the next one, what it had is there for its own resumption.
	bubble(t, "cut", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		get := u.get()
		p.says(logLine("a"))
		get.gets(logLine("a"))
		id := get.lastID()
		p.says(logLine("b"))
		get.cut()
		p.says(logLine("c"))
		u.get("Last-Event-ID: "+id).gets(logLine("b"), logLine("c")).open()
	})
	bubble(t, "slow, then cut", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{StallAfter: time.Hour})
		u, p := s.open(r25b)
		c := s.raw() // reads nothing
		c.write("GET /mcp HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nMcp-Session-Id: " + u.id + "\r\n\r\n")
		synctest.Wait()
		var want []string
		for i := range 50 {
			want = append(want, logLine(fmt.Sprint(i)))
			p.says(want[i])
		}
		c.Close()
		synctest.Wait()
		r := u.get()
		got := r.isStream().events
		if len(got) == 0 {
			t.Fatal("nothing was handed over to the next stream")
		}
		// At most what was under way to the one that broke is missing.
		for i, e := range got {
			if string(e.Data) != want[len(want)-len(got)+i] {
				t.Fatalf("got %s", e.Data)
			}
		}
	})
	// Very many at once: only the newest ones stay connected.
	bubble(t, "many", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		var gets []*reply
		for range 40 {
			gets = append(gets, u.get())
		}
		open := 0
		for i, r := range gets {
			if !r.finished() {
				open++
			} else if i > 30 {
				t.Errorf("stream %d of 40 was ended", i)
			}
		}
		if open > 20 {
			t.Errorf("%d standalone streams are open at once", open)
		}
		p.says(listChanged)
		gets[39].gets(listChanged)
		for _, r := range gets[30:39] {
			r.gets()
		}
		gets[39].cut()
		p.says(logLine("x"))
		gets[38].gets(logLine("x"))
	})
}

// LI28, J12: a cancelled call's stream ends without an answer and cannot be
// resumed; one that has not begun is completed with an error.
func TestServerCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		quick, slow := u.call("1"), u.call("2")
		p.gets()
		p.gets()
		p.says(progress("2", 1))
		cancel := func(id string) {
			t.Helper()
			body := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
			r := u.post(body)
			p.getsText(body) // the server hears its own id
			r.is(http.StatusAccepted)
		}
		cancel("1")
		cancel("2")
		quick.isJSON(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"cancelled","data":{"reason":"cancelled"}}}`)
		slow.gets(progress("2", 1)).over()
		u.get("Last-Event-ID: "+slow.lastID()).isError(http.StatusBadRequest, -32600, "")
		get := u.get()
		p.says(result("1"), result("2"), progress("2", 2)) // too late
		get.gets()
		cancel("2") // J12: known no more
		cancel("7")
		cancel(`"2"`)
		r := u.call("2") // and the id is free
		p.gets()
		p.says(result("2"))
		r.isJSON(result("2"))
	})
	// J11: initialize is not cancelled.
	bubble(t, "initialize", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		r := (&user{site: s}).post(initialize(r25c))
		p := <-s.servers
		p.gets()
		time.Sleep(11 * time.Second)
		u := &user{site: s, id: r.isStream().header.Get("Mcp-Session-Id")}
		c := u.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"init"}}`)
		p.gets()
		c.is(http.StatusAccepted)
		r.open()
		p.says(initializeResult(r25c))
		r.gets(initializeResult(r25c)).over()
	})
}

// J13: progress goes to the call with its token, and nowhere once that is answered.
func TestServerProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		one, text, get := u.call("1"), u.call(`"1"`), u.get()
		p.gets()
		p.gets()
		p.says(progress("1", 1), progress(`"1"`, 2), progress("1.0", 3), progress("9", 4))
		p.says(result("1"), progress("1", 5))
		one.gets(progress("1", 1), progress("1", 3), result("1")).over() // 1.0 is 1
		text.gets(progress(`"1"`, 2)).open()
		get.gets()
		p.says(result(`"1"`))
	})
	// The token of a task lives on after the response that announced it.
	bubble(t, "task", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r := u.post(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"t"},"task":{"ttl":1}}}`)
		p.gets()
		p.says(result("1"))
		r.isJSON(result("1"))
		p.says(progress(`"t"`, 1))
		u.get().gets(progress(`"t"`, 1))
	})
}

// LI29: before the client is initialized it gets no requests but ping, and no
// notifications but logging. Its own requests need not wait.
func TestServerBeforeInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u := &user{site: s}
		r := u.post(initialize(r25b))
		p := <-s.servers
		p.gets()
		const roots = `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`
		p.says(logLine("early"), listChanged, roots)
		p.says(initializeResult(r25b))
		r.isJSON(initializeResult(r25b))
		u.id = r.header.Get("Mcp-Session-Id")
		get := u.get()
		get.gets(logLine("early"))
		p.says(ping)
		get.gets(ping)
		call := u.call("5")
		p.gets()
		p.says(progress("5", 1), result("5"))
		call.gets(progress("5", 1), result("5")).over()
		get.gets()
		i := u.post(initialized)
		p.gets()
		i.is(http.StatusAccepted)
		get.gets(listChanged, roots)
	})
	bubble(t, "never initialized", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.begin(r25b)
		get := u.get()
		p.says(`{"jsonrpc":"2.0","id":"r","method":"roots/list"}`)
		time.Sleep(10 * time.Second)
		p.getsText(`{"jsonrpc":"2.0","id":"r","error":{"code":-32601,"message":"the client listens on no stream that could carry the request"}}`)
		for i := range 3000 { // bounded
			_ = p.Send(t.Context(), message(`{"jsonrpc":"2.0","method":"vendor/n`+fmt.Sprint(i)+`"}`))
		}
		get.gets()
		r := u.post(initialized)
		p.gets()
		r.is(http.StatusAccepted)
		if n := len(get.isStream().events); n == 0 || n > 1000 {
			t.Errorf("%d notifications were kept", n)
		}
	})
}

// LI30: only a session that nobody uses ends by itself.
func TestServerSessionTimeout(t *testing.T) {
	idle := streamhttp.HandlerOptions{SessionTimeout: 10 * time.Minute}
	bubble(t, "idle", func(t *testing.T) {
		s := newSite(t, idle)
		u, p := s.open(r25c)
		time.Sleep(9 * time.Minute)
		r := u.post(ping)
		p.gets()
		p.says(result("1"))
		r.isJSON(result("1"))
		time.Sleep(9 * time.Minute)
		u.post(note, "Content-Type: x").is(http.StatusUnsupportedMediaType)
		if s.h.Sessions() != 1 {
			t.Fatal("the session has ended too early")
		}
		time.Sleep(2 * time.Minute)
		p.gone()
		u.post(ping).isError(http.StatusNotFound, -32600, "1")
	})
	bubble(t, "with a stream", func(t *testing.T) {
		s := newSite(t, idle)
		u, p := s.open(r25c)
		get := u.get()
		time.Sleep(24 * time.Hour)
		p.says(listChanged)
		get.gets(listChanged).cut()
		time.Sleep(9 * time.Minute)
		u.get().open()
	})
	bubble(t, "with a call whose client is away", func(t *testing.T) {
		s := newSite(t, idle)
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		time.Sleep(time.Second)
		r.gets().cut()
		time.Sleep(30 * time.Minute)
		p.says(result("1"))
		u.get("Last-Event-ID: " + r.lastID()).gets(result("1")).over()
		time.Sleep(11 * time.Minute)
		p.gone()
	})
	bubble(t, "with a call that nobody will ever fetch", func(t *testing.T) {
		s := newSite(t, idle)
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		time.Sleep(time.Second)
		r.gets().cut()
		time.Sleep(2 * time.Hour)
		p.gone()
	})
	bubble(t, "with an initialize whose client is away", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{SessionTimeout: -1})
		r := (&user{site: s}).post(initialize(r25c))
		p := <-s.servers
		p.gets()
		time.Sleep(20 * time.Second)
		r.isStream().cut()
		time.Sleep(40 * time.Second)
		r = (&user{site: s, id: r.header.Get("Mcp-Session-Id"), version: r25c}).get("Last-Event-ID: " + r.lastID())
		time.Sleep(time.Hour)
		r.isStream().cut()
		if s.h.Sessions() != 1 {
			t.Fatal("the session has ended while its client waited")
		}
		time.Sleep(2 * time.Minute)
		if s.h.Sessions() != 0 {
			t.Fatal("the session goes on without its client")
		}
		p.gone()
	})
	bubble(t, "default", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		_, p := s.open(r25c)
		time.Sleep(29 * time.Minute)
		p.getsNothing()
		time.Sleep(2 * time.Minute)
		p.gone()
	})
	bubble(t, "never", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{SessionTimeout: -1})
		_, p := s.open(r25c)
		time.Sleep(1000 * time.Hour)
		p.getsNothing()
	})
}

// The T at the end of part B: one session, everything at once.
func TestServerRouting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		get, one, two := u.get(), u.call("1"), u.call("2")
		p.gets()
		p.gets()
		p.says(progress("1", 1), progress("2", 1), logLine("l"), progress("1", 2), listChanged, ask(`"q"`), progress("2", 2), result("1"), result("2"))
		one.gets(progress("1", 1), progress("1", 2), result("1")).over()
		two.gets(progress("2", 1), ask(`"q"`), progress("2", 2), result("2")).over()
		get.gets(logLine("l"), listChanged).open()
	})
}

// B.1.8, B.2, B.3: where a request of the server goes.
func TestServerRequestRouting(t *testing.T) {
	bubble(t, "the only call", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		get, r := u.get(), u.post(request("1")) // any method will do
		p.gets()
		p.says(logLine("a"), ask(`"q"`))
		r.gets(logLine("a"), ask(`"q"`)).open()
		get.gets()
	})
	bubble(t, "the newest call in whose course servers ask", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		replies := []*reply{u.call("1"), u.call("2"), u.post(request("3")), u.call("4")}
		for range 4 {
			p.gets()
		}
		time.Sleep(time.Second)
		replies[3].gets().cut() // connected ones come first
		p.says(ask(`"q"`), logLine("l"))
		replies[1].gets(ask(`"q"`), logLine("l")).open()
		replies[0].gets()
		replies[2].gets()
	})
	bubble(t, "rather a GET than a call whose client is away", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		r, get := u.call("1"), u.get()
		p.gets()
		time.Sleep(time.Second)
		r.gets().cut()
		p.says(ask(`"q"`))
		get.gets(ask(`"q"`)).open()
	})
	// B.1.4: what is about a task goes where its result is awaited.
	bubble(t, "task", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		task := u.post(`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"T"}}`)
		other := u.post(`{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"U"}}`)
		call, get := u.call("3"), u.get()
		for range 3 {
			p.gets()
		}
		const meta = `"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T"}}`
		about := []string{
			`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{` + meta + `}}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{` + meta + `}}`,
			`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"T","status":"working"}}`,
		}
		p.says(about...)
		task.gets(about...).open()
		const unknown = `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"V","status":"working"}}`
		p.says(unknown)
		get.gets(unknown)
		p.says(result("1"), result("2"), result("3"))
		other.isJSON(result("2"))
		call.isJSON(result("3"))
	})
	bubble(t, "no call: the standalone stream", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		get := u.get()
		p.says(ask(`"q"`))
		get.gets(ask(`"q"`)).open()
	})
	bubble(t, "held for a GET", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		p.says(logLine("a"), ask(`"q"`))
		time.Sleep(9 * time.Second)
		p.getsNothing()
		u.get().gets(logLine("a"), ask(`"q"`)).open()
		time.Sleep(time.Second)
		p.getsNothing()
	})
	bubble(t, "held for a call", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		p.says(ask(`"q"`))
		r := u.post(request("1"))
		p.gets()
		r.gets(ask(`"q"`)).open()
	})
	bubble(t, "held in vain", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{HoldTimeout: time.Minute})
		u, p := s.open(r25b)
		const roots = `{"jsonrpc":"2.0","id":"r","method":"roots/list"}`
		p.says(ask(`"q"`), roots, ask(`"cancelled"`))
		p.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"cancelled"}}`)
		time.Sleep(time.Minute)
		got := map[string]string{}
		for range 2 {
			m := p.gets()
			got[m.ID().String()] = string(m.Lookup("error", "code"))
		}
		if got[`"q"`] != "-32603" || got[`"r"`] != "-32601" {
			t.Errorf("the server got %v", got)
		}
		p.getsNothing()
		u.get().gets().open()
	})
	// B.1.7: a ping needs no client.
	bubble(t, "ping", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		_, p := s.open(r25b)
		p.says(ping)
		p.getsText(result("1"))
	})
	// B.1.3: a cancellation follows the request it is about.
	bubble(t, "cancelled", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		one, get := u.call("1"), u.get()
		p.gets()
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`
		p.says(ask(`"q"`), cancel, cancel)
		one.gets(ask(`"q"`), cancel)
		p.says(ask(`"q"`), result("1"), cancel) // its stream is over
		one.gets(ask(`"q"`), result("1")).over()
		get.gets(cancel)
		p.says(ask(`"p"`))
		get.gets(ask(`"p"`))
		a := u.post(result(`"p"`))
		p.gets()
		a.is(http.StatusAccepted)
		p.says(strings.Replace(cancel, `"q"`, `"p"`, 1)) // answered already
		get.gets()
	})
	// B.1.3: while nobody listens, the cancellation of a request that the client has got waits.
	bubble(t, "cancelled while nobody listens", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		one := u.call("1")
		p.gets()
		p.says(ask(`"q"`), result("1"))
		one.gets(ask(`"q"`), result("1")).over()
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`
		p.says(cancel, cancel)
		u.get().gets(cancel).open()
	})
}

// A request of the server that was on its way to a client that has gone is
// not lost: another stream carries it, or the server hears that none does.
func TestServerRequestNotLost(t *testing.T) {
	bubble(t, "before the reply has begun", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{StallAfter: time.Hour})
		u, p := s.open(r25b)
		c := s.raw()
		c.write(u.posting() + sized(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
		p.gets()
		// The connection breaks at the very moment in which the server asks.
		go c.Close()
		_ = p.Send(t.Context(), message(ask(`"q"`)))
		synctest.Wait()
		time.Sleep(5 * time.Second)
		get := u.get()
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked := len(get.isStream().events) > 0; !asked {
			// It counts as sent: the client may have it. Then it can be resumed.
			u.get("Last-Event-ID: 2_0").gets(ask(`"q"`))
		}
	})
	bubble(t, "the buffer of the stream is full", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{ReplayBytes: 1000})
		u, p := s.open(r25b)
		r := u.call("1")
		p.gets()
		p.says(progress("1", 1))
		r.cut()
		p.says(ask(`"q"`)) // waits for the stream to be resumed
		p.says(strings.Replace(progress("1", 2), `"progress":`, `"message":"`+big(1000)+`","progress":`, 1))
		p.getsNothing()
		time.Sleep(10 * time.Second)
		if m := p.gets(); !m.IsError() || m.ID().String() != `"q"` {
			t.Errorf("the server got %s", m.Bytes())
		}
		u.get("Last-Event-ID: "+r.lastID()).isError(http.StatusBadRequest, -32600, "null")
		p.says(result("1")) // to nobody
	})
	bubble(t, "nobody came back", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		r := u.call("1")
		p.gets()
		p.says(progress("1", 1))
		r.cut()
		p.says(ask(`"q"`))
		time.Sleep(6 * time.Minute)
		if m := p.gets(); !m.IsError() || m.ID().String() != `"q"` {
			t.Errorf("the server got %s", m.Bytes())
		}
	})
	bubble(t, "the call was cancelled", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		r := u.call("1")
		p.gets()
		p.says(progress("1", 1))
		r.cut()
		p.says(ask(`"q"`))
		c := u.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		p.gets()
		c.is(http.StatusAccepted)
		u.get().gets(ask(`"q"`)).open()
	})
}

// B.2: what belongs to a call stays with it, in order, over a cut.
func TestServerRoutingToDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		time.Sleep(time.Second)
		r.cut()
		p.says(progress("1", 1), logLine("l"), result("1"))
		get := u.get()
		get.gets().open()
		u.get("Last-Event-ID: "+r.lastID()).gets(progress("1", 1), logLine("l"), result("1")).over()
	})
	// A call whose reply was to be JSON has no stream to come back to.
	bubble(t, "JSON", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		r := u.call("1")
		p.gets()
		r.cut()
		p.says(progress("1", 1), logLine("l"), result("1"))
		u.get().gets(logLine("l")).open()
		u.get("Last-Event-ID: 2_0").isError(http.StatusBadRequest, -32600, "")
	})
}

// B.3: what waits for a GET is bounded and says nothing twice.
func TestServerBacklog(t *testing.T) {
	updated := func(uri string, n int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"n":%d,"uri":"%s"}}`, n, uri)
	}
	bubble(t, "coalesced", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		p.says(listChanged, updated("a", 1), updated("b", 1), logLine("x"), listChanged, logLine("x"), updated("a", 2))
		p.says(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`, `{"jsonrpc":"2.0","method":"vendor/thing"}`)
		u.get().gets(updated("b", 1), logLine("x"), listChanged, logLine("x"), updated("a", 2),
			`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`, `{"jsonrpc":"2.0","method":"vendor/thing"}`)
	})
	bubble(t, "bounded by count", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		for i := range 3000 {
			bridgetest.Must(t, p.Send(t.Context(), message(logLine(fmt.Sprint(i)))))
		}
		events := u.get().isStream().events
		if n := len(events); n == 0 || n > 1000 || string(events[n-1].Data) != logLine("2999") {
			t.Errorf("%d of 3000 log lines were kept", n)
		}
	})
	bubble(t, "bounded by size", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{ReplayBytes: 100_000})
		u, p := s.open(r25b)
		for i := range 100 {
			p.says(logLine(fmt.Sprint(i) + big(10_000)))
		}
		p.says(logLine(big(200_000)))
		total := 0
		var events []sse.Event
		for _, e := range u.get().isStream().events {
			total += len(e.Data)
			events = append(events, e)
		}
		if total > 100_000 {
			t.Errorf("%d events with %d bytes were kept, want at most 100,000 bytes", len(events), total)
		}
	})
	bubble(t, "requests bounded by size", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{ReplayBytes: 100_000})
		_, p := s.open(r25b)
		for i := range 20 {
			p.says(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"sampling/createMessage","params":{"p":"%s"}}`, i, big(10_000)))
		}
		refused := 0
		for range 11 { // at once, without waiting for the time-out
			if m := p.gets(); m.IsError() {
				refused++
			}
		}
		if refused != 11 {
			t.Errorf("%d requests were refused at once, want 11", refused)
		}
		p.getsNothing()
	})
}

// Ids and tokens are found by value; the client gets its own spelling.
func TestServerSpelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		for _, tt := range [][2]string{{`"a/b"`, `"a\/b"`}, {`"ż"`, `"\u017c"`}, {`1`, `1.0`}} {
			r := u.call(tt[0])
			p.gets()
			p.says(progress(tt[1], 1), result(tt[1]))
			r.gets(progress(tt[0], 1), result(tt[0])).over()
		}
		r := u.call(`7`)
		p.gets()
		c := u.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7.0}}`)
		p.gets()
		c.is(http.StatusAccepted)
		if !r.finished() {
			t.Error("a cancelled POST hangs")
		}
		const cancel = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`
		r = u.call(`8`)
		p.gets()
		p.says(ask(`1`), fmt.Sprintf(cancel, `1.0`))
		r.gets(ask(`1`), fmt.Sprintf(cancel, `1`))
		p.says(result(`8`))
		p.says(ask(`"x"`), fmt.Sprintf(cancel, `"\u0078"`)) // held, and taken back
		time.Sleep(time.Minute)
		p.getsNothing()
	})
}

// LI7: a server that does not take a request yet keeps no client waiting for
// the first byte.
func TestServerCommitsWhileTheServerIsBusy(t *testing.T) {
	bubble(t, "initialize", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		r := (&user{site: s}).post(initialize(r25c))
		p := <-s.servers
		time.Sleep(9 * time.Second)
		if r.begun() != 0 {
			t.Fatal("the reply has begun too early")
		}
		time.Sleep(time.Second)
		if r.isStream(); r.header.Get("Mcp-Session-Id") == "" {
			t.Error("no session id")
		}
		p.getsText(initialize(r25c))
		p.says(initializeResult(r25c))
		r.gets(initializeResult(r25c)).over()
	})
	bubble(t, "call", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		one := u.call("1")
		time.Sleep(time.Second)
		one.isStream()
		p.gets()
		p.says(progress("1", 1), result("1"))
		one.gets(progress("1", 1), result("1")).over()
	})
	// Nobody waits for a request that cannot come any more.
	bubble(t, "cut", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		one := u.call("1")
		time.Sleep(time.Second)
		id := one.isStream().lastID()
		one.cut()
		p.getsNothing()
		u.get("Last-Event-ID: " + id).gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the connection broke before the server took the request","data":{"reason":"undelivered"}}}`).over()
		one = u.call("1")
		p.gets()
		p.says(result("1"))
		one.isJSON(result("1"))
	})
	bubble(t, "the session ends", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, _ := s.open(r25c)
		one := u.call("1")
		time.Sleep(time.Second)
		u.request("DELETE", "").is(http.StatusNoContent)
		one.gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the session was deleted","data":{"reason":"session_ended"}}}`).over()
	})
	bubble(t, "batch", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25a)
		r := u.post("[" + request("1") + "," + note + "," + request("2") + "]")
		p.gets()
		time.Sleep(time.Second)
		p.says(result("1"))
		r.gets(result("1")).open()
		p.gets()
		p.gets()
		p.says(result("2"))
		r.gets(result("2")).over()
	})
}

func TestServerNoKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{KeepAlive: -1, SessionTimeout: -1})
		u, p := s.open(r25c)
		c := s.raw()
		c.write("GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nMcp-Session-Id: " + u.id + "\r\n\r\n")
		resp, err := http.ReadResponse(c.r, nil)
		bridgetest.Must(t, err)
		go func() {
			time.Sleep(100 * time.Hour)
			_ = p.Send(t.Context(), message(listChanged))
		}()
		var got strings.Builder
		for buf := make([]byte, 1000); !strings.Contains(got.String(), "list_changed"); {
			n, err := resp.Body.Read(buf)
			bridgetest.Must(t, err)
			got.Write(buf[:n])
		}
		if strings.Contains(got.String(), "keep-alive") {
			t.Errorf("the stream is %q", got.String())
		}
	})
}

// LI14: only revisions that know of it have a priming event.
func TestServerNoPrimingForUnknownRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		r := (&user{site: s}).post(initialize("zzz"))
		p := <-s.servers
		p.gets()
		time.Sleep(time.Minute)
		if id := r.isStream().lastID(); id != "" {
			t.Errorf("the stream begins with the event id %q", id)
		}
	})
}

// B.3: requests of the server that no stream can carry are answered, all of
// them, and cost no goroutine each while the server does not take its answers.
func TestServerManyUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{HoldTimeout: time.Minute})
		_, p := s.open(r25b)
		synctest.Wait()
		before := runtime.NumGoroutine()
		const n = 5000
		for i := range n {
			p.says(ask(fmt.Sprint(i)))
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if more := runtime.NumGoroutine() - before; more > 10 {
			t.Errorf("%d goroutines more", more)
		}
		refused := make(map[string]bool, n)
		for range n {
			m := p.gets()
			if !m.IsError() || refused[m.ID().String()] {
				t.Fatalf("the server gets %s", m.Bytes())
			}
			refused[m.ID().String()] = true
		}
		p.getsNothing()
	})
}
