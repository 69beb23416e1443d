package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// site is a server at an http URL that changes. Refusals are status, code and
// whether the error has the id of the request.
type site struct {
	url string

	mu       sync.Mutex
	modern   bool
	session  string // of a legacy one; "": it has none
	refusal  string // of what is of the other era: "400 -32022"
	nameless bool   // refusals have no id
	forgets  bool   // a modern one answers 404 to sessions, whatever they say
	methods  []string
}

func newSite(t *testing.T, s *site) *site {
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *site) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// heard returns what it was sent since it was last asked.
func (s *site) heard() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.methods, " ")
	s.methods = nil
	return text
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	m, err := jsonrpc.Parse(body)
	if r.Method != http.MethodPost || err != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	s.methods = append(s.methods, m.Method())
	session := r.Header.Get("Mcp-Session-Id")
	known := s.session != "" && session == s.session
	say := func(status int, text string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	result := func(text string) { say(200, `{"jsonrpc":"2.0","id":`+m.ID().String()+`,"result":`+text+`}`) }
	fits := era.IsModernMessage(m) == s.modern
	switch {
	case s.modern && s.forgets && session != "":
		say(404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
	case !fits && !known && m.Kind() == jsonrpc.Request:
		var status, code int
		_, _ = fmt.Sscan(s.refusal, &status, &code)
		id, data := m.ID().String(), ""
		if s.nameless {
			id = "null"
		}
		if code == -32022 {
			data = `,"data":{"supported":["2026-07-28"]}`
		}
		if code == 0 {
			w.WriteHeader(status)
			return
		}
		say(status, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"Bad Request: no"%s}}`, id, code, data))
	case m.Kind() != jsonrpc.Request:
		w.WriteHeader(http.StatusAccepted)
	case m.Method() == "initialize":
		if s.session != "" {
			w.Header().Set("Mcp-Session-Id", s.session)
		}
		result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}`)
	case m.Method() == "server/discover":
		result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	case m.Method() == "tools/list":
		result(`{"resultType":"complete","tools":[]}`)
	default:
		result(fmt.Sprintf(`{"resultType":"complete","content":[],"modern":%v}`, s.modern))
	}
}

func remoteServer(t *testing.T, site *site, spec Spec) *Server {
	t.Helper()
	spec.URL = site.url
	s, err := New(spec)
	bridgetest.Must(t, err)
	s.prober.SettledAfter = 0
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// healed calls until the answer comes from a server of this era, and fails if that
// takes more than a call or two.
func healed(t *testing.T, s *Server, modern bool) {
	t.Helper()
	var got []string
	for range 3 {
		m := ask(t, party(t, t.Context(), s.ExchangeHandler(bridge.PumpOptions{})), modernCall)
		if string(m.Lookup("result", "modern")) == fmt.Sprint(modern) {
			return
		}
		if !m.IsError() || strings.Contains(string(m.Bytes()), "shutting down") {
			t.Fatalf("%s", m.Bytes())
		}
		got = append(got, string(m.Bytes()))
		s.settle(t)
	}
	t.Errorf("still:\n%s", strings.Join(got, "\n"))
}

// settle waits until no probe runs.
func (s *Server) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := s.prober.Modern(ctx); ctx.Err() != nil {
		t.Fatalf("the probe does not end: %v", err)
	}
}

// ED9: a remote server that was a legacy one is asked again when it refuses to
// renew the session as a modern one does, and when it refuses all that comes in it.
func TestRemoteIsUpgraded(t *testing.T) {
	for _, refusal := range []string{"400 -32022", "400 -32020", "404 -32601", "400 -32602", "400"} {
		for _, session := range []string{"s1", ""} {
			for _, forgets := range []bool{true, false} {
				if !forgets && refusal != "400 -32022" && refusal != "400 -32020" || session == "" && forgets {
					continue // it does not say that it is a modern one
				}
				t.Run(fmt.Sprint(refusal, session, forgets), func(t *testing.T) {
					t.Parallel()
					site := newSite(t, &site{session: session, refusal: "400 -32600", forgets: forgets})
					s := remoteServer(t, site, Spec{})
					healed(t, s, false)
					site.set(func() { site.modern, site.refusal, site.session = true, refusal, "" })
					healed(t, s, true)
				})
			}
		}
	}
}

// called makes a legacy client's call and wants a server of this era to answer.
func called(t *testing.T, client bridge.Conn, modern bool) {
	t.Helper()
	if m := ask(t, client, legacyCall); string(m.Lookup("result", "modern")) != fmt.Sprint(modern) {
		t.Errorf("%s, want modern: %v", m.Bytes(), modern)
	}
}

// begunAnew wants a session to end with the next call, because its server is of
// another era, and one that is begun then to have that.
func begunAnew(t *testing.T, client bridge.Conn, h bridge.Handler, modern bool) {
	t.Helper()
	if m := ask(t, client, legacyCall); !m.IsError() {
		t.Errorf("%s", m.Bytes())
	}
	ended(t, client)
	client = party(t, t.Context(), h)
	ask(t, client, initialize)
	called(t, client, modern)
}

// ended waits until nothing more comes.
func ended(t *testing.T, client bridge.Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, client); err == nil || ctx.Err() != nil {
		t.Errorf("it has not ended: %s, %v", m.Bytes(), err)
	}
}

// ED9: a legacy client's own Conn ends when its server has become a modern one, so
// that the client begins anew, and is served.
func TestOwnSessionIsUpgraded(t *testing.T) {
	for _, refusal := range []string{"400 -32022", "404 -32601"} {
		for _, lasting := range []bool{true, false} {
			t.Run(fmt.Sprint(refusal, lasting), func(t *testing.T) {
				t.Parallel()
				site := newSite(t, &site{session: "s1", refusal: "400 -32600", forgets: true})
				s := remoteServer(t, site, Spec{})
				h := s.LegacyHandler(lasting, bridge.PumpOptions{})
				client := party(t, t.Context(), h)
				ask(t, client, initialize)
				called(t, client, false)
				site.set(func() { site.modern, site.refusal, site.session = true, refusal, "" })
				begunAnew(t, client, h, true)
			})
		}
	}
}

// ED9: a remote server that was a modern one is asked again when it refuses a call
// as no modern one does, with whatever body.
func TestRemoteIsDowngraded(t *testing.T) {
	for refusal, nameless := range map[string]bool{
		"400 -32000": true, "400 -32600": false, "404 -32601": true, "400": false, "405": false,
	} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			site := newSite(t, &site{modern: true, refusal: "400 -32022"})
			s := remoteServer(t, site, Spec{})
			healed(t, s, true)
			site.set(func() { site.modern, site.refusal, site.nameless, site.session = false, refusal, nameless, "s1" })
			healed(t, s, false)
		})
	}
}

// ED9: so it is for a legacy client that was translated for. Its Conn ends, so
// that it begins anew, and the one that it gets is to a legacy server.
func TestTranslatedSessionIsDowngraded(t *testing.T) {
	site := newSite(t, &site{modern: true, refusal: "400 -32022"})
	s := remoteServer(t, site, Spec{})
	h := s.LegacyHandler(true, bridge.PumpOptions{})
	client := party(t, t.Context(), h)
	ask(t, client, initialize)
	called(t, client, true)
	site.set(func() { site.modern, site.refusal, site.nameless, site.session = false, "400 -32000", true, "s1" })
	begunAnew(t, client, h, false)
}

// ED9: what a modern server may answer is no reason to ask it again, and where a
// server that was asked is a modern one still, calls in progress go on.
func TestRefusalsOfAModernServer(t *testing.T) {
	site := newSite(t, &site{modern: true, refusal: "400 -32600"})
	s := remoteServer(t, site, Spec{})
	client := party(t, t.Context(), s.modernHandler(bridge.PumpOptions{}))
	ask(t, client, modernCall)
	site.heard()
	before := s.pool.Servers()
	s.prober.Recheck()
	ask(t, client, modernCall)
	if got := site.heard(); !strings.Contains(got, "server/discover") {
		t.Errorf("it was asked %q", got)
	}
	if len(before) != 1 || !slices.Equal(s.pool.Servers(), before) {
		t.Error("its clients were cut off")
	}
}

// ED7: what the server says by itself while it is being asked counts.
func TestSaidWhileAsked(t *testing.T) {
	f := &fleet{kind: silent}
	s := serverOf(t, f, Spec{})
	asked, said := make(chan struct{}), make(chan struct{})
	s.dialers.modern = dialFunc(func(context.Context) (bridge.Conn, error) {
		close(asked)
		<-said
		return nil, errors.New("no such file")
	})
	type answer struct {
		modern bool
		err    error
	}
	answers := make(chan answer)
	go func() {
		modern, err := s.prober.Modern(t.Context())
		answers <- answer{modern, err}
	}()
	<-asked
	s.prober.NoteEra(true)
	close(said)
	if a := <-answers; !a.modern || a.err != nil {
		t.Errorf("%+v", a)
	}
	if modern, err := s.prober.Modern(t.Context()); !modern || err != nil {
		t.Errorf("then: %v, %v", modern, err)
	}
}
