package remote

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// exchanges is a Watcher that keeps the HTTP exchanges of one session with its server.
type exchanges struct {
	session *observe.Session

	mu  sync.Mutex
	all []string // "POST 200", ...
}

func (x *exchanges) Message(*observe.Passed) {}

func (x *exchanges) Event(e observe.Event) {
	if e, ok := e.(*observe.Exchange); ok && e.Hop == observe.Upstream && e.Session == x.session {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.all = append(x.all, e.Method+" "+strconv.Itoa(e.Status))
	}
}

// The Observer is told of the exchanges with a server, as those of the session that the Conn
// was dialled for, whichever transport the server turns out to have.
func TestExchangesAreObserved(t *testing.T) {
	for name, one := range map[string]struct {
		mode TransportMode
		be   func(s *site)
		want []string
	}{
		"Streamable HTTP, known": {httpOnly, (*site).beStreamable, []string{"POST 200"}},
		"Streamable HTTP, found": {httpFirst, (*site).beStreamable, []string{"POST 200"}},
		"HTTP+SSE, found second": {httpFirst, func(s *site) { s.beLegacy(status(http.StatusNotFound)) }, []string{"POST 404", "POST 202", "GET 200"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			one.be(s)
			var o observe.Observer
			x := &exchanges{session: o.OpenSession("far", "http")}
			defer o.Watch(x)()
			conn, err := (&Dialer{URL: s.URL, Options: Options{TransportMode: one.mode}}).Dial(observe.WithSession(t.Context(), x.session))
			bridgetest.Must(t, err)
			c := &client{t, conn}
			c.open()
			c.call("1", "tools/list")
			bridgetest.Must(t, conn.Close(nil))
			for _, want := range one.want {
				if !slices.Contains(x.all, want) {
					t.Errorf("exchanges %q, without %q", x.all, want)
				}
			}
		})
	}
}
