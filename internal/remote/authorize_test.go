package remote

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/ws"
)

// key is a RoundTripper that sends a request again, with a credential, if it was refused for the lack of it.
type key struct {
	base http.RoundTripper
	fail error // in place of that
}

func (k *key) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := k.base.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	resp.Body.Close()
	if k.fail != nil {
		return nil, k.fail
	}
	again := r.Clone(r.Context())
	again.Header.Set("X-Key", "k")
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return k.base.RoundTrip(again)
}

func with(fail error) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper { return &key{base, fail} }
}

// locked is a server that refuses all requests without the credential, and notes those that it lets in.
type locked struct {
	*httptest.Server
	mu sync.Mutex
	in []string
}

func newLocked(t *testing.T, next http.Handler) *locked {
	l := &locked{}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") == "" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		l.mu.Lock()
		l.in = append(l.in, r.Method+" "+r.URL.Path)
		l.mu.Unlock()
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(l.Close)
	return l
}

// Every request to a server goes through Authorize, whatever transport it has: each of the replies that it has
// seen is observed, and the refused ones are no sign of another transport.
func TestAuthorize(t *testing.T) {
	for name, one := range map[string]struct {
		be   func(s *site)
		mode TransportMode
		ws   bool
		want []string
	}{
		"Streamable HTTP": {be: (*site).beStreamable, want: []string{"POST /mcp", "GET /mcp", "DELETE /mcp"}},
		"HTTP+SSE":        {be: func(s *site) { s.beLegacy(status(405)) }, want: []string{"GET /mcp", "POST /message"}},
		"HTTP+SSE alone":  {be: func(s *site) { s.beLegacy(status(405)) }, mode: sseOnly, want: []string{"GET /mcp", "POST /message"}},
		"WebSocket":       {be: (*site).beStreamable, ws: true, want: []string{"GET /mcp"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			one.be(s)
			var next http.Handler = s
			if one.ws {
				h := ws.NewHandler(bridge.HandlerFunc(s.serve), ws.HandlerOptions{})
				defer h.Close()
				next = h
			}
			server := newLocked(t, next)
			address := server.URL + "/mcp"
			if one.ws {
				address = strings.Replace(address, "http", "ws", 1)
			}
			var o observe.Observer
			x := &exchanges{session: o.OpenSession("far", "http")}
			defer o.Watch(x)()
			conn, err := (&Dialer{URL: address, Options: Options{TransportMode: one.mode, Authorize: with(nil)}}).Dial(observe.WithSession(t.Context(), x.session))
			bridgetest.Must(t, err)
			c := &client{t, conn}
			c.open()
			c.call("1", "tools/list")
			c.call("2", "tools/list")
			bridgetest.Must(t, conn.Close(nil))
			for _, want := range one.want {
				if !slices.Contains(server.in, want) {
					t.Errorf("the server has let in %q, without %q", server.in, want)
				}
			}
			if method, _, _ := strings.Cut(one.want[0], " "); !slices.Contains(x.all, method+" 401") {
				t.Errorf("exchanges %q, without the refused one", x.all)
			}
			s.stop()
		})
	}
}

// A Fault of Authorize is the answer of a request, and it is asked again for the next one. It is not
// taken for a sign that the server has another transport.
func TestAuthorizeFails(t *testing.T) {
	needed := &httpdial.Fault{Reason: httpdial.ReasonAuthRequired, Status: 401, Text: "Sign-in needed", DataMembers: []byte(`,"url":"https://a/b"`)}
	const data = `{"reason":"authorization_required","status":401,"url":"https://a/b"}`
	for _, scheme := range []string{"http", "ws"} {
		for _, mode := range []TransportMode{httpFirst, sseFirst} {
			server := newLocked(t, http.NotFoundHandler())
			address := strings.Replace(server.URL, "http", scheme, 1)
			d := &Dialer{URL: address, Options: Options{TransportMode: mode, Authorize: with(needed)}}
			c := dial(t, d)
			for range 2 {
				c.send(initializeText)
				if m := c.recv(); string(m.Lookup("error", "data")) != data {
					t.Errorf("%s, %v: %s", scheme, mode, m.Bytes())
				}
			}
			if scheme == "ws" {
				continue
			}
			var public interface{ PublicData() []byte }
			if _, err := d.Discover(t.Context()); !errors.As(err, &public) || string(public.PublicData()) != data {
				t.Errorf("Discover: %v", err)
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What Authorize has added to a request is not repeated where the server says it, whatever the transport.
func TestAuthorizeWithheld(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "bad token "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	add := func(base http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer TOKENCANARY")
			return base.RoundTrip(r)
		})
	}
	for _, scheme := range []string{"http", "ws"} {
		for _, mode := range []TransportMode{httpOnly, sseOnly} {
			d := &Dialer{URL: strings.Replace(server.URL, "http", scheme, 1), Options: Options{TransportMode: mode, Authorize: add}}
			c := dial(t, d)
			c.send(initializeText)
			if m := c.recv(); !strings.Contains(string(m.Bytes()), "bad token [withheld]") {
				t.Errorf("%s, %v: %s", scheme, mode, m.Bytes())
			}
			if scheme == "http" && mode == httpOnly {
				if _, err := d.Discover(t.Context()); err == nil || !strings.Contains(err.Error(), "bad token [withheld]") {
					t.Errorf("Discover: %v", err)
				}
			}
		}
	}
}
