package legacyserver

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// setLevelTimeout is how long a call waits for the server to answer logging/setLevel; then the call goes on all the same.
const setLevelTimeout = 2 * time.Second

// strayLogTime is for how long after the cancellation of a call a log message may belong to that call.
const strayLogTime = 5 * time.Second

// logRouter sets the server's log level and assigns log messages to calls. A server has
// one log level for all clients, so it gets the most verbose level that any client
// has wanted; each client gets the messages of the level that it wants (D8).
type logRouter struct {
	timers       *timers.Timers // those of the Filter: they end the wait for the answer to logging/setLevel
	ownRequests  *ownRequests   // sends logging/setLevel to the server
	calls        *calls         // the calls that log messages may belong to
	taskRunner   *taskRunner    // finds the call of a task
	onePrincipal bool           // all clients are of one principal
	// resumeCall goes on with a call that has waited for its log level, whether the server has it now or not.
	resumeCall func(now time.Time, c *call, out *era.Out)

	supported      bool          // the server has logging
	serverRank     int           // the server's log level, by LogRank; one that it has not confirmed within setLevelTimeout counts, too; len(LogLevels): not known
	settingRank    int           // the level in the logging/setLevel that the server has not answered; len(LogLevels): there is none
	waiting        []levelWaiter // calls that wait for the server to have a log level, also those that were cancelled since
	strayLogsUntil time.Time     // until then a message may belong to a cancelled call
}

// levelWaiter is a call that waits until the server has a level, which is given by its LogRank.
type levelWaiter struct {
	c    *call // the call that waits
	rank int   // the rank of the level that it wants
}

// mustAwaitLevel has the server send log messages of the level that a call wants (C.1). True: the
// server does not have that level yet; the call has to wait until resumeCall is called for it, in at most
// setLevelTimeout.
func (l *logRouter) mustAwaitLevel(now time.Time, c *call, out *era.Out) bool {
	rank := era.LogRank(c.logLevel)
	if !l.supported || rank >= l.serverRank {
		return false
	}
	l.waiting = append(l.waiting, levelWaiter{c, rank})
	l.raiseLevel(now, rank, c.logLevel, out)
	return true
}

// raiseLevel asks the server for the log level with this rank, raw in level, unless its level is as
// verbose already or is being set to one that is.
func (l *logRouter) raiseLevel(now time.Time, rank int, level []byte, out *era.Out) {
	if !l.supported || rank >= l.serverRank || rank >= l.settingRank {
		return
	}
	l.settingRank = rank
	overdue := l.timers.Set(now.Add(setLevelTimeout), func(now time.Time, out *era.Out) {
		l.serverRank = min(l.serverRank, rank) // otherwise the next call would wait as long
		l.resumeAtLevel(now, rank, out)
	})
	params := append(shape.AppendMember([]byte{'{'}, "level", level), '}')
	l.ownRequests.send("logging/setLevel", params, func(now time.Time, m jsonrpc.Message, out *era.Out) {
		l.timers.Stop(overdue)
		switch {
		case !m.IsError():
			l.serverRank = min(l.serverRank, rank)
		case shape.ErrorCode(m) == jsonrpc.CodeMethodNotFound:
			l.supported = false // whatever its capabilities say
		}
		l.resumeAtLevel(now, rank, out)
	}, out)
}

// resumeAtLevel goes on with the calls that have waited for the level of this rank or a less
// verbose one (which has a higher rank), because the server has answered the logging/setLevel for it, with an
// error too, or has not answered within setLevelTimeout.
func (l *logRouter) resumeAtLevel(now time.Time, rank int, out *era.Out) {
	if l.settingRank == rank {
		l.settingRank = len(era.LogLevels)
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
		if l.calls.isLive(w.c) { // otherwise it was cancelled
			l.resumeCall(now, w.c, out)
		}
	}
}

// forwardMessage passes notifications/message on to the call that it belongs to, if that
// call wants messages of this level (MI18).
func (l *logRouter) forwardMessage(now time.Time, m jsonrpc.Message, out *era.Out) {
	c := l.callOf(now, m)
	switch {
	case c == nil || !l.calls.isLive(c):
		out.Drop(m, "a log message that belongs to no one call")
	case c.logLevel == nil:
		out.Drop(m, "a log message of a call that wants none")
	case era.LogRank(m.Lookup("params", "level")) < era.LogRank(c.logLevel):
		out.Drop(m, "a log message below the level that its call wants")
	default:
		out.Client(c.task.withoutRelatedTask(m).WithRelated(c.id))
	}
}

// callOf returns the call that a log message belongs to, or nil if that is not
// certain. If the message itself does not tell, it belongs to the only call in
// progress; parked calls and calls without logs count. If clients of several
// principals share the server, a message within strayLogTime after a cancellation may
// belong to the cancelled call, so nobody gets it (D8, B.1).
func (l *logRouter) callOf(now time.Time, m jsonrpc.Message) *call {
	if id, ok := m.During(); ok {
		_, c, _ := jsonrpc.Find(l.calls.byServerID, id)
		return c
	}
	if m.Lookup("params", "_meta", era.KeyRelatedTask) != nil {
		return l.taskRunner.callOf(m)
	}
	if !l.onePrincipal && now.Before(l.strayLogsUntil) {
		return nil
	}
	return l.calls.onlyCall()
}
