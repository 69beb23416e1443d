package inspect

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// How many ended processes and notes are kept.
const (
	maxEndedProcesses = 50
	maxNotes          = 200
)

// state is an observe.EventWatcher that knows which sessions and processes there are.
type state struct {
	redact func(string) string // takes secrets out of a text

	mu             sync.Mutex
	sessions       map[string]*observe.Session // that are open, by name
	processes      map[int]*process            // that run, by id
	endedProcesses []process                   // the latest last
	notes          []note                      // the latest last
}

// process is what the API says of a process of a server.
type process struct {
	PID           int        `json:"pid"`
	Server        string     `json:"server"`
	Session       string     `json:"session,omitempty"`
	Program       string     `json:"program"`
	Began         time.Time  `json:"began"`
	StopStep      string     `json:"step,omitempty"`  // the last step to end it: see observe.ProcessStopping; "": none
	Ended         *time.Time `json:"ended,omitempty"` // nil: it runs
	StopRequested bool       `json:"asked,omitempty"` // the bridge has asked it to end
	Err           string     `json:"err,omitempty"`
	Usage         *usage     `json:"usage,omitempty"` // of one that runs, where the system tells

	kill func() error // ends it at once; nil: it has ended
}

// usage is what the API says of the use of the machine by a process and its descendants.
type usage struct {
	CPU      float64 `json:"cpuSeconds"`
	Resident int64   `json:"residentBytes"`
}

// session is what the API says of a session.
type session struct {
	Name      string    `json:"name"`
	Server    string    `json:"server"`
	Transport string    `json:"transport"`
	Era       string    `json:"era,omitempty"`
	Revision  string    `json:"revision,omitempty"`
	Client    string    `json:"client,omitempty"`
	Version   string    `json:"version,omitempty"`
	Principal string    `json:"principal,omitempty"`
	Remote    string    `json:"remote,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Began     time.Time `json:"began"`
	Calls     uint64    `json:"calls"`   // all requests of the client so far
	Waiting   int       `json:"waiting"` // requests of the client that have no answer
}

// note is what the API says of a remark about traffic.
type note struct {
	Time    time.Time `json:"time"`
	Server  string    `json:"server"`
	Session string    `json:"session,omitempty"`
	Code    string    `json:"code"`
	Text    string    `json:"text"`
}

func newState(redact func(string) string) *state {
	return &state{redact: redact, sessions: make(map[string]*observe.Session), processes: make(map[int]*process)}
}

// Event implements observe.EventWatcher.
func (s *state) Event(e observe.Event) {
	switch e.(type) {
	case *observe.Exchange, observe.Stream: // there may be one for each call, and nothing here changes with them
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := e.(type) {
	case observe.SessionOpened:
		s.sessions[e.Session.Name] = e.Session
	case observe.SessionEnded:
		delete(s.sessions, e.Session.Name)
	case observe.ProcessStarted:
		s.processes[e.PID] = &process{PID: e.PID, Server: e.Server, Session: sessionName(e.Session), Program: e.Program, Began: time.Now(), kill: e.Kill}
	case observe.ProcessStopping:
		if p := s.processes[e.PID]; p != nil {
			p.StopStep = e.Step
		}
	case observe.ProcessEnded:
		s.processEnded(e)
	case observe.CallLate:
		s.addNote(e.Server, e.Session, "late", "no answer to "+e.Method+" "+e.ID.String()+" for "+time.Since(e.Since).Round(time.Second).String())
	case observe.CallTimedOut:
		s.addNote(e.Server, e.Session, "timeout", "the request time-out has ended "+e.Method+" "+e.ID.String())
	case observe.SessionFailed:
		s.addNote(e.Session.Server, e.Session, "session", "could not be opened") // its error may hold a secret; the log has it
	case observe.Refused:
		s.addNote(e.Server, e.Session, cmp.Or(e.Rule, "refused"), e.Method+" "+e.Path+": "+e.Reason)
	case observe.Note:
		s.addNote(e.Server, e.Session, e.Code, e.Text)
	}
}

// sessionName returns the name of a session; "": s is nil.
func sessionName(s *observe.Session) string {
	if s == nil {
		return ""
	}
	return s.Name
}

func (s *state) processEnded(e observe.ProcessEnded) {
	p := s.processes[e.PID]
	if p == nil {
		return
	}
	delete(s.processes, e.PID)
	now := time.Now()
	p.Ended, p.StopRequested, p.kill, p.Session = &now, e.StopRequested, nil, sessionName(e.Session)
	if e.Err != nil {
		p.Err = s.redact(e.Err.Error())
	}
	s.endedProcesses = append(s.endedProcesses, *p)
	if n := len(s.endedProcesses); n > maxEndedProcesses {
		s.endedProcesses = slices.Delete(s.endedProcesses, 0, n-maxEndedProcesses)
	}
}

func (s *state) addNote(server string, of *observe.Session, code, text string) {
	s.notes = append(s.notes, note{time.Now(), server, sessionName(of), code, shortened(s.redact(text))})
	if n := len(s.notes); n > maxNotes {
		s.notes = slices.Delete(s.notes, 0, n-maxNotes)
	}
}

// shortened returns the beginning of a text, as much as a note keeps. Secrets were taken out before: half a secret would not be found.
func shortened(text string) string { return strings.ToValidUTF8(text[:min(len(text), 2000)], "") }

// session returns a session that is open; nil: there is none of that name.
func (s *state) session(name string) *observe.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[name]
}

// killFunc returns the function that kills a process; nil: no such process runs, or it cannot be killed.
func (s *state) killFunc(pid int) func() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.processes[pid]; p != nil {
		return p.kill
	}
	return nil
}

// sessionList returns the sessions, the oldest first, without Waiting.
func (s *state) sessionList() []session {
	s.mu.Lock()
	all := make([]*observe.Session, 0, len(s.sessions))
	for _, o := range s.sessions {
		all = append(all, o)
	}
	s.mu.Unlock()
	list := make([]session, 0, len(all))
	for _, o := range all {
		client := o.Client()
		list = append(list, session{
			Name: o.Name, Server: o.Server, Transport: o.Transport, Era: o.Era(), Revision: o.Revision(), Client: s.redact(client.Name), Version: s.redact(client.Version),
			Principal: o.Principal, Remote: o.Remote, PID: o.PID(), Began: o.Began, Calls: o.Calls(),
		})
	}
	slices.SortFunc(list, func(a, b session) int { return a.Began.Compare(b.Began) })
	return list
}

// processList returns the processes that run, the oldest first, with what they use, and then those that ended, the latest first.
func (s *state) processList() []process {
	running, ended := s.processesNow()
	slices.SortFunc(running, func(a, b process) int { return a.Began.Compare(b.Began) })
	for i := range running {
		if u, ok := supervisor.UsageOf(running[i].PID); ok {
			running[i].Usage = &usage{u.CPU.Seconds(), u.Resident}
		}
	}
	slices.Reverse(ended)
	return append(running, ended...)
}

func (s *state) processesNow() (running, ended []process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running = []process{}
	for _, p := range s.processes {
		running = append(running, *p)
	}
	return running, slices.Clone(s.endedProcesses)
}

func (s *state) noteList() []note {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]note{}, s.notes...)
}
