package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// toolsTimeout is how long calls wait for the list of tools.
	toolsTimeout = 5 * time.Second

	// toolsPace is how often it is asked for at most: some servers say that it
	// has changed whenever it is.
	toolsPace = time.Second

	// maxToolPages bounds a list whose pages never end.
	maxToolPages = 100
)

// tools knows which tools of a 2025-11-25 server run as tasks only
// (execution.taskSupport "required"). A modern client is not told of tasks: its
// call runs as one, and is answered when that is done (C.5).
type tools struct {
	timers   *timers
	requests *requests
	ready    func(now time.Time, c *call, out *era.Out)

	can     bool            // the server runs tools/call as a task
	known   map[string]bool // tools that were listed: whether they must be tasks
	listing bool
	again   bool // the list has changed meanwhile
	pages   int
	listed  time.Time // when it was asked for last
	planned bool      // it will be asked for again
	waiting []*call   // calls of tools that are not known yet
	overdue *timer
}

// start is called when the server has answered initialize. It asks for the list of
// tools, if some may have to run as tasks.
func (t *tools) start(now time.Time, h *handshake, out *era.Out) {
	call := shape.Member(shape.Member(shape.Member(shape.Member(h.capabilities, "tasks"), "requests"), "tools"), "call")
	if t.can = shape.IsObject(call) && h.version == era.Version2025_11_25; t.can {
		t.known = make(map[string]bool)
		t.learn(now, out)
	}
}

// learn asks for the list of tools.
func (t *tools) learn(now time.Time, out *era.Out) {
	t.listing, t.pages, t.listed = true, 0, now
	t.overdue = t.timers.set(now.Add(toolsTimeout), t.learned)
	t.list(nil, out)
}

func (t *tools) list(params []byte, out *era.Out) {
	t.pages++
	t.requests.send("tools/list", params, func(now time.Time, m jsonrpc.Message, out *era.Out) {
		t.read(m.Result())
		next := shape.Member(m.Result(), "nextCursor")
		switch {
		case shape.IsText(next) && t.listing && t.pages < maxToolPages:
			t.list(append(shape.AppendMember([]byte{'{'}, "cursor", next), '}'), out)
		default:
			again := t.again
			t.again = false
			t.learned(now, out)
			if again {
				t.changed(now, out)
			}
		}
	}, out)
}

// learned sends the calls that have waited. What is not known by now is
// run as an ordinary call.
func (t *tools) learned(now time.Time, out *era.Out) {
	t.timers.stop(t.overdue)
	t.listing = false
	waiting := t.waiting
	t.waiting = nil
	for _, c := range waiting {
		t.ready(now, c, out)
	}
}

func (t *tools) changed(now time.Time, out *era.Out) {
	switch {
	case !t.can:
	case t.listing:
		t.again = true
	case t.planned:
	case now.Sub(t.listed) < toolsPace:
		t.planned = true
		t.timers.set(t.listed.Add(toolsPace), func(now time.Time, out *era.Out) {
			t.planned = false
			t.learn(now, out)
		})
	default:
		t.learn(now, out)
	}
}

// await reports whether a call is to wait until more is known of its tool;
// then it is sent in time.
func (t *tools) await(c *call) bool {
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

func (t *tools) runsAsTask(c *call) bool {
	if !t.can {
		return false
	}
	name, _ := jsonrpc.Text(c.name)
	return t.known[name]
}

// read takes note of a list of tools and returns the result without their
// execution, which 2026-07-28 does not have. Every other byte stays.
func (t *tools) read(result []byte) []byte {
	tools := shape.Member(result, "tools")
	var changed []byte
	end := 0
	for at, tool := range jsonrpc.Elements(tools) {
		if t.can {
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
