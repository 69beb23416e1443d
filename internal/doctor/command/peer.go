package command

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// outcome is what has become of a request.
type outcome int

const (
	answered outcome = iota // with a result or an error
	tooLong                 // with a line longer than the limit
	echoed                  // with the request itself
	exited                  // the server has ended, or closed its stdout
	silent                  // no answer in time
)

// reply is the answer to a request, if there is one.
type reply struct {
	outcome outcome
	message jsonrpc.Message // answered: under an id that may not be the one that was asked with
	took    time.Duration   // since the request
}

// ok reports whether the reply has a result.
func (r reply) ok() bool { return r.outcome == answered && !r.message.IsError() }

// A peer is one process that was started. Its methods may be called concurrently, but for
// end. Whoever has started it must call end or stop.
type peer struct {
	process     *supervisor.Process
	began       time.Time
	inputQueue  chan []byte   // what is to be written to stdin
	written     chan struct{} // closed when nothing is written any more
	stdoutEnded chan struct{} // closed when stdout has ended

	mu         sync.Mutex // guards what follows
	firstAsked time.Time  // when the first request was sent
	out        *output
	waiting    map[string]chan reply // by the id's text
	anyID      chan reply            // gets answers to nothing that was asked, if it is not nil
	containers []string              // that had to be killed

	record  *doctor.Recording // nil: nothing is recorded
	session string            // its name there
}

// start starts a process. max bounds its lines, see output.
func start(ctx context.Context, spec supervisor.Spec, max int) (*peer, error) {
	p := &peer{
		inputQueue: make(chan []byte, 64), written: make(chan struct{}), stdoutEnded: make(chan struct{}),
		waiting: make(map[string]chan reply),
	}
	p.out = newOutput(max, p.arrived, p.overlong)
	spec.OnContainer = func(id string, _ error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.containers = append(p.containers, id)
	}
	p.began = time.Now()
	process, err := supervisor.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.process = process
	p.record = doctor.RecordingOf(ctx)
	p.session = p.record.NewSession()
	p.record.Process(p.session, trace.Event{Action: "started", PID: process.Pid(), Program: filepath.Base(spec.Path)})
	go p.read()
	go p.write()
	return p, nil
}

// read is the goroutine that reads stdout; stop waits for it.
func (p *peer) read() {
	defer close(p.stdoutEnded)
	b := make([]byte, 64<<10)
	for {
		n, err := p.process.Stdout().Read(b)
		p.mu.Lock()
		p.out.write(b[:n])
		if err != nil {
			p.out.end()
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// write is the goroutine that writes to stdin; stop waits for it.
func (p *peer) write() {
	defer close(p.written)
	var err error
	for line := range p.inputQueue {
		if err == nil {
			if _, err = p.process.Stdin().Write(line); err == nil {
				p.record.Message(p.session, "stdio", trace.ToServer, line)
			}
		}
	}
}

// arrived takes a message of the server; mu is held.
func (p *peer) arrived(m jsonrpc.Message) {
	p.record.Message(p.session, "stdio", trace.ToClient, m.Bytes())
	switch m.Kind() {
	case jsonrpc.Response:
		p.resolve(m.ID(), reply{message: m})
	case jsonrpc.Request:
		if m.Method() == "initialize" || m.Method() == "server/discover" { // no server sends these
			p.resolve(m.ID(), reply{outcome: echoed})
			return
		}
		answer := jsonrpc.NewError(m.ID(), jsonrpc.CodeMethodNotFound, "mcp-bridge doctor offers nothing to servers", nil)
		if m.Method() == "ping" {
			answer = jsonrpc.NewResult(m.ID(), []byte("{}"))
		}
		select {
		case p.inputQueue <- line(answer):
		default: // a server that asks without reading gets no answers
		}
	}
}

// overlong takes the id of an answer that was too long; mu is held.
func (p *peer) overlong(id jsonrpc.ID) { p.resolve(id, reply{outcome: tooLong}) }

func (p *peer) resolve(id jsonrpc.ID, r reply) {
	to, known := p.waiting[id.String()]
	if !known {
		to = p.anyID
	}
	select {
	case to <- r: // nil takes none
	default:
	}
}

func line(m jsonrpc.Message) []byte { return append(slices.Clone(m.Bytes()), '\n') }

// A pendingRequest is a request that was sent. Whoever has asked it must call forget.
type pendingRequest struct {
	peer  *peer
	id    string
	anyID bool
	to    chan reply
	asked time.Time
}

// ask sends a request. id is JSON. With anyID an answer to nothing that was asked counts as
// this request's.
func (p *peer) ask(id, method, params string, anyID bool) *pendingRequest {
	ident, _ := jsonrpc.ParseID([]byte(id))
	q := &pendingRequest{peer: p, id: id, anyID: anyID, to: make(chan reply, 1), asked: time.Now()}
	p.mu.Lock()
	p.waiting[id] = q.to
	if anyID {
		p.anyID = q.to
	}
	if p.firstAsked.IsZero() {
		p.firstAsked = q.asked
	}
	p.mu.Unlock()
	select {
	case p.inputQueue <- line(jsonrpc.NewRequest(ident, method, []byte(params))):
	default: // a server that reads nothing answers nothing
	}
	return q
}

// await waits for the answer, at most for patience. It may be called again after silence.
func (q *pendingRequest) await(ctx context.Context, patience time.Duration) reply {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	r := reply{outcome: silent}
	select {
	case r = <-q.to:
	case <-q.peer.stdoutEnded:
		r.outcome = exited
		select {
		case r = <-q.to: // it was among the last bytes
		default:
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	r.took = time.Since(q.asked)
	return r
}

// forget says that the answer is of no interest any more.
func (q *pendingRequest) forget() {
	q.peer.mu.Lock()
	defer q.peer.mu.Unlock()
	delete(q.peer.waiting, q.id)
	if q.anyID {
		q.peer.anyID = nil
	}
}

// call asks and waits.
func (p *peer) call(ctx context.Context, id, method, params string, patience time.Duration) reply {
	q := p.ask(id, method, params, false)
	defer q.forget()
	return q.await(ctx, patience)
}

// notify sends a notification.
func (p *peer) notify(method string) {
	select {
	case p.inputQueue <- line(jsonrpc.NewNotification(method, nil)):
	default: // the server does not read; the next request finds out
	}
}

// takeUnterminated takes a message that lacks nothing but its line feed, if there is one.
func (p *peer) takeUnterminated() (taken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.takeUnterminated()
}

// faultLines returns the lines of stdout that show a fault, and how many there were.
func (p *peer) faultLines(f fault) (lines []string, count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.out.faults[f]), p.out.counts[f]
}

// stop ends the process and all that belongs to it. It must be called once.
func (p *peer) stop() error {
	err := p.process.Stop()
	<-p.stdoutEnded // the reader sends answers, too
	close(p.inputQueue)
	<-p.written
	ended := trace.Event{Action: "ended", PID: p.process.Pid(), StopRequested: true, Duration: time.Since(p.began)}
	if how := p.process.ExitError(); how != nil {
		ended.Err = how.Error()
	}
	p.record.Process(p.session, ended)
	if err != nil {
		return fmt.Errorf("ending a process of the server: %w", err)
	}
	return nil
}

// exit says how the process ended, if it did by itself: "exit status 3". It waits a moment
// for that: a process that has closed its stdout is most often about to end.
func (p *peer) exit() (how string, ended bool) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-p.process.Done():
	case <-timer.C:
		return "closed its stdout and went on running", false
	}
	if err := p.process.ExitError(); err != nil {
		return err.Error(), true
	}
	return "exit status 0", true
}

// closeInput ends the server's input, as clients do that have finished. What was to be
// written is given up.
func (p *peer) closeInput() { _ = p.process.Stdin().Close() }
