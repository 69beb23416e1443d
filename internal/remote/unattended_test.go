package remote

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/ws"
)

// door is a server that may be locked, and the RoundTripper that has somebody unlock it for each request that is not
// unattended.
type door struct {
	base    http.RoundTripper
	refused chan struct{} // one for each unattended request

	mu     sync.Mutex
	locked func(r *http.Request) bool
	next   http.Handler
	opened int                        // times
	later  func(r *http.Request) bool // locked once it was opened; nil: never
	until  func() bool                // the person takes until this is true, and the client is told again and again; nil: no time
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	locked, next := d.locked(r), d.next
	d.mu.Unlock()
	if locked {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	next.ServeHTTP(w, r)
}

func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := d.base.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	resp.Body.Close()
	if httpdial.IsUnattended(r.Context()) {
		d.refused <- struct{}{}
		return nil, &httpdial.Fault{Reason: httpdial.ReasonAuthRequired, Status: 401, Text: "Sign-in needed", DataMembers: []byte(`,"url":"https://a/b"`)}
	}
	d.waitForPerson(r)
	d.mu.Lock()
	d.locked = never
	if d.later != nil {
		d.locked, d.later = d.later, nil
	}
	d.opened++
	d.mu.Unlock()
	again := r.Clone(r.Context())
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return d.base.RoundTrip(again)
}

func (d *door) waitForPerson(r *http.Request) {
	d.mu.Lock()
	until := d.until
	d.mu.Unlock()
	tell := httpdial.ProgressOf(r.Context())
	for {
		if tell != nil {
			tell("waiting")
		}
		if until == nil || until() || !httpdial.Pause(r.Context(), nil, 10*time.Millisecond) {
			return
		}
	}
}

// A lockedSite is a server behind a door, over one transport.
type lockedSite struct {
	be     func(s *site)
	scheme string
	mode   TransportMode
	locked func(r *http.Request) bool // once the session is lost
}

// lockedSites has one for each transport, by its name, and for HTTP+SSE another that is locked for messages only.
var lockedSites = map[string]lockedSite{
	"Streamable HTTP":  {be: (*site).beStreamable, scheme: "http", locked: isPOST},
	"HTTP+SSE":         {be: func(s *site) { s.beLegacy(status(405)) }, scheme: "http", mode: sseOnly, locked: always},
	"POST of HTTP+SSE": {be: func(s *site) { s.beLegacy(status(405)) }, scheme: "http", mode: sseOnly, locked: isPOST},
	"WebSocket":        {be: (*site).beStreamable, scheme: "ws", locked: always},
}

func never(*http.Request) bool    { return false }
func always(*http.Request) bool   { return true }
func isPOST(r *http.Request) bool { return r.Method == http.MethodPost }

// handler is the server. Its session ends with end.
func (l lockedSite) handler(t *testing.T) (h http.Handler, end func()) {
	s := newSite(t)
	l.be(s)
	if l.scheme == "http" {
		return s, s.stop
	}
	served := ws.NewHandler(bridge.HandlerFunc(s.serve), ws.HandlerOptions{})
	end = sync.OnceFunc(func() { served.Close() })
	t.Cleanup(end)
	return served, end
}

// dial connects a client to it through a door that is locked as atFirst says. loseSession ends the session, and locks the door for the next one;
// it returns when something that the bridge has done by itself was refused.
func (l lockedSite) dial(t *testing.T, atFirst func(*http.Request) bool, signInTimeout time.Duration) (c *client, d *door, loseSession func()) {
	d = &door{refused: make(chan struct{}, 1000), locked: atFirst}
	first, end := l.handler(t)
	second, _ := l.handler(t)
	d.next = first
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	c = dial(t, &Dialer{URL: strings.Replace(server.URL, "http", l.scheme, 1) + "/mcp", Options: Options{TransportMode: l.mode, AuthorizeTimeout: signInTimeout,
		Authorize: func(base http.RoundTripper) http.RoundTripper { d.base = base; return d }}})
	return c, d, func() {
		d.mu.Lock()
		d.next, d.locked = second, l.locked
		d.mu.Unlock()
		end()
		server.CloseClientConnections()
		select {
		case <-d.refused:
		case <-time.After(patience):
			t.Fatal("nothing was asked of the server")
		}
	}
}

// Nobody is asked to sign in for what the bridge does by itself when a session is lost: that is refused, and the client's next
// request hears where to sign in, or has somebody asked for it.
func TestUnattended(t *testing.T) {
	all := maps.Clone(lockedSites)
	// Here the client's request reaches the server even if nobody signs in for it.
	const streamOnly = "stream of Streamable HTTP"
	all[streamOnly] = lockedSite{be: (*site).beStreamable, scheme: "http", locked: always}
	for name, one := range all {
		for _, signsIn := range []time.Duration{0, patience} {
			if name == streamOnly && signsIn == 0 {
				continue // the client's own request is refused, as ever
			}
			t.Run(name+" "+signsIn.String(), func(t *testing.T) {
				t.Parallel()
				c, d, loseSession := one.dial(t, never, signsIn)
				c.open()
				c.call("1", "tools/list")
				loseSession()
				d.mu.Lock()
				if d.opened > 0 {
					t.Error("somebody was asked to sign in")
				}
				d.mu.Unlock()
				m := c.ask("2", "tools/list")
				// An attempt may just be being made.
				for n := 0; n < 500 && m.IsError() && (signsIn > 0 || string(m.Lookup("error", "data", "reason")) == `"server_down"`); n++ {
					httpdial.Pause(t.Context(), nil, 10*time.Millisecond)
					m = c.ask("2", "tools/list")
				}
				if signsIn == 0 {
					if got := string(m.Lookup("error", "data")); got != `{"reason":"authorization_required","status":401,"url":"https://a/b"}` {
						t.Errorf("the answer is %s", m.Bytes())
					}
					return
				}
				d.mu.Lock()
				defer d.mu.Unlock()
				if string(m.Result()) != resultFor("tools/list") || d.opened != 1 {
					t.Errorf("the answer is %s; somebody signed in %d times", m.Bytes(), d.opened)
				}
			})
		}
	}
}

// A request that has waited until somebody had signed in goes to the server once and is answered, also if that has another transport
// by then.
func TestSignInToChangedServer(t *testing.T) {
	t.Parallel()
	c, d, loseSession := lockedSite{be: func(s *site) { s.beLegacy(status(405)) }, scheme: "http", locked: always}.dial(t, never, patience)
	c.open()
	c.call("1", "tools/list")
	s := newSite(t)
	s.beStreamable()
	loseSession()
	d.mu.Lock()
	d.next = s
	d.mu.Unlock()
	m := c.ask("2", "tools/list")
	for n := 0; n < 500 && m.IsError(); n++ { // an attempt may just be being made
		httpdial.Pause(t.Context(), nil, 10*time.Millisecond)
		m = c.ask("2", "tools/list")
	}
	asked := 0
	for _, text := range s.received() {
		if new(msg(text)).Method() == "tools/list" {
			asked++
		}
	}
	if string(m.Result()) != resultFor("tools/list") || asked != 1 {
		t.Errorf("the answer is %s; the server was asked %d times", m.Bytes(), asked)
	}
}
