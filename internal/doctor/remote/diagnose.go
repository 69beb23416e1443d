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

// Options say how the server is reached. The zero value works.
type Options struct {
	Header http.Header // on every request to the server, as the bridge's --header
	TLS    *tls.Config // httpdial.LoadTLS; nil: the system's authorities, and no certificate of ours

	// Stored says that the Authorization in Header is the stored credential of a sign-in, for this resource ("": that is not known). It is
	// sent to the address that is examined, and to others of its origin only where they belong to the resource. NoStored is why there is
	// none; "": nobody has looked. Bound: there is one, but it is bound to a key (DPoP), so it is not sent.
	Stored   bool
	Resource string
	NoStored string
	Bound    bool

	// Login is the command that signs in, as a shell takes it, for the account that is meant. "": without flags.
	Login string

	// Spent is what was used before of the time that Diagnose may take.
	Spent time.Duration

	// Slow adds the checks that wait for minutes.
	Slow bool

	// Call is the name of a tool that is called once with Arguments, a JSON object.
	// "": no tool is called.
	Call      string
	Arguments json.RawMessage

	quiet    time.Duration // how long Slow waits; 0: slowQuiet
	callWait time.Duration // for the answer to Call; 0: answerTimeout, or slowAnswer with Slow
}

// How long things may take.
const (
	totalTimeout   = 17 * time.Second // everything but cleaning up and what is slow
	cleanupTimeout = 2 * time.Second
	answerTimeout  = 8 * time.Second // the first answer: the server may have to start
	slowAnswer     = time.Minute     // with Slow
	checkTimeout   = 5 * time.Second // each check that follows
	recheckTimeout = 5 * time.Second // of totalTimeout, at most half as much as is left: what is checked again
	slowQuiet      = 330 * time.Second
)

// Diagnose finds out what is wrong with the server at address and adds it to r. It takes
// less than 20 seconds, but with Options.Slow. An error says that the diagnosis could not
// be made: the address or a header is not valid, or ctx was done.
func Diagnose(ctx context.Context, address string, o Options, r *doctor.Report) error {
	p, err := newProber(address, o, r)
	if err != nil {
		return err
	}
	defer p.Close()
	whole := totalTimeout - o.Spent
	if o.Slow {
		whole += slowAnswer
	}
	bounded, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	if (connection{p}).canConnect(bounded) {
		p.diagnose(ctx, bounded)
	}
	p.cleanup()
	p.reportFacts()
	p.sayLimited()
	return ctx.Err()
}

// diagnose finds out what speaks there, and runs the checks for that. What waits for
// minutes is bounded by slow alone.
func (p *prober) diagnose(slow, ctx context.Context) {
	found := identification{p}.identify(ctx)
	p.Patience = answerTimeout
	switch {
	case found.sse != nil:
		found.sse.openSession(ctx)
	case found.legacy != nil && !found.legacy.check(ctx):
		found.legacy = nil // what needs the session would only say so again
	}
	t := found.requester()
	if t == nil {
		return
	}
	common := commonChecks{p, t}
	early, cancel := withoutLast(ctx, recheckTimeout)
	defer cancel()
	p.together(early,
		common.sayLists,
		common.checkMediaTypes,
		corsChecks{p, found}.check,
		common.checkConnectionReuse,
		found.modern.checkListen,
		found.modern.checkHeaders,
		found.legacy.checkUnknown,
		found.legacy.checkGet,
		found.legacy.checkResume,
	)
	p.runRechecks(ctx)
	common.checkBodies(ctx) // alone: its megabytes would slow the others down
	common.checkCall(ctx)
	if p.opts.Slow {
		p.checkIdle(slow, found)
	}
}

// withoutLast returns a context that ends before ctx does, so that as much is left as said,
// or half of what there is.
func withoutLast(ctx context.Context, left time.Duration) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-min(left, time.Until(end)/2)))
}

// together runs checks side by side, each within its own time, and waits for all.
func (p *prober) together(ctx context.Context, checks ...func(context.Context)) {
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

// found is what has answered at the address; what has not is nil.
type found struct {
	legacy *session      // sessions of the revisions up to 2025-11-25
	modern *modernServer // requests of 2026-07-28
	sse    *sseSession   // HTTP+SSE
}

// A requester makes requests in one of the ways of the protocol.
type requester interface {
	// ask makes a request of MCP; change, if not nil, changes how it is sent.
	ask(ctx context.Context, method string, params map[string]any, change func(*probe.Request)) *probe.Reply

	// harmless is a method that every such server has and that changes nothing.
	harmless() string

	// hasCapability reports whether the server has declared the capability.
	hasCapability(capability string) bool
}

// requester returns the way to talk with what was found, nil if there is none.
func (f found) requester() requester {
	switch {
	case f.legacy != nil:
		return f.legacy
	case f.modern != nil:
		return f.modern
	case f.sse != nil && f.sse.initialized:
		return f.sse
	}
	return nil
}
