package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// Options say how a command is diagnosed. The zero value works.
type Options struct {
	// SafeEnv and Full are environments besides Spec.Env: one that has only what clients pass
	// to servers, and one with all variables. nil: that is not tried.
	SafeEnv, FullEnv []string

	// Call names a tool that is called once with Arguments, a JSON object. "": none is.
	Call      string
	Arguments []byte

	// Slow allows a minute for the first answer, and no limit for the whole.
	Slow bool

	// MaxMessageSize is the longest line that counts as a message, in bytes; 0 means no limit.
	MaxMessageSize int

	// Patience is how long the first answer may take; 0 means 8 s, or a minute with Slow.
	Patience time.Duration
	// SlowStart is when a start counts as slow; 0 means 4 s.
	SlowStart time.Duration
	// EndTimeout is how long the server may take to end after the end of its input, and again
	// after SIGTERM; 0 means 2 s, as in the SDKs' clients.
	EndTimeout time.Duration
}

// Limits of time.
const (
	suspectAfter      = 3 * time.Second  // without the first answer; then further processes are asked, too
	totalTimeout      = 16 * time.Second // for all that is asked; a process that will not end takes longer
	defaultPatience   = 8 * time.Second
	slowPatience      = time.Minute
	slowStart         = 4 * time.Second
	defaultEndTimeout = 2 * time.Second
	callPatience      = 3 * time.Second // for an answer of a server that has answered before
	checksAtATime     = 3
)

// The ids of requests that begin a conversation. ids asks with others.
const firstID, secondID = "100", "99"

// diagnosis is one run of Diagnose.
type diagnosis struct {
	spec     supervisor.Spec
	options  Options
	report   *doctor.Report
	deadline time.Time // when no more may be asked

	mu        sync.Mutex // guards what follows
	timings   []string
	stopErr   error
	revisions map[string]string // what was answered to initialize, by what was asked for
}

// Diagnose finds out what is wrong with the server that spec starts, and adds it to r. It
// returns an error if it could not find that out: ctx has ended, or the system gives no
// process. Spec.Stderr and Spec.OnContainer are not called.
func Diagnose(ctx context.Context, spec supervisor.Spec, o Options, r *doctor.Report) error {
	o.Patience = cmp.Or(o.Patience, map[bool]time.Duration{false: defaultPatience, true: slowPatience}[o.Slow])
	o.SlowStart, o.EndTimeout = cmp.Or(o.SlowStart, slowStart), cmp.Or(o.EndTimeout, defaultEndTimeout)
	d := &diagnosis{spec: spec, options: o, report: r, deadline: time.Now().Add(totalTimeout), revisions: map[string]string{}}
	d.spec.Stderr, d.spec.OnContainer = nil, nil
	// The doctor looks how the server ends; a client's waits would only take longer.
	d.spec.Stop = supervisor.StopWaits{Stdin: 500 * time.Millisecond, Term: o.EndTimeout}
	if o.Slow {
		d.deadline = time.Now().Add(time.Hour)
	}
	d.hideSecrets()
	r.Fact("transport", "stdio")
	diagnoseArguments(spec.Args, r)
	d.locate()
	err := d.run(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.timings) > 0 {
		r.Fact("timings", "%s", strings.Join(d.timings, ", "))
	}
	return errors.Join(err, d.stopErr, ctx.Err())
}

// run asks the server, then further processes of it.
func (d *diagnosis) run(ctx context.Context) error {
	server, err := d.start(ctx, nil)
	if err != nil {
		return d.cannotStart(err)
	}
	q := server.ask(firstID, "initialize", initializeParams(era.NewestLegacy), false)
	defer q.forget()
	first := q.await(ctx, min(d.firstWait(), d.suspicion()))
	if first.outcome == silent {
		first = d.suspected(ctx, server, q)
	}
	switch {
	case first.outcome == silent: // of which suspected has told
		return nil
	case first.ok():
		start := server.sinceStart(first)
		d.converse(ctx, server, first)
		d.end(server)
		d.separateChecks(ctx, start)
		return nil
	}
	d.refused(ctx, server, first)
	return nil
}

// converse asks a server that has answered initialize all that one client would.
func (d *diagnosis) converse(ctx context.Context, server *peer, first reply) {
	d.noteTook("first answer after %v", server.sinceStart(first))
	s := &session{peer: server, diagnosis: d, result: first.message.Result()}
	d.initialized(s.result)
	server.notify("notifications/initialized")
	s.lists(ctx)
	s.ids(ctx)
	s.callTool(ctx)
	d.bytes(server)
}

// refused tells why the server has not answered initialize with a result: because it has
// ended, or because it does not want to. A server that speaks 2026-07-28 only may do the latter.
func (d *diagnosis) refused(ctx context.Context, server *peer, first reply) {
	if first.outcome != exited {
		d.end(server)
		d.bytes(server)
		switch {
		case first.outcome == echoed:
			d.add("C7", doctor.Error, "the command sends back what it is sent", "the request initialize came back",
				"It is no MCP server, but a program that copies its input to its output, as cat does.", "Check the command and its arguments.")
		case first.outcome == answered && !d.onlyModern(ctx, nil):
			d.refusedInitialize(first)
		}
		return
	}
	how, ended := server.exit()
	d.stop(server)
	d.bytes(server)
	if d.onlyModern(ctx, &badInitialize{"ends when it is sent initialize", how}) {
		return
	}
	d.exited(server, how, ended)
	d.missingVariable(ctx)
}

// start starts a process of the server. env is nil for that of the spec.
func (d *diagnosis) start(ctx context.Context, env []string) (*peer, error) {
	spec := d.spec
	if env != nil {
		spec.Env = env
	}
	return start(ctx, spec, d.options.MaxMessageSize)
}

// sinceStart returns how long after the start of the process the answer to its first
// request was there.
func (p *peer) sinceStart(first reply) time.Duration {
	return p.firstAsked.Sub(p.began) + first.took
}

// stop ends a process without looking how.
func (d *diagnosis) stop(p *peer) {
	if err := p.stop(); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stopErr = errors.Join(d.stopErr, err)
	}
}

// timeLeft returns how much time there is for further questions.
func (d *diagnosis) timeLeft() time.Duration { return time.Until(d.deadline) }

// firstWait is how long the first answer of a process may take.
func (d *diagnosis) firstWait() time.Duration { return max(0, min(d.options.Patience, d.timeLeft())) }

// suspicion is after which silence further processes are asked.
func (d *diagnosis) suspicion() time.Duration { return min(suspectAfter, d.options.Patience/2) }

// answerWait is how long a further answer may take.
func (d *diagnosis) answerWait() time.Duration {
	return max(0, min(callPatience, d.options.Patience, d.timeLeft()))
}

// noteTook notes how long something took.
func (d *diagnosis) noteTook(format string, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	unit := time.Millisecond
	if took < 10*time.Millisecond {
		unit = 10 * time.Microsecond
	}
	d.timings = append(d.timings, fmt.Sprintf(format, took.Round(unit)))
}

// add adds a finding.
func (d *diagnosis) add(code string, severity doctor.Severity, title, seen, means, do string) {
	d.report.Add(doctor.Finding{Code: code, Severity: severity, Title: title, Seen: seen, Means: means, Do: do})
}

// hideSecrets keeps what looks like a credential in the environment out of the report:
// servers like to print it when it is wrong.
func (d *diagnosis) hideSecrets() {
	for _, v := range slices.Concat(d.spec.Env, d.options.FullEnv) {
		name, value, _ := strings.Cut(v, "=")
		if isSensitive(name) && isValue(value) {
			d.report.Hide(value)
		} else if _, secret := secretIn(value); secret != "" {
			d.report.Hide(secret)
		}
	}
}

// cannotStart is C1. Other errors are the system's.
func (d *diagnosis) cannotStart(err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !isBadProgram(err) {
		return err
	}
	d.notFound(err)
	return nil
}
