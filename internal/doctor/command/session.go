package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// initializeParams returns the params of initialize in a revision, as JSON.
func initializeParams(revision string) string {
	return fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{},"clientInfo":%s}`, revision, buildinfo.Implementation())
}

// modernMeta returns the member "_meta" of the params of a request of 2026-07-28, as JSON.
func modernMeta() string {
	return fmt.Sprintf(`"_meta":{%q:%q,%q:%s,%q:{}}`, era.KeyVersion, era.NewestModern, era.KeyClientInfo, buildinfo.Implementation(), era.KeyCapabilities)
}

// session is a conversation with one process in one era.
type session struct {
	*diagnosis                   // the run that the conversation is part of
	process      *serverProcess  // the process that is asked
	isModern     bool            // the conversation is in 2026-07-28; otherwise in a revision with initialize
	omitsTimings bool            // no timings are noted, because the conversation in the other era has noted them
	firstResult  []byte          // the result of initialize or server/discover
	requestCount int             // how many requests request and callTool have sent: the ids go by it
	toolNames    map[string]bool // names in tools/list, which was read to its end; nil: it was not
}

// request sends a request and waits for its answer. members are the members of params, as JSON without braces; "": none.
func (s *session) request(ctx context.Context, method, members string) reply {
	s.requestCount++
	return s.process.request(ctx, fmt.Sprint(100+s.requestCount), method, s.paramsJSON(members), s.answerWait())
}

// paramsJSON returns the params of a request, as JSON, with these members, and in 2026-07-28 with _meta.
func (s *session) paramsJSON(members string) string {
	if s.isModern {
		if members != "" {
			members += ","
		}
		members += modernMeta()
	}
	return "{" + members + "}"
}

// hasCapability reports whether the server has declared a capability in firstResult.
func (s *session) hasCapability(capability string) bool {
	var result struct {
		Capabilities map[string]json.RawMessage `json:"capabilities"`
	}
	_ = json.Unmarshal(s.firstResult, &result)
	_, ok := result.Capabilities[capability]
	return ok
}

// checkIDs sends requests with several ids, and adds C9 for each that the server does not answer, or answers under another id; C2 if the
// server ends.
func (s *session) checkIDs(ctx context.Context) {
	method := "ping"
	if s.isModern {
		method = "server/discover"
	}
	var fastest time.Duration
	for _, id := range []string{`"1"`, "1", `"x"`, largeID} {
		if s.timeLeft() <= 0 {
			return
		}
		wait := s.answerWait()
		if id == largeID && fastest > 0 { // many refuse it in silence
			wait = min(wait, 250*time.Millisecond+20*fastest)
		}
		q := s.process.sendRequest(id, method, s.paramsJSON(""), true)
		r := q.awaitReply(ctx, wait)
		q.stopAwaiting()
		if ctx.Err() != nil {
			return
		}
		switch r.outcome {
		case outcomeAnswered:
			if fastest == 0 || r.duration < fastest {
				fastest = r.duration
			}
			s.compareID(id, r.message.ID())
		case outcomeExited:
			s.addEndedDuring(method + " with the id " + id)
			return
		case outcomeSilent:
			s.addUnanswered(method, id, r.duration)
		}
	}
	if fastest > 0 && !s.omitsTimings {
		s.noteTiming(method+" %v", fastest)
	}
}

// largeID is an id, a whole number that a double-precision float cannot hold: it would be rounded.
const largeID = "9007199254740993"

// addUnanswered adds C9: a request was not answered in the time took, because of its id.
func (s *session) addUnanswered(method, id string, took time.Duration) {
	if id == largeID {
		s.report.AddFinding(doctor.LargeIDsUnanswered.WithEvidence("asked with " + id + ": no answer"))
		return
	}
	s.addFinding("C9", doctor.Error, "a request with this id is not answered", fmt.Sprintf("%s with the id %s: no answer in %v", method, id, took.Round(100*time.Millisecond)),
		"Clients choose ids as they like, numbers or text. One that chooses such an id waits for the answer until it gives up.",
		"The server must answer requests with every number and every string as the id.")
}

// compareID adds C9 if got, the id of an answer, is another value than asked, the id of its request, or is largeID rounded.
func (s *session) compareID(asked string, got jsonrpc.ID) {
	want, _ := jsonrpc.ParseID([]byte(asked))
	if got == want {
		return
	}
	seen := fmt.Sprintf("asked with %s, answered with %s", asked, got)
	switch {
	case got.Equivalent(want) && asked == largeID:
		s.report.AddFinding(doctor.LargeIDsRounded.WithEvidence(seen))
	case got.Equivalent(want): // spelled otherwise, and the same value
	default:
		s.report.AddFinding(doctor.AnswersUnderOtherID.WithEvidence(seen))
	}
}

// addEndedDuring adds C2: the server has ended in the middle of the conversation, while it had request to answer.
func (s *session) addEndedDuring(request string) {
	how, _ := s.process.awaitExit()
	s.addFinding("C2", doctor.Error, "the server ends during a request", request+": "+how+stderrSuffix(s.process),
		"Clients lose the connection. Most of them do not start the server again.",
		"The text on stderr should name the cause; a server must answer what it does not understand with an error.")
}

// callTool calls the tool that the user has named, and notes the fact "call" if there is an answer. It adds C7 if there is none, C2 if the
// server ends, and C15 if the call is refused or the server has no such tool. If the user has named none, it may note doctor.NoCallFact.
func (s *session) callTool(ctx context.Context) {
	name := s.options.ToolToCall
	if name == "" && len(s.toolNames) > 0 && !s.report.HasFaults() {
		s.report.SetFact("call", "%s", doctor.NoCallFact)
	}
	if name == "" || s.timeLeft() <= 0 {
		return
	}
	arguments := s.options.Arguments
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	s.requestCount++
	r := s.process.request(ctx, fmt.Sprint(100+s.requestCount), "tools/call", s.paramsJSON(fmt.Sprintf(`"name":%s,"arguments":%s`, jsonrpc.Quote(name), arguments)), max(0, s.timeLeft()))
	took := r.duration.Round(time.Millisecond)
	switch {
	case r.outcome == outcomeSilent:
		s.addFinding("C7", doctor.Error, "the tool call is not answered", fmt.Sprintf("%s: no answer in %v%s", name, took, stderrSuffix(s.process)),
			"Clients give up on calls, many of them after 60 s.", "Try again with --slow, which waits longer. The text on stderr may tell what the tool waits for.")
	case r.outcome == outcomeExited:
		s.addEndedDuring("tools/call of " + name)
	case r.outcome == outcomeTooLong:
		s.report.SetFact("call", "%s: the answer is too long, after %v", name, took)
	case r.message.IsError():
		s.report.SetFact("call", "%s: refused after %v: %s", name, took, r.message.ErrorObject())
		if !s.addNoSuchTool(r) {
			s.addFinding("C15", doctor.Warning, "the tool call is refused", fmt.Sprintf("%s: %s", name, r.message.ErrorObject()), "Clients get an error in the place of a result.",
				"Do what the error says; the arguments of the call are those behind --call NAME.")
		}
	default:
		verdict := "succeeded"
		if bytes.Equal(bytes.TrimSpace(r.message.Lookup("result", "isError")), []byte("true")) {
			verdict = "reported an error"
			s.addNoSuchTool(r)
		}
		s.report.SetFact("call", "%s: %s after %v, %d bytes", name, verdict, took, r.message.Size())
	}
}

// addNoSuchTool adds C15 if the tool that the user has named is not in the server's list, and reports whether that is so. r is
// the answer to the call.
func (s *session) addNoSuchTool(r reply) bool {
	name := s.options.ToolToCall
	if s.toolNames == nil || s.toolNames[name] {
		return false
	}
	s.addFinding("C15", doctor.Warning, "the server has no tool of this name", fmt.Sprintf("%q is not in tools/list; the call was answered: %s", name, r.message.Bytes()),
		"Clients get an error in the place of a result.", "Call a tool by a name that tools/list has, letter for letter.")
	return true
}

// stderrSuffix returns the end of a sentence, which begins with "; ": the last lines of the server's stderr, or that
// there were none.
func stderrSuffix(p *serverProcess) string {
	lines := p.process.StderrTail()
	if len(lines) == 0 {
		return "; nothing on stderr"
	}
	text := strings.Join(lines, "\n")
	if len(text) > maxEvidenceBytes*3/4 { // its end tells most
		text = "... " + text[len(text)-maxEvidenceBytes*3/4:]
	}
	return "; last on stderr: " + text
}
