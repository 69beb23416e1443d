package remote

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
)

// A prober makes the requests of one diagnosis and collects what they show. Its methods may be called concurrently, but for
// runRechecks, reportFacts and cleanup, and those of the Client that may not.
type prober struct {
	*probe.Client
	options  Options
	report   *doctor.Report
	dialTime time.Duration // what a new connection costs; set by canConnect

	hasBufferedStream atomic.Bool // H11 was added; see addBuffered

	rechecks chan func(context.Context) // what recheckLater has been given; it has room for all; closed by runRechecks

	mu           sync.Mutex
	cleanupFuncs []func(context.Context) // see onCleanup
	facts        map[string]string       // see setFact
	toolNames    map[string]bool         // names of a tools/list that was read to its end; nil: it was not
}

func newProber(address string, o Options, r *doctor.Report) (*prober, error) {
	first := answerTimeout
	if o.RunSlowChecks {
		first = slowAnswerTimeout
	}
	c, err := probe.New(address, probe.Options{ReplyTimeout: first, Header: o.Header, TLS: o.TLS, OnSecrets: r.HideSecrets,
		ReservedHeaders: []string{headerSession, headerVersion, headerMethod, headerName, headerLastEvent, "Accept", "Content-Type"}})
	if err != nil {
		return nil, err
	}
	p := &prober{Client: c, options: o, report: r, facts: map[string]string{}, rechecks: make(chan func(context.Context), 2)}
	if o.UsesStoredCredential {
		p.setFact("credential", "the stored one of a sign-in, which connect would use")
	}
	return p, nil
}

// doAndCheck is Do with checkReply.
func (p *prober) doAndCheck(ctx context.Context, q probe.Request) *probe.Reply {
	r := p.Do(ctx, q)
	p.checkReply(r)
	return r
}

// recheckLater has the check of a stream on which nothing has come in time made again, when nothing else goes on: perhaps the
// server was asked too much at once. stream is that check, and says what did not come; "": all did. If something is
// missing again, the stream is held back (H11). first is the server's first answer, and t asks the server for comparison.
func (p *prober) recheckLater(t requester, first *probe.Reply, stream func(context.Context) (silent string)) {
	p.rechecks <- func(ctx context.Context) {
		usual := t.ask(ctx, t.harmlessMethod(), nil, nil)
		if usual.Err != nil || usual.IsInconclusive() {
			return // it answers nothing now
		}
		began := time.Now()
		silent := stream(ctx)
		if waited := time.Since(began); silent != "" && waited > minSilenceFactor*usual.Duration {
			p.addBuffered(first, fmt.Sprintf("%s in %s, while %s is answered after %s", silent, waited.Round(100*time.Millisecond), t.harmlessMethod(), millis(usual.Duration)))
		}
	}
}

// minSilenceFactor is how many times as long as for another answer one must have waited
// for the silence of a server to say something.
const minSilenceFactor = 4

// runRechecks makes the checks that recheckLater was given, and waits for them. It is called once, after the last recheckLater.
func (p *prober) runRechecks(ctx context.Context) {
	close(p.rechecks)
	var all sync.WaitGroup
	for check := range p.rechecks {
		all.Go(func() { check(ctx) })
	}
	all.Wait()
}

// setFact notes a fact, for reportFacts.
func (p *prober) setFact(name, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.facts[name] = fmt.Sprintf(format, args...)
}

// reportFacts adds the facts to the report in the order in which people read them: the checks note
// them in any order.
func (p *prober) reportFacts() {
	for _, name := range []string{"proxy", "connection", "transport", "revision", "server", "first answer", "credential", "authorization",
		"tools", "resources", "prompts", "GET stream", "resumption", "browsers", "call", "quiet stream"} {
		if value, ok := p.facts[name]; ok {
			p.report.SetFact(name, "%s", value)
		}
	}
}

// cleanup ends what was opened at the server, within cleanupTimeout.
func (p *prober) cleanup() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, end := range p.cleanupFuncs {
		all.Go(func() { end(ctx) })
	}
	all.Wait()
}

// onCleanup has cleanup call end.
func (p *prober) onCleanup(end func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanupFuncs = append(p.cleanupFuncs, end)
}

// addFinding adds a finding. Credentials are taken out of seen.
func (p *prober) addFinding(code string, severity doctor.Severity, title, seen, means, do string) {
	p.report.AddFinding(doctor.Finding{Code: code, Severity: severity, Title: title, Evidence: p.WithoutCredentials(seen), Consequence: means, Advice: do})
}

// addFault adds the finding of a fault. Credentials are taken out of seen.
func (p *prober) addFault(f doctor.Fault, seen string) {
	p.report.AddFinding(f.WithEvidence(p.WithoutCredentials(seen)))
}

// addTooManyRequests adds H20 if the server has answered a request with 429.
func (p *prober) addTooManyRequests() {
	r, n, since := p.First429()
	if r == nil {
		return
	}
	severity, seen := doctor.Warning, r.Summary()
	if after := r.Header.Get("Retry-After"); after != "" {
		seen += ", Retry-After: " + after
	}
	if n > 1 {
		seen += fmt.Sprintf("; it was among the first %d requests, %s after the first one", n, millis(since))
	} else {
		seen += "; it was the first request"
	}
	switch {
	case n <= 2:
		severity = doctor.Error
	case n > 15: // more than most clients make in such a time
		severity = doctor.Note
	}
	p.addFinding("H20", severity, doctor.TooManyRequests.Title, seen,
		"Clients that make as many requests get errors. Checks that came later were left out.",
		"Wait and run doctor again; if clients meet it too, raise the limit for this path at "+r.Intermediary()+".")
}

// Header names, as net/http spells them, and media types.
const (
	headerSession   = "Mcp-Session-Id"
	headerVersion   = "Mcp-Protocol-Version"
	headerMethod    = "Mcp-Method"
	headerName      = "Mcp-Name"
	headerLastEvent = "Last-Event-Id"

	typeJSON = "application/json"
	typeSSE  = "text/event-stream"
)

// The checks are methods of what they are about: a session, modernServer and sseSession are what a server speaks, and the
// types below add a subject to the prober, which they share.

// connection has the checks of addresses, proxies and TLS, before the first request (H1 to H3).
type connection struct{ *prober }

// identification finds out what speaks at the address, and if nothing does, why (H4 to H6).
type identification struct{ *prober }

// authorization has the checks of a server that wants credentials (H18).
type authorization struct{ *prober }

// commonChecks are made in whichever way the server speaks: t makes the requests.
type commonChecks struct {
	*prober
	requester requester
}

// corsChecks has the checks of what web pages may do (H16).
type corsChecks struct {
	*prober
	found foundProtocols
}
