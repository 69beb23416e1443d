package streamclient

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// Whatever a server answers a request with, the client gets a JSON-RPC error
// that says what is wrong, and the connection goes on.
func TestFaults(t *testing.T) {
	type W = http.ResponseWriter
	for name, c := range map[string]struct {
		reply  func(w http.ResponseWriter)
		reason string
		words  []string
	}{
		"401":           {func(w W) { w.Header().Set("WWW-Authenticate", "Bearer"); w.WriteHeader(401) }, httpdial.ReasonAuthRequired, []string{"401 Unauthorized", "--header", "http://fake.test answered"}},
		"403":           {func(w W) { w.WriteHeader(403) }, httpdial.ReasonForbidden, []string{"403", "denied"}},
		"404 plain":     {func(w W) { w.WriteHeader(410) }, httpdial.ReasonHTTPStatus, []string{"410 Gone"}},
		"400 plain":     {func(w W) { http.Error(w, "Bad Request: no such thing", 400) }, httpdial.ReasonHTTPStatus, []string{`it says: \"Bad Request: no such thing\"`}},
		"endless error": {func(w W) { w.WriteHeader(500); forever(w) }, httpdial.ReasonHTTPStatus, []string{"500"}},
		"endless text":  {func(w W) { w.Header().Set("Content-Type", "text/plain"); forever(w) }, httpdial.ReasonNotMCP, []string{"text/plain"}},
		"path":          {func(w W) { http.Error(w, "cannot POST /mcp/secret", 400) }, httpdial.ReasonHTTPStatus, []string{"400 Bad Request"}},
		"query":         {func(w W) { http.Error(w, "wrong key=secret", 400) }, httpdial.ReasonHTTPStatus, []string{"400 Bad Request"}},
		"405":           {func(w W) { w.WriteHeader(405) }, httpdial.ReasonHTTPStatus, []string{"405"}},
		"413":           {func(w W) { w.WriteHeader(413) }, httpdial.ReasonTooLarge, []string{"413"}},
		"500":           {func(w W) { w.WriteHeader(500); io.WriteString(w, "<h1>panic at secret.go:1") }, httpdial.ReasonHTTPStatus, []string{"500 Internal Server Error"}},
		"599":           {func(w W) { w.WriteHeader(599) }, httpdial.ReasonHTTPStatus, []string{"599"}},
		"HTML": {func(w W) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			io.WriteString(w, "<html>secret</html>")
		}, httpdial.ReasonNotMCP, []string{"text/html"}},
		"gzip":     {func(w W) { w.Header().Set("Content-Encoding", "gzip"); writeJSON(w, "xx") }, httpdial.ReasonNotMCP, []string{"gzip"}},
		"bad type": {func(w W) { w.Header().Set("Content-Type", ";;"); io.WriteString(w, "x") }, httpdial.ReasonNotMCP, nil},
		"empty":    {func(w W) { w.Header().Set("Content-Type", wire.TypeJSON); w.WriteHeader(200) }, httpdial.ReasonNoAnswer, []string{"200"}},
		"bad JSON": {func(w W) { writeJSON(w, `{"secret":`) }, httpdial.ReasonInvalidMessage, nil},
		"array that is too long": {func(w W) { // J7
			writeJSON(w, "["+strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, jsonrpc.MaxServerBatch)+`{"jsonrpc":"2.0","id":1,"result":{}}]`)
		}, httpdial.ReasonInvalidMessage, []string{"more than 1000 messages"}},
		"other id": {func(w W) { writeJSON(w, `{"jsonrpc":"2.0","id":"1","result":{}}`) }, httpdial.ReasonNoAnswer, nil},
		"truncated": {func(w W) {
			w.Header().Set("Content-Length", "1000")
			writeJSON(w, `{"jsonrpc":"2.0","id":1,"result":`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, httpdial.ReasonConnectionLost, nil},
		"truncated, chunked": {func(w W) {
			writeJSON(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, httpdial.ReasonConnectionLost, nil},
		"cut off":            {func(w W) { panic(http.ErrAbortHandler) }, httpdial.ReasonConnectionLost, nil},
		"too large":          {func(w W) { w.Header().Set("Content-Length", "100000000000"); writeJSON(w, "{") }, httpdial.ReasonTooLarge, nil},
		"too large, chunked": {func(w W) { writeJSON(w, strings.Repeat(" ", 200_000)); w.(http.Flusher).Flush() }, httpdial.ReasonTooLarge, []string{"100000 bytes", "--max-message-size"}},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				o.MaxMessageSize = 100_000
				onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) { c.reply(w) })
			}, func(t *clientTest) {
				t.open()
				t.send(request("1", "tools/call"))
				m := t.wantError("1", c.reason, c.words...)
				if code := string(m.Lookup("error", "code")); code != "-32603" {
					t.Errorf("code %s", code)
				}
				if n := len(t.server.requests("tools/call")); n != 1 {
					t.Errorf("the call was sent %d times", n)
				}
				t.call("2", "ping")
			})
		})
	}
}

// forever sends something now and then until the client has gone.
func forever(w http.ResponseWriter) {
	for {
		if _, err := io.WriteString(w, "data: x\n\n"); err != nil {
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// A JSON-RPC error in the body of an HTTP error is what the client gets.
func TestForwardsErrors(t *testing.T) {
	for name, c := range map[string][2]string{
		"null id":  {`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"a","data":1.0}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"a","data":1.0}}`},
		"no id":    {"\n" + `{"error":{"code":-32000,"message":"a"},"jsonrpc":"2.0"}`, `{"id":1,"error":{"code":-32000,"message":"a"},"jsonrpc":"2.0"}`},
		"other id": {`{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"a"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a"}}`},
		"own id":   {`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a"}}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				onCall(s, func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
					w.WriteHeader(400)
					io.WriteString(w, c[0])
				})
			}, func(t *clientTest) {
				t.open()
				t.send(request("1", "tools/call"))
				t.want(c[1])
				t.call("2", "ping")
			})
		})
	}
}

// LE14: redirects are followed within the origin, with method and body; never
// out of it, and nothing leaks.
func TestRedirects(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		location string
		follow   bool
		words    string
	}{
		"307":             {307, "/other/", true, ""},
		"308, absolute":   {308, "http://FAKE.test:80/other/", true, ""},
		"301":             {301, "/mcp/secret2", false, "http://fake.test"},
		"302":             {302, "/other/", false, "302 Found"},
		"303":             {303, "/other/", false, "303"},
		"other host":      {307, "http://evil.test/secret/?a=secret", false, "http://evil.test"},
		"other scheme":    {308, "https://fake.test/mcp/", false, "https://fake.test"},
		"other port":      {307, "http://fake.test:81/mcp/", false, "http://fake.test:81"},
		"302 to evil":     {302, "http://evil.test/", false, "evil.test"},
		"no location":     {307, "", false, "307"},
		"round and round": {307, "/mcp/secret", false, "too many"},
	} {
		t.Run(name, func(t *testing.T) {
			var hosts []string
			testClient(t, func(s *fakeServer, o *Options) {
				hosts = nil
				o.Header = http.Header{"X-Key": {"k"}}
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					hosts = append(hosts, r.Host)
					if r.URL.Path == "/other/" {
						return false
					}
					if c.location != "" {
						w.Header().Set("Location", c.location)
					}
					w.WriteHeader(c.status)
					return true
				}
			}, func(t *clientTest) {
				t.send(initializeText)
				if !c.follow {
					t.wantError("0", httpdial.ReasonRedirect, c.words)
					for _, h := range hosts {
						if h != "fake.test" {
							t.Errorf("a request went to %s", h)
						}
					}
					return
				}
				t.want(initializeReply)
				t.call("1", "ping")
				for _, r := range t.server.requests("ping") {
					if r.body != request("1", "ping") || r.header.Get("X-Key") != "k" || r.header.Get(wire.HeaderSession) != "session-1" {
						t.Errorf("ping arrived as %v", r)
					}
				}
			})
		})
	}
}

// LE14: a server that is busy is asked again for what changes nothing, only a
// few times, and when it says so.
func TestBusy(t *testing.T) {
	for name, c := range map[string]struct {
		method     string
		status     int
		retryAfter string
		busy       int // how often the server says so
		sent       int
		least      time.Duration
		ok         bool
	}{
		"list":                 {"tools/list", 503, "", 2, 3, time.Second, true},
		"list, Retry-After":    {"resources/templates/list", 429, "3", 1, 2, 3 * time.Second, true},
		"read, 502":            {"resources/read", 502, "", 1, 2, 0, true},
		"list, for ever":       {"tools/list", 504, "", 99, 3, time.Second, false},
		"list, Retry-After 60": {"tools/list", 503, "60", 99, 1, 0, false},
		"call":                 {"tools/call", 503, "1", 99, 1, 0, false},
		"list, 500":            {"tools/list", 500, "1", 99, 1, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			testClient(t, func(s *fakeServer, o *Options) {
				busy := c.busy
				s.onPost = func(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) bool {
					if m.Method() != c.method || busy == 0 {
						return false
					}
					busy--
					w.Header().Set("Retry-After", c.retryAfter)
					w.WriteHeader(c.status)
					return true
				}
			}, func(t *clientTest) {
				t.open()
				start := time.Now()
				t.send(request("1", c.method))
				if m := t.recv(); m.IsError() == c.ok {
					t.Errorf("received %s", m.Bytes())
				}
				if d := time.Since(start); d < c.least || d > 10*time.Second {
					t.Errorf("after %v", d)
				}
				if n := len(t.server.requests(c.method)); n != c.sent {
					t.Errorf("sent %d times, want %d", n, c.sent)
				}
			})
		})
	}
}

// Faults of the network are told apart, in words that help.
func TestNetFaults(t *testing.T) {
	tlsServer := httptest.NewUnstartedServer(http.NotFoundHandler())
	tlsServer.Config.ErrorLog = log.New(io.Discard, "", 0)
	tlsServer.StartTLS()
	defer tlsServer.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	bridgetest.Must(t, err)
	defer raw.Close()
	go func() {
		for {
			c, err := raw.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1000))
			io.WriteString(c, "220 secret.example ESMTP\r\n")
			c.Close()
		}
	}()
	refused := bridgetest.FreeAddr(t)
	for name, c := range map[string]struct {
		url    string
		reason string
		words  []string
	}{
		"refused":      {"http://" + refused + "/secret?token=secret", httpdial.ReasonUnreachable, []string{"is the server running? It is tried again", refused + ": dial"}},
		"certificate":  {tlsServer.URL, httpdial.ReasonTLS, []string{"certificate", "--ca-file"}},
		"TLS to plain": {"https://" + strings.TrimPrefix(plain.URL, "http://"), httpdial.ReasonTLS, nil},
		"no HTTP":      {"http://" + raw.Addr().String(), httpdial.ReasonNotMCP, []string{"does not speak HTTP"}},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := (&Client{URL: c.url}).Dial(t.Context())
			bridgetest.Must(t, err)
			defer conn.Close(nil)
			ct := &clientTest{T: t, conn: conn}
			ct.send(initializeText)
			ct.wantError("0", c.reason, c.words...)
		})
	}
}

func TestDialChecks(t *testing.T) {
	for _, u := range []string{"", "x", "ftp://h/", "http://", "http:///mcp", "http://:80/", "http://h\x7f/", "stdio:x", "http://user:secret@[::1/"} {
		if _, err := (&Client{URL: u}).Dial(t.Context()); err == nil {
			t.Errorf("Dial took the URL %q", u)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
	for name, value := range map[string]string{"a b": "x", "": "x", "a:": "x", "A": "secret\r\nX: y", "B": "secret\x00", "ü": "x"} {
		c := &Client{URL: "http://h/", Options: Options{Header: http.Header{name: {value}}}}
		if _, err := c.Dial(t.Context()); err == nil {
			t.Errorf("Dial took the header %q: %q", name, value)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the value: %v", err)
		}
	}
}
