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

// leastCallWait is how long a call must have been waited for, for its silence to say something.
const leastCallWait = 3 * time.Second

// checkCall calls the tool that the user has named (H26), and sees whether its events came as
// they arose. Nothing else may be going on.
func (p commonChecks) checkCall(ctx context.Context) {
	name := p.opts.Call
	if name == "" {
		p.mu.Lock()
		known := len(p.tools)
		p.mu.Unlock()
		if known > 0 && !p.report.HasFaults() {
			p.fact("call", "%s", doctor.NoCall)
		}
		return
	}
	arguments := p.opts.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	defer func(before time.Duration) { p.Patience = before }(p.Patience) // it is that of the checks that follow, too
	if p.opts.Slow {
		p.Patience = slowAnswer
	}
	p.Patience = cmp.Or(p.opts.callWait, p.Patience)
	began := time.Now()
	r := p.requester.ask(ctx, "tools/call", map[string]any{"name": name, "arguments": arguments, "_meta": map[string]any{"progressToken": "doctor"}}, nil)
	waited := time.Since(began)
	late := r.TimedOut(0) || ctx.Err() != nil
	var result struct{ IsError bool }
	_ = json.Unmarshal(r.Result(), &result)
	switch {
	case r.OK():
		p.sayCalled(r, result.IsError)
	case r.Skip() || late && waited < min(leastCallWait, p.Patience/2):
		p.fact("call", "not answered in %s, and there was no time left", millis(waited))
	case r.Message() == nil && (late || r.Err == nil && r.Status/100 == 2):
		p.sayUnanswered(r, waited)
	case r.RPC() == nil:
		p.add("H26", doctor.Error, "The tool call fails", strconv.Quote(name)+": "+r.Line(), "Calls of this tool fail for every client.",
			"Look at the log of the server, or of what answers in its place: "+r.Intermediary()+".")
	case !p.lacksTool():
		p.add("H26", doctor.Warning, "The tool call is refused", strconv.Quote(name)+": "+r.Line(), "Clients get an error in the place of a result.",
			"Do what the error says; the arguments of the call are those behind --call NAME.")
	}
	if !r.OK() || result.IsError {
		p.sayNoSuchTool(r)
	}
}

// sayCalled says how a call was answered.
func (p commonChecks) sayCalled(r *probe.Reply, isError bool) {
	verdict := "done"
	if isError {
		verdict = "the tool reports an error"
	}
	p.fact("call", "%s, in %s, with %s", verdict, millis(r.UntilEnd), printable.Count(r.Events, "event", "events"))
	if n := len(r.Times); r.IsStream() && n > 2 && r.Times[n-1] > time.Second && r.Times[n-1]-r.Times[0] < 20*time.Millisecond {
		p.sayBuffered(r, fmt.Sprintf("a call had %d events, and all came at once after %s", n, millis(r.Times[0])))
	}
}

// sayUnanswered says that a call was taken and has no answer.
func (p commonChecks) sayUnanswered(r *probe.Reply, waited time.Duration) {
	seen := fmt.Sprintf("%q: no answer in %s", p.opts.Call, waited.Round(100*time.Millisecond))
	switch {
	case r.Status != 0 && r.IsHTML():
		seen += "; " + r.Line()
	case r.Status != 0:
		seen += fmt.Sprintf("; POST was answered %d, %s, with %s", r.Status, r.MediaType(), printable.Count(r.Events, "event", "events"))
	}
	do := "Try again with --slow, which waits a minute. "
	if p.opts.Slow {
		do = ""
	}
	p.add("H26", doctor.Error, "The tool call is not answered", seen, "Clients give up on calls, many of them after 60 s.",
		do+"The server's log, or the stderr of its process, may tell what the tool waits for.")
}

// setTools keeps the names of all tools that the server lists.
func (p *prober) setTools(names map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tools = names
}

// lacksTool reports whether the server's list of tools was read to its end, and does not have the one that the user has named.
func (p *prober) lacksTool() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tools != nil && !p.tools[p.opts.Call]
}

// sayNoSuchTool says that the tool of a call that failed is not one that the server lists.
func (p commonChecks) sayNoSuchTool(r *probe.Reply) {
	if !p.lacksTool() || r.Message() == nil {
		return
	}
	said := r.Line()
	if r.OK() {
		said = string(r.Result())
	}
	p.add("H26", doctor.Warning, "The server has no tool of this name", fmt.Sprintf("%q is not in tools/list; the call was answered: %s", p.opts.Call, said),
		"Clients get an error in the place of a result.", "Call a tool by a name that tools/list has, letter for letter.")
}
