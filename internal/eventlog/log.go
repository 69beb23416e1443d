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
	// refusalPace is how often a rule's refusals are told of after the first one.
	refusalPace = time.Minute

	// dropPace is likewise for messages that reach nobody. Some servers always say what nobody waits for.
	dropPace = time.Hour

	// stderrLines is how many lines of a process's stderr are told of in each stderrPace.
	stderrLines = 200
	stderrPace  = time.Second
)

// Log is an observe.EventWatcher that writes lines. Its methods may be called concurrently.
type Log struct {
	out      hclog.Logger
	observer *observe.Observer
	usual    hclog.Level // what Toggle returns to
	stop     func()      // ends the watching of events

	refusals *eventLimiter[string]
	drops    *eventLimiter[string]               // by server and reason
	stderr   *eventLimiter[int]                  // by process id
	hide     atomic.Pointer[func(string) string] // nil: nothing is taken out
	hideLine atomic.Pointer[func(string) string] // likewise, of lines of stderr; nil: hide does it

	mu        sync.Mutex
	exchanges func() // ends the watching of messages; nil: nobody watches
}

// New returns a Log of what o tells of from now on. It writes to out, and looks at messages
// while out's level is debug or trace. Close ends it.
func New(out hclog.Logger, o *observe.Observer) *Log {
	l := &Log{out: out, observer: o, usual: out.GetLevel()}
	l.refusals = newEventLimiter(1, 0, refusalPace, l.reportSuppressed)
	l.drops = newEventLimiter(1, 0, dropPace, l.reportSuppressed)
	l.stderr = newEventLimiter(stderrLines, stderrLines, stderrPace, l.suppressed)
	l.stop = o.WatchEvents(l)
	l.SetLevel(l.usual)
	return l
}

// Hide has the lines that processes write to stderr, and what other lines say of a request or a message, go through f, which takes secrets out and may be called concurrently. It may be called at any time.
func (l *Log) Hide(f func(text string) string) { l.hide.Store(&f) }

// HideLines has the lines that processes write to stderr go through f instead, which may wait: the traffic does not wait for
// these lines.
func (l *Log) HideLines(f func(line string) string) { l.hideLine.Store(&f) }

// shownLine is shown for a line of stderr.
func (l *Log) shownLine(line string) string {
	if f := l.hideLine.Load(); f != nil {
		return (*f)(line)
	}
	return l.redacted(line)
}

// redacted returns what others have written as it is shown, before it is cut.
func (l *Log) redacted(line string) string {
	if f := l.hide.Load(); f != nil {
		return (*f)(line)
	}
	return line
}

// shownError returns the error of a session as it is shown: it may quote what the server has written to stderr.
func (l *Log) shownError(err error) error { return errors.New(l.redacted(err.Error())) }

// shown returns what a peer has chosen, and may have a secret in it, as a line has it: without secrets, cut, and printable.
func (l *Log) shown(text string) string { return clean(l.redacted(text)) }

// Close ends the watching. When it returns, nothing more is written.
func (l *Log) Close() {
	l.watch(false)
	l.stop()
	l.refusals.close()
	l.drops.close()
	l.stderr.close()
}

// Level returns the level from which on lines are written.
func (l *Log) Level() hclog.Level { return l.out.GetLevel() }

// SetLevel changes the level of the log, and of all loggers that were made of it.
func (l *Log) SetLevel(level hclog.Level) {
	l.out.SetLevel(level)
	l.watch(level == hclog.Trace || level == hclog.Debug)
}

// Toggle changes the level to debug, or from debug or trace to what it was at first; if it
// was one of these, to info. It returns the new level, which the log tells, too.
func (l *Log) Toggle() hclog.Level {
	level := hclog.Debug
	if now := l.Level(); now == hclog.Debug || now == hclog.Trace {
		if level = l.usual; level == hclog.Debug || level == hclog.Trace {
			level = hclog.Info
		}
	}
	l.SetLevel(level)
	l.out.Info("log level changed", "level", level.String())
	return level
}

// watch begins or ends the watching of messages.
func (l *Log) watch(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case on && l.exchanges == nil:
		l.exchanges = l.observer.Watch(&exchanges{l.out, l.shown})
	case !on && l.exchanges != nil:
		l.exchanges()
		l.exchanges = nil
	}
}

// Event implements observe.EventWatcher.
func (l *Log) Event(e observe.Event) {
	switch e := e.(type) {
	case observe.SessionOpened:
		l.opened(e.Session)
	case observe.SessionEnded:
		l.ended(e)
	case observe.SessionFailed:
		l.failed(e)
	case observe.ProcessStarted:
		l.out.Info("server process started", serverFields(e.Server, e.Session, "pid", e.PID, "program", clean(e.Program))...)
	case observe.ProcessStopping:
		l.out.Debug("server process is asked to end", serverFields(e.Server, nil, "pid", e.PID, "step", e.Step)...)
	case observe.ProcessEnded:
		l.stderr.end(e.PID)
		l.out.Info("server process ended", serverFields(e.Server, e.Session, "pid", e.PID, "program", clean(e.Program),
			"status", statusOf(e.Err), "asked", e.StopRequested, "after", round(e.Lasted))...)
	case observe.Stderr:
		if l.stderr.allow(e.PID, e) {
			l.out.Info("stderr", serverFields(e.Server, e.Session, "pid", e.PID, "line", l.shownLine(e.Line))...)
		}
	case observe.CallLate:
		l.out.Warn("a request has no answer yet", l.onCall(e.Server, e.Session, e.Method, e.ID, e.Since)...)
	case observe.CallTimedOut:
		l.out.Warn("the server has not answered a request in time (--request-timeout): the bridge has done so, with an error",
			l.onCall(e.Server, e.Session, e.Method, e.ID, e.Since)...)
	case observe.Refused:
		l.refused(e)
	case observe.Dropped:
		l.dropped(e)
	case observe.Stream:
		l.stream(e)
	case observe.Note:
		if l.refusals.allow("note "+e.Code+" "+e.Server, e) {
			l.out.Info("note", serverFields(e.Server, e.Session, "code", e.Code, "text", cleanTo(l.redacted(e.Text), maxNote))...)
		}
	}
}

func (l *Log) opened(s *observe.Session) {
	fields := serverFields(s.Server, s, "transport", s.Transport)
	if c := s.Client(); c != (observe.Implementation{}) {
		fields = append(fields, "client", l.shown(c.Name), "version", l.shown(c.Version))
	}
	fields = append(fields, "revision", clean(s.Revision()))
	if pid := s.PID(); pid != 0 {
		fields = append(fields, "pid", pid)
	}
	if s.Remote != "" {
		fields = append(fields, "remote", clean(s.Remote))
	}
	if s.Principal != "" {
		fields = append(fields, "principal", clean(s.Principal))
	}
	l.out.Info("session opened", fields...)
}

func (l *Log) ended(e observe.SessionEnded) {
	fields := serverFields(e.Session.Server, e.Session, "after", round(e.Lasted), "calls", e.Calls)
	if e.Err == nil {
		l.out.Info("session ended", append(fields, "how", clean(e.Reason))...)
		return
	}
	l.out.Warn("session ended", append(fields, "error", l.shownError(e.Err))...)
}

// failed tells of a client that got no session. That there is no place is told at a pace:
// clients try again.
func (l *Log) failed(e observe.SessionFailed) {
	if errors.Is(e.Err, bridge.ErrBusy) && !l.refusals.allow("busy "+e.Session.Server, e) {
		return
	}
	l.out.Warn("session ended before it began", l.failure(e)...)
}

func (l *Log) failure(e observe.SessionFailed) []any {
	return serverFields(e.Session.Server, e.Session, "transport", e.Session.Transport, "after", round(e.Lasted), "error", l.shownError(e.Err))
}

func (l *Log) refused(e observe.Refused) {
	kind := e.Rule + " " + strconv.Itoa(e.Status) + " " + e.Cause
	if e.Cause == "" && e.Status == http.StatusUnauthorized {
		kind += e.Reason // a fixed text, of package access
	}
	if l.refusals.allow(kind, e) {
		l.out.Warn("request refused", l.refusal(e)...)
	} else {
		l.out.Debug("request refused", l.refusal(e)...)
	}
}

// dropped tells of a message that reached nobody: of the first one for a reason at the usual level.
func (l *Log) dropped(e observe.Dropped) {
	e.Message = withoutContent(&e.Message) // it may be kept for as long as dropPace
	switch {
	case l.drops.allow(e.Server+" "+e.Reason, e):
		l.out.Info("message dropped", l.drop(e)...)
	case l.out.IsDebug():
		l.out.Debug("message dropped", l.drop(e)...)
	}
}

func (l *Log) drop(e observe.Dropped) []any {
	return serverFields(e.Server, e.Session, "reason", clean(e.Reason), "method", l.shown(e.Message.Method()), "id", l.shown(e.Message.ID().String()))
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

func (l *Log) refusal(e observe.Refused) []any {
	fields := serverFields(e.Server, e.Session)
	if e.Rule != "" {
		fields = append(fields, "rule", e.Rule)
	}
	fields = append(fields, "status", e.Status, "method", clean(e.Method), "path", l.shown(e.Path), "remote", clean(e.RemoteAddr))
	if e.Host != "" {
		fields = append(fields, "host", l.shown(e.Host))
	}
	if e.Origin != "" {
		fields = append(fields, "origin", l.shown(e.Origin))
	}
	if e.Cause != "" {
		fields = append(fields, "cause", e.Cause)
	}
	return append(fields, "reason", clean(e.Reason))
}

// reportSuppressed tells of what the limits have held back: how many, and the last one.
func (l *Log) reportSuppressed(_ string, n int, last observe.Event) {
	switch e := last.(type) {
	case observe.Refused:
		l.out.Warn("more requests were refused by the same rule", append([]any{"times", n, "in", refusalPace}, l.refusal(e)...)...)
	case observe.SessionFailed:
		l.out.Warn("more sessions ended before they began", append([]any{"times", n, "in", refusalPace}, l.failure(e)...)...)
	case observe.Dropped:
		l.out.Info("more messages were dropped for the same reason", append([]any{"times", n, "in", dropPace}, l.drop(e)...)...)
	case observe.Note:
		l.out.Info("note", serverFields(e.Server, e.Session, "code", e.Code, "times", n, "in", refusalPace, "text", cleanTo(l.redacted(e.Text), maxNote))...)
	}
}

// suppressed tells of lines of stderr that were left out.
func (l *Log) suppressed(pid, n int, last observe.Event) {
	e, ok := last.(observe.Stderr)
	if ok {
		l.out.Info("stderr: lines were left out, there were too many", serverFields(e.Server, e.Session, "pid", pid, "lines", n)...)
	}
}

func (l *Log) stream(e observe.Stream) {
	if !l.out.IsDebug() {
		return
	}
	fields := serverFields(e.Server, e.Session, "hop", e.Hop.String())
	if e.Name != "" {
		fields = append(fields, "stream", clean(e.Name))
	}
	if e.FromEventID != "" {
		fields = append(fields, "from", l.shown(e.FromEventID))
	}
	if e.Reason != "" {
		fields = append(fields, "reason", clean(e.Reason))
	}
	l.out.Debug("stream "+e.Action, fields...)
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

// onCall returns the fields of a line about a request that waits, or has waited.
func (l *Log) onCall(server string, s *observe.Session, method string, id jsonrpc.ID, since time.Time) []any {
	return serverFields(server, s, "method", l.shown(method), "id", l.shown(id.String()), "for", round(time.Since(since)))
}

func statusOf(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// round returns a duration with three digits or so.
func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(100 * time.Microsecond)
}
