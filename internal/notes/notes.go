// Package notes finds in live traffic those faults of package doctor that can be seen in passing,
// without asking anybody anything. It tells of each as an observe.Note: once for each server and fault,
// and again if it is seen an hour later.
//
// What happens beside the messages is always looked at. Messages and HTTP exchanges are looked at
// only while somebody else watches them (a trace, the page, the log at debug, metrics): a bridge
// that nobody looks at pays nothing for this.
//
// A note names methods, ids, process ids, times, status codes and media types, and nothing else
// of what has passed. docs/doctor.md lists what is found.
package notes

import (
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

const (
	repeatAfter     = time.Hour // for how long a fault of a server is not told of again
	maxRemembered   = 1024      // how many entries each map of a watcher has at most
	maxForeignBytes = 100       // how many bytes a note has of a text that a peer has chosen, at most
)

// Watch looks for faults in what o tells of, and has o tell of each as an observe.Note, until stop is called.
func Watch(o *observe.Observer) (stop func()) {
	return o.WatchAlong(&watcher{observer: o, reported: map[faultKey]time.Time{}, stopSteps: map[int]string{}, earlyExits: map[string]int{}})
}

// watcher is an observe.Watcher that looks for faults of package doctor in what it is told. It never waits.
type watcher struct {
	observer *observe.Observer // what is watched, and what is told of the Notes

	mu         sync.Mutex             // guards reported, stopSteps and earlyExits
	reported   map[faultKey]time.Time // when each fault was told of last
	stopSteps  map[int]string         // by process id: the last step by which the process was asked to end
	earlyExits map[string]int         // by name of server: how many of its processes in a row have ended at once (maxEarlyExitTime), by themselves and without an answer, since a session with it was last opened
}

// faultKey is a fault of a server.
type faultKey struct {
	server      string // the name of the server
	code, title string // those of the doctor.Fault; faults may share a code
}

// putBounded keeps a value in a bounded map: a full one is emptied.
func putBounded[K comparable, V any](m map[K]V, k K, v V) {
	if _, there := m[k]; !there && len(m) >= maxRemembered {
		clear(m)
	}
	m[k] = v
}

// note tells of a fault of a server, unless that was done less than repeatAfter ago. s is the session in which it was seen, which may
// be nil. evidence says in words what was seen.
func (w *watcher) note(server string, s *observe.Session, f doctor.Fault, evidence string) {
	now := time.Now()
	key := faultKey{server, f.Code, f.Title}
	w.mu.Lock()
	last, isReported := w.reported[key]
	isReported = isReported && now.Sub(last) < repeatAfter
	if !isReported {
		putBounded(w.reported, key, now)
	}
	w.mu.Unlock()
	if !isReported {
		w.observer.Event(observe.Note{Server: server, Session: s, Code: f.Code, Text: f.Title + " (" + evidence + "). " + f.Consequence + " " + f.Advice})
	}
}

// Event implements observe.Watcher: it looks in an event for faults of package doctor, and tells the observer of each, as an
// observe.Note.
func (w *watcher) Event(e observe.Event) {
	switch e := e.(type) {
	case observe.Noise:
		w.checkNoise(e)
	case observe.SessionOpened:
		w.mu.Lock()
		delete(w.earlyExits, e.Session.Server)
		w.mu.Unlock()
	case observe.ProcessStopping:
		w.noteStopStep(e)
	case observe.ProcessEnded:
		w.checkProcessEnd(e)
	case observe.CallLate:
		w.checkLateCall(e)
	case *observe.Exchange:
		if e.Hop == observe.Upstream && e.Session != nil {
			w.checkExchange(e)
		}
	}
}

// checkLateCall looks for the reason why a client's request has no answer for long: the size of its id, or a server that is silent. A
// server that clients share sees neither: it gets ids of the bridge, and initialize is the bridge's own.
func (w *watcher) checkLateCall(e observe.CallLate) {
	if e.Session == nil || e.Session.ServerTransport() == "" {
		return // the session has no server of its own
	}
	waited := time.Since(e.Since).Round(time.Second).String()
	switch {
	case isUnsafeIntegerID(e.ID.String()):
		w.note(e.Server, e.Session, doctor.LargeIDsUnanswered, e.Method+" with the id "+clip(e.ID.String())+" has no answer after "+waited)
	case e.Method == "initialize" && e.Session.ServerTransport() == "stdio" && !w.isTextInFrontNoted(e.Server):
		w.note(e.Server, e.Session, doctor.ServerSilent, "initialize has no answer after "+waited)
	}
}

// isTextInFrontNoted reports whether it is known that a server's answers are lost because other text stands before them: it is
// not silent then.
func (w *watcher) isTextInFrontNoted(server string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.reported[faultKey{server, doctor.TextInFront.Code, doctor.TextInFront.Title}]
	return is
}

// checkNoise tells what is wrong with output of a process that is no message, but not of JSON that is no message.
func (w *watcher) checkNoise(e observe.Noise) {
	f := doctor.StdoutNoiseThroughBridge()
	switch {
	case e.Reason == "the line is not a JSON object":
	case e.Reason == "text stands before an answer on the line":
		f = doctor.TextInFront
	case strings.Contains(e.Reason, "UTF-8"):
		f = doctor.NotUTF8
	case strings.HasPrefix(e.Reason, "the message is longer"):
		f = doctor.LineTooLong
	default:
		return // JSON that is no message: the log says what is wrong with it
	}
	w.note(e.Server, e.Session, f, processText(e.PID)+": "+itoa(e.Bytes)+" bytes on stdout, "+e.Reason)
}

// noteStopStep notes a step to end a process, and tells of the process if the step before was not enough: it went on though its stdin
// was closed, or after SIGTERM.
func (w *watcher) noteStopStep(e observe.ProcessStopping) {
	w.mu.Lock()
	before := w.stopSteps[e.PID]
	putBounded(w.stopSteps, e.PID, e.Step)
	w.mu.Unlock()
	switch {
	case e.Step == "terminate" && before == "close stdin":
		w.note(e.Server, nil, doctor.IgnoresEndOfInput, processText(e.PID)+" was still running some time after its stdin was closed")
	case e.Step == "kill" && before == "terminate":
		w.note(e.Server, nil, doctor.MustBeKilled, processText(e.PID)+" was still running some time after SIGTERM")
	}
}

// maxEarlyExitTime is how long a process may have lived to count as one that has ended at once; it must have lived for less.
const maxEarlyExitTime = 5 * time.Second

// checkProcessEnd tells of a server whose processes end at once, by themselves and without an answer. It takes two of them in a row
// before a session with the server is opened: one may have been asked only for its era, and a server may end at that.
func (w *watcher) checkProcessEnd(e observe.ProcessEnded) {
	w.mu.Lock()
	delete(w.stopSteps, e.PID)
	earlyExits := 0
	switch {
	case e.Answered || e.Lasted >= maxEarlyExitTime:
		delete(w.earlyExits, e.Server)
	case !e.StopRequested:
		earlyExits = w.earlyExits[e.Server] + 1
		putBounded(w.earlyExits, e.Server, earlyExits)
	}
	w.mu.Unlock()
	if earlyExits >= 2 {
		how := "exit status 0"
		if e.Err != nil {
			how = clip(e.Err.Error())
		}
		w.note(e.Server, e.Session, doctor.ServerEndsAtOnce, itoa(earlyExits)+" processes in a row have ended before they answered; the last one after "+e.Lasted.Round(time.Millisecond).String()+" with "+how)
	}
}
