package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/sseclient"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/streamclient"
)

// LE13: a server of the older transport at the same URL is found, however it
// refuses the POST.
func TestHTTPFirstFindsSSE(t *testing.T) {
	for name, post := range map[string]http.HandlerFunc{
		"404 HTML":     status(404),
		"405":          status(405),
		"400":          status(400),
		"400 JSON-RPC": says(400, "Bad Request"),
		"406":          status(406),
		"415":          status(415),
		"422":          status(422),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.beLegacy(post)
			c := dial(t, &Dialer{URL: s.URL})
			c.open()
			c.call("1", "tools/list")
			c.wantRequests(s, "POST initialize", "GET")
			want := []string{initializeText, initializedText, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`}
			if got := s.received(); !slices.Equal(got, want) {
				t.Errorf("the server received %q\nwant %q", got, want)
			}
		})
	}
}

// LE13 the other way round.
func TestSSEFirstFindsHTTP(t *testing.T) {
	for name, get := range map[string]http.HandlerFunc{
		"405":          status(405),
		"404":          status(404),
		"400":          status(400),
		"400 JSON-RPC": says(400, "Bad Request: no session"),
		"200 HTML":     status(200),
		"stream without endpoint": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, ": nothing\n\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.be(s.streamable.ServeHTTP, get)
			c := dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: sseFirst}})
			c.open()
			c.call("1", "tools/list")
			if got := s.requests(); len(got) < 2 || got[0] != "GET" || got[1] != "POST initialize" {
				t.Errorf("requests %q", got)
			}
			want := []string{initializeText, initializedText, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`}
			if got := s.received(); !slices.Equal(got, want) {
				t.Errorf("the server received %q\nwant %q", got, want)
			}
		})
	}
}

// LE13: an answer that says nothing about the transport is no reason to try
// another one.
func TestNoFallback(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		reason string
	}{
		"401":     {status(401), httpdial.ReasonAuthRequired},
		"403":     {status(403), httpdial.ReasonForbidden},
		"407":     {status(407), httpdial.ReasonHTTPStatus},
		"408":     {status(408), httpdial.ReasonHTTPStatus},
		"429":     {status(429), httpdial.ReasonHTTPStatus},
		"500":     {status(500), httpdial.ReasonHTTPStatus},
		"503":     {status(503), httpdial.ReasonHTTPStatus},
		"cut off": {func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }, httpdial.ReasonConnectionLost},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://other.test/", http.StatusFound)
		}, httpdial.ReasonRedirect},
	} {
		for mode, method := range map[TransportMode]string{httpFirst: "POST", sseFirst: "GET"} {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				s := newSite(t)
				s.be(c.answer, c.answer)
				conn := dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: mode}})
				conn.send(initializeText)
				conn.wantError("0", c.reason)
				conn.conn.Close(nil) // it may go on trying
				for _, r := range s.requests() {
					if !strings.HasPrefix(r, method) {
						t.Errorf("the server got a %s", r)
					}
				}
			})
		}
	}
}

// LE13, ME9: a server of 2026-07-28 that refuses initialize says so itself, and
// is asked nothing else in the older transport.
func TestModernRefusal(t *testing.T) {
	for status, code := range map[int]string{400: "-32022", 404: "-32601"} {
		s := newSite(t)
		refusal := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":`+code+`,"message":"no","data":{"supported":["2026-07-28"]}}}`)
		}
		s.be(refusal, refusal)
		conn := dial(t, &Dialer{URL: s.URL})
		conn.send(initializeText)
		m, err := bridgetest.Recv(t.Context(), conn.conn)
		if err != nil || string(m.Lookup("error", "code")) != code {
			t.Errorf("%d: %s, %v", status, m.Bytes(), err)
		}
		conn.wantRequests(s, "POST initialize")
	}
}

// LE13: while a server takes its time, nothing else is tried.
func TestHangingServer(t *testing.T) {
	for mode, method := range map[TransportMode]string{httpFirst: "POST", sseFirst: "GET"} {
		t.Run(mode.String(), func(t *testing.T) {
			s := newSite(t)
			arrived := make(chan struct{})
			hang := func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				<-r.Context().Done()
			}
			s.be(hang, hang)
			c := dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: mode}})
			c.send(initializeText)
			<-arrived
			c.conn.Close(nil)
			if got := s.requests(); len(got) != 1 || !strings.HasPrefix(got[0], method) {
				t.Errorf("requests %q, want one %s", got, method)
			}
		})
	}
}

// The -only modes try nothing else.
func TestOnlyModes(t *testing.T) {
	s := newSite(t)
	s.beLegacy(status(405))
	c := dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: httpOnly}})
	c.send(initializeText)
	c.wantError("0", httpdial.ReasonHTTPStatus, "405")
	c.wantRequests(s, "POST initialize")
	c = dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: sseOnly}})
	c.open()
	c.wantRequests(s, "GET")

	s.be(s.streamable.ServeHTTP, status(405))
	c = dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: sseOnly}})
	c.send(initializeText)
	c.wantError("0", httpdial.ReasonHTTPStatus, "405")
	c.wantRequests(s, "GET")
	c = dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: httpOnly}})
	c.open()
}

// LE13: if the second transport is refused as well, the client hears of both,
// the first one first; and it may try again.
//
// The log has the error, and not each attempt.
func TestBothRefused(t *testing.T) {
	for _, c := range []struct {
		mode      TransportMode
		post, get int
		reason    string
		words     []string
	}{
		{httpFirst, 405, 404, httpdial.ReasonHTTPStatus, []string{"405", "HTTP+SSE was tried too", "404"}},
		{httpFirst, 404, 200, httpdial.ReasonHTTPStatus, []string{"404", "HTTP+SSE was tried too", "text/html"}},
		{httpFirst, 404, 401, httpdial.ReasonHTTPStatus, []string{"404", "HTTP+SSE was tried too", "401"}},
		{httpFirst, 404, 500, httpdial.ReasonHTTPStatus, []string{"404", "HTTP+SSE was tried too", "500"}},
		{sseFirst, 404, 405, httpdial.ReasonHTTPStatus, []string{"405", "Streamable HTTP was tried too", "404"}},
		{sseFirst, 403, 405, httpdial.ReasonHTTPStatus, []string{"405", "Streamable HTTP was tried too", "403"}},
		{sseFirst, 200, 200, httpdial.ReasonNotMCP, []string{"text/html", "Streamable HTTP was tried too", "text/html"}},
		{httpFirst, 404, 404, httpdial.ReasonHTTPStatus, []string{"It is often /mcp; HTTP+SSE was tried too, with the same answer. It is often /sse"}},
		{sseFirst, 404, 404, httpdial.ReasonHTTPStatus, []string{"for Streamable HTTP; Streamable HTTP was tried too, with the same answer. It is often /mcp"}},
		{httpFirst, 405, 405, httpdial.ReasonHTTPStatus, []string{"405"}},
		{httpFirst, 400, 404, httpdial.ReasonHTTPStatus, []string{"400", "HTTP+SSE was tried too: http", "404"}},
	} {
		t.Run(fmt.Sprint(c.mode, c.post, c.get), func(t *testing.T) {
			s := newSite(t)
			s.be(status(c.post), status(c.get))
			var log attempts
			d := &Dialer{URL: s.URL + "?key=secret", Options: Options{TransportMode: c.mode, NoRenew: true, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})}}
			conn := dial(t, d)
			conn.send(initializeText)
			conn.wantError("0", c.reason, c.words...)
			if log.told.Load() {
				t.Error("beside the error, the log tells of each attempt")
			}
			conn.send(initializeText)
			if m := conn.answerTo("0"); !m.IsError() || strings.Contains(string(m.Bytes()), "secret") {
				t.Errorf("received %s", m.Bytes())
			}
			s.beStreamable()
			conn.open()
			conn.call("1", "tools/list")
		})
	}
}

// attempts is a log that notes whether it tells of attempts.
type attempts struct{ told atomic.Bool }

func (a *attempts) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("does not speak")) {
		a.told.Store(true)
	}
	return len(line), nil
}

// What the server itself has said to initialize reaches the client as it is.
func TestBothRefusedOwnError(t *testing.T) {
	s := newSite(t)
	s.be(says(400, "no such version"), status(405))
	c := dial(t, &Dialer{URL: s.URL})
	c.send(initializeText)
	want := `{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no such version"}}`
	if m := c.answerTo("0"); string(m.Bytes()) != want {
		t.Errorf("received %s, want %s", m.Bytes(), want)
	}
	c.wantRequests(s, "POST initialize", "GET")
}

// An HTTP+SSE server that refuses initialize has been found all the same: it
// is its word that counts.
func TestSecondServerRefuses(t *testing.T) {
	s := newSite(t)
	s.beLegacy(status(405))
	s.sessions = make(chan bridge.Conn, 1)
	c := dial(t, &Dialer{URL: s.URL})
	c.send(initializeText)
	refusal := jsonrpc.NewError(jsonrpc.IntID(0), -32602, "unsupported protocol version", []byte(`{"supported":["2024-11-05"]}`))
	go func() {
		session := <-s.sessions
		if _, err := bridgetest.Recv(t.Context(), session); err != nil {
			t.Error(err)
		}
		if err := session.Send(t.Context(), refusal); err != nil {
			t.Error(err)
		}
	}()
	if m := c.answerTo("0"); string(m.Bytes()) != string(refusal.Bytes()) {
		t.Errorf("received %s, want %s", m.Bytes(), refusal.Bytes())
	}
}

// LE13: what was found is remembered, for as long as it is true.
func TestRemembered(t *testing.T) {
	s := newSite(t)
	d := &Dialer{URL: s.URL}
	open := func(want ...string) {
		t.Helper()
		c := dial(t, d)
		c.open()
		c.call("1", "tools/list")
		c.conn.Close(nil)
		if got := s.requests(); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("requests %q, want %q first", got, want)
		}
	}
	s.beLegacy(status(405))
	open("POST initialize", "GET")
	open("GET")
	s.be(s.streamable.ServeHTTP, s.streamable.ServeHTTP)
	open("GET", "POST initialize")
	open("POST initialize", "POST notifications/initialized")
	s.beLegacy(status(404))
	open("POST initialize", "GET")
	open("GET")
	// A server that is down is no other server.
	s.be(status(503), status(503))
	c := dial(t, d)
	c.send(initializeText)
	c.wantError("0", httpdial.ReasonHTTPStatus, "503")
	c.conn.Close(nil)
	for _, r := range s.requests() {
		if r != "GET" {
			t.Errorf("the server got a %s", r)
		}
	}
	s.beLegacy(status(405))
	open("GET")
}

// Many clients at once, while the server changes.
func TestConcurrentDials(t *testing.T) {
	s := newSite(t)
	s.beLegacy(status(405))
	d := &Dialer{URL: s.URL}
	var wg sync.WaitGroup
	var finding sync.RWMutex // a client that asks one server and then the other rightly takes it for neither
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				c := dial(t, d)
				finding.RLock()
				c.open()
				finding.RUnlock()
				c.call("1", "tools/list")
				c.conn.Close(nil)
			}
		})
		if i == 4 {
			finding.Lock()
			s.beStreamable()
			finding.Unlock()
		}
	}
	wg.Wait()
}

// What is sent before the answer to initialize comes through, once, whichever
// transport is found; LE13 must not cost a message.
func TestNothingLost(t *testing.T) {
	for _, c := range []struct {
		mode   TransportMode
		legacy bool
	}{{httpFirst, true}, {sseFirst, false}, {sseFirst, true}, {httpFirst, false}} {
		t.Run(fmt.Sprint(c.mode, c.legacy), func(t *testing.T) {
			s := newSite(t)
			s.beStreamable()
			if c.legacy {
				s.beLegacy(status(405))
			}
			conn := dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: c.mode}})
			conn.send(initializeText)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() { conn.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i+1)) })
			}
			answered := map[string]int{}
			for range 21 {
				m := conn.recv()
				if m.IsError() {
					t.Errorf("received %s", m.Bytes())
				}
				answered[m.ID().String()]++
			}
			wg.Wait()
			if len(answered) != 21 {
				t.Errorf("answered: %v", answered)
			}
			if got := s.received(); len(got) != 21 || got[0] != initializeText {
				t.Errorf("the server received %d messages: %q", len(got), got)
			}
		})
	}
}

// A request before initialize is answered, whatever with.
func TestRequestBeforeInitialize(t *testing.T) {
	for _, mode := range []TransportMode{httpFirst, sseFirst} {
		for _, legacy := range []bool{true, false} {
			t.Run(fmt.Sprint(mode, legacy), func(t *testing.T) {
				s := newSite(t)
				s.beStreamable()
				if legacy {
					s.beLegacy(status(405))
				}
				c := dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: mode}})
				c.send(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
				c.answerTo("7")
				c.open()
				c.call("8", "tools/list")
			})
		}
	}
}

// Close in the middle of going over leaves nothing behind.
func TestCloseDuringFallback(t *testing.T) {
	for mode := range map[TransportMode]bool{httpFirst: true, sseFirst: true} {
		t.Run(mode.String(), func(t *testing.T) {
			s := newSite(t)
			second := make(chan struct{})
			refuse := status(405)
			hang := func(w http.ResponseWriter, r *http.Request) {
				close(second)
				<-r.Context().Done()
			}
			s.be(refuse, hang)
			if mode == sseFirst {
				s.be(hang, refuse)
			}
			c := dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: mode}})
			c.send(initializeText)
			ended := make(chan error, 2)
			go func() {
				_, err := bridgetest.Recv(context.Background(), c.conn)
				ended <- err
			}()
			<-second
			go func() { ended <- c.conn.Send(context.Background(), msg(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)) }()
			c.conn.Close(nil)
			for range 2 {
				<-ended
			}
			if err := c.conn.Send(t.Context(), msg(initializeText)); err == nil {
				t.Error("Send after Close gave no error")
			}
		})
	}
}

// Close just when Receive finds out: either it goes over or it does not.
func TestCloseRacesFallback(t *testing.T) {
	s := newSite(t)
	s.beLegacy(status(405))
	for range 50 {
		c := dial(t, &Dialer{URL: s.URL})
		c.send(initializeText)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if _, err := bridgetest.Recv(context.Background(), c.conn); err != nil {
					return
				}
			}
		})
		wg.Go(func() { _ = c.conn.Send(context.Background(), msg(initializedText)) })
		c.conn.Close(nil)
		wg.Wait()
	}
}

// Receive may be given up in the middle, and called again.
func TestRecvGivenUp(t *testing.T) {
	s := newSite(t)
	s.beLegacy(status(405))
	c := dial(t, &Dialer{URL: s.URL})
	c.send(initializeText)
	for {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		m, err := bridgetest.Recv(ctx, c.conn)
		if err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		if err == nil {
			if m.IsError() {
				t.Errorf("received %s", m.Bytes())
			}
			break
		}
	}
	c.call("1", "tools/list")
}

// NoRenew reaches both transports: the end of the session is the end.
func TestNoRenew(t *testing.T) {
	for _, legacy := range []bool{true, false} {
		t.Run(fmt.Sprint(legacy), func(t *testing.T) {
			s := newSite(t)
			s.beStreamable()
			want := streamclient.ErrSessionLost
			if legacy {
				s.beLegacy(status(405))
				want = sseclient.ErrSessionLost
			}
			c := dial(t, &Dialer{URL: s.URL, Options: Options{NoRenew: true}})
			c.open()
			c.call("1", "ping")
			s.streamable.Close()
			s.legacy.Close()
			s.be(status(404), status(404))
			// The HTTP client finds out with its next request.
			_ = c.conn.Send(t.Context(), msg(`{"jsonrpc":"2.0","id":2,"method":"ping"}`))
			c.wantEnd(want)
		})
	}
}

// B.4: what a message is related to passes through.
func TestRelatedPasses(t *testing.T) {
	s := newSite(t)
	s.beStreamable()
	s.sessions = make(chan bridge.Conn, 1)
	c := dial(t, &Dialer{URL: s.URL})
	c.send(initializeText)
	session := <-s.sessions
	ctx := t.Context()
	recv := func() jsonrpc.Message {
		m, err := bridgetest.Recv(ctx, session)
		bridgetest.Must(t, err)
		return m
	}
	send := func(m jsonrpc.Message) {
		bridgetest.Must(t, session.Send(ctx, m))
	}
	send(jsonrpc.NewResult(new(recv()).ID(), []byte(resultFor("initialize"))))
	c.answerTo("0")
	go c.send(initializedText)
	recv()
	c.send(`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"_meta":{"progressToken":5}}}`)
	recv()
	send(jsonrpc.NewNotification("notifications/progress", []byte(`{"progressToken":5,"progress":1}`)))
	if m := c.recv(); m.Related() != jsonrpc.StringID("x") {
		t.Errorf("%s is related to %q", m.Bytes(), m.Related())
	}
}

// The Conn keeps the contract of bridge.Conn, over either transport.
func TestContract(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		opts := bridgetest.Options{
			NoEOFAt:     "a", // a session that ends is the status of the next request, or a stream to be opened again
			LateSendsAt: "a", // and there is a new one
			GoneAt:      "b", // a session that has ended has no client to send to
		}
		t.Run(map[bool]string{false: "Streamable HTTP", true: "HTTP+SSE"}[legacy], func(t *testing.T) {
			bridgetest.TestConn(t, func(t *testing.T) (a, b bridge.Conn, stop func()) { return newPair(t, legacy) }, opts)
		})
	}
}

// newPair returns a client that had to fall back, and the session that it has
// opened.
func newPair(t *testing.T, legacy bool) (a, b bridge.Conn, stop func()) {
	s := newSite(t)
	s.sessions = make(chan bridge.Conn, 100)
	testDone, done := context.WithCancel(context.Background())
	t.Cleanup(done)
	s.done = testDone.Done()
	d := &Dialer{URL: s.URL}
	if legacy {
		s.beLegacy(status(405))
	} else {
		s.be(s.streamable.ServeHTTP, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Mcp-Session-Id") == "" {
				w.WriteHeader(405)
				return
			}
			s.streamable.ServeHTTP(w, r)
		})
		d.Options.TransportMode = sseFirst
	}
	dialed, err := d.Dial(t.Context())
	bridgetest.Must(t, err)
	conn := dialed
	c := &client{t, conn}
	var session bridge.Conn
	c.send(initializeText)
	recv := func(from bridge.Conn) jsonrpc.Message {
		m, err := bridgetest.Recv(t.Context(), from)
		bridgetest.Must(t, err)
		return m
	}
	send := func(m jsonrpc.Message) {
		bridgetest.Must(t, session.Send(t.Context(), m))
	}
	opened := make(chan jsonrpc.Message)
	go func() { opened <- recv(conn) }()
	session = <-s.sessions
	send(jsonrpc.NewResult(new(recv(session)).ID(), []byte(resultFor("initialize"))))
	<-opened
	accepted := make(chan struct{})
	go func() { // the session has to take it before the client is done
		defer close(accepted)
		c.send(initializedText)
	}()
	recv(session)
	<-accepted
	// What the session sends now may wait for the standalone stream.
	send(jsonrpc.NewNotification("notifications/ready", nil))
	recv(conn)
	return conn, session, func() {
		done()
		s.stop()
	}
}

// LE13: the transport is found when the server answers initialize, with an
// error too. That error is the server's, even if it is a bridge that says it
// of a server of its own.
func TestErrorOfABridgeBehind(t *testing.T) {
	s := newSite(t)
	s.sessions = make(chan bridge.Conn, 1)
	s.beLegacy(status(405))
	conn := dial(t, &Dialer{URL: s.URL})
	const text = "cannot reach http://far.example: connection refused"
	done := make(chan error, 1)
	go func() {
		server := <-s.sessions
		m, err := bridgetest.Recv(t.Context(), server)
		if err == nil {
			err = server.Send(t.Context(), jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError, text, []byte(`{"reason":"unreachable"}`)))
		}
		done <- err
	}()
	conn.send(initializeText)
	if got := string(new(conn.answerTo("0")).Lookup("error", "message")); got != `"`+text+`"` {
		t.Errorf("the client hears %s", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
