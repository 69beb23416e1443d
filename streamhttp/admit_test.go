package streamhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// places is a number of places for servers; who finds none waits.
type places struct {
	free  chan struct{}
	wait  time.Duration
	mu    sync.Mutex
	taken int
	left  []int // how often each place was given back
}

func newPlaces(n int, wait time.Duration) *places {
	p := &places{free: make(chan struct{}, n), wait: wait}
	for range n {
		p.free <- struct{}{}
	}
	return p
}

func (p *places) admit(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	select {
	case <-p.free:
	default:
		select {
		case <-p.free:
		case <-ctx.Done():
			return nil, fmt.Errorf("server %q: %w", "secret", bridge.ErrBusy)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.taken
	p.taken++
	p.left = append(p.left, 0)
	return func() {
		p.mu.Lock()
		p.left[i]++
		p.mu.Unlock()
		p.free <- struct{}{}
	}, nil
}

// are wants so many places to have been taken, and each that was to have been
// given back once, but for those that are still in use.
func (p *places) are(t *testing.T, taken, inUse int) {
	t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, n := range p.left {
		if n > 1 {
			t.Errorf("place %d was given back %d times", i, n)
		}
		inUse -= 1 - min(n, 1)
	}
	if p.taken != taken || inUse != 0 {
		t.Errorf("%d places were taken, want %d; %d too many are free", p.taken, taken, inUse)
	}
}

// A session needs a place for as long as its server is there.
func TestServerAdmit(t *testing.T) {
	bubble(t, "for the life of the server", func(t *testing.T) {
		pl := newPlaces(1, 0)
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit})
		s.wait = make(chan struct{})
		u, p := s.open(r25c)
		r := u.call("1") // needs no place of its own
		p.gets()
		p.says(result("1"))
		r.isJSON(result("1"))
		pl.are(t, 1, 1)
		u.request("DELETE", "").is(http.StatusNoContent)
		pl.are(t, 1, 1) // it is still on its way out
		close(s.wait)
		pl.are(t, 1, 0)
		s.open(r25c)
		pl.are(t, 2, 1)
	})
	bubble(t, "none", func(t *testing.T) {
		pl := newPlaces(1, time.Minute)
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit})
		s.open(r25c)
		r := (&user{site: s}).post(initialize(r25c))
		time.Sleep(59 * time.Second)
		if r.begun() != 0 {
			t.Error("refused too soon")
		}
		time.Sleep(2 * time.Second)
		r.isError(http.StatusServiceUnavailable, -32603, `"init"`)
		if r.header.Get("Retry-After") == "" || r.header.Get("Mcp-Session-Id") != "" || strings.Contains(string(r.body), "secret") {
			t.Errorf("headers %v, %s", r.header, r.body)
		}
		if n := s.h.Sessions(); n != 1 {
			t.Errorf("%d sessions", n)
		}
		pl.are(t, 1, 1)
	})
	bubble(t, "after a wait", func(t *testing.T) {
		pl := newPlaces(1, time.Hour)
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit})
		u, _ := s.open(r25c)
		r := (&user{site: s}).post(initialize(r25c))
		time.Sleep(time.Minute)
		if len(s.servers) > 0 {
			t.Error("a server was started")
		}
		u.request("DELETE", "").is(http.StatusNoContent)
		p := <-s.servers
		p.gets()
		p.says(initializeResult(r25c))
		r.isJSON(initializeResult(r25c))
		pl.are(t, 2, 1)
	})
	bubble(t, "the client goes", func(t *testing.T) {
		pl := newPlaces(1, time.Hour)
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit})
		u, _ := s.open(r25c)
		(&user{site: s}).post(initialize(r25c)).cut()
		u.request("DELETE", "").is(http.StatusNoContent)
		if synctest.Wait(); len(s.servers) > 0 {
			t.Error("a server was started for nobody")
		}
		pl.are(t, 1, 0)
	})
	bubble(t, "the client goes, and the place comes all the same", func(t *testing.T) {
		pl, late := newPlaces(1, time.Hour), make(chan struct{})
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: func(ctx context.Context) (func(), error) {
			<-late
			return pl.admit(context.WithoutCancel(ctx))
		}})
		(&user{site: s}).post(initialize(r25c)).cut()
		close(late)
		pl.are(t, 1, 0)
		if len(s.servers) > 0 {
			t.Error("a server was started for nobody")
		}
	})
	bubble(t, "shutdown", func(t *testing.T) {
		pl := newPlaces(0, time.Hour)
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit})
		r := (&user{site: s}).post(initialize(r25c))
		s.h.Close()
		r.isError(http.StatusServiceUnavailable, -32603, `"init"`)
		(&user{site: s}).post(initialize(r25c)).isError(http.StatusServiceUnavailable, -32603, `"init"`)
		pl.are(t, 0, 0)
	})
	bubble(t, "but no session", func(t *testing.T) {
		pl := newPlaces(9, 0)
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit, MaxSessions: 1})
		s.open(r25c)
		(&user{site: s}).post(initialize(r25c)).isError(http.StatusServiceUnavailable, -32603, `"init"`)
		pl.are(t, 2, 1)
	})
	bubble(t, "initialize fails", func(t *testing.T) {
		pl := newPlaces(1, 0)
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit})
		for i := range 3 {
			r := (&user{site: s}).post(initialize(r25c))
			p := <-s.servers
			switch i {
			case 0:
				p.quit <- errors.New("crashed")
			case 1:
				p.gets()
				p.says(`{"jsonrpc":"2.0","id":"init","error":{"code":-32602,"message":"no"}}`)
			case 2:
				p.gets()
				r.cut()
			}
			pl.are(t, i+1, 0)
		}
	})
	bubble(t, "requests that open nothing", func(t *testing.T) {
		pl := newPlaces(1, 0)
		s := newSite(t, streamhttp.HandlerOptions{AcquirePlace: pl.admit})
		u, _ := s.open(r25c)
		u.post(initialize(r25c)).isError(http.StatusBadRequest, -32600, `"init"`) // LI22
		(&user{site: s}).post(ping).isError(http.StatusBadRequest, -32600, "1")
		(&user{site: s, id: "gone"}).post(ping).isError(http.StatusNotFound, -32600, "1")
		pl.are(t, 1, 1)
	})
}

// LI25, A2, A7: a session is there for whoever opened it, and nobody else; who
// is nobody learns nothing at all.
func TestServerPrincipals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, err := access.ParseTokens("alice " + strings.Repeat("a", 40) + "\nbob " + strings.Repeat("b", 40) + "\n")
		if err != nil {
			t.Fatal(err)
		}
		alice, bob := "Authorization: Bearer "+strings.Repeat("a", 40), "X-Api-Key: "+strings.Repeat("b", 40)
		s := newSite(t, streamhttp.HandlerOptions{Guard: access.Policy{Tokens: tokens}, MaxMessageSize: 1000})
		u := &user{site: s}
		r := u.post(initialize(r25c), alice)
		p := <-s.servers
		p.gets()
		p.says(initializeResult(r25c))
		r.isJSON(initializeResult(r25c))
		u.id = r.header.Get("Mcp-Session-Id")

		nothing := []func(u *user, header string) *reply{
			func(u *user, header string) *reply { return u.post(ping, header) },
			func(u *user, header string) *reply { return u.post(initialized, header) },
			func(u *user, header string) *reply { return u.get(header) },
			func(u *user, header string) *reply { return u.request("DELETE", "", header) },
		}
		for i, request := range nothing {
			r := request(u, bob)
			r.is(http.StatusNotFound)
			stranger := request(&user{site: s, id: "no-such-session"}, bob)
			if string(r.body) != string(stranger.body) {
				t.Errorf("request %d: %s, but for a session that is not there: %s", i, r.body, stranger.body)
			}
		}
		// First of all comes who it is: not the method, the size, the text, or the session.
		for i, r := range []*reply{
			u.post(ping), u.get(), u.request("DELETE", ""), u.request("PUT", ""), u.post("{"), u.post(ping, "Accept: text/plain"),
			u.post(big(5000)), u.post(ping, "Authorization: Bearer x"), (&user{site: s, id: "no-such-session"}).post(ping),
		} {
			if r.is(http.StatusUnauthorized); !strings.HasPrefix(r.header.Get("Www-Authenticate"), "Bearer") {
				t.Errorf("request %d: headers %v", i, r.header)
			}
		}
		// Only where it comes from is looked at before, and a preflight has no token.
		u.post(ping, "Origin: https://evil.example").is(http.StatusForbidden)
		u.request("OPTIONS", "", "Origin: http://localhost:1", "Access-Control-Request-Method: POST").is(http.StatusNoContent)
		u.request("PUT", "", alice).is(http.StatusMethodNotAllowed)

		r = u.post(ping, alice)
		p.getsText(ping)
		p.says(result("1"))
		r.isJSON(result("1"))
		u.request("DELETE", "", alice).is(http.StatusNoContent)
		p.gone()
	})
}
