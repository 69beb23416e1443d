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

// awaitLevel makes the server log what the call wants (C.1), and reports
// whether the call is to wait for that; then it is sent on in time.
func (f *Filter) awaitLevel(now time.Time, c *call, out *era.Out) bool {
	rank := era.LogRank(c.logLevel)
	if !f.logs.supported || rank >= f.logs.rank {
		return false
	}
	f.logs.waiting = append(f.logs.waiting, levelWaiter{c, rank})
	f.raiseLevel(now, rank, c.logLevel, out)
	return true
}

// raiseLevel makes the server as verbose as level, unless it is or is about to be.
func (f *Filter) raiseLevel(now time.Time, rank int, level []byte, out *era.Out) {
	if !f.logs.supported || rank >= f.logs.rank || rank >= f.logs.setting {
		return
	}
	f.logs.setting = rank
	overdue := f.timers.set(now.Add(levelTimeout), func(now time.Time, out *era.Out) {
		f.logs.rank = min(f.logs.rank, rank) // or else the next call waited as long
		f.levelSet(now, rank, out)
	})
	params := append(shape.AppendMember([]byte{'{'}, "level", level), '}')
	f.ask("logging/setLevel", params, func(now time.Time, m jsonrpc.Message, out *era.Out) {
		f.timers.stop(overdue)
		switch {
		case !m.IsError():
			f.logs.rank = min(f.logs.rank, rank)
		case shape.ErrorCode(m) == jsonrpc.CodeMethodNotFound:
			f.logs.supported = false // whatever it says in capabilities
		}
		f.levelSet(now, rank, out)
	}, out)
}

// levelSet sends on the calls that have waited for rank or less: the server has
// it, or will not have it.
func (f *Filter) levelSet(now time.Time, rank int, out *era.Out) {
	if f.logs.setting == rank {
		f.logs.setting = len(era.LogLevels)
	}
	var ready, still []levelWaiter
	for _, w := range f.logs.waiting {
		if w.rank >= rank {
			ready = append(ready, w)
		} else {
			still = append(still, w)
		}
	}
	f.logs.waiting = still
	for _, w := range ready {
		if w.c.live(f) { // else it was cancelled
			f.beginTool(now, w.c, out)
		}
	}
}

// logMessage passes notifications/message to the one call that it can be about,
// if that has asked for it (MI18).
func (f *Filter) logMessage(now time.Time, m jsonrpc.Message, out *era.Out) {
	c := f.loggingCall(now, m)
	switch {
	case c == nil || !c.live(f):
		out.Drop(m, "a log message that belongs to no one call")
	case c.logLevel == nil:
		out.Drop(m, "a log message of a call that wants none")
	case era.LogRank(m.Lookup("params", "level")) < era.LogRank(c.logLevel):
		out.Drop(m, "a log message below the level that its call wants")
	default:
		out.Client(f.ofTask(c, m).WithRelated(c.id))
	}
}

// loggingCall returns the call that a log message belongs to, if that is certain.
// Where nothing in the message tells, it is that of the only call in progress,
// parked ones and those without logs counted. In front of a server that
// principals share that is not enough: a call that was cancelled may go on
// talking for a while, and what it says is for nobody else (D8, B.1).
func (f *Filter) loggingCall(now time.Time, m jsonrpc.Message) *call {
	if id, ok := m.During(); ok {
		_, c, _ := jsonrpc.Find(f.sent, id)
		return c
	}
	if m.Lookup("params", "_meta", era.KeyRelatedTask) != nil {
		return f.callOfTask(m)
	}
	if f.o.Principal == "" && now.Before(f.logs.quiet) {
		return nil
	}
	var only *call
	for _, c := range f.sent {
		if only != nil && only != c {
			return nil
		}
		only = c
	}
	return only
}
