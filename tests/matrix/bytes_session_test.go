package matrix

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// revision is what clients ask for where a step does not say another.
const revision = "2025-11-25"

// inBytes makes a step of what runs in the row's main session.
func inBytes(run func(*testing.T, *bytesSession)) func(*testing.T, *world) string {
	return inMain(run, func(w *world) **bytesSession { return &w.bytes }, func(w *world, t testing.TB) *bytesSession { return w.openBytes(t, revision) })
}

// openBytes makes a client and initializes its session.
func (w *world) openBytes(t testing.TB, revision string) *bytesSession {
	t.Helper()
	k := &bytesSession{peer: w.dial(t)}
	k.initialize(t, revision)
	return k
}

// A bytesSession is one session, both ends of it.
type bytesSession struct {
	*peer
	s      *session
	init   string
	result string // of init, as the server answers it
}

// initialize begins the session.
func (k *bytesSession) initialize(t testing.TB, revision string) {
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

// strict is where the client must hear what the server says about a request
// among others, in order: where both sides or neither have a stream for each
// request. Else the order between requests is nobody's, and where something
// belongs that is not progress the bridge has to guess.
func (k *bytesSession) strict(id string) string {
	if (k.ingress == "http") == (k.egress == "http") {
		return k.on(id)
	}
	return anywhere
}

// up has the client say something, and the server hear it.
func (k *bytesSession) up(t testing.TB, text string) {
	t.Helper()
	k.c.say(t, text)
	k.s.hear(t, "", text)
}

// down has the server say something in the course of a request, and the client hear it.
func (k *bytesSession) down(t testing.TB, on, text string) {
	t.Helper()
	k.s.say(t, on, text)
	k.c.hear(t, k.on(on), text)
}

// call has the client ask and the server answer at once.
func (k *bytesSession) call(t testing.TB, id, request, response string) {
	t.Helper()
	k.up(t, request)
	k.down(t, id, response)
}

// ask has the server ask, in the course of a request, and the client answer.
func (k *bytesSession) ask(t testing.TB, on, request, response string) {
	t.Helper()
	k.down(t, on, request)
	k.up(t, response)
}

// settle wants nothing more to be under way, in any direction and on any
// stream: what has come would be here by then.
func (k *bytesSession) settle(t testing.TB) {
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
func (k *bytesSession) closed(t testing.TB, s *session) {
	t.Helper()
	if how := s.waitOver(t); !slices.Contains(k.v.ends, how) {
		t.Errorf("the server's session ended with %q, want %q", how, k.v.ends)
	}
	if s.pid != 0 && !k.floor {
		harness.WaitUntil(t, "the end of the server's process", func() bool { return !harness.Alive(s.pid) })
	}
}
