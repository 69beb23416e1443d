package sseclient

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/remoteconn"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const callText = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`

func TestDialErrors(t *testing.T) {
	for _, c := range []struct {
		url    string
		header http.Header
	}{
		{"ftp://host/sse", nil}, {"http://", nil}, {"http://host:port/secret", nil}, {"/sse", nil},
		{"http://host/sse", http.Header{"A b": {"c"}}}, {"http://host/sse", http.Header{"A": {"b\nc"}}},
	} {
		if _, err := (&Client{URL: c.url, Options: Options{Header: c.header}}).Dial(t.Context()); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s %v: %v", c.url, c.header, err)
		}
	}
}

// SS6: nothing is asked of the server before there is something to say, and
// nothing is posted before the endpoint is known.
func TestOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.first = func(int) string { return ": hello\n\n" }
		u := f.dialURL("http://user:pw@127.0.0.1/sse?key=1", Options{Header: http.Header{"X-Key": {"k"}, "Accept": {"x"}, "Host": {"h"}}})
		synctest.Wait()
		if f.asked != 0 {
			t.Errorf("Dial has made %d requests", f.asked)
		}
		u.sends(initializeText)
		s := f.stream(1)
		f.wantNoPost()
		s.out <- "event: other\ndata: x\n\nevent: endpoint\ndata: message?a=b\n\n"
		p := f.posted()
		if p.text != initializeText || p.path != "/message?a=b" {
			t.Errorf("posted %s to %s", p.text, p.path)
		}
		for _, h := range []http.Header{s.header, p.header} {
			if h.Get("X-Key") != "k" || h.Get("Authorization") != "Basic dXNlcjpwdw==" || h.Get("Accept") == "x" || h.Get("Mcp-Protocol-Version") != "" {
				t.Errorf("headers %v", h)
			}
		}
		if s.header.Get("Accept") != "text/event-stream" || p.header.Get("Content-Type") != "application/json" {
			t.Errorf("headers %v, %v", s.header, p.header)
		}
	})
}

// SS6: the endpoint is taken relative to the stream, and has its origin.
func TestResolveEndpoint(t *testing.T) {
	for _, c := range []struct{ stream, text, want string }{
		{"http://h/sse", "/message?sessionId=1", "http://h/message?sessionId=1"},
		{"http://h/a/sse", "message", "http://h/a/message"},
		{"http://h/a/sse?k=v", "?s=1", "http://h/a/sse?s=1"},
		{"http://h/a/sse", "../b", "http://h/b"},
		{"http://h/sse", "http://h/m", "http://h/m"},
		{"http://h/sse", "HTTP://H:80/m", "http://H:80/m"},
		{"https://h:443/sse", "https://h/m#x", "https://h/m"},
		{"http://h/sse", " /m\t", "http://h/m"},
		{"http://h/sse", "http://u:p@h/m", "http://h/m"},
		{"http://h/sse", `/\evil/m`, "http://h/%5Cevil/m"},
		{"http://h/sse", "/m?a b=é", "http://h/m?a%20b=%C3%A9"},
		{"http://h/sse", "", ""},
		{"http://h/sse", "http://evil/m", ""},
		{"http://h/sse", "//evil/m", ""},
		{"http://h/sse", "https://h/m", ""},
		{"http://h/sse", "http://h:81/m", ""},
		{"http://h/sse", "http://h.evil/m", ""},
		{"http://h/sse", "http://h@evil/m", ""},
		{"http://h/sse", "http:evil", ""},
		{"http://h/sse", "javascript:x", ""},
		{"http://h/sse", "/a\x00b", ""},
		{"http://h/sse", "/%zz", ""},
		{"http://h/sse", "/" + strings.Repeat("a", maxEndpointSize), ""},
	} {
		stream, err := url.Parse(c.stream)
		bridgetest.Must(t, err)
		got, err := resolveEndpoint(stream, c.text)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%s %q: %s, want an error", c.stream, c.text, got)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("%s %q: %v, %v; want %s", c.stream, c.text, got, err, c.want)
		}
	}
}

// SS6: whatever the event says, nothing is posted to another origin.
func FuzzResolveEndpoint(f *testing.F) {
	for _, text := range []string{"/message?sessionId=1", "//evil", "http:evil", "http://h@evil", "?x", `\\evil`, "http://H:80", "http://[::1]:80/"} {
		f.Add(text)
	}
	stream, err := url.Parse("http://h:8080/a/sse?k=v")
	bridgetest.Must(f, err)
	f.Fuzz(func(t *testing.T, text string) {
		u, err := resolveEndpoint(stream, text)
		if err != nil {
			if u != nil {
				t.Errorf("%q: %v, %v", text, u, err)
			}
			return
		}
		// As whoever sends the request sees it.
		req, err := http.NewRequest(http.MethodPost, u.String(), nil)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if req.URL.Scheme != "http" || !strings.EqualFold(req.URL.Hostname(), "h") || req.URL.Port() != "8080" || req.URL.User != nil {
			t.Errorf("%q: %s", text, u)
		}
	})
}

// SS6: an endpoint elsewhere gets nothing, and the client hears why.
func TestForeignEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.first = func(int) string { return "event: endpoint\ndata: http://evil.example/m?secret\n\n" }
		u := f.dial(Options{ReportWrongTransport: true})
		u.sends(initializeText)
		if m := u.getsError("0", "foreign_endpoint"); !strings.Contains(string(m.Bytes()), "http://evil.example") || strings.Contains(string(m.Bytes()), "secret") {
			t.Errorf("%s", m.Bytes())
		}
		f.wantNoPost()
		<-f.stream(1).over
		time.Sleep(time.Hour)
		f.stream(1) // it is not tried again
	})
}

// SS6, LE14: redirects are followed within the origin, and then the endpoint
// is relative to where they lead.
func TestRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.first = func(int) string { return "event: endpoint\ndata: message\n\n" }
		target := "/deep/sse"
		f.onGET = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/sse" {
				return false
			}
			http.Redirect(w, r, target, http.StatusTemporaryRedirect)
			return true
		}
		f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
			if r.URL.Path != "/deep/message" {
				return false
			}
			http.Redirect(w, r, "/deeper", http.StatusPermanentRedirect)
			return true
		}
		u := f.dial(Options{})
		u.sends(initializeText)
		for _, path := range []string{"/deep/message", "/deeper"} {
			if p := f.posted(); p.path != path || p.text != initializeText {
				t.Errorf("posted to %s", p.path)
			}
		}
		f.set(func() { target = "http://evil.example/sse" })
		u = f.dial(Options{})
		u.sends(initializeText)
		if m := u.getsError("0", "redirect"); string(m.Lookup("error", "data", "status")) != "307" {
			t.Errorf("%s", m.Bytes())
		}
		f.wantNoPost()
	})
}

// SS7: any success is one, whatever it says; the response is what comes on
// the stream.
func TestAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		answer := `{"jsonrpc":"2.0","id":1,"result":{"on":"stream"}}`
		for status, body := range map[int]string{200: `{"jsonrpc":"2.0","id":1,"result":{"in":"body"}}`, 202: "Accepted", 204: "", 201: "<html>"} {
			f.set(func() {
				f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
					return true
				}
			})
			u.sends(callText)
			u.getsNothing()
			s.say(answer)
			u.getsText(answer)
		}
	})
}

// SS7: an answer in the body of a POST's reply is the answer if none comes on the stream.
func TestAnswerInBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		inBody, onStream := `{"jsonrpc":"2.0","id":1,"result":{"in":"body"}}`, `{"jsonrpc":"2.0","id":1,"result":{"on":"stream"}}`
		f.set(func() {
			f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, inBody)
				return true
			}
		})
		u.sends(callText)
		u.getsNothing() // the stream comes first
		s.say(onStream)
		u.getsText(onStream)
		u.sends(callText)
		time.Sleep(bodyAnswerWait)
		u.getsText(inBody)
		u.sends(callText)
		u.getsText(inBody) // such a server is not waited for again
		s.say(onStream)
		u.getsNothing()
	})
}

// What the server does not take is answered with an error that says why.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		status, body, mediaType := 0, "", ""
		f.set(func() {
			f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
				w.Header().Set("Content-Type", mediaType)
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
				return true
			}
		})
		for _, c := range []struct {
			status          int
			body, mediaType string
			reason          string
		}{
			{401, "", "text/plain", "authorization_required"},
			{403, "", "text/plain", "forbidden"},
			{413, "", "text/plain", "too_large"},
			{500, "out of order", "text/plain", "http_status"},
			{400, "session ids are nice", "text/plain", "http_status"},
			{301, "", "text/plain", "redirect"},
		} {
			status, body, mediaType = c.status, c.body, c.mediaType
			u.sends(callText)
			m := u.getsError("1", c.reason)
			if c.body != "" && !strings.Contains(string(m.Bytes()), c.body) {
				t.Errorf("%d: %s", c.status, m.Bytes())
			}
			u.sends(note) // nobody to answer
			u.getsNothing()
		}
		status, body, mediaType = 404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such method"}}`, "application/json"
		u.sends(callText)
		u.getsText(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method"}}`)
		s.say(note) // the session lives
		u.getsText(note)
		if s := u.log.String(); strings.Contains(s, "out of order") || strings.Contains(s, "/message") {
			t.Errorf("the log is %s", s)
		}
	})
}

// SS8: the negotiated revision goes with every POST after initialize, from
// 2025-06-18 on.
func TestVersionHeader(t *testing.T) {
	for version, want := range map[string]string{
		"2024-11-05": "", "2025-03-26": "", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25", "9\\u0001": "",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			u := f.dial(Options{})
			u.initializes(version)
			u.sends(note)
			if p := f.posted(); p.header.Get("Mcp-Protocol-Version") != want {
				t.Errorf("%s: the header is %q", version, p.header.Get("Mcp-Protocol-Version"))
			}
		})
	}
}

// What is no message harms nothing; arrays are flattened.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		u.sends(callText)
		answer := `{"jsonrpc":"2.0","id":1.0,"result":{"n":9007199254740993}}`
		s.out <- "event: ping\ndata: " + note + "\n\n" +
			"event: endpoint\ndata: http://evil.example/\n\n" +
			": comment\n\n" + "data:\n\n" + "id: 7\n\n" +
			"data: nonsense\n\n" + "data: {\"jsonrpc\":\"2.0\"}\n\n" + "data: [1," + note + ",]\n\n" +
			"data: [" + strings.Repeat(note+",", jsonrpc.MaxServerBatch) + note + "]\n\n" + // J7
			"data: " + note + "\n\n" +
			"event: message\r\ndata: [" + note + ",\r\ndata: 5, " + answer + "]\r\n\r\n" +
			"data: {\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{}}\n\n"
		u.getsText(note, note, `{"jsonrpc":"2.0","id":1,"result":{"n":9007199254740993}}`)
		u.getsNothing()
	})
}

// An event over the limit costs the session: it may have been a response.
func TestOversized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{MaxMessageSize: 1000})
		s := u.initializes("2024-11-05")
		u.sends(callText)
		f.posted()
		s.out <- "data: " + strings.Repeat("x", 1001) + "\n\n"
		u.getsError("1", "too_large")
		time.Sleep(defaultReconnectDelay)
		u.reinitialized(f.stream(2))
	})
}

// A request with the id of one in progress, and one too many.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{MaxInFlight: 2})
		u.initializes("2024-11-05")
		u.sends(callText)
		if err := u.Send(t.Context(), msg(callText)); err != remoteconn.ErrDuplicateID {
			t.Errorf("Send = %v, want %v", err, remoteconn.ErrDuplicateID)
		}
		u.sends(strings.Replace(callText, "1", "2", 1), `{"jsonrpc":"2.0","id":3,"method":"x"}`)
		u.getsError("3", "too_many_requests")
	})
}

// Nothing but responses goes out before initialize was answered, and it
// cannot be cancelled (J11).
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		u.sends(initializeText)
		s := f.stream(1)
		f.wantPost(initializeText)
		u.sends(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`, callText)
		f.wantNoPost()
		ping, pong := `{"jsonrpc":"2.0","id":9,"method":"ping"}`, `{"jsonrpc":"2.0","id":9,"result":{}}`
		s.say(ping)
		u.getsText(ping)
		u.sends(pong)
		f.wantPost(pong)
		time.Sleep(30 * time.Second)
		f.wantNoPost()
		s.say(`{"jsonrpc":"2.0","id":0,"result":{}}`)
		f.wantPost(callText)
	})
}

// initialize cannot take for ever: everything else waits for it.
func TestInitializeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		u.sends(initializeText)
		f.wantPost(initializeText)
		time.Sleep(initializeTimeout)
		u.getsError("0", "timeout")
		time.Sleep(defaultReconnectDelay)
		u.reinitialized(f.stream(2)) // the server may come to its senses
	})
}

// Messages are posted in order, each once the one ahead was accepted; and a
// server that accepts a call only by finishing it holds up nothing.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		u.initializes("2024-11-05")
		accept := make(chan struct{})
		f.set(func() {
			f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
				<-accept
				return false
			}
		})
		start := time.Now()
		u.sends(callText, note)
		f.wantPost(callText)
		f.wantNoPost()
		time.Sleep(acceptTimeout)
		f.wantPost(note)
		cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		u.sends(cancel)
		time.Sleep(aheadTimeout - time.Millisecond) // for the notification ahead of it
		f.wantNoPost()
		time.Sleep(time.Millisecond)
		f.wantNoPost() // and for the request
		time.Sleep(aheadTimeout)
		f.wantPost(cancel)
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("took %v", d)
		}
		close(accept)
		u.getsNothing()
	})
}

// A cancellation sets out as soon as its request was accepted.
func TestCancelAfterAcceptance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		accept := make(chan struct{})
		f.set(func() {
			f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
				if m == callText {
					<-accept
				}
				return false
			}
		})
		u.sends(callText)
		f.wantPost(callText)
		cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		u.sends(cancel)
		time.Sleep(aheadTimeout / 2)
		f.wantNoPost()
		close(accept)
		f.wantPost(cancel)
		s.say(`{"jsonrpc":"2.0","id":1,"result":{}}`) // J12
		u.getsNothing()
	})
}

// Many requests may be in progress, however slowly the server takes them.
func TestManyInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		never := make(chan struct{})
		defer close(never)
		f.set(func() {
			f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
				select {
				case <-never:
				case <-r.Context().Done():
				}
				return true
			}
		})
		for i := range 200 {
			bridgetest.Must(t, u.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(int64(i)), "tools/call", nil)))
		}
		for i := range 200 {
			answer := string(new(jsonrpc.NewResult(jsonrpc.IntID(int64(199-i)), nil)).Bytes())
			s.say(answer)
			u.getsText(answer)
		}
	})
}

// Close cuts off whatever is in progress.
func TestCloseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
			<-r.Context().Done()
			return true
		}
		u := f.dial(Options{})
		u.sends(initializeText)
		s := f.stream(1)
		start := time.Now()
		u.Close(nil)
		if d := time.Since(start); d > 0 {
			t.Errorf("Close took %v", d)
		}
		<-s.over
		if err := u.Send(context.Background(), msg(note)); err != remoteconn.ErrClosed {
			t.Errorf("Send = %v", err)
		}
		if _, err := bridgetest.Recv(context.Background(), u); err != remoteconn.ErrClosed {
			t.Errorf("Recv = %v", err)
		}
	})
}

// LE14: a request that changes nothing is repeated where the server is too
// busy for it, after the time that the server names; others are not.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		u.initializes("2024-11-05")
		f.set(func() {
			f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
				w.Header().Set("Retry-After", "3")
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
		})
		list := `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
		u.sends(list)
		f.wantPost(list)
		time.Sleep(3*time.Second - time.Millisecond)
		f.wantNoPost()
		time.Sleep(time.Millisecond)
		f.wantPost(list)
		time.Sleep(3 * time.Second)
		f.wantPost(list)
		u.getsError("2", "http_status")
		u.sends(callText)
		f.wantPost(callText)
		u.getsError("1", "http_status")
		time.Sleep(time.Minute)
		f.wantNoPost()
	})
}

// LE15: an answer that the network has lost is posted again, as long as its session lasts.
func TestAnswersArePostedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		s := u.initializes("2024-11-05")
		lose := 3
		f.set(func() {
			f.onPOST = func(w http.ResponseWriter, r *http.Request, m string) bool {
				if strings.Contains(m, `"result"`) && lose > 0 {
					lose--
					panic(http.ErrAbortHandler)
				}
				return false
			}
		})
		ask := `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`
		answer := `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`
		s.say(ask)
		u.getsText(ask)
		u.sends(answer, note)
		time.Sleep(time.Second / 20) // what follows does not wait for the answer
		f.wantPost(answer)
		f.wantPost(answer) // by net/http: the connection was a kept one
		f.wantPost(note)
		time.Sleep(time.Minute)
		f.wantPost(answer)
		f.wantPost(answer)
		f.wantNoPost()

		f.set(func() { lose = 99 })
		s.say(ask)
		u.getsText(ask)
		u.sends(answer)
		f.wantPost(answer)
		f.wantPost(answer)
		s.end()
		time.Sleep(defaultReconnectDelay)
		u.reinitialized(f.stream(2))
		time.Sleep(time.Minute)
		f.wantNoPost()
	})
}
