package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// toolsTimeout is how long calls wait for the list of tools.
	toolsTimeout = 5 * time.Second

	// toolsPace is the least time between two requests for the list. Some servers
	// announce a change with each list.
	toolsPace = time.Second

	// maxToolPages bounds a list whose pages never end.
	maxToolPages = 100
)

// taskTools knows which tools of a 2025-11-25 server must run as tasks
// (execution.taskSupport is "required").
type taskTools struct {
	timers   *timers.Timers
	requests *requests
	ready    func(now time.Time, c *call, out *era.Out)

	supported        bool            // the server runs tools/call as a task
	known            map[string]bool // listed tools: whether they must run as tasks
	listing          bool
	changedMeanwhile bool // the list has changed since it was asked for
	pages            int
	listed           time.Time // when it was asked for last
	relistPlanned    bool      // it will be asked for again
	waiting          []*call   // calls of tools that are not listed yet
	overdue          *timers.Timer
}

// start asks for the list of tools, if the server has tasks. It is called when the
// server has answered initialize.
func (t *taskTools) start(now time.Time, h *handshake, out *era.Out) {
	call := shape.Member(shape.Member(shape.Member(shape.Member(h.capabilities, "tasks"), "requests"), "tools"), "call")
	if t.supported = shape.IsObject(call) && h.version == era.Version2025_11_25; t.supported {
		t.known = make(map[string]bool)
		t.learn(now, out)
	}
}

// learn asks for the list of tools.
func (t *taskTools) learn(now time.Time, out *era.Out) {
	t.listing, t.pages, t.listed = true, 0, now
	t.overdue = t.timers.Set(now.Add(toolsTimeout), t.learned)
	t.list(nil, out)
}

func (t *taskTools) list(params []byte, out *era.Out) {
	t.pages++
	t.requests.send("tools/list", params, func(now time.Time, m jsonrpc.Message, out *era.Out) {
		t.read(m.Result())
		next := shape.Member(m.Result(), "nextCursor")
		switch {
		case shape.IsText(next) && t.listing && t.pages < maxToolPages:
			t.list(append(shape.AppendMember([]byte{'{'}, "cursor", next), '}'), out)
		default:
			again := t.changedMeanwhile
			t.changedMeanwhile = false
			t.learned(now, out)
			if again {
				t.changed(now, out)
			}
		}
	}, out)
}

// learned goes on with the calls that have waited. A tool that is not listed runs
// as an ordinary call.
func (t *taskTools) learned(now time.Time, out *era.Out) {
	t.timers.Stop(t.overdue)
	t.listing = false
	waiting := t.waiting
	t.waiting = nil
	for _, c := range waiting {
		t.ready(now, c, out)
	}
}

func (t *taskTools) changed(now time.Time, out *era.Out) {
	switch {
	case !t.supported:
	case t.listing:
		t.changedMeanwhile = true
	case t.relistPlanned:
	case now.Sub(t.listed) < toolsPace:
		t.relistPlanned = true
		t.timers.Set(t.listed.Add(toolsPace), func(now time.Time, out *era.Out) {
			t.relistPlanned = false
			t.learn(now, out)
		})
	default:
		t.learn(now, out)
	}
}

// mustAwaitList reports whether a call has to wait for the list of tools. Then ready is
// called in time.
func (t *taskTools) mustAwaitList(c *call) bool {
	if !t.listing {
		return false
	}
	name, _ := jsonrpc.Text(c.name)
	if _, known := t.known[name]; known {
		return false
	}
	t.waiting = append(t.waiting, c)
	return true
}

func (t *taskTools) runsAsTask(c *call) bool {
	if !t.supported {
		return false
	}
	name, _ := jsonrpc.Text(c.name)
	return t.known[name]
}

// read notes which tools of a list must run as tasks. It returns the result
// without the execution member of each tool, which 2026-07-28 does not have. All
// other bytes stay.
func (t *taskTools) read(result []byte) []byte {
	tools := shape.Member(result, "tools")
	var changed []byte
	end := 0
	for at, tool := range jsonrpc.Elements(tools) {
		if t.supported {
			if name, ok := jsonrpc.Text(shape.Member(tool, "name")); ok {
				support, _ := jsonrpc.Text(shape.Member(shape.Member(tool, "execution"), "taskSupport"))
				t.known[name] = support == "required"
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
