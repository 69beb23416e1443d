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
	outcomeAnswered outcome = iota // the request was answered with a result or an error
	outcomeTooLong                 // the request was answered with a line that is longer than the limit
	outcomeEchoed                  // the request itself came back
	outcomeExited                  // the server has ended or closed its stdout before it answered the request, or could not be started
	outcomeSilent                  // no answer to the request came in time
)

// reply is what came back for a request, or that nothing did.
type reply struct {
	outcome  outcome         // what has become of the request
	message  jsonrpc.Message // with outcomeAnswered: the response; its id may not be the one that was asked with
	duration time.Duration   // from the sending of the request until awaitReply had this reply, or stopped waiting
}

// hasResult reports whether the request was answered with a result, and not with an error.
func (r reply) hasResult() bool { return r.outcome == outcomeAnswered && !r.message.IsError() }

// A serverProcess is one process of the server that was started. Its methods may be called concurrently, but for stop, which
// whoever has started it must call.
type serverProcess struct {
	process      *supervisor.Process // the process itself
	startedAt    time.Time           // when it was started
	inputQueue   chan []byte         // lines, with their line breaks, that writeStdin is to write; stop closes it
	writingEnded chan struct{}       // closed when writeStdin has returned
	stdoutEnded  chan struct{}       // closed when stdout has ended

	mu               sync.Mutex            // guards what follows, down to killedContainers
	firstRequestAt   time.Time             // when the first request was sent; zero: none was
	output           *stdoutParser         // takes stdout apart
	replyChans       map[string]chan reply // channels of those who wait for an answer, by id as it is spelled in JSON
	strayReplies     chan reply            // gets an answer whose id nobody waits for; nil: it is dropped
	killedContainers []string              // ids of containers that the server had left running, and that were killed

	recording       *doctor.Recording // where messages are recorded; nil: nowhere
	recordedSession string            // name of this process's session in recording
}

// startProcess starts a process of a server, and the goroutines that read its stdout and write its stdin; stop ends them. maxLineBytes is
// how long a message may be, in bytes; 0: no limit. What is said is recorded in the Recording of ctx, if there is one.
func startProcess(ctx context.Context, spec supervisor.Spec, maxLineBytes int) (*serverProcess, error) {
	p := &serverProcess{
		inputQueue: make(chan []byte, 64), writingEnded: make(chan struct{}), stdoutEnded: make(chan struct{}),
		replyChans: make(map[string]chan reply),
	}
	p.output = newStdoutParser(maxLineBytes, p.handleMessage, p.handleTooLongAnswer)
	spec.OnContainer = func(id string, _ error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.killedContainers = append(p.killedContainers, id)
	}
	p.startedAt = time.Now()
	process, err := supervisor.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	p.process = process
	p.recording = doctor.RecordingOf(ctx)
	p.recordedSession = p.recording.NewSession()
	p.recording.RecordProcessEvent(p.recordedSession, trace.Event{Action: "started", PID: process.PID(), Program: filepath.Base(spec.Path)})
	go p.readStdout()
	go p.writeStdin()
	return p, nil
}

// readStdout is the goroutine that reads stdout; stop waits for it.
func (p *serverProcess) readStdout() {
	defer close(p.stdoutEnded)
	b := make([]byte, 64<<10)
	for {
		n, err := p.process.Stdout().Read(b)
		p.mu.Lock()
		p.output.write(b[:n])
		if err != nil {
			p.output.finish()
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// writeStdin is the goroutine that writes inputQueue to stdin; stop waits for it. After an error it throws lines away.
func (p *serverProcess) writeStdin() {
	defer close(p.writingEnded)
	var err error
	for line := range p.inputQueue {
		if err == nil {
			if _, err = p.process.Stdin().Write(line); err == nil {
				p.recording.RecordMessage(p.recordedSession, "stdio", trace.ToServer, line)
			}
		}
	}
}

// handleMessage takes a message of the server: it hands on a response, answers a request if inputQueue has room, and only records a
// notification. A request that only clients send is not answered: the process has echoed it (outcomeEchoed). mu is held.
func (p *serverProcess) handleMessage(m jsonrpc.Message) {
	p.recording.RecordMessage(p.recordedSession, "stdio", trace.ToClient, m.Bytes())
	switch m.Kind() {
	case jsonrpc.Response:
		p.deliverReply(m.ID(), reply{message: m})
	case jsonrpc.Request:
		if m.Method() == "initialize" || m.Method() == "server/discover" { // no server sends these
			p.deliverReply(m.ID(), reply{outcome: outcomeEchoed})
			return
		}
		answer := jsonrpc.NewError(m.ID(), jsonrpc.CodeMethodNotFound, "mcp-bridge doctor offers nothing to servers", nil)
		if m.Method() == "ping" {
			answer = jsonrpc.NewResult(m.ID(), []byte("{}"))
		}
		select {
		case p.inputQueue <- encodeLine(answer):
		default: // a server that asks without reading gets no answers
		}
	}
}

// handleTooLongAnswer takes the id of an answer that was too long to be read. It is called with mu held.
func (p *serverProcess) handleTooLongAnswer(id jsonrpc.ID) {
	p.deliverReply(id, reply{outcome: outcomeTooLong})
}

// deliverReply gives r to whoever waits for an answer with this id, or else to strayReplies. It is called with mu held.
func (p *serverProcess) deliverReply(id jsonrpc.ID, r reply) {
	to, known := p.replyChans[id.String()]
	if !known {
		to = p.strayReplies
	}
	select {
	case to <- r: // nil takes none
	default:
	}
}

// encodeLine returns a message as a line, with its line feed.
func encodeLine(m jsonrpc.Message) []byte { return append(slices.Clone(m.Bytes()), '\n') }

// A pendingRequest is a request that was sent. Whoever has sent it must call stopAwaiting.
type pendingRequest struct {
	process    *serverProcess // the process that it was sent to
	id         string         // the id of the request, as it is spelled in JSON
	takesAnyID bool           // an answer whose id nobody waits for counts as the answer, too
	replies    chan reply     // gets the answer; it has room for one
	sentAt     time.Time      // when it was sent
}

// sendRequest has writeStdin send a request, and waits for nothing. If inputQueue is full, because the server reads nothing, the
// request is dropped. id and params are JSON. With anyID an answer whose id nobody waits for counts as the answer to this request.
func (p *serverProcess) sendRequest(id, method, params string, anyID bool) *pendingRequest {
	ident, _ := jsonrpc.ParseID([]byte(id))
	q := &pendingRequest{process: p, id: id, takesAnyID: anyID, replies: make(chan reply, 1), sentAt: time.Now()}
	p.mu.Lock()
	p.replyChans[id] = q.replies
	if anyID {
		p.strayReplies = q.replies
	}
	if p.firstRequestAt.IsZero() {
		p.firstRequestAt = q.sentAt
	}
	p.mu.Unlock()
	select {
	case p.inputQueue <- encodeLine(jsonrpc.NewRequest(ident, method, []byte(params))):
	default: // a server that reads nothing answers nothing
	}
	return q
}

// awaitReply waits for the answer, or for the end of the process's stdout (outcomeExited), at most for patience and until ctx is done:
// then the outcome is outcomeSilent, and awaitReply may be called again.
func (q *pendingRequest) awaitReply(ctx context.Context, patience time.Duration) reply {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	r := reply{outcome: outcomeSilent}
	select {
	case r = <-q.replies:
	case <-q.process.stdoutEnded:
		r.outcome = outcomeExited
		select {
		case r = <-q.replies: // it was among the last bytes
		default:
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	r.duration = time.Since(q.sentAt)
	return r
}

// stopAwaiting says that the answer is not waited for any more: it is dropped if it comes.
func (q *pendingRequest) stopAwaiting() {
	q.process.mu.Lock()
	defer q.process.mu.Unlock()
	delete(q.process.replyChans, q.id)
	if q.takesAnyID {
		q.process.strayReplies = nil
	}
}

// request sends a request and waits for its answer, for patience at most. id and params are JSON.
func (p *serverProcess) request(ctx context.Context, id, method, params string, patience time.Duration) reply {
	q := p.sendRequest(id, method, params, false)
	defer q.stopAwaiting()
	return q.awaitReply(ctx, patience)
}

// notify has writeStdin send a notification without params. If inputQueue is full, the notification is dropped.
func (p *serverProcess) notify(method string) {
	select {
	case p.inputQueue <- encodeLine(jsonrpc.NewNotification(method, nil)):
	default: // the server does not read; the next request finds out
	}
}

// acceptUnterminated takes the line that stdout has begun, if it is a message that lacks nothing but its line feed, and reports
// whether it is. Stdout need not have ended.
func (p *serverProcess) acceptUnterminated() (taken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.acceptUnterminated()
}

// faultLines returns the first few lines of stdout that show the fault f, and how often it was seen.
func (p *serverProcess) faultLines(f stdoutFault) (lines []string, count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.output.faultLines[f]), p.output.faultCounts[f]
}

// stop ends the process and all that it has started, and waits for its two goroutines. It must be called once.
func (p *serverProcess) stop() error {
	err := p.process.Stop()
	<-p.stdoutEnded // the reader sends answers, too
	close(p.inputQueue)
	<-p.writingEnded
	ended := trace.Event{Action: "ended", PID: p.process.PID(), StopRequested: true, Duration: time.Since(p.startedAt)}
	if how := p.process.ExitError(); how != nil {
		ended.Err = how.Error()
	}
	p.recording.RecordProcessEvent(p.recordedSession, ended)
	if err != nil {
		return fmt.Errorf("ending a process of the server: %w", err)
	}
	return nil
}

// awaitExit returns how the process has ended by itself, such as "exit status 3". It waits a second for the end, because a
// process that has closed its stdout is most often about to end. ended is false if the process runs on; then how says that it does.
func (p *serverProcess) awaitExit() (how string, ended bool) {
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

// closeStdin ends the server's input, as clients do that have finished. Lines that were not
// written yet are given up.
func (p *serverProcess) closeStdin() { _ = p.process.Stdin().Close() }
