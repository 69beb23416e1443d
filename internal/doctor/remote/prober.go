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
// runRechecks, reportFacts and cleanup, and those of the probe.Client that may not.
type prober struct {
	*probe.Client                // makes the requests
	options       Options        // the Options that Diagnose was given
	report        *doctor.Report // gets the facts and findings
	dialTime      time.Duration  // how long it takes to make a connection, TLS included; set by canConnect; 0 behind a proxy

	hasBufferedStream atomic.Bool // addBuffered has added H11

	rechecks chan func(context.Context) // checks that runRechecks is to make; has room for two, and no more call recheckLater

	mu           sync.Mutex              // guards what follows
	cleanupFuncs []func(context.Context) // what cleanup calls
	facts        map[string]string       // by name: facts that reportFacts adds to the report
	toolNames    map[string]bool         // names in tools/list, which was read to its end; nil: it was not
}

// newProber returns a prober for the server at address, with a Client that has made no request. What it finds out goes into r.
// The error says that the address or a header is not valid.
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

// doAndCheck makes a request, as Client.Do does, and adds a finding for each fault of the reply (checkReply).
func (p *prober) doAndCheck(ctx context.Context, q probe.Request) *probe.Reply {
	r := p.Do(ctx, q)
	p.checkReply(r)
	return r
}

// recheckLater has runRechecks make a check of a stream again on which nothing has come in time: perhaps the server was asked
// too much at once. stream is that check, and says what did not come; "": all did. If something is missing again, the stream is
// held back (H11). first is the server's first answer, and t asks the server for comparison.
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

// minSilenceFactor is how many times as long as for another answer a recheck must have waited in vain for the stream to count
// as held back.
const minSilenceFactor = 4

// runRechecks makes the checks that recheckLater was given, all at the same time, and waits for them. It is called once, after
// the last recheckLater, when the prober makes no other requests.
func (p *prober) runRechecks(ctx context.Context) {
	close(p.rechecks)
	var all sync.WaitGroup
	for check := range p.rechecks {
		all.Go(func() { check(ctx) })
	}
	all.Wait()
}

// setFact keeps a fact until reportFacts adds it to the report; a second one of the same name replaces the first.
func (p *prober) setFact(name, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.facts[name] = fmt.Sprintf(format, args...)
}

// reportFacts adds the kept facts to the report in the order in which people read them: the checks note them in any order.
func (p *prober) reportFacts() {
	for _, name := range []string{"proxy", "connection", "transport", "revision", "server", "first answer", "credential", "authorization",
		"tools", "resources", "prompts", "GET stream", "resumption", "browsers", "call", "quiet stream"} {
		if value, ok := p.facts[name]; ok {
			p.report.SetFact(name, "%s", value)
		}
	}
}

// cleanup ends what was opened at the server: it calls what onCleanup was given, and waits for cleanupTimeout at most.
func (p *prober) cleanup() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, end := range p.cleanupFuncs {
		all.Go(func() { end(ctx) })
	}
	all.Wait()
}

// onCleanup has cleanup call end, after all checks.
func (p *prober) onCleanup(end func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanupFuncs = append(p.cleanupFuncs, end)
}

// addFinding adds a finding to the report; means is its consequence, do its advice, and seen its evidence, from which
// credentials are taken out.
func (p *prober) addFinding(code string, severity doctor.Severity, title, seen, means, do string) {
	p.report.AddFinding(doctor.Finding{Code: code, Severity: severity, Title: title, Evidence: p.WithoutCredentials(seen), Consequence: means, Advice: do})
}

// addFault adds a Fault to the report; seen is its evidence, from which credentials are taken out.
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

// Names of headers, as net/http spells them, and media types.
const (
	headerSession   = "Mcp-Session-Id"       // the header with the id of a session
	headerVersion   = "Mcp-Protocol-Version" // the header with the revision of a request
	headerMethod    = "Mcp-Method"           // the header with the method of a request of 2026-07-28
	headerName      = "Mcp-Name"             // the header with the tool, prompt or URI of a request of 2026-07-28
	headerLastEvent = "Last-Event-Id"        // the header with the id of the event after which a stream is resumed

	typeJSON = "application/json"  // the media type of JSON
	typeSSE  = "text/event-stream" // the media type of event streams
)

// The checks are methods of what they are about: a session, modernServer and sseSession are what a server speaks, and the
// types below add a subject to the prober, which they share.

// connection is the prober with the checks of addresses, proxies and TLS, before the first request (H1 to H3).
type connection struct{ *prober }

// identification is the prober with the checks that find out what speaks at the address, and if nothing does, why (mostly H4 to H6).
type identification struct{ *prober }

// authorization is the prober with the checks of a server that wants credentials (H18).
type authorization struct{ *prober }

// commonChecks is the prober with the checks that are the same in whichever protocol the server speaks.
type commonChecks struct {
	*prober
	requester requester // makes the requests in that protocol
}

// corsChecks is the prober with the checks of what web pages in browsers may do (H16, and H15 where that shows).
type corsChecks struct {
	*prober
	found foundProtocols // the protocols that the server speaks
}
