package remote

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
)

// Options say how the server is reached, and what is asked. The zero value works.
type Options struct {
	Header http.Header // headers that the user has added to every request to the server, as with --header
	TLS    *tls.Config // as httpdial.LoadTLSConfig returns it; nil: the system's authorities, and no client certificate

	// UsesStoredCredential says that the Authorization in Header is the stored credential of a sign-in. It is sent to
	// the address that is examined, and to other addresses of its origin only if they belong to CredentialResource.
	UsesStoredCredential bool
	CredentialResource   string // URL of the resource for which the stored credential is; "": not known
	NoCredentialReason   string // why no stored credential is sent; "": nobody has looked for one, or it is sent
	IsCredentialBound    bool   // there is a stored credential, but it is bound to a key (DPoP), so it is not sent
	NeedsNoPerson        bool   // the client gets its tokens by itself, so that nobody is told to sign in

	// LoginCommand is the command that signs in, as it is written in a shell, without the URL; the report advises it. "":
	// "mcp-bridge login".
	LoginCommand string

	// TimeSpent is how much of the time that Diagnose may take is used up already.
	TimeSpent time.Duration

	// RunSlowChecks adds the checks that wait for minutes.
	RunSlowChecks bool

	// ToolToCall is the name of a tool that is called once. "": no tool is called.
	ToolToCall string
	Arguments  json.RawMessage // arguments of the call of ToolToCall, a JSON object; empty: {}

	quietStreamWait time.Duration // how long checkIdleStream waits for the end of a quiet stream; 0: defaultQuietStreamWait
	callTimeout     time.Duration // how long the answer to the call of ToolToCall may take; 0: answerTimeout, or slowAnswerTimeout with RunSlowChecks
}

const (
	totalTimeout           = 17 * time.Second  // how long all checks may take together, but for cleanup and the slow ones
	cleanupTimeout         = 2 * time.Second   // how long cleanup may take to end what was opened at the server
	answerTimeout          = 8 * time.Second   // how long an answer may take; also the first, for which the server may have to start
	slowAnswerTimeout      = time.Minute       // how long the first answer may take with RunSlowChecks, and that to the call of ToolToCall
	checkTimeout           = 5 * time.Second   // how long one check, or a stream or large message of it, may take, after the first answer; runConcurrently gives a check a second more
	recheckTimeout         = 5 * time.Second   // how much of totalTimeout is kept for runRechecks; at most half of what is left
	defaultQuietStreamWait = 330 * time.Second // the default of Options.quietStreamWait
)

// Diagnose finds out what is wrong with the server at address and adds it to r. It takes
// less than 20 seconds, but with Options.RunSlowChecks. An error says that the diagnosis could not
// be made: the address or a header is not valid, or ctx was done.
func Diagnose(ctx context.Context, address string, o Options, r *doctor.Report) error {
	p, err := newProber(address, o, r)
	if err != nil {
		return err
	}
	defer p.Close()
	whole := totalTimeout - o.TimeSpent
	if o.RunSlowChecks {
		whole += slowAnswerTimeout
	}
	bounded, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	if (connection{p}).canConnect(bounded) {
		p.diagnose(ctx, bounded)
	}
	p.cleanup()
	p.reportFacts()
	p.addTooManyRequests()
	return ctx.Err()
}

// diagnose finds out which protocol the server speaks, and runs the checks for that. ctx has the time limit of Diagnose;
// checkIdleStream, which waits for minutes, runs under slow, which has none.
func (p *prober) diagnose(slow, ctx context.Context) {
	found := identification{p}.identify(ctx)
	p.ReplyTimeout = answerTimeout
	switch {
	case found.sse != nil:
		found.sse.openSession(ctx)
	case found.legacy != nil && !found.legacy.checkSession(ctx):
		found.legacy = nil // all checks of the session would fail for the same reason
	}
	t := found.requester()
	if t == nil {
		return
	}
	common := commonChecks{p, t}
	early, cancel := reserveTime(ctx, recheckTimeout)
	defer cancel()
	p.runConcurrently(early,
		common.noteLists,
		common.checkMediaTypes,
		corsChecks{p, found}.checkCORS,
		common.checkConnectionReuse,
		found.modern.checkSubscription,
		found.modern.checkHeaders,
		found.legacy.checkUnknownSession,
		found.legacy.checkGetStream,
		found.legacy.checkResume,
	)
	p.runRechecks(ctx)
	common.checkBodySizes(ctx) // alone: its megabytes would slow the others down
	common.checkToolCall(ctx)
	if p.options.RunSlowChecks {
		p.checkIdleStream(slow, found)
	}
}

// reserveTime returns a context that ends earlier than ctx by the time left, or by half of the time that ctx has if that is
// less.
func reserveTime(ctx context.Context, left time.Duration) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(left, time.Until(end)/2)))
}

// runConcurrently runs checks side by side, each with a time limit of its own, and waits for all.
func (p *prober) runConcurrently(ctx context.Context, checks ...func(context.Context)) {
	var all sync.WaitGroup
	for _, check := range checks {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, checkTimeout+time.Second)
			defer cancel()
			check(ctx)
		})
	}
	all.Wait()
}

// foundProtocols are the protocols that the address speaks. A field is nil if it does not speak that protocol, or if its session does not
// work (checkSession).
type foundProtocols struct {
	legacy *session      // Streamable HTTP of the revisions up to 2025-11-25: a session that was opened
	modern *modernServer // Streamable HTTP of 2026-07-28
	sse    *sseSession   // HTTP+SSE: its event stream is open
}

// A requester makes requests in one of the protocols that a server speaks.
type requester interface {
	// ask makes a request of MCP; change, if not nil, changes how it is sent.
	ask(ctx context.Context, method string, params map[string]any, change func(*probe.Request)) *probe.Reply

	// harmlessMethod returns a method that every server of this protocol has, and that changes nothing: the doctor tries things with it.
	harmlessMethod() string

	// hasCapability reports whether the server has declared the capability.
	hasCapability(capability string) bool
}

// requester returns a requester for one of the protocols that were found; nil: there is none that works.
func (f foundProtocols) requester() requester {
	switch {
	case f.legacy != nil:
		return f.legacy
	case f.modern != nil:
		return f.modern
	case f.sse != nil && f.sse.isInitialized:
		return f.sse
	}
	return nil
}
