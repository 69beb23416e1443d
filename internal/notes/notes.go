// Package notes finds in live traffic those faults of package doctor that can be seen in passing,
// without asking anybody anything, and tells of each as an observe.Note: once a server and fault,
// and again an hour later.
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
	repeatAfter = time.Hour // how long a fault of a server is not told of another time
	kept        = 1024      // how many faults, processes, servers are remembered at once, of each kind
	shown       = 100       // bytes of what a peer has chosen
)

// Watch looks at what o tells of, until stop is called.
func Watch(o *observe.Observer) (stop func()) {
	return o.WatchAlong(&watcher{o: o, reported: map[fault]time.Time{}, stops: map[int]string{}, earlyExits: map[string]int{}})
}

// watcher is an observe.Watcher. It never waits.
type watcher struct {
	o *observe.Observer

	mu         sync.Mutex
	reported   map[fault]time.Time
	stops      map[int]string // by process id: the last step by which the process was asked to end
	earlyExits map[string]int // by server: processes in a row that have ended before they answered
}

// fault is one of a server.
type fault struct{ server, code, title string }

// put keeps a value in a bounded map: a full one is emptied.
func put[K comparable, V any](m map[K]V, k K, v V) {
	if _, there := m[k]; !there && len(m) >= kept {
		clear(m)
	}
	m[k] = v
}

// note tells of a fault, unless that was done.
func (w *watcher) note(server string, s *observe.Session, f doctor.Fault, seen string) {
	now := time.Now()
	key := fault{server, f.Code, f.Title}
	w.mu.Lock()
	last, told := w.reported[key]
	told = told && now.Sub(last) < repeatAfter
	if !told {
		put(w.reported, key, now)
	}
	w.mu.Unlock()
	if !told {
		w.o.Event(observe.Note{Server: server, Session: s, Code: f.Code, Text: f.Title + " (" + seen + "). " + f.Means + " " + f.Do})
	}
}

// Event implements observe.Watcher.
func (w *watcher) Event(e observe.Event) {
	switch e := e.(type) {
	case observe.Noise:
		w.noise(e)
	case observe.SessionOpened:
		w.mu.Lock()
		delete(w.earlyExits, e.Session.Server)
		w.mu.Unlock()
	case observe.ProcessStopping:
		w.stopping(e)
	case observe.ProcessEnded:
		w.ended(e)
	case observe.CallLate:
		if large(e.ID.String()) {
			w.note(e.Server, e.Session, doctor.LargeUnanswered, e.Method+" with the id "+clip(e.ID.String())+" has no answer after "+time.Since(e.Since).Round(time.Second).String())
		}
	case *observe.Exchange:
		if e.Hop == observe.Upstream && e.Session != nil {
			w.exchange(e)
		}
	}
}

// noise looks at output of a process that is no message.
func (w *watcher) noise(e observe.Noise) {
	f := doctor.NoiseThroughBridge()
	switch {
	case e.Reason == "the line is not a JSON object":
	case strings.Contains(e.Reason, "UTF-8"):
		f = doctor.NotUTF8
	case strings.HasPrefix(e.Reason, "the message is longer"):
		f = doctor.TooLong
	default:
		return // JSON that is no message: the log says what is wrong with it
	}
	w.note(e.Server, e.Session, f, process(e.PID)+": "+count(e.Bytes)+" bytes on stdout, "+e.Reason)
}

// stopping looks at how a process must be ended.
func (w *watcher) stopping(e observe.ProcessStopping) {
	w.mu.Lock()
	before := w.stops[e.PID]
	put(w.stops, e.PID, e.Step)
	w.mu.Unlock()
	switch {
	case e.Step == "terminate" && before == "close stdin":
		w.note(e.Server, nil, doctor.IgnoresEnd, process(e.PID)+" was still running some time after its stdin was closed")
	case e.Step == "kill" && before == "terminate":
		w.note(e.Server, nil, doctor.MustKill, process(e.PID)+" was still running some time after SIGTERM")
	}
}

// soon is how long a process that is started for no session takes at most to end at once.
const soon = 5 * time.Second

// ended looks at the end of a process. One that has ended before it answered may be one that was
// asked what a server may end at, so it takes two in a row.
func (w *watcher) ended(e observe.ProcessEnded) {
	w.mu.Lock()
	delete(w.stops, e.PID)
	n := 0
	if atOnce := e.Lasted < soon; !e.StopRequested && atOnce && (e.Session == nil || !e.Session.Opened()) {
		n = w.earlyExits[e.Server] + 1
		put(w.earlyExits, e.Server, n)
	}
	w.mu.Unlock()
	if n >= 2 {
		how := "exit status 0"
		if e.Err != nil {
			how = clip(e.Err.Error())
		}
		w.note(e.Server, e.Session, doctor.EndsAtOnce, count(n)+" processes in a row have ended before they answered; the last one after "+e.Lasted.Round(time.Millisecond).String()+" with "+how)
	}
}
