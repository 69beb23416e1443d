package sharing

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

// echoes is a Dialer of servers that answer each request at once, but for "hang", and end
// at "end".
type echoes struct{ starts int }

func (e *echoes) Dial(context.Context) (bridge.Conn, error) {
	ours, theirs := bridge.Pipe()
	e.starts++
	go func() {
		_ = theirs.Receive(context.Background(), &echo{theirs})
		_ = theirs.Close(nil)
	}()
	return ours, nil
}

type echo struct{ conn bridge.Conn }

var errEnd = errors.New("the end")

func (e *echo) TrySend(m jsonrpc.Message) bool { return false }

func (e *echo) Send(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case m.Kind() != jsonrpc.Request || m.Method() == "hang":
		return nil
	case m.Method() == "end":
		return errEnd
	}
	return e.conn.Send(ctx, jsonrpc.NewResult(m.ID(), []byte(`{"resultType":"complete"}`)))
}

// byName are the Keys of a test: a request "method@key" goes to the server of key; to one of
// its own where exclusive is not 0.
type byName struct{ exclusive uint64 }

func (b *byName) KeyFor(_ context.Context, m jsonrpc.Message) (Key, []byte, error) {
	name, _ := jsonrpc.Text(m.Lookup("params", "server"))
	if name == "none" {
		return Key{}, nil, errors.New("there is none")
	}
	if b.exclusive > 0 {
		b.exclusive++
	}
	return Key{Principal: name, Exclusive: b.exclusive}, nil, nil
}

func (b *byName) KeyWithoutWaiting(_ string, m jsonrpc.Message) (Key, bool) {
	key, _, err := b.KeyFor(context.Background(), m)
	return key, err == nil && b.exclusive == 0
}

func request(id int, method, server string) jsonrpc.Message {
	return jsonrpc.NewRequest(jsonrpc.IntID(int64(id)), method, []byte(fmt.Sprintf(`{"server":%q}`, server)))
}

// newRouter returns the Conn of a client of a Pool of echoes.
func newRouter(t *testing.T, keys *byName) (r *Router, c bridge.Conn, p *Pool) {
	t.Helper()
	p = NewPool(Options{
		Connect:   func(*Server) (bridge.Dialer, func() bool) { return new(echoes), func() bool { return false } },
		MaxShared: 100, MaxCalls: 100, IdleTimeout: time.Hour, Logger: hclog.NewNullLogger(),
	})
	r = NewRouter(t.Context(), p, keys)
	t.Cleanup(func() {
		if err := r.Close(nil); err != nil {
			t.Error(err)
		}
		p.Shutdown(errors.New("closed"))
		p.Wait()
	})
	return r, r, p
}

func (r *Router) left() (memberships, calls int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.memberships), len(r.calls)
}

// With a server for each request, the client's requests leave nothing behind,
// whichever way they were offered first.
func TestExclusiveLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, p := newRouter(t, &byName{exclusive: 1})
		for i := range 20 {
			m := request(i, "x", "a")
			if !r.TrySend(m) {
				bridgetest.Must(t, r.Send(t.Context(), m))
			}
			if m, err := bridgetest.Recv(t.Context(), c); err != nil || m.IsError() || m.ID() != jsonrpc.IntID(int64(i)) {
				t.Fatalf("%s, %v", m.Bytes(), err)
			}
		}
		synctest.Wait()
		if memberships, calls := r.left(); memberships+calls+len(p.Servers()) != 0 {
			t.Errorf("%d memberships, %d calls and %d servers are left", memberships, calls, len(p.Servers()))
		}
	})
}

// A request that no server takes at once is not the Router's yet: it is not answered for
// a server that ends meanwhile.
func TestRouterTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, p := newRouter(t, new(byName))
		memberships, calls := r.left()
		if r.TrySend(request(1, "x", "a")) || memberships+calls+len(p.Servers()) != 0 {
			t.Error("a request that begins a server was taken")
		}
		bridgetest.Must(t, r.Send(t.Context(), request(2, "x", "a")))
		if m, err := bridgetest.Recv(t.Context(), c); err != nil || m.IsError() {
			t.Fatalf("%s, %v", m.Bytes(), err)
		}
		synctest.Wait() // until nobody writes any more
		if !r.TrySend(request(3, "x", "a")) {
			t.Error("a server that takes everything at once was not given a request")
		}
		if m, err := bridgetest.Recv(t.Context(), c); err != nil || m.ID() != jsonrpc.IntID(3) {
			t.Errorf("%s, %v", m.Bytes(), err)
		}
		if _, calls := r.left(); r.TrySend(request(4, "subscriptions/listen", "a")) || calls != 0 {
			t.Error("a request was taken that is not for this way")
		}
	})
}

// What comes from several servers reaches the client. When one ends, or there is none, the
// requests to that are answered and no others.
func TestRouterOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c, _ := newRouter(t, new(byName))
		const n = 6
		for i := range n {
			bridgetest.Must(t, r.Send(t.Context(), request(i, "hang", fmt.Sprint(i))))
			bridgetest.Must(t, r.Send(t.Context(), request(n+i, "x", fmt.Sprint(i))))
		}
		_ = r.Send(t.Context(), request(100, "x", "none"))
		got := map[string]bool{}
		for range n + 1 {
			m, err := bridgetest.Recv(t.Context(), c)
			if err != nil || m.IsError() != (m.ID() == jsonrpc.IntID(100)) {
				t.Fatalf("%s, %v", m.Bytes(), err)
			}
			got[m.ID().String()] = true
		}
		if len(got) != n+1 {
			t.Errorf("answered: %v", got)
		}
		bridgetest.Must(t, r.Send(t.Context(), request(101, "end", "3")))
		for range 2 {
			m, err := bridgetest.Recv(t.Context(), c)
			if id := m.ID().String(); err != nil || !m.IsError() || id != "3" && id != "101" {
				t.Errorf("%s, %v", m.Bytes(), err)
			}
		}
		synctest.Wait()
		if _, calls := r.left(); calls != n-1 {
			t.Errorf("%d calls are in progress", calls)
		}
	})
}

// A client may close its Conn while it is handed a message, by whomever.
func TestRouterIsClosedByItsSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _, _ := newRouter(t, new(byName))
		ended := make(chan error, 1)
		go func() { ended <- r.Receive(t.Context(), closer{r}) }()
		for i := range 3 {
			_ = r.Send(t.Context(), request(i, "x", fmt.Sprint(i)))
		}
		if err := <-ended; err == nil {
			t.Error("Receive ends without a reason")
		}
	})
}

type closer struct{ conn bridge.Conn }

func (c closer) TrySend(jsonrpc.Message) bool { return c.conn.Close(nil) == nil }

func (c closer) Send(context.Context, jsonrpc.Message) error { return c.conn.Close(nil) }
