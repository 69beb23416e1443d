package streamclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// ME1: one POST per request; its headers are made from the body, and none that
// belongs to the transport comes from the configuration or from the server.
func TestModernHeaders(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		o.Header = http.Header{
			"X-Key": {"k"}, "mcp-method": {"evil"}, "Mcp-Name": {"evil"}, "MCP-Protocol-Version": {"evil"}, "Mcp-Param-X": {"evil"},
			"Mcp-Session-Id": {"evil"}, "Last-Event-ID": {"evil"}, "Accept": {"evil"}, "Content-Type": {"evil"}, "Host": {"other"},
		}
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			w.Header().Set("Mcp-Session-Id", "s")
			if r.Host != "other" {
				t.Errorf("Host is %s", r.Host)
			}
			return false
		}
	}, func(t *modernTest) {
		for i, c := range []struct{ method, params, name string }{
			{"server/discover", ``, "-"},
			{"tools/list", ``, "-"},
			{"tools/call", `"name":"a b","arguments":{"x":9007199254740993}`, "a b"},
			{"prompts/get", `"name":"p"`, "p"},
			{"prompts/get", `"name":""`, ""},
			{"resources/read", `"uri":"file:///a%20b?c","name":"no"`, "file:///a%20b?c"},
			{"tasks/get", `"taskId":"t1"`, "t1"},
			{"tasks/update", `"taskId":"t2"`, "t2"},
			{"tasks/cancel", `"taskId":"t3"`, "t3"},
			{"vendor/thing", `"name":"no"`, "-"},
			{"prompts/get", `"name":7`, "-"},
		} {
			t.server.mu.Lock()
			t.server.seen = nil
			t.server.mu.Unlock()
			id := fmt.Sprint(i)
			text := modern(id, c.method, c.params)
			t.send(text)
			t.wantRelated(id, echoed(id, c.method))
			var seen seenRequest
			for _, r := range t.server.requests("POST") { // not the bridge's own
				if r.msg.Method() == c.method {
					seen = r
				}
			}
			want := http.Header{
				"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"},
				"Authorization": {"Basic dXNlcjpwYXNz"}, "User-Agent": {"mcp-bridge"}, "X-Key": {"k"},
				"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {c.method}, "Mcp-Name": {c.name},
				"Content-Length": {fmt.Sprint(len(text))},
			}
			if c.name == "-" {
				delete(want, "Mcp-Name")
			}
			if fmt.Sprint(seen.header) != fmt.Sprint(want) {
				t.Errorf("%s: headers are %v, want %v", c.method, seen.header, want)
			}
			if seen.body != text {
				t.Errorf("%s: the body is %s, want %s", c.method, seen.body, text)
			}
		}
	})
}

// ME1: the version is the body's own; what no header can say never goes out.
func TestModernUnspeakable(t *testing.T) {
	testModern(t, nil, func(t *modernTest) {
		meta := func(id, version string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":` + version + `}}}`
		}
		t.send(meta("1", `"2027-01-01"`))
		t.want(echoed("1", "tools/list"))
		if v := t.one("tools/list").header.Get("Mcp-Protocol-Version"); v != "2027-01-01" {
			t.Errorf("the version is %s", v)
		}
		t.send(request("2", "prompts/list")) // says nothing
		t.want(echoed("2", "prompts/list"))
		if v := t.one("prompts/list").header.Get("Mcp-Protocol-Version"); v != "2026-07-28" {
			t.Errorf("the version is %s", v)
		}
		t.wantSeen("tools/list", "prompts/list")
		for text, code := range map[string]string{
			meta("3", `"a\r\nX: y"`):           "-32022",
			meta("3", `" 2026-07-28"`):         "-32022",
			meta("3", `7`):                     "-32022",
			modern("3", "a\\r\\nb", ""):        "-32601",
			modern("3", "méthode", ""):         "-32601",
			modern("3", "=?base64?YQ==?=", ""): "-32601",
		} {
			t.send(text)
			if m := t.recv(); string(m.Lookup("error", "code")) != code || m.ID() != jsonrpc.IntID(3) || m.Related() != m.ID() {
				t.Errorf("%s: %s", text, m.Bytes())
			}
		}
		t.send(`{"jsonrpc":"2.0","method":"a\nb"}`)
		t.wantSeen()
	})
}

// What comes before the response on a stream belongs to its request; comments,
// ids, retry fields and events of other names mean nothing (ME12); strange
// responses are dropped, and so is what follows the response.
func TestModernStream(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			id := m.ID().String()
			writeSSE(w, ": hello\n\nretry: 1\nid: 1\ndata:\n\nid: 2\nevent: message\ndata: "+`{"jsonrpc":"2.0","method":"notifications/n","params":{"for":`+id+`}}`+"\n\n"+
				"event: prime\ndata: x\n\n")
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","id":"other","result":{}}`)+
				sseEvent("", result(m, `{"n": 1.0}`)))
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/late"}`)+sseEvent("", result(m, `{}`)))
			return true
		}
	}, func(t *modernTest) {
		for _, id := range []string{`1`, `"a"`} {
			t.send(modern(id, "prompts/get", `"name":"p"`))
			t.wantRelated(id, `{"jsonrpc":"2.0","method":"notifications/n","params":{"for":`+id+`}}`)
			t.wantRelated(id, `{"jsonrpc":"2.0","id":`+id+`,"result":{"n": 1.0}}`)
		}
		t.wantNothing(time.Hour)
		for _, r := range t.server.requests("") {
			if r.method != http.MethodPost || r.msg.Method() != "prompts/get" {
				t.Errorf("the server got %s %s", r.method, r.body)
			}
		}
	})
}

// Replies at the same time do not get in each other's way, and an id may be
// spelled another way in the response.
func TestModernConcurrent(t *testing.T) {
	const n = 50
	arrived := make(chan struct{}, n)
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		all := make(chan struct{})
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			arrived <- struct{}{}
			if len(arrived) == n {
				close(all)
			}
			<-all
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/n","params":{"for":`+m.ID().String()+`}}`)+
				sseEvent("", `{"jsonrpc":"2.0","id":`+m.ID().String()+`.0,"result":{}}`))
			return true
		}
	}, func(t *modernTest) {
		for i := range n {
			t.send(modern(fmt.Sprint(i), "prompts/get", ""))
		}
		seen := map[string]int{}
		for range 2 * n {
			m := t.recv()
			id := m.Related()
			if m.Kind() == jsonrpc.Response && m.ID() != id || m.Kind() == jsonrpc.Notification && string(m.Lookup("params", "for")) != id.String() {
				t.Fatalf("%s belongs to %s", m.Bytes(), id)
			}
			seen[id.String()]++
		}
		if len(seen) != n {
			t.Errorf("%d calls were answered", len(seen))
		}
	})
}

// ME5: a cancellation closes the reply, whatever it has come to, and is not sent.
func TestModernCancel(t *testing.T) {
	gone := make(chan string, 10)
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "tools/list" {
				return false
			}
			if m.Method() == "prompts/get" {
				writeSSE(w, ": open\n\n")
			}
			<-r.Context().Done()
			gone <- m.Method()
			writeSSE(w, sseEvent("", result(m, "{}"))) // too late
			return true
		}
	}, func(t *modernTest) {
		for i, method := range []string{"prompts/get", "tools/call"} {
			id := fmt.Sprint(i)
			t.send(modern(id, method, `"name":"n"`))
			synctest.Wait()
			t.send(cancelOf("99"))
			t.send(cancelOf("null"))
			if len(gone) > 0 {
				t.Fatal("another call was cancelled")
			}
			t.send(cancelOf(id + ".0"))
			if got := <-gone; got != method {
				t.Errorf("%s was cancelled, want %s", got, method)
			}
			t.send(cancelOf(id)) // J12
			t.wantNothing(time.Hour)
			t.send(modern(id, "tools/list", "")) // the id is free again
			t.want(echoed(id, "tools/list"))
		}
		if seen := t.server.requests("notifications/cancelled"); len(seen) > 0 {
			t.Errorf("the server was told %s", seen[0].body)
		}
	})
}

// A cancellation gets through although nobody receives and every queue is full.
func TestModernCancelWhenFull(t *testing.T) {
	gone := make(chan struct{}, 10)
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		o.MaxInFlight = 1
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			for r.Context().Err() == nil {
				writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/n"}`))
			}
			gone <- struct{}{}
			return true
		}
	}, func(t *modernTest) {
		for range 5 {
			t.send(modern("1", "subscriptions/listen", ""))
			synctest.Wait()
			t.send(cancelOf("1"))
			<-gone
		}
	})
}

// subscriptions/listen stays open for as long as the server likes.
func TestModernListen(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() != "subscriptions/listen" {
				return false
			}
			meta := `{"_meta":{"io.modelcontextprotocol/subscriptionId":` + m.ID().String() + `}}`
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`+meta+`}`))
			for range 3 {
				time.Sleep(24 * time.Hour)
				writeSSE(w, ": still here\n")
			}
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":`+meta+`}`))
			writeSSE(w, sseEvent("", result(m, meta)))
			return true
		}
	}, func(t *modernTest) {
		t.send(modern("7", "subscriptions/listen", `"notifications":{"promptsListChanged":true}`))
		meta := `{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}`
		t.wantRelated("7", `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`+meta+`}`)
		t.send(modern("8", "prompts/list", ""))
		t.wantRelated("8", echoed("8", "prompts/list"))
		time.Sleep(72 * time.Hour)
		t.wantRelated("7", `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":`+meta+`}`)
		t.wantRelated("7", `{"jsonrpc":"2.0","id":7,"result":`+meta+`}`)
	})
}

// A notification is a POST that is answered 202; that something else is
// answered concerns the log alone.
func TestModernNotification(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			switch m.Method() {
			case "notifications/refused":
				writeStatus(w, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`)
			case "notifications/cut":
				cut()
			case "notifications/slow":
				time.Sleep(time.Hour)
			default:
				return false
			}
			return true
		}
	}, func(t *modernTest) {
		t.send(`{"jsonrpc":"2.0","method":"notifications/a","params":{"name":"x"}}`)
		seen := t.one("notifications/a")
		if seen.header.Get("Mcp-Method") != "notifications/a" || seen.header.Get("Mcp-Name") != "" || seen.header.Get("Mcp-Protocol-Version") != "2026-07-28" {
			t.Errorf("headers are %v", seen.header)
		}
		for _, name := range []string{"refused", "cut", "slow", "fine"} {
			t.send(`{"jsonrpc":"2.0","method":"notifications/` + name + `"}`)
			t.one("notifications/" + name)
		}
		t.wantNothing(2 * time.Hour)
		if n := strings.Count(t.log.String(), "did not take a message"); n != 3 {
			t.Errorf("%d of 3 failures are in the log: %s", n, t.log)
		}
	})
}

// ST10: what a server asks in the reply to a request, where this revision has no
// place for it, is received like the rest of the reply, and the answer is a POST.
// One that is not taken concerns the log alone, and nobody waits for it.
func TestModernServerAsks(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			switch {
			case m.Kind() == jsonrpc.Response && m.ID().String() == `"slow"`:
				time.Sleep(time.Hour)
			case m.Kind() == jsonrpc.Response && m.IsError():
				writeStatus(w, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`)
			case m.Method() == "tools/call":
				w.Header().Set("Content-Type", wire.TypeSSE)
				io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n\ndata: "+result(m, `{}`)+"\n\n")
			default:
				return false
			}
			return true
		}
	}, func(t *modernTest) {
		t.send(modern("7", "tools/call", `"name":"x"`))
		t.wantRelated("7", `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		t.wantRelated("7", `{"jsonrpc":"2.0","id":7,"result":{}}`)
		began := time.Now()
		for _, text := range []string{
			`{"jsonrpc":"2.0","id":"slow","result":{}}`,
			`{"jsonrpc":"2.0","id":8,"error":{"code":-32601,"message":"no"}}`,
			`{"jsonrpc":"2.0","id":9,"result":{}}`,
		} {
			t.send(text)
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("the answers took %v", d)
		}
		t.wantNothing(2 * time.Hour)
		var got []string
		for _, r := range t.server.requests("") {
			if r.msg.Kind() == jsonrpc.Response {
				got = append(got, r.body)
				if r.header.Get("Mcp-Protocol-Version") != "2026-07-28" || r.header["Mcp-Method"] != nil || r.header["Mcp-Name"] != nil {
					t.Errorf("headers are %v", r.header)
				}
			}
		}
		if len(got) != 3 {
			t.Errorf("the server got the answers %q", got)
		}
		if n := strings.Count(t.log.String(), "did not take an answer"); n != 2 {
			t.Errorf("%d of 2 failures are in the log: %s", n, t.log)
		}
	})
}

// No more than MaxInFlight requests are in progress; an id in use is refused.
func TestModernInFlight(t *testing.T) {
	release := make(chan struct{})
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		o.MaxInFlight = 3
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			<-release
			return false
		}
	}, func(t *modernTest) {
		for _, id := range []string{"1", "2", "3"} {
			t.send(modern(id, "prompts/list", ""))
		}
		t.send(modern("4", "prompts/list", ""))
		if m := t.wantError("4", "too_many_requests"); m.Related() != m.ID() {
			t.Errorf("%s belongs to %s", m.Bytes(), m.Related())
		}
		if err := t.conn.Send(t.Context(), msg(modern("2", "prompts/list", ""))); err == nil {
			t.Error("the id of a request in progress was taken again")
		}
		close(release)
		for range 3 {
			if m := t.recv(); m.IsError() {
				t.Errorf("received %s", m.Bytes())
			}
		}
		t.send(modern("2", "prompts/list", ""))
		t.want(echoed("2", "prompts/list"))
	})
}

// A server that leaves a reply open after the response is not waited for.
func TestModernLinger(t *testing.T) {
	const n = 5
	var closed chan struct{}
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		closed = make(chan struct{}, n) // of the bubble
		o.MaxInFlight = 1
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			writeSSE(w, sseEvent("", result(m, "{}")))
			<-r.Context().Done()
			closed <- struct{}{}
			return true
		}
	}, func(t *modernTest) {
		for i := range n {
			t.send(modern(fmt.Sprint(i), "prompts/get", ""))
			t.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
		}
		for range n {
			<-closed
		}
	})
}

// Close ends what is in progress at the server too, and Receive and Send from then on.
func TestModernClose(t *testing.T) {
	gone := make(chan struct{}, 3)
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			if m.Method() == "subscriptions/listen" {
				writeSSE(w, ": open\n\n")
			}
			<-r.Context().Done()
			gone <- struct{}{}
			return true
		}
	}, func(t *modernTest) {
		t.send(modern("1", "subscriptions/listen", ""))
		t.send(modern("2", "tools/call", `"name":"x"`)) // its tools/list hangs
		t.send(modern("3", "prompts/list", ""))
		synctest.Wait()
		t.conn.Close(nil)
		for range 3 {
			<-gone
		}
		if m, err := bridgetest.Recv(t.Context(), t.conn); !errors.Is(err, remoteconn.ErrClosed) {
			t.Errorf("Recv = %s, %v", m.Bytes(), err)
		}
		for _, text := range []string{modern("4", "prompts/list", ""), cancelOf("1"), `{"jsonrpc":"2.0","method":"n"}`} {
			if err := t.conn.Send(context.Background(), msg(text)); !errors.Is(err, remoteconn.ErrClosed) {
				t.Errorf("Send = %v", err)
			}
		}
		if strings.Contains(t.log.String(), "failed") {
			t.Errorf("the log complains of Close: %s", t.log)
		}
	})
}

// LE14: a redirect keeps everything, within the origin, or is an error.
func TestModernRedirect(t *testing.T) {
	testModern(t, func(s *fakeServer, o *ModernOptions) {
		s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
			switch {
			case r.URL.Path != "/mcp/secret":
				return false
			case m.Method() == "prompts/get":
				http.Redirect(w, r, "http://evil.test/", http.StatusTemporaryRedirect)
			case m.Method() == "prompts/list":
				http.Redirect(w, r, "/new", http.StatusFound)
			default:
				http.Redirect(w, r, "/new", http.StatusPermanentRedirect)
			}
			return true
		}
	}, func(t *modernTest) {
		t.send(modern("1", "resources/read", `"uri":"é"`))
		t.want(echoed("1", "resources/read"))
		seen := t.server.requests("resources/read")
		if len(seen) != 2 || seen[1].header.Get("Mcp-Name") != "=?base64?w6k=?=" || seen[1].body != seen[0].body {
			t.Errorf("the server has seen %v", seen)
		}
		t.send(modern("2", "prompts/get", ""))
		t.wantError("2", "redirect", "evil.test")
		t.send(modern("3", "prompts/list", ""))
		t.wantError("3", "redirect", "302")
	})
}

func TestModernDialErrors(t *testing.T) {
	for url, word := range map[string]string{"ftp://secret/": "http://", "http://%zz": "not valid"} {
		if _, err := (&ModernClient{URL: url}).Dial(t.Context()); err == nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Dial(%s) = %v", url, err)
		}
		if _, fault := (&ModernClient{URL: url}).Discover(t.Context()); fault == nil {
			t.Errorf("Discover(%s) found something", url)
		}
	}
	if _, err := (&ModernClient{URL: "http://h", Options: ModernOptions{Header: http.Header{"a b": {"c"}}}}).Dial(t.Context()); err == nil {
		t.Error("an invalid header was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&ModernClient{URL: "http://h"}).Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial = %v", err)
	}
}
