package matrix

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// What goes into the matrix.
var (
	ingresses = []string{"stdio", "http", "sse", "ws"}
	egresses  = []string{"stdio", "http", "sse", "ws", "unix"}
)

// paths are where serve answers.
var paths = map[string]string{"http": "/mcp", "sse": "/sse", "ws": "/ws"}

// revision is what clients ask for where a step does not say another.
const revision = "2025-11-25"

// A scene is one row of the matrix: a server, and how its clients reach it.
type scene struct {
	ingress, egress string
	floor           bool // there is no bridge
	pt              testing.TB
	v               *server
	bridge          *proc  // nil: each client has its own, or there is none
	base            string // of the bridge: HOST:PORT

	main  *talk // nil: none, or it is broken
	talks []*talk
}

func newScene(t testing.TB, ingress, egress string, floor bool) *scene {
	s := &scene{ingress: ingress, egress: egress, floor: floor, pt: t}
	switch egress {
	case "stdio":
		s.v = stdioServer(t)
	case "http":
		s.v = newHTTPServer(t)
	case "sse":
		s.v = newSSEServer(t)
	case "ws":
		s.v = wsServer(t)
	case "unix":
		s.v = unixServer(t)
	}
	return s
}

// What calls get when the bridge is told to stop. The longer one is for where
// nothing may take that long.
const shortGrace, grace = 2 * time.Second, 20 * time.Second

var listening = regexp.MustCompile(`listening.*?http://([0-9.]+:[0-9]+)`)

// serve starts a bridge that listens.
func (s *scene) serve(t testing.TB, grace time.Duration) (p *proc, base string) {
	t.Helper()
	argv := []string{bridgeBin, "serve", "--listen", "127.0.0.1:0", "--grace", grace.String()}
	p = start(s.pt, t, nil, nil, append(argv, s.v.target...)...)
	return p, p.waitLog(t, listening)[1]
}

// dial makes a client, with a bridge of its own where the transport wants it so.
func (s *scene) dial(t testing.TB) *talk {
	t.Helper()
	if !s.floor && s.ingress != "stdio" && s.bridge == nil {
		s.bridge, s.base = s.serve(t, grace)
	}
	return s.dialTo(t, s.bridge, s.base, grace)
}

// dialTo makes a client of a bridge that listens, or of one with that grace.
func (s *scene) dialTo(t testing.TB, bridge *proc, base string, grace time.Duration) *talk {
	t.Helper()
	k := &talk{scene: s, name: fmt.Sprintf("client %d of %s to %s", len(s.talks)+1, s.ingress, s.egress), bridge: bridge, next: 1000}
	e := newEnd(k.name)
	url := "http://" + base + paths[s.ingress]
	if s.floor {
		url = s.v.target[0]
	}
	var w clientWire
	switch s.ingress {
	case "stdio":
		argv := append([]string{bridgeBin, "connect", "--grace", grace.String()}, s.v.target...)
		if s.floor {
			argv = s.v.target[1:]
		}
		lines := startLines(s.pt, t, e, argv...)
		k.bridge, w = lines.p, lines
	case "unix":
		w = dialLines(t, e, "unix", strings.TrimPrefix(url, "unix:"))
	case "http":
		w = newHTTPClient(e, url, !s.floor)
	case "sse":
		w = dialSSE(t, e, url, !s.floor)
	case "ws":
		w = dialWS(t, e, strings.Replace(url, "http:", "ws:", 1))
	}
	s.pt.Cleanup(w.cut)
	k.c = &client{e, w}
	s.talks = append(s.talks, k)
	return k
}

// abandon lets go of what a failed step has left, so that it can fail no other.
func (s *scene) abandon() {
	for _, k := range s.talks {
		if k != s.main {
			k.c.wire.cut()
		}
	}
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	s.v.faults = nil
	for _, one := range s.v.all {
		if s.main == nil || one != s.main.s {
			one.update(func() { one.pardon, one.faults = true, nil })
		}
	}
}

// open makes a client and initializes its session.
func (s *scene) open(t testing.TB, revision string) *talk {
	t.Helper()
	k := s.dial(t)
	k.initialize(t, revision)
	return k
}

// A talk is one session, both ends of it.
type talk struct {
	*scene
	name   string
	bridge *proc
	c      *client
	s      *session
	next   int // for ids
	init   string
	result string // of init, as the server answers it
}

// initialize begins the session.
func (k *talk) initialize(t testing.TB, revision string) {
	t.Helper()
	k.init = fmt.Sprintf(`{"params":{"clientInfo":{"version":"1.0","name":%q}, "protocolVersion":%q,"capabilities":{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}},"x":1.50},"jsonrpc":"2.0","id":"init-\u00e9","method":"initialize"}`, k.name, revision)
	k.result = fmt.Sprintf(`{"result":{"x":1e400,"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}},"serverInfo":{"name":"\u00e9 ","version":"1.0"}},"id":"init-\u00e9","jsonrpc":"2.0"}`, revision)
	k.c.say(t, k.init)
	k.s = k.v.session(t, k.name, k.c)
	k.s.hear(t, "", k.init)
	k.s.say(t, "", k.result)
	k.c.hear(t, k.on(`"init-\u00e9"`), k.result)
	k.up(t, note("notifications/initialized", `{}`))
}

// on is the stream on which a client gets what is about a request: over
// Streamable HTTP each has its own.
func (k *talk) on(id string) string {
	if k.ingress == "http" {
		return id
	}
	return ""
}

// strict is where the client must hear what the server says about a request
// among others, in order: where both sides or neither have a stream for each
// request. Else the order between requests is nobody's, and where something
// belongs that is not progress the bridge has to guess.
func (k *talk) strict(id string) string {
	if (k.ingress == "http") == (k.egress == "http") {
		return k.on(id)
	}
	return anywhere
}

// id returns a new id.
func (k *talk) id() string {
	k.next++
	return fmt.Sprint(k.next)
}

// up has the client say something, and the server hear it.
func (k *talk) up(t testing.TB, text string) {
	t.Helper()
	k.c.say(t, text)
	k.s.hear(t, "", text)
}

// down has the server say something in the course of a request, and the client hear it.
func (k *talk) down(t testing.TB, on, text string) {
	t.Helper()
	k.s.say(t, on, text)
	k.c.hear(t, k.on(on), text)
}

// call has the client ask and the server answer at once.
func (k *talk) call(t testing.TB, id, request, response string) {
	t.Helper()
	k.up(t, request)
	k.down(t, id, response)
}

// ask has the server ask, in the course of a request, and the client answer.
func (k *talk) ask(t testing.TB, on, request, response string) {
	t.Helper()
	k.down(t, on, request)
	k.up(t, response)
}

// settle wants nothing more to be under way, in any direction and on any
// stream: what has come would be here by then.
func (k *talk) settle(t testing.TB) {
	t.Helper()
	id := k.id()
	k.call(t, id, request(id, "tools/call", `{"name":"settle"}`), response(id, `{"settled":`+id+`}`))
	k.down(t, "", note("notifications/x-settled", `{"n":`+id+`}`))
	k.c.silent(t)
	k.s.silent(t)
	if wrong := k.v.wrong(); len(wrong) > 0 {
		t.Fatal(strings.Join(wrong, "\n"))
	}
}

// closed wants the server's end to have ended in its transport's way, and
// whatever process there was to be gone.
func (k *talk) closed(t testing.TB, s *session) {
	t.Helper()
	if how := s.waitOver(t); !slices.Contains(k.v.ends, how) {
		t.Errorf("the server's session ended with %q, want %q", how, k.v.ends)
	}
	if s.pid != 0 && !k.floor {
		waitUntil(t, "the end of the server's process", func() bool { return !alive(s.pid) })
	}
}

// Messages as a client of no special taste writes them.
func request(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

func response(id, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func failure(id, body string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, id, body)
}

func note(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
}
