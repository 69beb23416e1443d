package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// minCallWait is how long checkToolCall must have waited for an answer, or half of ReplyTimeout if that is less, to say that there is
// none, and not that there was no time.
const minCallWait = 3 * time.Second

// checkToolCall calls the tool that the user has named, notes the fact "call" if there is a result or was no time, and adds H26 if the call
// fails. It also sees whether the events of the reply came as they arose (H11). If the user has named none, it may note
// doctor.NoCallFact. No other check may run meanwhile.
func (p commonChecks) checkToolCall(ctx context.Context) {
	name := p.options.ToolToCall
	if name == "" {
		p.mu.Lock()
		known := len(p.toolNames)
		p.mu.Unlock()
		if known > 0 && !p.report.HasFaults() {
			p.setFact("call", "%s", doctor.NoCallFact)
		}
		return
	}
	arguments := p.options.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	defer func(before time.Duration) { p.ReplyTimeout = before }(p.ReplyTimeout) // it is that of the checks that follow, too
	if p.options.RunSlowChecks {
		p.ReplyTimeout = slowAnswerTimeout
	}
	p.ReplyTimeout = cmp.Or(p.options.callTimeout, p.ReplyTimeout)
	began := time.Now()
	r := p.requester.ask(ctx, "tools/call", map[string]any{"name": name, "arguments": arguments, "_meta": map[string]any{"progressToken": "doctor"}}, nil)
	waited := time.Since(began)
	late := r.TimedOut(0) || ctx.Err() != nil
	var result struct{ IsError bool }
	_ = json.Unmarshal(r.Result(), &result)
	switch {
	case r.HasResult():
		p.noteCallResult(r, result.IsError)
	case r.IsInconclusive() || late && waited < min(minCallWait, p.ReplyTimeout/2):
		p.setFact("call", "not answered in %s, and there was no time left", millis(waited))
	case r.Response() == nil && (late || r.Err == nil && r.Status/100 == 2):
		p.addCallUnanswered(r, waited)
	case r.RPCError() == nil:
		p.addFinding("H26", doctor.Error, "The tool call fails", strconv.Quote(name)+": "+r.Summary(), "Calls of this tool fail for every client.",
			"Look at the log of the server, or of what answers in its place: "+r.Intermediary()+".")
	case !p.lacksTool():
		p.addFinding("H26", doctor.Warning, "The tool call is refused", strconv.Quote(name)+": "+r.Summary(), "Clients get an error in the place of a result.",
			"Do what the error says; the arguments of the call are those behind --call NAME.")
	}
	if !r.HasResult() || result.IsError {
		p.addNoSuchTool(r)
	}
}

// noteCallResult notes, as the fact "call", that a call has the result in r, and adds H11 if all its events came at once.
// isError: the tool reports an error.
func (p commonChecks) noteCallResult(r *probe.Reply, isError bool) {
	verdict := "done"
	if isError {
		verdict = "the tool reports an error"
	}
	p.setFact("call", "%s, in %s, with %s", verdict, millis(r.Duration), printable.Count(r.EventCount, "event", "events"))
	if n := len(r.EventTimes); r.IsStream() && n > 2 && r.EventTimes[n-1] > time.Second && r.EventTimes[n-1]-r.EventTimes[0] < 20*time.Millisecond {
		p.addBuffered(r, fmt.Sprintf("a call had %d events, and all came at once after %s", n, millis(r.EventTimes[0])))
	}
}

// addCallUnanswered adds H26 for a call that was not answered in the time waited. r is what came in place of an answer.
func (p commonChecks) addCallUnanswered(r *probe.Reply, waited time.Duration) {
	seen := fmt.Sprintf("%q: no answer in %s", p.options.ToolToCall, waited.Round(100*time.Millisecond))
	switch {
	case r.Status != 0 && r.IsHTML():
		seen += "; " + r.Summary()
	case r.Status != 0:
		seen += fmt.Sprintf("; POST was answered %d, %s, with %s", r.Status, r.MediaType(), printable.Count(r.EventCount, "event", "events"))
	}
	do := "Try again with --slow, which waits a minute. "
	if p.options.RunSlowChecks {
		do = ""
	}
	p.addFinding("H26", doctor.Error, "The tool call is not answered", seen, "Clients give up on calls, many of them after 60 s.",
		do+"The server's log, or the stderr of its process, may tell what the tool waits for.")
}

// setToolNames keeps the names of all tools that the server lists, for lacksTool.
func (p *prober) setToolNames(names map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.toolNames = names
}

// lacksTool reports whether the tool that the user has named is known to be none of the server's. It is false if the list of
// tools was not read to its end.
func (p *prober) lacksTool() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.toolNames != nil && !p.toolNames[p.options.ToolToCall]
}

// addNoSuchTool adds H26 if the server's list of tools lacks the one that the user has named (lacksTool), and r, the reply to a call that
// has failed, has a JSON-RPC response: that is the evidence.
func (p commonChecks) addNoSuchTool(r *probe.Reply) {
	if !p.lacksTool() || r.Response() == nil {
		return
	}
	said := r.Summary()
	if r.HasResult() {
		said = string(r.Result())
	}
	p.addFinding("H26", doctor.Warning, "The server has no tool of this name", fmt.Sprintf("%q is not in tools/list; the call was answered: %s", p.options.ToolToCall, said),
		"Clients get an error in the place of a result.", "Call a tool by a name that tools/list has, letter for letter.")
}
