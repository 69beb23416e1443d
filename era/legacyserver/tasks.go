package legacyserver

import (
	"strconv"
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

	pollDefault = time.Second
	pollMin     = 50 * time.Millisecond
	pollMax     = time.Minute
)

// taskTools knows which tools of a 2025-11-25 server run as tasks only
// (execution.taskSupport "required"). A modern client is not told of tasks: its
// call runs as one, and is answered when that is done (C.5).
type taskTools struct {
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

// callTask is a call that runs as a task.
type callTask struct {
	id       []byte     // raw; nil: the server has not made it yet
	get      jsonrpc.ID // our tasks/get; zero: none
	result   jsonrpc.ID // our tasks/result; zero: not asked for yet
	interval time.Duration
	poll     *timer
}

// learnTools asks for the list of tools, if it matters.
func (f *Filter) learnTools(now time.Time, out *era.Out) {
	t := &f.tools
	call := shape.Member(shape.Member(shape.Member(shape.Member(f.link.capabilities, "tasks"), "requests"), "tools"), "call")
	if t.can = shape.IsObject(call) && f.link.version == era.Version2025_11_25; !t.can {
		return
	}
	if t.known == nil {
		t.known = make(map[string]bool)
	}
	t.listing, t.pages, t.listed = true, 0, now
	t.overdue = f.timers.set(now.Add(toolsTimeout), f.toolsLearned)
	f.listTools(nil, out)
}

func (f *Filter) listTools(params []byte, out *era.Out) {
	f.tools.pages++
	f.ask("tools/list", params, func(now time.Time, m jsonrpc.Message, out *era.Out) {
		f.readTools(m.Result())
		t := &f.tools
		next := shape.Member(m.Result(), "nextCursor")
		switch {
		case shape.IsText(next) && t.listing && t.pages < maxToolPages:
			f.listTools(append(shape.AppendMember([]byte{'{'}, "cursor", next), '}'), out)
		default:
			again := t.again
			t.again = false
			f.toolsLearned(now, out)
			if again {
				f.toolsChanged(now, out)
			}
		}
	}, out)
}

// toolsLearned sends the calls that have waited. What is not known by now is
// run as an ordinary call.
func (f *Filter) toolsLearned(now time.Time, out *era.Out) {
	t := &f.tools
	f.timers.stop(t.overdue)
	t.listing = false
	waiting := t.waiting
	t.waiting = nil
	for _, c := range waiting {
		if c.live(f) { // else it was cancelled
			f.beginTurn(now, c, out)
		}
	}
}

func (f *Filter) toolsChanged(now time.Time, out *era.Out) {
	switch t := &f.tools; {
	case !t.can:
	case t.listing:
		t.again = true
	case t.planned:
	case now.Sub(t.listed) < toolsPace:
		t.planned = true
		f.timers.set(t.listed.Add(toolsPace), func(now time.Time, out *era.Out) {
			t.planned = false
			f.learnTools(now, out)
		})
	default:
		f.learnTools(now, out)
	}
}

// awaitTools reports whether a call is to wait until more is known of its tool;
// then it is sent in time.
func (f *Filter) awaitTools(c *call) bool {
	if !f.tools.listing {
		return false
	}
	name, _ := jsonrpc.Text(c.name)
	if _, known := f.tools.known[name]; known {
		return false
	}
	f.tools.waiting = append(f.tools.waiting, c)
	return true
}

func (f *Filter) runsAsTask(c *call) bool {
	if !f.tools.can {
		return false
	}
	name, _ := jsonrpc.Text(c.name)
	return f.tools.known[name]
}

// readTools takes note of a list of tools and returns the result without their
// execution, which 2026-07-28 does not have. Every other byte stays.
func (f *Filter) readTools(result []byte) []byte {
	tools := shape.Member(result, "tools")
	var changed []byte
	end := 0
	for at, tool := range jsonrpc.Elements(tools) {
		if f.tools.can {
			if name, ok := jsonrpc.Text(shape.Member(tool, "name")); ok {
				support, _ := jsonrpc.Text(shape.Member(shape.Member(tool, "execution"), "taskSupport"))
				f.tools.known[name] = support == "required"
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

// taskResponse takes a response to a request of a call that runs as a task.
func (f *Filter) taskResponse(now time.Time, c *call, id jsonrpc.ID, m jsonrpc.Message, out *era.Out) {
	t := c.task
	switch {
	case id == c.atServer && t.id != nil:
		out.Drop(m, "a second response to a request")
	case id == c.atServer:
		task := shape.Member(m.Result(), "task")
		if t.id = shape.Member(task, "taskId"); !shape.IsText(t.id) {
			f.complete(now, c, m, out) // an error, or the server has run it as an ordinary call
			return
		}
		f.taskAt(now, c, task, out)
	case id == t.get:
		delete(f.sent, t.get)
		t.get = jsonrpc.ID{}
		if m.IsError() {
			f.complete(now, c, m, out)
			return
		}
		f.taskAt(now, c, m.Result(), out)
	default:
		f.complete(now, c, m, out)
	}
}

// taskAt goes on as the status of a task says.
func (f *Filter) taskAt(now time.Time, c *call, task []byte, out *era.Out) {
	t := c.task
	f.timers.stop(t.poll)
	if status, _ := jsonrpc.Text(shape.Member(task, "status")); status != "working" {
		// Done, or input_required: then the server's questions come while it waits.
		t.result = f.askTask(c, "tasks/result", out)
		return
	}
	if ms, err := strconv.ParseInt(string(shape.Member(task, "pollInterval")), 10, 32); err == nil {
		t.interval = min(max(time.Duration(ms)*time.Millisecond, pollMin), pollMax)
	} else if t.interval == 0 {
		t.interval = pollDefault
	}
	t.poll = f.timers.set(now.Add(t.interval), func(_ time.Time, out *era.Out) {
		t.get = f.askTask(c, "tasks/get", out)
	})
}

func (f *Filter) askTask(c *call, method string, out *era.Out) jsonrpc.ID {
	id := f.nextID()
	f.sent[id] = c
	out.Server(jsonrpc.NewRequest(id, method, append(shape.AppendMember([]byte{'{'}, "taskId", c.task.id), '}')))
	return id
}

// taskStatus takes notifications/tasks/status, which saves polling.
func (f *Filter) taskStatus(now time.Time, m jsonrpc.Message, out *era.Out) {
	c := f.callOfTaskID(m.Params())
	if c == nil {
		out.Drop(m, "it is about no task in progress")
		return
	}
	if c.task.result.IsZero() && c.task.get.IsZero() {
		f.taskAt(now, c, m.Params(), out)
	}
}

// leaveTask forgets what was asked about a task.
func (f *Filter) leaveTask(c *call) {
	f.timers.stop(c.task.poll)
	delete(f.sent, c.task.get)
	delete(f.sent, c.task.result)
}

// abortTask cancels a task (J11), as soon as it has been made.
func (f *Filter) abortTask(c *call, out *era.Out) {
	if c.task.id != nil {
		f.cancelTask(c, out)
		return
	}
	f.own[c.atServer] = func(_ time.Time, m jsonrpc.Message, out *era.Out) {
		if c.task.id = shape.Member(shape.Member(m.Result(), "task"), "taskId"); shape.IsText(c.task.id) {
			f.cancelTask(c, out)
		}
	}
}

func (f *Filter) cancelTask(c *call, out *era.Out) {
	if !c.task.result.IsZero() {
		f.cancelAtServer(c.task.result, nil, out)
	}
	if shape.IsObject(shape.Member(shape.Member(f.link.capabilities, "tasks"), "cancel")) {
		params := append(shape.AppendMember([]byte{'{'}, "taskId", c.task.id), '}')
		f.ask("tasks/cancel", params, func(time.Time, jsonrpc.Message, *era.Out) {}, out)
	}
}

// callOfTaskID returns the call whose task an object with a taskId names; nil if there is none.
func (f *Filter) callOfTaskID(object []byte) *call {
	if object == nil || !f.tools.can {
		return nil
	}
	id, ok := jsonrpc.Text(shape.Member(object, "taskId"))
	if !ok {
		return nil
	}
	for _, c := range f.sent {
		if c.task == nil || c.task.id == nil {
			continue
		}
		if text, _ := jsonrpc.Text(c.task.id); text == id {
			return c
		}
	}
	return nil
}

// callOfTask returns the call whose task a notification belongs to; nil if there is none.
func (f *Filter) callOfTask(m jsonrpc.Message) *call {
	if !f.tools.can {
		return nil
	}
	return f.callOfTaskID(m.Lookup("params", "_meta", era.KeyRelatedTask))
}

// ofTask takes out of a notification that it belongs to a task, which its client
// does not know of.
func (f *Filter) ofTask(c *call, m jsonrpc.Message) jsonrpc.Message {
	if c.task == nil || m.Lookup("params", "_meta", era.KeyRelatedTask) == nil {
		return m
	}
	meta := jsonrpc.Without(m.Lookup("params", "_meta"), era.KeyRelatedTask)
	if shape.IsEmpty(meta) {
		return m.WithParams(jsonrpc.Without(m.Params(), "_meta"))
	}
	return m.WithParams(jsonrpc.With(m.Params(), "_meta", meta))
}
