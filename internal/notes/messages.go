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

// slowStartThreshold is how long a process must take to answer initialize for a note to say that it starts slowly. Nothing ends then.
const slowStartThreshold = 4 * time.Second

// maxAnsweredIDs is how many ids of answers are remembered of a session's server, to see that one is answered twice.
const maxAnsweredIDs = 32

// conversation is what a watcher knows of what a session's server has said. Package observe keeps it with the session.
type conversation struct {
	mu               sync.Mutex                 // guards all other fields, replyHistory too
	isComplete       bool                       // the watcher was told of initialize
	observerGaps     uint64                     // GapCount of the Observer then: while it has not changed, the watcher was told of all messages since
	answeredIDs      [maxAnsweredIDs]jsonrpc.ID // the ids of the latest answers
	nextAnswered     int                        // index in answeredIDs of what is replaced next
	listCapabilities map[string]bool            // the capabilities with a list that the server has declared; nil: not known

	replyHistory replyHistory // what the server has answered over HTTP
}

// conversationOf returns what is known of a session's server.
func conversationOf(s *observe.Session) *conversation {
	return s.WatcherValue(conversationKey{}, func() any { return new(conversation) }).(*conversation)
}

type (
	conversationKey struct{} // the key of the conversation in a Session
	cursorKey       struct{} // the key of the cursor, as JSON, in the Call of a list
)

// Message implements observe.Watcher: it looks in a message for faults, as Event does in an event. It looks only at the server's end: what
// a client does wrong is refused, and Watchers are told of the refusal.
func (w *watcher) Message(p *observe.Passed) {
	if p.Hop != observe.Upstream {
		return
	}
	switch kind := p.Message.Kind(); {
	case kind == jsonrpc.Request && p.Dir == observe.ToServer:
		w.noteRequest(p)
	case kind == jsonrpc.Response && p.Dir == observe.ToClient && p.Call == nil:
		w.checkStrayResponse(p)
	case kind == jsonrpc.Response && p.Dir == observe.ToClient:
		w.checkResponse(p)
	}
}

// noteRequest notes what the response to a request is compared with later.
func (w *watcher) noteRequest(p *observe.Passed) {
	switch method := p.Call.Method; {
	case method == "initialize":
		c := conversationOf(p.Session)
		c.mu.Lock()
		c.isComplete, c.observerGaps = true, w.observer.GapCount()
		c.mu.Unlock()
	case listCapability(method) != "":
		if cursor := p.Message.Lookup("params", "cursor"); len(cursor) > 0 && len(cursor) < 4096 {
			p.Call.Set(cursorKey{}, string(cursor))
		}
	}
}

// listCapability returns which capability a method needs that asks for a list of tools, prompts or resources: "tools", "prompts" or
// "resources"; "": it is another method.
func listCapability(method string) string {
	if name, is := strings.CutSuffix(method, "/list"); is && (name == "tools" || name == "prompts" || name == "resources") {
		return name
	}
	return ""
}

// checkStrayResponse looks at a response to no known request. It may answer what was asked before anybody
// watched, unless the watcher was told of all of the conversation.
func (w *watcher) checkStrayResponse(p *observe.Passed) {
	c, id := conversationOf(p.Session), p.Message.ID()
	if id.IsZero() || id == jsonrpc.NullID {
		return
	}
	twice := false
	c.mu.Lock()
	isComplete := c.isComplete && c.observerGaps == w.observer.GapCount()
	for _, old := range c.answeredIDs {
		twice = twice || !old.IsZero() && old.Equivalent(id)
	}
	c.mu.Unlock()
	isStdio := p.Session.ServerTransport() == "stdio"
	evidence := "a response has the id " + clip(id.String())
	switch {
	case twice:
		f := doctor.AnsweredTwice
		if isStdio {
			f.Code = doctor.AnswersUnderOtherID.Code
		}
		w.note(p.Session.Server, p.Session, f, evidence+", and so had one before")
	case isComplete && p.Session.UnansweredCount(observe.Upstream, observe.ToServer) > 0:
		f := doctor.ResponseToOtherRequest
		if isStdio {
			f = doctor.AnswersUnderOtherID
		}
		w.note(p.Session.Server, p.Session, f, evidence+", and no request that was sent has it")
	}
}

// checkResponse looks for faults in an answer to a request, and tells the observer of each (note).
func (w *watcher) checkResponse(p *observe.Passed) {
	c, got, want := conversationOf(p.Session), p.Message.ID(), p.Call.ID
	c.mu.Lock()
	c.answeredIDs[c.nextAnswered] = idToRemember(got)
	c.nextAnswered = (c.nextAnswered + 1) % maxAnsweredIDs
	c.mu.Unlock()
	report := func(f doctor.Fault, evidence string) { w.note(p.Session.Server, p.Session, f, evidence) }
	if got != want && isUnsafeIntegerID(want.String()) {
		report(doctor.LargeIDsRounded, "asked with "+clip(want.String())+", answered with "+clip(got.String()))
	}
	isStdio := p.Session.ServerTransport() == "stdio"
	switch method := p.Call.Method; {
	case method == "initialize":
		if isStdio && p.Duration >= slowStartThreshold {
			report(doctor.SlowStart, "the first answer came after "+p.Duration.Round(time.Millisecond).String())
		}
		if !p.Message.IsError() {
			if missing := c.noteInitializeResponse(&p.Message); missing != "" {
				report(doctor.IncompleteInitialize, missing+" is missing")
			}
		}
	case listCapability(method) != "" && p.Message.IsError():
		c.mu.Lock()
		has := c.listCapabilities[listCapability(method)]
		c.mu.Unlock()
		if has && string(jsonrpc.Lookup(p.Message.ErrorObject(), "code")) == strconv.Itoa(jsonrpc.CodeMethodNotFound) {
			report(doctor.CapabilityWithoutMethod, "the server has said that it has "+listCapability(method)+", and "+method+" is unknown to it")
		}
	case listCapability(method) != "":
		next := p.Message.Lookup("result", "nextCursor")
		if cursor, _ := p.Call.Get(cursorKey{}).(string); cursor != "" && cursor != `""` && string(next) == cursor {
			report(doctor.CircularPages, method+": the nextCursor is the cursor that was asked with")
		}
	}
}

// noteInitializeResponse notes which capabilities the answer to initialize has. It returns the first member that the answer must have
// and lacks; then it notes nothing. "": none is missing.
func (c *conversation) noteInitializeResponse(m *jsonrpc.Message) (missing string) {
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

// isUnsafeIntegerID reports whether an id, as JSON, is a whole number above 2^53 or below -2^53, which not every program keeps exactly.
func isUnsafeIntegerID(id string) bool {
	digits := strings.TrimPrefix(id, "-")
	if len(digits) < 16 || strings.Trim(digits, "0123456789") != "" {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return err != nil || n > 1<<53
}

// idToRemember returns id; zero in the place of a very long one.
func idToRemember(id jsonrpc.ID) jsonrpc.ID {
	if len(id.String()) > maxForeignBytes {
		return jsonrpc.ID{}
	}
	return id
}

// clip returns a text that a peer has chosen; of one above maxForeignBytes so much, and "..." behind it.
func clip(text string) string {
	if len(text) > maxForeignBytes {
		return strings.ToValidUTF8(text[:maxForeignBytes], "") + "..."
	}
	return text
}

// itoa returns a number in decimal.
func itoa(n int) string { return strconv.Itoa(n) }

// processText returns how a process is named in a remark.
func processText(pid int) string { return "process " + strconv.Itoa(pid) }
