package upstream

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/stdio"
)

// A processDialer is the Dialer that starts the server's command. It tells the Observer what becomes of each
// process.
type processDialer struct {
	s       *Server       // the configured server
	command stdio.Command // what to run; start adds what is told about one process
	program string        // the program's name without its folder, for the Observer
}

// Dial implements bridge.Dialer: it starts a process, and returns the Conn to it.
func (d *processDialer) Dial(ctx context.Context) (bridge.Conn, error) {
	conn, _, err := d.start(ctx)
	return conn, err
}

// start starts the command, and returns the Conn to the process, and what is known of it. ctx has the session that the
// process works for, if there is one.
func (d *processDialer) start(ctx context.Context) (bridge.Conn, *process, error) {
	p := &process{dialer: d, infoSet: make(chan struct{})}
	p.session.Store(observe.SessionOf(ctx))
	c := d.command
	c.OnStart = p.noteStarted
	c.Spec.Stderr, c.Spec.OnStop, c.Spec.OnExit = p.logStderr, p.reportStopping, p.reportEnded
	noise := c.Options.OnNoise
	c.Options.OnNoise = func(n int, reason string) {
		noise(n, reason)
		p.tellObserver(observe.Noise{Server: p.dialer.s.spec.Name, Session: p.session.Load(), PID: p.pid, Bytes: n, Reason: reason})
	}
	conn, err := c.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	if k, ok := conn.(killer); ok {
		p.killer.Store(&k)
	}
	return conn, p, nil
}

// A process is one running command of a server.
type process struct {
	dialer  *processDialer                  // the processDialer that has started it
	session atomic.Pointer[observe.Session] // the session that it works for; nil: none

	killer atomic.Pointer[killer] // ends it at once; nil: it is only being started

	answered atomic.Bool // it has answered a request

	infoSet   chan struct{} // closed when pid and startedAt are set
	pid       int           // its process id, once infoSet is closed
	startedAt time.Time     // when it was started, once infoSet is closed
}

// programOf returns the name of a program without its folder, which, like the arguments, may hold a secret.
func programOf(path string) string {
	return filepath.Base(path[strings.LastIndexAny(path, `/\`)+1:])
}

// tellObserver passes an event on to Spec.Observer.
func (p *process) tellObserver(e observe.Event) { p.dialer.s.spec.Observer.Event(e) }

// noteStarted sets pid and startedAt, and tells the Observer that the process has started.
func (p *process) noteStarted(pid int) {
	p.pid, p.startedAt = pid, time.Now()
	session := p.session.Load()
	session.SetPID(pid)
	p.tellObserver(observe.ProcessStarted{Server: p.dialer.s.spec.Name, Session: session, PID: pid, Program: p.dialer.program, Kill: p.kill})
	close(p.infoSet)
}

// setSession sets the session for which a process that was started ahead works.
func (p *process) setSession(s *observe.Session) {
	p.session.Store(s)
	s.SetPID(p.pid)
}

// noteAnswered notes that the process has answered a request. With a nil process, that of a remote server, it does nothing.
func (p *process) noteAnswered() {
	if p != nil {
		p.answered.Store(true)
	}
}

// A killer is a Conn to a process that can be killed without stopping it first.
type killer interface{ Kill() error }

// errStarting is the error of kill before the process has a Conn.
var errStarting = errors.New("the process is only being started")

// kill ends the process at once, and waits for its end; for observe.ProcessStarted. The error is errStarting, or says that
// something of the process is left.
func (p *process) kill() error {
	k := p.killer.Load()
	if k == nil {
		return errStarting
	}
	return (*k).Kill()
}

// reportStopping tells the Observer what is done to stop the process: step is the name of that.
func (p *process) reportStopping(step string) {
	p.tellObserver(observe.ProcessStopping{Server: p.dialer.s.spec.Name, PID: p.pid, Step: step})
}

// logStderr tells the Observer of a line that the process has printed on stderr.
func (p *process) logStderr(line []byte) {
	<-p.infoSet // is closed at once
	p.tellObserver(observe.Stderr{Server: p.dialer.s.spec.Name, Session: p.session.Load(), PID: p.pid, Line: string(line)})
}

// reportEnded tells the Observer that the process has ended, with err (nil: status 0). asked: the bridge has
// stopped it.
func (p *process) reportEnded(err error, asked bool) {
	<-p.infoSet
	p.tellObserver(observe.ProcessEnded{
		Server: p.dialer.s.spec.Name, Session: p.session.Load(), PID: p.pid, Program: p.dialer.program,
		Err: err, StopRequested: asked, Answered: p.answered.Load(), Lasted: time.Since(p.startedAt),
	})
}
