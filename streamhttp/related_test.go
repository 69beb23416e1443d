package streamhttp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// saysIn sends messages in the course of a request ("null": of none).
func (p *server) saysIn(request string, texts ...string) {
	p.t.Helper()
	related := jsonrpc.NullID
	if request != "null" {
		related, _ = jsonrpc.ParseID([]byte(request))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	for _, text := range texts {
		if err := p.Send(ctx, message(text).WithRelated(related)); err != nil {
			p.t.Fatalf("Send: %v", err)
		}
	}
	synctest.Wait()
}

// B.4: what the server's transport tells about relations outweighs every
// guess; without it (TestServerRouting) each of these would go elsewhere.
func TestServerExactRouting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		get, one, two := u.get(), u.call("1"), u.call("2")
		p.gets()
		p.gets()
		p.saysIn("1", progress("1", 1), logLine("1"), ask(`"q1"`), listChanged)
		p.saysIn("2", logLine("2"), ask(`"q2"`))
		p.saysIn("null", logLine("0"), ask(`"q0"`), listChanged)
		p.saysIn("2", progress("1", 2)) // the token counts
		one.gets(progress("1", 1), logLine("1"), ask(`"q1"`), listChanged, progress("1", 2)).open()
		two.gets(logLine("2"), ask(`"q2"`)).open()
		get.gets(logLine("0"), ask(`"q0"`), listChanged).open()
		for _, id := range []string{`"q0"`, `"q1"`, `"q2"`} { // wherever it was asked
			a := u.post(result(id))
			p.getsText(result(id))
			a.is(http.StatusAccepted)
		}
		p.saysIn("1", result("2")) // so does the id
		p.saysIn("2", result("1"))
		one.gets(result("1")).over()
		two.gets(result("2")).over()
		p.saysIn("1", logLine("late"), ask(`"late"`)) // the call is over
		get.gets(logLine("late"), ask(`"late"`)).open()
	})
	bubble(t, "one call in progress is no reason", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		get, one := u.get(), u.call("1")
		p.gets()
		p.saysIn("null", logLine("0"), ask(`"q0"`))
		p.saysIn(`"unknown"`, logLine("u"), ask(`"qu"`))
		get.gets(logLine("0"), ask(`"q0"`), logLine("u"), ask(`"qu"`)).open()
		p.says(result("1"))
		one.isJSON(result("1"))
	})
	bubble(t, "the call of a task is no reason", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		task := u.post(`{"jsonrpc":"2.0","id":1,"method":"tasks/result","params":{"taskId":"T"}}`)
		get := u.get()
		p.gets()
		const about = `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{"taskId":"T","status":"working"}}`
		p.saysIn("null", about)
		get.gets(about)
		p.saysIn("1", about)
		task.gets(about).open()
	})
	// B.2: it stays with its call, although somebody listens elsewhere.
	bubble(t, "a call whose client is away", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		one, get := u.call("1"), u.get()
		p.gets()
		time.Sleep(time.Second)
		one.cut()
		p.saysIn("1", logLine("1"), ask(`"q"`))
		get.gets().open()
		u.get("Last-Event-ID: "+one.lastID()).gets(logLine("1"), ask(`"q"`)).open()
	})
	bubble(t, "a call that no stream can be resumed for", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25c)
		one, get := u.call("1"), u.get()
		p.gets()
		one.cut()
		p.saysIn("1", logLine("1"), ask(`"q"`))
		get.gets(logLine("1"), ask(`"q"`)).open()
	})
	bubble(t, "before initialized", func(t *testing.T) { // LI29
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.begin(r25b)
		one, two := u.call("1"), u.call("2")
		p.gets()
		p.gets()
		p.saysIn("1", ask(`"q1"`), listChanged)
		p.saysIn("null", ask(`"q0"`))
		r := u.post(initialized)
		p.gets()
		r.is(http.StatusAccepted)
		time.Sleep(time.Second)
		one.gets(listChanged, ask(`"q1"`)).open()
		two.gets().open()
		u.get().gets(ask(`"q0"`)).open()
	})
}

// B.3: what belongs to no call waits for a standalone stream; a request, also
// for the next POST that can carry it.
func TestServerExactRoutingWaits(t *testing.T) {
	bubble(t, "for a GET", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		one := u.call("1")
		p.gets()
		p.saysIn("null", ask(`"q0"`), logLine("0"), listChanged, listChanged)
		get := u.get()
		get.gets(logLine("0"), listChanged, ask(`"q0"`)).open()
		p.says(result("1"))
		one.isJSON(result("1"))
	})
	bubble(t, "for a POST", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		one := u.call("1")
		p.gets()
		p.saysIn("null", ask(`"q0"`), logLine("0"))
		two := u.call("2")
		p.gets()
		two.gets(ask(`"q0"`)).open()
		p.says(result("1"), result("2"))
		one.isJSON(result("1"))
		u.get().gets(logLine("0")).open()
	})
	bubble(t, "in vain", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		one := u.call("1")
		p.gets()
		p.saysIn("null", ask(`"q0"`))
		time.Sleep(10 * time.Second)
		if m := p.gets(); !m.IsError() || m.ID().String() != `"q0"` {
			t.Errorf("the server got %s", m.Bytes())
		}
		one.gets().open()
		p.saysIn("null", ping) // B.1.7
		p.getsText(result("1"))
	})
	// What a stream could not deliver is as related, or unrelated, as before.
	bubble(t, "after its GET has gone", func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{StallAfter: time.Hour})
		u, p := s.open(r25b)
		one := u.call("1")
		p.gets()
		c := s.raw() // reads nothing
		c.write("GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nMcp-Session-Id: " + u.id + "\r\n\r\n")
		synctest.Wait()
		p.saysIn("null", ask(`"q0"`), listChanged)
		c.Close()
		time.Sleep(time.Second)
		one.gets().open()
		u.get().gets(listChanged, ask(`"q0"`)).open()
	})
}

// An observer is told on which stream a message passes: it is the one of the event ids, and its name that of the records of
// streams.
func TestStreamsOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, streamhttp.HandlerOptions{})
		u, p := s.open(r25b)
		of := func(text string, toClient bool) string {
			m := message(text)
			return p.Conn.(interface {
				StreamOf(m *jsonrpc.Message, toClient bool) string
			}).StreamOf(&m, toClient)
		}
		get, one := u.get(), u.call("1")
		p.gets()
		call, other := of(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, false), of(listChanged, true)
		if call == "" || other == "" || call == other {
			t.Errorf("the streams are %q and %q", call, other)
		}
		for text, want := range map[string]string{progress("1", 1): call, result("1"): call, ask(`"q1"`): call, result("1.0"): call, result("7"): ""} {
			if got := of(text, true); got != want {
				t.Errorf("%s: stream %q, want %q", text, got, want)
			}
		}
		if got := of(`{"jsonrpc":"2.0","method":"notifications/x"}`, false); got != "" {
			t.Errorf("a notification of the client came on %q", got)
		}
		p.says(progress("1", 1), listChanged)
		for r, name := range map[*reply]string{one.gets(progress("1", 1)): call, get.gets(listChanged): other} {
			if id := r.lastID(); !strings.HasPrefix(id, name+"_") {
				t.Errorf("an event of the stream %q has the id %q", name, id)
			}
		}
		p.says(result("1"))
		one.gets(result("1")).over()
		if got := of(result("1"), true); got != "" {
			t.Errorf("the answer to a call that is over goes to %q", got)
		}
	})
}
