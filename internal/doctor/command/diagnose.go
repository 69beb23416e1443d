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
	// SafeEnv is an environment with only the variables that clients pass to servers, with which the server is tried, too.
	// nil: that is not tried.
	SafeEnv []string
	// FullEnv is an environment with all variables, with which a server that fails is tried, too. nil: that is not tried.
	FullEnv []string

	// ToolToCall names a tool that is called once. "": none is.
	ToolToCall string
	// Arguments are the arguments of the call of ToolToCall, a JSON object; empty: {}.
	Arguments []byte

	// AllowSlow allows a minute for the first answer, and an hour for the whole. Also a server that starts slowly is asked all
	// questions then.
	AllowSlow bool

	// MaxMessageSize is how long a line may be to count as a message, in bytes; 0 means no limit.
	MaxMessageSize int

	// FirstAnswerTimeout is how long the first answer of a process may take; 0 means 8 s, or a minute with AllowSlow.
	FirstAnswerTimeout time.Duration
	// SlowStartThreshold is from which time until the first answer on a start counts as slow (C5); 0 means 4 s.
	SlowStartThreshold time.Duration
	// EndTimeout is how long the server may take to end after the end of its input, and again
	// after SIGTERM; 0 means 2 s, as in the SDKs' clients.
	EndTimeout time.Duration
}

const (
	investigateSilenceAfter   = 3 * time.Second  // without a first answer for so long, or for half of FirstAnswerTimeout if that is less, further processes are asked, too
	totalTimeout              = 16 * time.Second // how long all questions may take together without AllowSlow; the end of a process that will not end is not counted
	defaultFirstAnswerTimeout = 8 * time.Second  // the default of Options.FirstAnswerTimeout
	slowFirstAnswerTimeout    = time.Minute      // the default of Options.FirstAnswerTimeout with AllowSlow
	defaultSlowStartThreshold = 4 * time.Second  // the default of Options.SlowStartThreshold
	defaultEndTimeout         = 2 * time.Second  // the default of Options.EndTimeout
	furtherAnswerTimeout      = 3 * time.Second  // how long an answer of a process that has answered before may take
	maxConcurrentChecks       = 3                // how many checks runSeparateChecks runs at a time
)

// firstRequestID is the id of the first request to a process, which begins a conversation.
const firstRequestID = "100"

// secondRequestID is the id of initialize to a process that was asked server/discover before.
const secondRequestID = "99"

// diagnosis is one run of Diagnose.
type diagnosis struct {
	spec     supervisor.Spec // how the server is started
	options  Options         // those of Diagnose, with the defaults set
	report   *doctor.Report  // gets the facts and findings
	deadline time.Time       // from when on no further question may be asked; never zero

	mu                sync.Mutex        // guards what follows
	timings           []string          // texts of noteTiming, for the fact "timings"
	stopErr           error             // why processes could not be stopped; nil: all could
	answeredRevisions map[string]string // protocol versions: by the one that was asked for, the one that the server has answered
}

// Diagnose finds out what is wrong with the server that spec starts, and adds it to r. It
// returns an error if it could not find that out: ctx has ended, or the system cannot start or stop a
// process. Spec.Stderr and Spec.OnContainer are not called, and Spec.Stop does not count.
func Diagnose(ctx context.Context, spec supervisor.Spec, o Options, r *doctor.Report) error {
	o.FirstAnswerTimeout = cmp.Or(o.FirstAnswerTimeout, map[bool]time.Duration{false: defaultFirstAnswerTimeout, true: slowFirstAnswerTimeout}[o.AllowSlow])
	o.SlowStartThreshold, o.EndTimeout = cmp.Or(o.SlowStartThreshold, defaultSlowStartThreshold), cmp.Or(o.EndTimeout, defaultEndTimeout)
	d := &diagnosis{spec: spec, options: o, report: r, deadline: time.Now().Add(totalTimeout), answeredRevisions: map[string]string{}}
	d.spec.Stderr, d.spec.OnContainer = nil, nil
	// The doctor looks how the server ends; a client's waits would only take longer.
	d.spec.Stop = supervisor.StopWaits{Stdin: 500 * time.Millisecond, Term: o.EndTimeout}
	if o.AllowSlow {
		d.deadline = time.Now().Add(time.Hour)
	}
	d.hideSecrets()
	r.SetFact("transport", "stdio")
	diagnoseArguments(spec.Args, r)
	d.checkDesktopPath()
	err := d.diagnose(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.timings) > 0 {
		r.SetFact("timings", "%s", strings.Join(d.timings, ", "))
	}
	return errors.Join(err, d.stopErr, ctx.Err())
}

// diagnose asks a process of the server, then further ones. The error says that the system cannot start one.
func (d *diagnosis) diagnose(ctx context.Context) error {
	server, err := d.startWithEnv(ctx, nil)
	if err != nil {
		return d.handleStartError(err)
	}
	q := server.sendRequest(firstRequestID, "initialize", initializeParams(era.NewestLegacy), false)
	defer q.stopAwaiting()
	first := q.awaitReply(ctx, min(d.firstAnswerWait(), d.silenceWait()))
	if first.outcome == outcomeSilent {
		first = d.investigateSilence(ctx, server, q)
	}
	switch {
	case first.outcome == outcomeSilent: // investigateSilence has told why
		return nil
	case first.hasResult():
		start := server.firstAnswerTime(first)
		d.converse(ctx, server, first)
		d.noteEnding(d.checkEnding(server))
		d.checkSeparately(ctx, start)
		return nil
	}
	d.explainNoResult(ctx, server, first)
	return nil
}

// converse asks server, which has answered initialize with first, all that one client would ask.
func (d *diagnosis) converse(ctx context.Context, server *serverProcess, first reply) {
	d.noteTiming("first answer after %v", server.firstAnswerTime(first))
	s := &session{process: server, diagnosis: d, firstResult: first.message.Result()}
	d.checkInitializeResult(s.firstResult)
	server.notify("notifications/initialized")
	s.checkLists(ctx)
	s.checkIDs(ctx)
	s.callTool(ctx)
	d.addStdoutFindings(server)
}

// explainNoResult adds the findings that say why server has not answered initialize with a result, and ends the process. first is what
// came in place of a result: it has ended, refuses (perhaps because it speaks only 2026-07-28), echoes, or its answer is too long.
func (d *diagnosis) explainNoResult(ctx context.Context, server *serverProcess, first reply) {
	if first.outcome != outcomeExited {
		took := d.checkEnding(server)
		d.addStdoutFindings(server)
		if first.outcome == outcomeAnswered && d.checkOnlyModern(ctx, nil) { // which notes how long the end takes after a whole conversation
			return
		}
		d.noteEnding(took)
		switch first.outcome {
		case outcomeEchoed:
			d.addFinding("C7", doctor.Error, "the command sends back what it is sent", "the request initialize came back",
				"It is no MCP server, but a program that copies its input to its output, as cat does.", "Check the command and its arguments.")
		case outcomeAnswered:
			d.addRefusedInitialize(first)
		}
		return
	}
	how, ended := server.awaitExit()
	d.stopProcess(server)
	d.addStdoutFindings(server)
	if d.checkOnlyModern(ctx, &initializeFailure{"ends when it is sent initialize", how}) {
		return
	}
	d.addEndsAtOnce(server, how, ended)
	d.checkMissingVariable(ctx)
}

// startWithEnv starts a process of the server with an environment; nil: that of the spec. The caller ends it with stopProcess.
func (d *diagnosis) startWithEnv(ctx context.Context, env []string) (*serverProcess, error) {
	spec := d.spec
	if env != nil {
		spec.Env = env
	}
	return startProcess(ctx, spec, d.options.MaxMessageSize)
}

// firstAnswerTime returns how long it took from the start of the process to first, the answer to its first request.
func (p *serverProcess) firstAnswerTime(first reply) time.Duration {
	return p.firstRequestAt.Sub(p.startedAt) + first.duration
}

// stopProcess ends a process, by force if need be, and keeps the error if that fails. It is called once for each process.
func (d *diagnosis) stopProcess(p *serverProcess) {
	if err := p.stop(); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stopErr = errors.Join(d.stopErr, err)
	}
}

// timeLeft returns how much time there is until deadline; below 0: none.
func (d *diagnosis) timeLeft() time.Duration { return time.Until(d.deadline) }

// firstAnswerWait returns how long the first answer of a process may take: FirstAnswerTimeout, or until deadline if that is less; never
// below 0.
func (d *diagnosis) firstAnswerWait() time.Duration {
	return max(0, min(d.options.FirstAnswerTimeout, d.timeLeft()))
}

// silenceWait returns how long the first answer may take until investigateSilence asks further processes.
func (d *diagnosis) silenceWait() time.Duration {
	return min(investigateSilenceAfter, d.options.FirstAnswerTimeout/2)
}

// answerWait returns how long an answer of a process that has answered before may take: furtherAnswerTimeout, or FirstAnswerTimeout or
// until deadline if that is less; never below 0.
func (d *diagnosis) answerWait() time.Duration {
	return max(0, min(furtherAnswerTimeout, d.options.FirstAnswerTimeout, d.timeLeft()))
}

// noteTiming adds how long something took to the fact "timings". format has a %v for the time.
func (d *diagnosis) noteTiming(format string, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	unit := time.Millisecond
	if took < 10*time.Millisecond {
		unit = 10 * time.Microsecond
	}
	d.timings = append(d.timings, fmt.Sprintf(format, took.Round(unit)))
}

// addFinding adds a finding to the report; seen is its evidence, means its consequence, and do its advice.
func (d *diagnosis) addFinding(code string, severity doctor.Severity, title, seen, means, do string) {
	d.report.AddFinding(doctor.Finding{Code: code, Severity: severity, Title: title, Evidence: seen, Consequence: means, Advice: do})
}

// hideSecrets keeps what looks like a credential in the environment out of the report:
// servers like to print it when it is wrong.
func (d *diagnosis) hideSecrets() {
	for _, v := range slices.Concat(d.spec.Env, d.options.FullEnv) {
		name, value, _ := strings.Cut(v, "=")
		if isSecretName(name) && mayBeSecret(value) {
			d.report.HideSecrets(value)
		} else if _, secret := findSecret(value); secret != "" {
			d.report.HideSecrets(secret)
		}
	}
}

// handleStartError adds C1 if the command is the reason that no process was started, and returns nil. Other errors are the
// system's, and returned.
func (d *diagnosis) handleStartError(err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !isBadProgram(err) {
		return err
	}
	d.addCommandNotFound(err)
	return nil
}
