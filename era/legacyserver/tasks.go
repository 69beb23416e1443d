package legacyserver

import (
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	defaultPollInterval = time.Second           // how long to wait before the next tasks/get if the server does not say
	minPollInterval     = 50 * time.Millisecond // the shortest wait before the next tasks/get, whatever the server says
	maxPollInterval     = time.Minute           // the longest wait before the next tasks/get, whatever the server says
)

// taskRunner runs calls of modern clients as tasks of a 2025-11-25 server (C.5). The
// client does not know of that: it waits for its answer.
type taskRunner struct {
	timers      *timers.Timers // those of the Filter: they have the next tasks/get sent
	ownRequests *ownRequests   // sends requests about tasks to the server
	calls       *calls         // all calls of the Filter; taskRunner runs some of them as tasks
	cancellable bool           // the server has tasks/cancel
	supported   bool           // the server can run tools/call as a task; false until it has answered initialize
}

// callTask is a call that runs as a task.
type callTask struct {
	id           []byte        // the taskId, raw; nil: the server has not created the task yet
	getID        jsonrpc.ID    // the id of our tasks/get, which asks for the status, that waits for its answer; zero: none does
	resultID     jsonrpc.ID    // the id of our tasks/result, whose answer is that of the call; zero: it was not sent yet
	pollInterval time.Duration // how long to wait before the next tasks/get; 0: not known yet
	pollTimer    *timers.Timer // sends the next tasks/get
}

// handleResponse takes the server's response, m, to the request id, which is one of those that are
// sent for a call that runs as a task.
func (k *taskRunner) handleResponse(now time.Time, c *call, id jsonrpc.ID, m jsonrpc.Message, out *era.Out) {
	t := c.task
	switch {
	case id == c.serverID && t.id != nil:
		out.Drop(m, "a second response to a request")
	case id == c.serverID:
		task := shape.Member(m.Result(), "task")
		if t.id = shape.Member(task, "taskId"); !shape.IsString(t.id) {
			k.calls.complete(now, c, m, out) // an error, or the server has run it as an ordinary call
			return
		}
		k.followStatus(now, c, task, out)
	case id == t.getID:
		delete(k.calls.byServerID, t.getID)
		t.getID = jsonrpc.ID{}
		if m.IsError() {
			k.calls.complete(now, c, m, out)
			return
		}
		k.followStatus(now, c, m.Result(), out)
	default:
		k.calls.complete(now, c, m, out)
	}
}

// followStatus goes on as the status of a task says: it asks for the result, or for the status
// again later. task is a raw object with the status.
func (k *taskRunner) followStatus(now time.Time, c *call, task []byte, out *era.Out) {
	t := c.task
	k.timers.Stop(t.pollTimer)
	if status, _ := jsonrpc.Text(shape.Member(task, "status")); status != "working" {
		// Done, or input_required: then the server's input requests come while it waits.
		t.resultID = k.sendTaskRequest(c, "tasks/result", out)
		return
	}
	if ms, err := strconv.ParseInt(string(shape.Member(task, "pollInterval")), 10, 32); err == nil {
		t.pollInterval = min(max(time.Duration(ms)*time.Millisecond, minPollInterval), maxPollInterval)
	} else if t.pollInterval == 0 {
		t.pollInterval = defaultPollInterval
	}
	t.pollTimer = k.timers.Set(now.Add(t.pollInterval), func(_ time.Time, out *era.Out) {
		t.getID = k.sendTaskRequest(c, "tasks/get", out)
	})
}

// sendTaskRequest sends a request about the task of a call, and returns its id.
func (k *taskRunner) sendTaskRequest(c *call, method string, out *era.Out) jsonrpc.ID {
	id := k.ownRequests.nextID()
	k.calls.byServerID[id] = c
	out.Server(jsonrpc.NewRequest(id, method, append(shape.AppendMember([]byte{'{'}, "taskId", c.task.id), '}')))
	return id
}

// handleStatus takes notifications/tasks/status, which saves asking for the status.
func (k *taskRunner) handleStatus(now time.Time, m jsonrpc.Message, out *era.Out) {
	c := k.callOfID(m.Params())
	if c == nil {
		out.Drop(m, "it is about no task in progress")
		return
	}
	if c.task.resultID.IsZero() && c.task.getID.IsZero() {
		k.followStatus(now, c, m.Params(), out)
	}
}

// remove forgets the requests about the task of a call, which is over.
func (k *taskRunner) remove(c *call) {
	k.timers.Stop(c.task.pollTimer)
	delete(k.calls.byServerID, c.task.getID)
	delete(k.calls.byServerID, c.task.resultID)
}

// abort cancels the task of a call (J11): now, or, if the server has not created it yet, when it has.
func (k *taskRunner) abort(c *call, out *era.Out) {
	if c.task.id != nil {
		k.cancel(c, out)
		return
	}
	k.ownRequests.expect(c.serverID, func(_ time.Time, m jsonrpc.Message, out *era.Out) {
		if c.task.id = shape.Member(shape.Member(m.Result(), "task"), "taskId"); shape.IsString(c.task.id) {
			k.cancel(c, out)
		}
	})
}

// cancel cancels the tasks/result of a call, if it was sent, and the task itself, if the server has tasks/cancel.
func (k *taskRunner) cancel(c *call, out *era.Out) {
	if !c.task.resultID.IsZero() {
		cancelRequest(c.task.resultID, nil, out)
	}
	if k.cancellable {
		params := append(shape.AppendMember([]byte{'{'}, "taskId", c.task.id), '}')
		k.ownRequests.send("tasks/cancel", params, ignoreResponse, out)
	}
}

// callOfID returns the call whose task has the taskId in object; nil if there is
// none.
func (k *taskRunner) callOfID(object []byte) *call {
	if object == nil || !k.supported {
		return nil
	}
	id, ok := jsonrpc.Text(shape.Member(object, "taskId"))
	if !ok {
		return nil
	}
	for _, c := range k.calls.byServerID {
		if c.task == nil || c.task.id == nil {
			continue
		}
		if text, _ := jsonrpc.Text(c.task.id); text == id {
			return c
		}
	}
	return nil
}

// callOf returns the call whose task a notification names as its related task; nil if there is none.
func (k *taskRunner) callOf(m jsonrpc.Message) *call {
	if !k.supported {
		return nil
	}
	return k.callOfID(m.Lookup("params", "_meta", era.KeyRelatedTask))
}

// withoutRelatedTask returns a notification without the related task, of which the client does not
// know. t may be nil: then the notification stays as it is.
func (t *callTask) withoutRelatedTask(m jsonrpc.Message) jsonrpc.Message {
	if t == nil || m.Lookup("params", "_meta", era.KeyRelatedTask) == nil {
		return m
	}
	meta := jsonrpc.Without(m.Lookup("params", "_meta"), era.KeyRelatedTask)
	if shape.IsEmpty(meta) {
		return m.WithParams(jsonrpc.Without(m.Params(), "_meta"))
	}
	return m.WithParams(jsonrpc.With(m.Params(), "_meta", meta))
}
