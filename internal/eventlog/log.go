// Package eventlog writes what an observe.Observer tells of into the log: sessions and
// processes that begin and end, requests without an answer, refusals, stderr, and at the
// levels debug and trace one line for each exchange. docs/log.md lists the lines.
//
// No line holds a message, an argument or a credential. What peers have chosen (names,
// methods, ids) is cut, and cannot look like another line.
package eventlog

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// refusalPeriod is how often refusals of one kind, notes of a server with one code, and a server's sessions without a place are
	// told of after the first of them: then one line says how many there were.
	refusalPeriod = time.Minute

	// dropPeriod is how often messages of a server that reach nobody for one reason are told of, after the first of them. Some servers
	// always say what nobody waits for.
	dropPeriod = time.Hour

	// stderrLinesPerPeriod is how many lines of a process's stderr are told of in each stderrPeriod.
	stderrLinesPerPeriod = 200

	// stderrPeriod is how long the period of stderrLinesPerPeriod is.
	stderrPeriod = time.Second
)

// Log is an observe.EventWatcher that writes lines. Its methods may be called concurrently.
type Log struct {
	logger       hclog.Logger      // where the lines go
	observer     *observe.Observer // tells of the events and messages
	initialLevel hclog.Level       // what Toggle returns to
	stopEvents   func()            // ends the watching of events

	refusalLimiter *eventLimiter[string]               // limits the lines of refused requests, by rule, status and cause; of notes, by code and server; of clients without a place, by server
	dropLimiter    *eventLimiter[string]               // limits the lines of dropped messages, by server and reason
	stderrLimiter  *eventLimiter[int]                  // limits the log's lines of what processes write to stderr, by process id
	redactText     atomic.Pointer[func(string) string] // takes secrets out of texts; see SetRedact; nil: nothing is taken out
	redactLine     atomic.Pointer[func(string) string] // takes secrets out of lines of stderr; see SetLineRedact; nil: redactText does it

	mu           sync.Mutex // guards stopMessages
	stopMessages func()     // ends the watching of messages; nil: nobody watches
}

// New returns a Log of what o tells of from now on. It writes to out, and looks at messages
// while out's level is debug or trace, as SetLevel and Toggle change it. Close ends it.
func New(out hclog.Logger, o *observe.Observer) *Log {
	l := &Log{logger: out, observer: o, initialLevel: out.GetLevel()}
	l.refusalLimiter = newEventLimiter(1, 0, refusalPeriod, l.reportSuppressed)
	l.dropLimiter = newEventLimiter(1, 0, dropPeriod, l.reportSuppressed)
	l.stderrLimiter = newEventLimiter(stderrLinesPerPeriod, stderrLinesPerPeriod, stderrPeriod, l.reportSuppressedStderr)
	l.stopEvents = o.WatchEvents(l)
	l.SetLevel(l.initialLevel)
	return l
}

// SetRedact has lines of stderr, errors, notes, and the names, methods, ids and paths that peers have chosen go through f before
// they are logged. f takes secrets out, and may be called concurrently. SetRedact may be called at any time.
func (l *Log) SetRedact(f func(text string) string) { l.redactText.Store(&f) }

// SetLineRedact has the lines that processes write to stderr go through f, and not through that of SetRedact. f may wait: the
// traffic does not wait for these lines.
func (l *Log) SetLineRedact(f func(line string) string) { l.redactLine.Store(&f) }

// redactedLine returns a line of stderr without secrets.
func (l *Log) redactedLine(line string) string {
	if f := l.redactLine.Load(); f != nil {
		return (*f)(line)
	}
	return l.redacted(line)
}

// redacted returns a text that others have written, without secrets. It is called before the text is cut.
func (l *Log) redacted(line string) string {
	if f := l.redactText.Load(); f != nil {
		return (*f)(line)
	}
	return line
}

// redactedError returns the error of a session without secrets: it may quote what the server has written to stderr.
func (l *Log) redactedError(err error) error { return errors.New(l.redacted(err.Error())) }

// sanitized returns a text that a peer has chosen as it stands in a line: without secrets, cut, and printable.
func (l *Log) sanitized(text string) string { return clipPrintable(l.redacted(text)) }

// Close ends the watching, and writes how many events got no line. Only an event that is being told meanwhile may still be
// written when it has returned.
func (l *Log) Close() {
	l.watchMessages(false)
	l.stopEvents()
	l.refusalLimiter.close()
	l.dropLimiter.close()
	l.stderrLimiter.close()
}

// Level returns the level from which on lines are written.
func (l *Log) Level() hclog.Level { return l.logger.GetLevel() }

// SetLevel changes the level of the log, and of all loggers that were made of it.
func (l *Log) SetLevel(level hclog.Level) {
	l.logger.SetLevel(level)
	l.watchMessages(level == hclog.Trace || level == hclog.Debug)
}

// Toggle changes the level to debug; or from debug or trace to the level that the log had at first, or to info if
// that was debug or trace. It returns the new level, and logs it.
func (l *Log) Toggle() hclog.Level {
	level := hclog.Debug
	if now := l.Level(); now == hclog.Debug || now == hclog.Trace {
		if level = l.initialLevel; level == hclog.Debug || level == hclog.Trace {
			level = hclog.Info
		}
	}
	l.SetLevel(level)
	l.logger.Info("log level changed", "level", level.String())
	return level
}

// watchMessages begins or ends the watching of messages.
func (l *Log) watchMessages(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case on && l.stopMessages == nil:
		l.stopMessages = l.observer.Watch(&exchangeWatcher{l.logger, l.sanitized})
	case !on && l.stopMessages != nil:
		l.stopMessages()
		l.stopMessages = nil
	}
}

// Event implements observe.EventWatcher: it writes the line of an event, if the event has one. Of refusals, drops, notes, stderr and
// sessions without a place it writes no line above debug beyond a rate: the limiters count them.
func (l *Log) Event(e observe.Event) {
	switch e := e.(type) {
	case observe.SessionOpened:
		l.logSessionOpened(e.Session)
	case observe.SessionEnded:
		l.logSessionEnded(e)
	case observe.SessionFailed:
		l.logSessionFailed(e)
	case observe.ProcessStarted:
		l.logger.Info("server process started", serverFields(e.Server, e.Session, "pid", e.PID, "program", clipPrintable(e.Program))...)
	case observe.ProcessStopping:
		l.logger.Debug("server process is asked to end", serverFields(e.Server, nil, "pid", e.PID, "step", e.Step)...)
	case observe.ProcessEnded:
		l.stderrLimiter.endKind(e.PID)
		l.logger.Info("server process ended", serverFields(e.Server, e.Session, "pid", e.PID, "program", clipPrintable(e.Program),
			"status", exitStatus(e.Err), "asked", e.StopRequested, "after", roundDuration(e.Lasted))...)
	case observe.Stderr:
		if l.stderrLimiter.allow(e.PID, e) {
			l.logger.Info("stderr", serverFields(e.Server, e.Session, "pid", e.PID, "line", l.redactedLine(e.Line))...)
		}
	case observe.CallLate:
		l.logger.Warn("a request has no answer yet", l.callFields(e.Server, e.Session, e.Method, e.ID, e.Since)...)
	case observe.CallTimedOut:
		l.logger.Warn("the server has not answered a request in time (--request-timeout): the bridge has done so, with an error",
			l.callFields(e.Server, e.Session, e.Method, e.ID, e.Since)...)
	case observe.Refused:
		l.logRefused(e)
	case observe.Dropped:
		l.logDropped(e)
	case observe.Stream:
		l.logStream(e)
	case observe.Note:
		if l.refusalLimiter.allow("note "+e.Code+" "+e.Server, e) {
			l.logger.Info("note", serverFields(e.Server, e.Session, "code", e.Code, "text", clipPrintableTo(l.redacted(e.Text), maxNoteBytes))...)
		}
	}
}

// logSessionOpened writes the line of a session that is there: who the client is, and what it has agreed on with the server.
func (l *Log) logSessionOpened(s *observe.Session) {
	fields := serverFields(s.Server, s, "transport", s.Transport)
	if c := s.Client(); c != (observe.Implementation{}) {
		fields = append(fields, "client", l.sanitized(c.Name), "version", l.sanitized(c.Version))
	}
	fields = append(fields, "revision", clipPrintable(s.Revision()))
	if pid := s.PID(); pid != 0 {
		fields = append(fields, "pid", pid)
	}
	if s.Remote != "" {
		fields = append(fields, "remote", clipPrintable(s.Remote))
	}
	if s.Principal != "" {
		fields = append(fields, "principal", clipPrintable(s.Principal))
	}
	l.logger.Info("session opened", fields...)
}

// logSessionEnded writes the line of a session that is over: as a warning if it has ended with an error.
func (l *Log) logSessionEnded(e observe.SessionEnded) {
	fields := serverFields(e.Session.Server, e.Session, "after", roundDuration(e.Lasted), "calls", e.Calls)
	if e.Err == nil {
		l.logger.Info("session ended", append(fields, "how", clipPrintable(e.Reason))...)
		return
	}
	l.logger.Warn("session ended", append(fields, "error", l.redactedError(e.Err))...)
}

// logSessionFailed tells of a client that got no session. Of clients of a server for which there was no place, only the first one in
// a while gets a line (refusalLimiter): clients try again.
func (l *Log) logSessionFailed(e observe.SessionFailed) {
	if errors.Is(e.Err, bridge.ErrBusy) && !l.refusalLimiter.allow("busy "+e.Session.Server, e) {
		return
	}
	l.logger.Warn("session ended before it began", l.sessionFailedFields(e)...)
}

// sessionFailedFields returns the fields of a line about a client that got no session.
func (l *Log) sessionFailedFields(e observe.SessionFailed) []any {
	return serverFields(e.Session.Server, e.Session, "transport", e.Session.Transport, "after", roundDuration(e.Lasted), "error", l.redactedError(e.Err))
}

// logRefused writes the line of a refused request: a warning for the first one in a while of a rule, status and cause
// (refusalLimiter), a line at debug for others.
func (l *Log) logRefused(e observe.Refused) {
	kind := e.Rule + " " + strconv.Itoa(e.Status) + " " + e.Cause
	if e.Cause == "" && e.Status == http.StatusUnauthorized {
		kind += e.Reason // a fixed text, of package access
	}
	if l.refusalLimiter.allow(kind, e) {
		l.logger.Warn("request refused", l.refusedFields(e)...)
	} else {
		l.logger.Debug("request refused", l.refusedFields(e)...)
	}
}

// logDropped tells of a message that reached nobody: at info of the first one in a while of a server for a reason (dropLimiter), at
// debug of others.
func (l *Log) logDropped(e observe.Dropped) {
	e.Message = withoutContent(&e.Message) // it may be kept for as long as dropPeriod
	switch {
	case l.dropLimiter.allow(e.Server+" "+e.Reason, e):
		l.logger.Info("message dropped", l.droppedFields(e)...)
	case l.logger.IsDebug():
		l.logger.Debug("message dropped", l.droppedFields(e)...)
	}
}

// droppedFields returns the fields of a line about a message that reached nobody. They hold no content.
func (l *Log) droppedFields(e observe.Dropped) []any {
	return serverFields(e.Server, e.Session, "reason", clipPrintable(e.Reason), "method", l.sanitized(e.Message.Method()), "id", l.sanitized(e.Message.ID().String()))
}

// withoutContent returns a message with the kind, method and id of m, in memory of its own.
func withoutContent(m *jsonrpc.Message) jsonrpc.Message {
	switch m.Kind() {
	case jsonrpc.Request:
		return jsonrpc.NewRequest(m.ID(), m.Method(), nil)
	case jsonrpc.Notification:
		return jsonrpc.NewNotification(m.Method(), nil)
	}
	return jsonrpc.NewError(m.ID(), 0, "", nil) // its id may be null, or missing, which a result has not
}

// refusedFields returns the fields of a line about a refused request.
func (l *Log) refusedFields(e observe.Refused) []any {
	fields := serverFields(e.Server, e.Session)
	if e.Rule != "" {
		fields = append(fields, "rule", e.Rule)
	}
	fields = append(fields, "status", e.Status, "method", clipPrintable(e.Method), "path", l.sanitized(e.Path), "remote", clipPrintable(e.RemoteAddr))
	if e.Host != "" {
		fields = append(fields, "host", l.sanitized(e.Host))
	}
	if e.Origin != "" {
		fields = append(fields, "origin", l.sanitized(e.Origin))
	}
	if e.Cause != "" {
		fields = append(fields, "cause", e.Cause)
	}
	return append(fields, "reason", clipPrintable(e.Reason))
}

// reportSuppressed tells of events that got no line of their own: how many there were, and the last one.
func (l *Log) reportSuppressed(_ string, n int, last observe.Event) {
	switch e := last.(type) {
	case observe.Refused:
		l.logger.Warn("more requests were refused by the same rule", append([]any{"times", n, "in", refusalPeriod}, l.refusedFields(e)...)...)
	case observe.SessionFailed:
		l.logger.Warn("more sessions ended before they began", append([]any{"times", n, "in", refusalPeriod}, l.sessionFailedFields(e)...)...)
	case observe.Dropped:
		l.logger.Info("more messages were dropped for the same reason", append([]any{"times", n, "in", dropPeriod}, l.droppedFields(e)...)...)
	case observe.Note:
		l.logger.Info("note", serverFields(e.Server, e.Session, "code", e.Code, "times", n, "in", refusalPeriod, "text", clipPrintableTo(l.redacted(e.Text), maxNoteBytes))...)
	}
}

// reportSuppressedStderr tells of lines of stderr that were left out.
func (l *Log) reportSuppressedStderr(pid, n int, last observe.Event) {
	e, ok := last.(observe.Stderr)
	if ok {
		l.logger.Info("stderr: lines were left out, there were too many", serverFields(e.Server, e.Session, "pid", pid, "lines", n)...)
	}
}

// logStream writes the line of a stream that was opened, resumed or closed, at debug.
func (l *Log) logStream(e observe.Stream) {
	if !l.logger.IsDebug() {
		return
	}
	fields := serverFields(e.Server, e.Session, "hop", e.Hop.String())
	if e.Name != "" {
		fields = append(fields, "stream", clipPrintable(e.Name))
	}
	if e.FromEventID != "" {
		fields = append(fields, "from", l.sanitized(e.FromEventID))
	}
	if e.Reason != "" {
		fields = append(fields, "reason", clipPrintable(e.Reason))
	}
	l.logger.Debug("stream "+e.Action, fields...)
}

// serverFields returns the fields of a line about a server, and about the session of a client if there
// is one.
func serverFields(server string, s *observe.Session, fields ...any) []any {
	all := make([]any, 0, len(fields)+4)
	if server != "" {
		all = append(all, "server", server)
	}
	if s != nil && s.Transport != "" {
		all = append(all, "session", s.Name)
	}
	return append(all, fields...)
}

// callFields returns the fields of a line about a request that came at the time since, and waits or has waited for its answer.
func (l *Log) callFields(server string, s *observe.Session, method string, id jsonrpc.ID, since time.Time) []any {
	return serverFields(server, s, "method", l.sanitized(method), "id", l.sanitized(id.String()), "for", roundDuration(time.Since(since)))
}

// exitStatus returns how a process has ended, in words; err is observe.ProcessEnded.Err.
func exitStatus(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// roundDuration returns a duration with three digits or so.
func roundDuration(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}
