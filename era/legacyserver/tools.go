package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// listTimeout is how long calls wait for the list of tools; then they go on all the same.
	listTimeout = 5 * time.Second

	// minListInterval is the least time from the beginning of one walk through the list of tools to that of the next. Some
	// servers announce a change with each list: they are asked this often as long as they last.
	minListInterval = time.Second

	// maxToolPages is how many pages of the list of tools are asked for.
	maxToolPages = 100
)

// taskTools knows which tools of a 2025-11-25 server must run as tasks
// (execution.taskSupport is "required").
type taskTools struct {
	timers      *timers.Timers // those of the Filter: they end the wait for tools/list, and have it sent again
	ownRequests *ownRequests   // sends tools/list to the server
	// resumeCall goes on with a call that has waited for the list of tools, whether its tool is listed or not.
	resumeCall func(now time.Time, c *call, out *era.Out)

	supported        bool            // the server can run tools/call as a task
	mustRunAsTask    map[string]bool // by the name of a tool: whether it must run as a task; absent: it was not listed yet
	isListing        bool            // the list is being asked for, page by page: calls of tools that are not known yet wait
	changedMeanwhile bool            // the list has changed since isListing was set: it is asked for again afterwards
	pages            int             // how many pages of the list were asked for since listedAt
	listedAt         time.Time       // when the bridge last began to ask the server for the list of tools
	relistPlanned    bool            // a timer will ask for the list again
	waiting          []*call         // calls of tools that are not listed yet
	listTimer        *timers.Timer   // ends the wait of calls for the list of tools
}

// start asks for the list of tools, if the server can run tools/call as a task. It is called
// when the server has answered initialize.
func (t *taskTools) start(now time.Time, h *handshake, out *era.Out) {
	call := shape.Member(shape.Member(shape.Member(shape.Member(h.capabilities, "tasks"), "requests"), "tools"), "call")
	if t.supported = shape.IsObject(call) && h.version == era.Version2025_11_25; t.supported {
		t.mustRunAsTask = make(map[string]bool)
		t.requestList(now, out)
	}
}

// requestList asks for the list of tools.
func (t *taskTools) requestList(now time.Time, out *era.Out) {
	t.isListing, t.pages, t.listedAt = true, 0, now
	t.listTimer = t.timers.Set(now.Add(listTimeout), t.resumeWaiting)
	t.requestPage(nil, out)
}

// requestPage asks for one page of the list of tools, with these params of tools/list; nil: for the first page.
func (t *taskTools) requestPage(params []byte, out *era.Out) {
	t.pages++
	t.ownRequests.send("tools/list", params, func(now time.Time, m jsonrpc.Message, out *era.Out) {
		t.readTools(m.Result())
		next := shape.Member(m.Result(), "nextCursor")
		switch {
		case shape.IsString(next) && t.isListing && t.pages < maxToolPages:
			t.requestPage(append(shape.AppendMember([]byte{'{'}, "cursor", next), '}'), out)
		default:
			again := t.changedMeanwhile
			t.changedMeanwhile = false
			t.resumeWaiting(now, out)
			if again {
				t.handleChanged(now, out)
			}
		}
	}, out)
}

// resumeWaiting goes on with the calls that have waited for the list of tools, because its last page that is asked
// for has come, or an error, or neither within listTimeout. A tool that is not listed runs as an ordinary call.
func (t *taskTools) resumeWaiting(now time.Time, out *era.Out) {
	t.timers.Stop(t.listTimer)
	t.isListing = false
	waiting := t.waiting
	t.waiting = nil
	for _, c := range waiting {
		t.resumeCall(now, c, out)
	}
}

// handleChanged takes notifications/tools/list_changed: it asks for the list again, but not too
// often.
func (t *taskTools) handleChanged(now time.Time, out *era.Out) {
	switch {
	case !t.supported:
	case t.isListing:
		t.changedMeanwhile = true
	case t.relistPlanned:
	case now.Sub(t.listedAt) < minListInterval:
		t.relistPlanned = true
		t.timers.Set(t.listedAt.Add(minListInterval), func(now time.Time, out *era.Out) {
			t.relistPlanned = false
			t.requestList(now, out)
		})
	default:
		t.requestList(now, out)
	}
}

// mustAwaitList reports whether a call has to wait for the list of tools. Then resumeCall is called for it, in at
// most listTimeout.
func (t *taskTools) mustAwaitList(c *call) bool {
	if !t.isListing {
		return false
	}
	name, _ := jsonrpc.Text(c.targetName)
	if _, known := t.mustRunAsTask[name]; known {
		return false
	}
	t.waiting = append(t.waiting, c)
	return true
}

// runsAsTask reports whether a tools/call must run as a task: the server's list of tools says so of its tool.
func (t *taskTools) runsAsTask(c *call) bool {
	if !t.supported {
		return false
	}
	name, _ := jsonrpc.Text(c.targetName)
	return t.mustRunAsTask[name]
}

// readTools reads a result of tools/list. If the server can run tools/call as a task
// (supported), it notes which of the tools must run as tasks. It returns the result
// without the execution member of each tool, which 2026-07-28 does not have. All
// other bytes stay.
func (t *taskTools) readTools(result []byte) []byte {
	tools := shape.Member(result, "tools")
	var changed []byte
	end := 0
	for at, tool := range jsonrpc.Elements(tools) {
		if t.supported {
			if name, ok := jsonrpc.Text(shape.Member(tool, "name")); ok {
				support, _ := jsonrpc.Text(shape.Member(shape.Member(tool, "execution"), "taskSupport"))
				t.mustRunAsTask[name] = support == "required"
			}
		}
		if rest := jsonrpc.Without(tool, "execution"); len(rest) != len(tool) {
			changed = append(append(changed, tools[end:at]...), rest...)
			end = at + len(tool)
		}
	}
	if changed == nil {
		return result
	}
	return jsonrpc.With(result, "tools", append(changed, tools[end:]...))
}
