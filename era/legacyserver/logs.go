package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// levelTimeout is how long a call waits until the server has the log level that
// the call wants.
const levelTimeout = 2 * time.Second

// quietTime is how long after its cancellation a call may still be logging.
const quietTime = 5 * time.Second

// logs is the server's log level. It is one for all clients, so it is as
// verbose as any has wanted; each gets what it has asked for (D8).
type logs struct {
	timers    *timers
	requests  *requests
	calls     *calls
	tasks     *tasks
	oneClient bool // all clients are of one principal
	ready     func(now time.Time, c *call, out *era.Out)

	supported bool
	rank      int // what the server has, by LogRank; len(LogLevels): not known
	setting   int // what it is being asked for; len(LogLevels): nothing
	waiting   []levelWaiter
	quiet     time.Time // until then a message may be about a call that was cancelled
}

type levelWaiter struct {
	c    *call
	rank int
}

// await makes the server log what the call wants (C.1), and reports
// whether the call is to wait for that; then it is sent on in time.
func (l *logs) await(now time.Time, c *call, out *era.Out) bool {
	rank := era.LogRank(c.logLevel)
	if !l.supported || rank >= l.rank {
		return false
	}
	l.waiting = append(l.waiting, levelWaiter{c, rank})
	l.raise(now, rank, c.logLevel, out)
	return true
}

// raise makes the server as verbose as level, unless it is or is about to be.
func (l *logs) raise(now time.Time, rank int, level []byte, out *era.Out) {
	if !l.supported || rank >= l.rank || rank >= l.setting {
		return
	}
	l.setting = rank
	overdue := l.timers.set(now.Add(levelTimeout), func(now time.Time, out *era.Out) {
		l.rank = min(l.rank, rank) // or else the next call waited as long
		l.set(now, rank, out)
	})
	params := append(shape.AppendMember([]byte{'{'}, "level", level), '}')
	l.requests.send("logging/setLevel", params, func(now time.Time, m jsonrpc.Message, out *era.Out) {
		l.timers.stop(overdue)
		switch {
		case !m.IsError():
			l.rank = min(l.rank, rank)
		case shape.ErrorCode(m) == jsonrpc.CodeMethodNotFound:
			l.supported = false // whatever it says in capabilities
		}
		l.set(now, rank, out)
	}, out)
}

// set sends on the calls that have waited for rank or less: the server has
// it, or will not have it.
func (l *logs) set(now time.Time, rank int, out *era.Out) {
	if l.setting == rank {
		l.setting = len(era.LogLevels)
	}
	var ready, still []levelWaiter
	for _, w := range l.waiting {
		if w.rank >= rank {
			ready = append(ready, w)
		} else {
			still = append(still, w)
		}
	}
	l.waiting = still
	for _, w := range ready {
		if l.calls.isLive(w.c) { // else it was cancelled
			l.ready(now, w.c, out)
		}
	}
}

// message passes notifications/message to the one call that it can be about,
// if that has asked for it (MI18).
func (l *logs) message(now time.Time, m jsonrpc.Message, out *era.Out) {
	c := l.callOf(now, m)
	switch {
	case c == nil || !l.calls.isLive(c):
		out.Drop(m, "a log message that belongs to no one call")
	case c.logLevel == nil:
		out.Drop(m, "a log message of a call that wants none")
	case era.LogRank(m.Lookup("params", "level")) < era.LogRank(c.logLevel):
		out.Drop(m, "a log message below the level that its call wants")
	default:
		out.Client(c.task.strip(m).WithRelated(c.id))
	}
}

// callOf returns the call that a log message belongs to, if that is certain.
// Where nothing in the message tells, it is that of the only call in progress,
// parked ones and those without logs counted. In front of a server that
// principals share that is not enough: a call that was cancelled may go on
// talking for a while, and what it says is for nobody else (D8, B.1).
func (l *logs) callOf(now time.Time, m jsonrpc.Message) *call {
	if id, ok := m.During(); ok {
		_, c, _ := jsonrpc.Find(l.calls.sent, id)
		return c
	}
	if m.Lookup("params", "_meta", era.KeyRelatedTask) != nil {
		return l.tasks.callOf(m)
	}
	if !l.oneClient && now.Before(l.quiet) {
		return nil
	}
	return l.calls.only()
}
