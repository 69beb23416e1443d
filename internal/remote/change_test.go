package remote

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// change turns the site into a server of the other transport, which has never
// heard of the sessions there are.
func (s *site) change(to transport) {
	if to == streamableHTTP {
		s.beStreamable()
		s.legacy.Close()
		return
	}
	s.beLegacy(status(405))
	s.streamable.Close()
}

// both runs a test for either direction: the site begins with the transport
// that is given. Such tests wait, for times between attempts, so they run in parallel.
func both(t *testing.T, f func(t *testing.T, s *site, from transport)) {
	t.Parallel()
	for _, from := range []transport{streamableHTTP, httpSSE} {
		t.Run("from "+from.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			if from == streamableHTTP {
				s.beStreamable()
			} else {
				s.beLegacy(status(405))
			}
			f(t, s, from)
		})
	}
}

// ask makes a request while the Conn may be going over, and receives the answer.
func (c *client) ask(id, method string) jsonrpc.Message {
	c.Helper()
	var sent sync.WaitGroup
	defer sent.Wait()
	sent.Go(func() { c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}`) })
	return c.answerTo(id)
}

// callUntil calls until the server answers.
func (c *client) callUntil(method string) {
	c.Helper()
	for i := range 2000 {
		if m := c.ask(fmt.Sprintf(`"until-%d"`, i), method); !m.IsError() {
			return
		}
		httpdial.Pause(c.Context(), nil, 10*time.Millisecond)
	}
	c.Fatal("the server is not found again")
}

// LE13, LE5: a server that changes its transport in mid-session is found again;
// it hears what the client has told the one before.
func TestServerChanges(t *testing.T) {
	both(t, func(t *testing.T, s *site, from transport) {
		d := &Dialer{URL: s.URL}
		c := dial(t, d)
		c.open()
		c.call("1", "logging/setLevel")
		c.send(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"file:///a"}}`)
		c.answerTo("2")
		before := len(s.received())
		s.change(from.alternative())
		c.callUntil("tools/list")
		if got := d.firstTransport(); got != from.alternative() {
			t.Errorf("the Dialer remembers %s", got)
		}
		got := s.received()[before:]
		var methods []string
		for _, text := range got {
			methods = append(methods, new(msg(text)).Method())
		}
		slices.Sort(methods[2:4])
		want := []string{"initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe", "tools/list"}
		if !slices.Equal(methods, want) {
			t.Fatalf("the server received %q", got)
		}
		if own := msg(got[0]); !strings.HasPrefix(own.ID().String(), `"mcp-bridge-`) || string(own.Params()) != string(new(msg(initializeText)).Params()) {
			t.Errorf("the server received %s", got[0])
		}
		// And back, to a server that is another one.
		old, fresh := s.legacy, newSite(t)
		if from == streamableHTTP {
			s.be(fresh.streamable.ServeHTTP, fresh.streamable.ServeHTTP)
			old.Close()
		} else {
			s.mu.Lock()
			s.legacy = fresh.legacy
			s.mu.Unlock()
			s.be(status(405), fresh.legacy.ServeSSE)
			s.streamable.Close()
		}
		c.callUntil("tools/list")
		if got := d.firstTransport(); got != from {
			t.Errorf("then the Dialer remembers %s", got)
		}
		c.call("9", "tools/list")
	})
}

// LE13: a server that is down, or away for a while, is no reason to go over.
func TestDownIsNoChange(t *testing.T) {
	for _, code := range []int{503, 401, 0} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			both(t, func(t *testing.T, s *site, from transport) { downIsNoChange(t, s, from, code) })
		})
	}
}

func downIsNoChange(t *testing.T, s *site, from transport, code int) {
	c := dial(t, &Dialer{URL: s.URL, Options: Options{TransportMode: map[transport]TransportMode{streamableHTTP: httpFirst, httpSSE: sseFirst}[from]}})
	c.open()
	c.call("1", "ping")
	s.requests()
	tried := make(chan struct{}, 100)
	refuse := func(w http.ResponseWriter, r *http.Request) {
		select {
		case tried <- struct{}{}:
		default:
		}
		if code == 0 {
			panic(http.ErrAbortHandler) // no answer at all
		}
		status(code)(w, r)
	}
	lost := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Session-Id") != "" {
			w.WriteHeader(404)
			return
		}
		refuse(w, r)
	}
	s.be(lost, refuse)
	if from == httpSSE {
		old := s.legacy
		s.mu.Lock()
		s.legacy = newSite(t).legacy
		s.mu.Unlock()
		old.Close()
	}
	if m := c.ask("2", "ping"); !m.IsError() {
		t.Errorf("received %s", m.Bytes())
	}
	<-tried
	<-tried
	for _, r := range s.requests() {
		if r == "POST initialize" && from == httpSSE {
			t.Errorf("the server got a %s", r)
		}
	}
	if got := c.conn.(*conn).current.transport; got != from {
		t.Errorf("the Conn went over to %s", got)
	}
}

// While the server refuses both transports they take turns, no quicker than the
// backoff allows; then the one that is there again is found.
func TestBothRefuseForAWhile(t *testing.T) {
	both(t, func(t *testing.T, s *site, from transport) {
		c := dial(t, &Dialer{URL: s.URL})
		c.open()
		c.call("1", "ping")
		s.requests()
		turns := make(chan string, 1000)
		refuse := func(w http.ResponseWriter, r *http.Request) {
			turns <- r.Method
			w.WriteHeader(404)
		}
		fresh := newSite(t)
		old := s.legacy
		s.mu.Lock()
		s.legacy = fresh.legacy
		s.mu.Unlock()
		s.be(refuse, refuse)
		old.Close()
		s.streamable.Close()
		if m := c.ask("2", "ping"); !m.IsError() {
			t.Errorf("received %s", m.Bytes())
		}
		received := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(received)
			for ctx.Err() == nil {
				_, _ = bridgetest.Recv(ctx, c.conn)
			}
		}()
		first := map[transport]string{streamableHTTP: "POST", httpSSE: "GET"}[from]
		second := map[string]string{"POST": "GET", "GET": "POST"}[first]
		for _, want := range []string{first, second, first} {
			for <-turns != want {
			}
		}
		cancel()
		<-received
		if n := len(turns); n > 4 {
			t.Errorf("%d more attempts", n)
		}
		s.be(fresh.streamable.ServeHTTP, fresh.streamable.ServeHTTP)
		c.callUntil("tools/list")
	})
}

// Close while the Conn goes over in mid-session leaves nothing behind.
func TestCloseDuringChange(t *testing.T) {
	both(t, func(t *testing.T, _ *site, from transport) {
		for range 3 {
			s := newSite(t) // the handlers of the one before are closed
			if from == streamableHTTP {
				s.beStreamable()
			} else {
				s.beLegacy(status(405))
			}
			c := dial(t, &Dialer{URL: s.URL})
			c.open()
			c.call("1", "ping")
			second := make(chan struct{})
			arrived := sync.OnceFunc(func() { close(second) })
			hang := func(w http.ResponseWriter, r *http.Request) {
				arrived()
				<-r.Context().Done()
			}
			if from == streamableHTTP {
				s.be(status(405), hang)
			} else {
				s.be(hang, status(405))
				s.legacy.Close()
			}
			var wg sync.WaitGroup
			wg.Go(func() { _ = c.conn.Send(context.Background(), msg(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)) })
			wg.Go(func() {
				for {
					if _, err := bridgetest.Recv(context.Background(), c.conn); err != nil {
						return
					}
				}
			})
			<-second
			c.conn.Close(nil)
			wg.Wait()
		}
	})
}

// LE15: the answer to what the server has asked before it changed reaches no
// other session, which may have asked with the same id.
func TestAskedBeforeTheChange(t *testing.T) {
	both(t, func(t *testing.T, s *site, from transport) {
		s.sessions = make(chan bridge.Conn, 1)
		c := dial(t, &Dialer{URL: s.URL})
		ctx := t.Context()
		serve := func(server bridge.Conn, method string) {
			for {
				m, err := bridgetest.Recv(ctx, server)
				bridgetest.Must(t, err)
				if m.Kind() == jsonrpc.Request {
					bridgetest.Must(t, server.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(resultFor(m.Method())))))
				}
				if m.Method() == method {
					return
				}
			}
		}
		ask := func(server bridge.Conn) jsonrpc.ID {
			bridgetest.Must(t, server.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(1), "roots/list", nil)))
			for {
				if m := c.recv(); m.Kind() == jsonrpc.Request {
					return m.ID()
				}
			}
		}
		var done sync.WaitGroup
		done.Go(c.open)
		server := <-s.sessions
		serve(server, "notifications/initialized")
		done.Wait()
		asked := ask(server)
		s.change(from.alternative())
		ended := make(chan struct{})
		recv, cancel := context.WithCancel(ctx)
		go func() {
			defer close(ended)
			for {
				if _, err := bridgetest.Recv(recv, c.conn); err != nil {
					return
				}
			}
		}()
		_ = c.conn.Send(ctx, msg(`{"jsonrpc":"2.0","id":2,"method":"ping"}`))
		server = <-s.sessions
		serve(server, "notifications/initialized")
		cancel()
		<-ended
		again := ask(server)
		if again == asked {
			t.Fatalf("two requests with the id %s are open", again)
		}
		done.Go(func() {
			c.send(string(new(jsonrpc.NewResult(asked, []byte(`{"for":"old"}`))).Bytes()))
			c.send(string(new(jsonrpc.NewResult(again, []byte(`{"for":"new"}`))).Bytes()))
		})
		for {
			m, err := bridgetest.Recv(ctx, server)
			bridgetest.Must(t, err)
			if m.Kind() != jsonrpc.Response {
				continue
			}
			if m.ID() != jsonrpc.IntID(1) || string(m.Result()) != `{"for":"new"}` {
				t.Errorf("the server received %s", m.Bytes())
			}
			break
		}
		done.Wait()
	})
}
