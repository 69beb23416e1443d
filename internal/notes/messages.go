package notes

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// slowStart is how long a process may take until its first answer.
const slowStart = 4 * time.Second

// remembered is how many ids of answered requests a session's server is known by.
const remembered = 32

// conversation is what is known of a session's server. observe keeps it with the session.
type conversation struct {
	mu               sync.Mutex
	whole            bool   // messages were told from initialize on, as long as
	gaps             uint64 // is that of the Observer
	answered         [remembered]jsonrpc.ID
	next             int             // in answered
	listCapabilities map[string]bool // capabilities that have a list

	replyHistory replyHistory // over HTTP
}

func conversationOf(s *observe.Session) *conversation {
	return s.Keep(conversationKey{}, func() any { return new(conversation) }).(*conversation)
}

type (
	conversationKey struct{}
	cursorKey       struct{}
)

// Message implements observe.Watcher. What a client does wrong is refused, and told as that; so
// only the server's end is looked at.
func (w *watcher) Message(p *observe.Passed) {
	if p.Hop != observe.Upstream {
		return
	}
	switch kind := p.Message.Kind(); {
	case kind == jsonrpc.Request && p.Dir == observe.ToServer:
		w.noteRequest(p)
	case kind == jsonrpc.Response && p.Dir == observe.ToClient && p.Call == nil:
		w.strayResponse(p)
	case kind == jsonrpc.Response && p.Dir == observe.ToClient:
		w.response(p)
	}
}

// noteRequest notes what is compared with the response.
func (w *watcher) noteRequest(p *observe.Passed) {
	switch method := p.Call.Method; {
	case method == "initialize":
		c := conversationOf(p.Session)
		c.mu.Lock()
		c.whole, c.gaps = true, w.o.Gaps()
		c.mu.Unlock()
	case capability(method) != "":
		if cursor := p.Message.Lookup("params", "cursor"); len(cursor) > 0 && len(cursor) < 4096 {
			p.Call.Set(cursorKey{}, string(cursor))
		}
	}
}

// capability returns which capability a list belongs to; "": the method asks for no list.
func capability(method string) string {
	if name, is := strings.CutSuffix(method, "/list"); is && (name == "tools" || name == "prompts" || name == "resources") {
		return name
	}
	return ""
}

// strayResponse looks at a response that answers nothing. It may answer what was asked before anybody
// watched, unless all of the conversation was told.
func (w *watcher) strayResponse(p *observe.Passed) {
	c, id := conversationOf(p.Session), p.Message.ID()
	if id.IsZero() || id == jsonrpc.NullID {
		return
	}
	twice := false
	c.mu.Lock()
	whole := c.whole && c.gaps == w.o.Gaps()
	for _, old := range c.answered {
		twice = twice || !old.IsZero() && old.Equivalent(id)
	}
	c.mu.Unlock()
	pipe := p.Session.ServerTransport() == "stdio"
	seen := "a response has the id " + clip(id.String())
	switch {
	case twice:
		f := doctor.AnsweredTwice
		if pipe {
			f.Code = doctor.OtherID.Code
		}
		w.note(p.Session.Server, p.Session, f, seen+", and so had one before")
	case whole && p.Session.UnansweredCount(observe.Upstream, observe.ToServer) > 0:
		f := doctor.OthersAnswer
		if pipe {
			f = doctor.OtherID
		}
		w.note(p.Session.Server, p.Session, f, seen+", and no request that was sent has it")
	}
}

// response looks at an answer to a request.
func (w *watcher) response(p *observe.Passed) {
	c, got, want := conversationOf(p.Session), p.Message.ID(), p.Call.ID
	c.mu.Lock()
	c.answered[c.next] = shortID(got)
	c.next = (c.next + 1) % remembered
	c.mu.Unlock()
	say := func(f doctor.Fault, seen string) { w.note(p.Session.Server, p.Session, f, seen) }
	if got != want && large(want.String()) {
		say(doctor.Rounded, "asked with "+clip(want.String())+", answered with "+clip(got.String()))
	}
	stdio := p.Session.ServerTransport() == "stdio"
	switch method := p.Call.Method; {
	case method == "initialize":
		if stdio && p.Duration >= slowStart {
			say(doctor.SlowStart, "the first answer came after "+p.Duration.Round(time.Millisecond).String())
		}
		if !p.Message.IsError() {
			if missing := c.begins(&p.Message); missing != "" {
				say(doctor.Incomplete, missing+" is missing")
			}
		}
	case capability(method) != "" && p.Message.IsError():
		c.mu.Lock()
		has := c.listCapabilities[capability(method)]
		c.mu.Unlock()
		if has && string(jsonrpc.Lookup(p.Message.ErrorObject(), "code")) == strconv.Itoa(jsonrpc.CodeMethodNotFound) {
			say(doctor.NoMethod, "the server has said that it has "+capability(method)+", and "+method+" is unknown to it")
		}
	case capability(method) != "":
		next := p.Message.Lookup("result", "nextCursor")
		if cursor, _ := p.Call.Get(cursorKey{}).(string); cursor != "" && cursor != `""` && string(next) == cursor {
			say(doctor.Circle, method+": the nextCursor is the cursor that was asked with")
		}
	}
}

// begins notes what the answer to initialize says. It returns which member is missing; "": none.
func (c *conversation) begins(m *jsonrpc.Message) (missing string) {
	for _, name := range []string{"protocolVersion", "capabilities", "serverInfo"} {
		if len(m.Lookup("result", name)) == 0 {
			return name
		}
	}
	has := map[string]bool{}
	for _, name := range []string{"tools", "prompts", "resources"} {
		if v := m.Lookup("result", "capabilities", name); len(v) > 0 && v[0] == '{' {
			has[name] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listCapabilities = has
	return ""
}

// large reports whether an id is a whole number above 2^53.
func large(id string) bool {
	digits := strings.TrimPrefix(id, "-")
	if len(digits) < 16 || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return err != nil || n > 1<<53
}

// shortID returns an id to remember: none in the place of a very long one.
func shortID(id jsonrpc.ID) jsonrpc.ID {
	if len(id.String()) > shown {
		return jsonrpc.ID{}
	}
	return id
}

// clip cuts what a peer has chosen.
func clip(text string) string {
	if len(text) > shown {
		return strings.ToValidUTF8(text[:shown], "") + "..."
	}
	return text
}

func count(n int) string     { return strconv.Itoa(n) }
func process(pid int) string { return "process " + strconv.Itoa(pid) }
