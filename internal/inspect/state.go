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

const (
	maxEndedProcesses = 50  // how many processes that have ended are kept, the latest
	maxNotes          = 200 // how many notes are kept, the latest
)

// state is an observe.EventWatcher that knows which sessions and processes there are, and keeps the latest ended processes and notes.
type state struct {
	redact func(string) string // takes secrets out of a text

	mu             sync.Mutex                  // guards the fields below
	sessions       map[string]*observe.Session // the open sessions, by name
	processes      map[int]*process            // the processes that run, by id
	endedProcesses []process                   // the processes that have ended, maxEndedProcesses at most, the latest last
	notes          []note                      // the notes, maxNotes at most, the latest last
}

// process is what the API says of a process of a server.
type process struct {
	PID           int        `json:"pid"`               // the process id
	Server        string     `json:"server"`            // the name of the server
	Session       string     `json:"session,omitempty"` // the name of the session for which it runs, of a shared process one of its own; "": it was started before any client came
	Program       string     `json:"program"`           // the program that it runs
	Began         time.Time  `json:"began"`             // when it was started
	StopStep      string     `json:"step,omitempty"`    // the last step that the bridge took to end it: "close stdin", "terminate" or "kill"; "": none
	Ended         *time.Time `json:"ended,omitempty"`   // when it has ended; nil: it runs
	StopRequested bool       `json:"asked,omitempty"`   // it has ended, and the bridge had asked it to
	Err           string     `json:"err,omitempty"`     // how it has ended; "": it runs, or its exit status was 0
	Usage         *usage     `json:"usage,omitempty"`   // what it uses now; nil: it has ended, or the system does not tell

	kill func() error // ends it at once; nil: it has ended
}

// usage is what the API says of the use of the machine by a process and its descendants.
type usage struct {
	CPU      float64 `json:"cpuSeconds"`    // processor time used so far, in seconds
	Resident int64   `json:"residentBytes"` // memory in use now, in bytes
}

// session is what the API says of a session.
type session struct {
	Name      string    `json:"name"`                // the name of the session, by which the API and the log call it
	Server    string    `json:"server"`              // the name of the server
	Transport string    `json:"transport"`           // the transport over which the client has come in (observe.Session.Transport)
	Era       string    `json:"era,omitempty"`       // which era the client speaks; "": not known yet
	Revision  string    `json:"revision,omitempty"`  // which revision of the protocol the client speaks; "": not known yet
	Client    string    `json:"client,omitempty"`    // what the client calls itself; "": not known
	Version   string    `json:"version,omitempty"`   // the version of the client's program, as the client says it; "": not known
	Principal string    `json:"principal,omitempty"` // who the client is, as its token or certificate says; "": nobody was authenticated
	Remote    string    `json:"remote,omitempty"`    // where the client comes from; "": not known
	PID       int       `json:"pid,omitempty"`       // the latest process that works, or has worked, for the session; 0: none
	Began     time.Time `json:"began"`               // when the session began, before the client had said who it is
	Calls     uint64    `json:"calls"`               // how many requests the client has sent so far
	Waiting   int       `json:"waiting"`             // how many requests of the client have no answer yet
}

// note is what the API says of something that was late, refused or wrong, or that a diagnosis in passing has found (observe.Note).
type note struct {
	Time    time.Time `json:"time"`              // when it was seen
	Server  string    `json:"server"`            // the name of the server
	Session string    `json:"session,omitempty"` // the name of the session in which it was seen; "": in none, or not known
	Code    string    `json:"code"`              // what it is: a word such as "late", the rule by which something was refused, or the code of a diagnosis
	Text    string    `json:"text"`              // what it says, without secrets, and shortened
}

// newState returns a state without sessions and processes. redact takes secrets out of a text.
func newState(redact func(string) string) *state {
	return &state{redact: redact, sessions: make(map[string]*observe.Session), processes: make(map[int]*process)}
}

// Event implements observe.EventWatcher: it notes which sessions and processes begin and end, and keeps what becomes a note.
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

// processEnded moves a process to endedProcesses, and forgets the oldest of these beyond maxEndedProcesses. mu is held.
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

// addNote adds a note with the present time, without secrets and shortened, and forgets the oldest beyond maxNotes. of is the session,
// which may be nil. mu is held.
func (s *state) addNote(server string, of *observe.Session, code, text string) {
	s.notes = append(s.notes, note{time.Now(), server, sessionName(of), code, shortened(s.redact(text))})
	if n := len(s.notes); n > maxNotes {
		s.notes = slices.Delete(s.notes, 0, n-maxNotes)
	}
}

// shortened returns the beginning of a text, 2000 bytes at most, which is what a note keeps. Secrets must be taken out before: half a
// secret would not be found.
func shortened(text string) string { return strings.ToValidUTF8(text[:min(len(text), 2000)], "") }

// session returns the open session with this name; nil: there is none.
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

// sessionList returns what the API says of the open sessions, the oldest first; the field Waiting is not set.
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

// processesNow returns copies of the processes that run, in any order, and of those that have ended, the latest last.
func (s *state) processesNow() (running, ended []process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running = []process{}
	for _, p := range s.processes {
		running = append(running, *p)
	}
	return running, slices.Clone(s.endedProcesses)
}

// noteList returns a copy of the notes, the latest last.
func (s *state) noteList() []note {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]note{}, s.notes...)
}
