package command

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
)

// quickStartThreshold is how long a start may take for all older revisions to be asked for; after a longer one, only the oldest and
// nonexistentRevision are, unless the options allow slow checks (AllowSlow).
const quickStartThreshold = time.Second

// nonexistentRevision is a revision that there will never be. checkRevision asks for it in initialize: a server should answer with a
// revision that it knows.
const nonexistentRevision = "2099-01-01"

// initializeFailure is how a server fails at initialize.
type initializeFailure struct {
	title string // what the server does, behind "the server ": "does not answer initialize"
	seen  string // what was seen of that: the evidence in the report
}

// checkInitializeResult checks the result of initialize, adds C8 if something is missing or wrong, and notes the facts
// "revision" and "server".
func (d *diagnosis) checkInitializeResult(result []byte) {
	var r struct {
		ProtocolVersion *string                    `json:"protocolVersion"`
		Capabilities    map[string]json.RawMessage `json:"capabilities"`
		ServerInfo      *struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
	}
	err := json.Unmarshal(result, &r)
	switch {
	case err != nil || r.ProtocolVersion == nil || r.Capabilities == nil || r.ServerInfo == nil:
		d.report.AddFinding(doctor.IncompleteInitialize.WithEvidence(string(result)))
	case !era.IsLegacy(*r.ProtocolVersion):
		d.addFinding("C8", doctor.Error, "the server answers initialize with a revision that has none", fmt.Sprintf("asked for %s, answered %q", era.NewestLegacy, *r.ProtocolVersion),
			"Clients that do not know the revision give up.", "Answer with the revision that was asked for, or with the newest that the server knows among "+strings.Join(era.OnlyLegacy.Versions(), ", ")+".")
	}
	if r.ProtocolVersion != nil {
		d.noteAnsweredRevision(era.NewestLegacy, *r.ProtocolVersion)
		d.report.SetFact("revision", "%s", *r.ProtocolVersion)
	}
	if r.ServerInfo != nil {
		d.report.SetFact("server", "%s %s", r.ServerInfo.Name, r.ServerInfo.Version)
	}
}

// noteAnsweredRevision keeps that the server has answered with the revision got when it was asked for another or the same.
func (d *diagnosis) noteAnsweredRevision(asked, got string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answeredRevisions[asked] = got
}

// addRefusedInitialize adds C8: the server answers initialize with an error.
func (d *diagnosis) addRefusedInitialize(first reply) {
	d.addFinding("C8", doctor.Error, "the server refuses initialize", fmt.Sprintf("asked for %s: %s", era.NewestLegacy, first.message.ErrorObject()),
		"Clients give up, unless they try an older revision by themselves.",
		"A server that does not know the revision must answer with one that it knows, not with an error.")
}

// A separateCheck starts a process of its own and asks it something; the first answer may take the time wait. It returns what
// is wrong; nil: nothing, or there was no time.
type separateCheck func(ctx context.Context, wait time.Duration) []doctor.Finding

// checkSeparately asks further processes what would disturb the first one, and adds C5, C8 and C12. start is how long after its
// start the first process has answered: without AllowSlow, fewer revisions are asked for after a slow start (quickStartThreshold), and
// none after a very slow one (SlowStartThreshold).
func (d *diagnosis) checkSeparately(ctx context.Context, start time.Duration) {
	d.checkSlowStart(ctx, start)
	all := []separateCheck{d.checkSafeEnvironment, d.checkDiscover}
	revisions := append(era.OnlyLegacy.Versions()[1:], nonexistentRevision)
	if start > quickStartThreshold && !d.options.AllowSlow {
		revisions = revisions[len(revisions)-2:]
	}
	for _, revision := range revisions {
		all = append(all, func(ctx context.Context, wait time.Duration) []doctor.Finding {
			return d.checkRevision(ctx, revision, wait)
		})
	}
	if start > d.options.SlowStartThreshold && !d.options.AllowSlow {
		all = all[:2]
	}
	for _, f := range d.runSeparateChecks(ctx, all, separateCheckTimeout(start)) {
		if f.Code == "C12" {
			d.explainSafeEnvironment(ctx, start)
			continue
		}
		d.report.AddFinding(f)
	}
	d.setRevisionFact()
}

// runSeparateChecks runs all checks, maxConcurrentChecks at a time, and returns what they found. It repeats those that found
// something, one at a time and with twice the time, as long as there is time: then only what is found again counts.
func (d *diagnosis) runSeparateChecks(ctx context.Context, all []separateCheck, wait time.Duration) (findings []doctor.Finding) {
	found := make([][]doctor.Finding, len(all))
	next := make(chan int)
	var running sync.WaitGroup
	for range min(maxConcurrentChecks, len(all)) {
		running.Go(func() {
			for i := range next {
				found[i] = all[i](ctx, wait)
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	running.Wait()
	for i, f := range found {
		if len(f) > 0 && d.timeLeft() > 0 {
			f = all[i](ctx, 2*wait)
		}
		findings = append(findings, f...)
	}
	return findings
}

// checkRevision is a separateCheck: it sends initialize to a process, with another revision than the newest one (C8).
func (d *diagnosis) checkRevision(ctx context.Context, revision string, wait time.Duration) []doctor.Finding {
	if d.timeLeft() <= 0 {
		return nil
	}
	p, err := d.startWithEnv(ctx, nil)
	if err != nil {
		return nil
	}
	defer d.stopProcess(p)
	r := p.request(ctx, firstRequestID, "initialize", initializeParams(revision), min(wait, max(0, d.timeLeft())))
	finding := func(severity doctor.Severity, title, seen string) []doctor.Finding {
		return []doctor.Finding{{Code: "C8", Severity: severity, Title: title, Evidence: "asked for " + revision + ": " + seen,
			Consequence: "Clients of this revision cannot connect.",
			Advice:      "A server that does not know the revision must answer with one that it knows; the client decides."}}
	}
	switch {
	case ctx.Err() != nil || d.timeLeft() <= 0:
		return nil
	case r.outcome == outcomeExited:
		how, _ := p.awaitExit()
		return finding(doctor.Warning, "the server ends when it is asked for another revision", how+stderrSuffix(p))
	case r.outcome != outcomeAnswered:
		return finding(doctor.Warning, "the server does not answer when it is asked for another revision", fmt.Sprintf("no answer in %v", r.duration.Round(100*time.Millisecond)))
	case r.message.IsError():
		return finding(doctor.Warning, "the server refuses initialize for another revision", string(r.message.ErrorObject()))
	}
	var result struct{ ProtocolVersion string }
	_ = json.Unmarshal(r.message.Result(), &result)
	if revision == nonexistentRevision {
		if result.ProtocolVersion == nonexistentRevision {
			f := finding(doctor.Warning, "the server agrees to any revision", "answered "+result.ProtocolVersion)
			f[0].Consequence = "The server cannot know what a later revision demands. A client that speaks it will find the server breaking its rules."
			return f
		}
		return nil
	}
	d.noteAnsweredRevision(revision, result.ProtocolVersion)
	return nil
}

// checkDiscover is a separateCheck: it asks a process whether it speaks 2026-07-28. One that does is asked all that a client of
// that revision would ask; any other must still answer initialize (C8).
func (d *diagnosis) checkDiscover(ctx context.Context, wait time.Duration) []doctor.Finding {
	if d.timeLeft() <= 0 {
		return nil
	}
	p, err := d.startWithEnv(ctx, nil)
	if err != nil {
		return nil
	}
	defer d.stopProcess(p)
	r := p.request(ctx, firstRequestID, "server/discover", "{"+modernMeta()+"}", min(wait, max(0, d.timeLeft())))
	finding := func(title, seen string) []doctor.Finding {
		return []doctor.Finding{{Code: "C8", Severity: doctor.Warning, Title: title, Evidence: "server/discover: " + seen,
			Consequence: "Clients of 2026-07-28 ask this first, to find out what the server speaks. They lose the process, or wait for the answer before they send initialize.",
			Advice:      "Answer requests before initialize that the server does not know with an error (-32601). The bridge asks a process of its own, and starts another one."}}
	}
	switch {
	case ctx.Err() != nil || d.timeLeft() <= 0:
		return nil
	case r.outcome == outcomeExited:
		how, _ := p.awaitExit()
		return finding("the server ends when it is asked what it speaks", how+stderrSuffix(p))
	case r.outcome == outcomeAnswered && r.hasResult() && d.converseModern(ctx, p, r, false):
		return nil
	}
	then := p.request(ctx, secondRequestID, "initialize", initializeParams(era.NewestLegacy), min(wait, max(0, d.timeLeft())))
	switch {
	case ctx.Err() != nil || d.timeLeft() <= 0:
		return nil
	case then.outcome == outcomeExited:
		how, _ := p.awaitExit()
		return finding("the server ends after it was asked what it speaks", how+stderrSuffix(p))
	case r.outcome == outcomeSilent:
		return finding("the server does not answer the question what it speaks", fmt.Sprintf("no answer in %v", r.duration.Round(100*time.Millisecond)))
	case !then.hasResult():
		return finding("the server refuses initialize after it was asked what it speaks", "then initialize was not answered with a result")
	}
	return nil
}

// converseModern has a conversation in 2026-07-28 with p, which has answered server/discover with r: it reads the lists and checks
// ids. isOnlyEra: there was no conversation in the other era, which would have called the tool and noted the timings, so this one does both.
// false: r does not name that revision, and p was asked nothing.
func (d *diagnosis) converseModern(ctx context.Context, p *serverProcess, r reply, isOnlyEra bool) (isModern bool) {
	var result struct {
		SupportedVersions []string                   `json:"supportedVersions"`
		Meta              map[string]json.RawMessage `json:"_meta"`
	}
	if json.Unmarshal(r.message.Result(), &result) != nil || !slices.ContainsFunc(result.SupportedVersions, era.IsModern) {
		return false
	}
	d.noteAnsweredRevision(era.NewestModern, era.NewestModern)
	var info struct{ Name, Version string }
	if json.Unmarshal(result.Meta[era.KeyServerInfo], &info) == nil && info.Name != "" {
		d.report.SetFact("server", "%s %s", info.Name, info.Version)
	}
	s := &session{process: p, diagnosis: d, isModern: true, omitsTimings: !isOnlyEra, firstResult: r.message.Result()}
	if isOnlyEra {
		d.noteTiming("first answer after %v", p.firstAnswerTime(r))
	}
	s.checkLists(ctx)
	s.checkIDs(ctx)
	if isOnlyEra {
		s.callTool(ctx)
	}
	d.addStdoutFindings(p)
	return true
}

// checkOnlyModern finds out, with a further process, whether a server that has not answered initialize with a result speaks
// 2026-07-28, and reports whether it does. If so, it has the whole conversation in that revision. bad is how the server failed at
// initialize, which is a finding then; nil: it has refused with an error, as it should.
func (d *diagnosis) checkOnlyModern(ctx context.Context, bad *initializeFailure) (isModern bool) {
	p, err := d.startWithEnv(ctx, nil)
	if err != nil {
		return false
	}
	r := p.request(ctx, firstRequestID, "server/discover", "{"+modernMeta()+"}", d.firstAnswerWait())
	if !r.hasResult() {
		d.stopProcess(p)
		return false
	}
	if !d.converseModern(ctx, p, r, true) {
		d.stopProcess(p)
		return false
	}
	d.noteEnding(d.checkEnding(p))
	d.report.SetFact("revision", "%s", era.NewestModern)
	if bad != nil {
		d.addFinding("C8", doctor.Warning, "the server "+bad.title, bad.seen,
			"It speaks 2026-07-28 only. Older clients, which are most, are not told so.",
			"Answer initialize with an error. Or run the server through the bridge, which translates for older clients.")
	}
	return true
}

// setRevisionFact notes, as the fact "revision", which revisions the server has answered with.
func (d *diagnosis) setRevisionFact() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var spoken []string
	for _, v := range d.answeredRevisions {
		if v != "" && !slices.Contains(spoken, v) {
			spoken = append(spoken, v)
		}
	}
	slices.Sort(spoken)
	slices.Reverse(spoken)
	text := strings.Join(spoken, ", ")
	for _, got := range spoken {
		var asked []string
		for _, v := range era.OnlyLegacy.Versions() {
			if v != got && d.answeredRevisions[v] == got {
				asked = append(asked, v)
			}
		}
		if asked != nil {
			text += fmt.Sprintf(" (asked for %s, it answers %s)", strings.Join(asked, ", "), got)
		}
	}
	d.report.SetFact("revision", "%s", text)
}

// checkSlowStart adds C5 if start, the time from the start of the first process to its first answer, was long. It starts the
// server a second time to compare, if there is time.
func (d *diagnosis) checkSlowStart(ctx context.Context, start time.Duration) {
	if start < d.options.SlowStartThreshold {
		return
	}
	again := reply{outcome: outcomeSilent}
	if d.timeLeft() > d.options.SlowStartThreshold {
		again = d.requestWithEnv(ctx, d.spec.Env, d.firstAnswerWait())
	}
	seen := fmt.Sprintf("first answer %v after the start", start.Round(time.Millisecond))
	do := doctor.SlowStart.Advice
	if again.outcome == outcomeAnswered {
		seen += fmt.Sprintf("; a second time %v", again.duration.Round(time.Millisecond))
		d.noteTiming("second start %v", again.duration)
		if 2*again.duration < start {
			do = "Only the first start was slow: something was loaded or compiled and is kept now. Start it once before clients do."
		}
	}
	if isPackageRunner(d.spec.Path) {
		do += " " + d.spec.Path + " looks for the package, and loads it, before it runs it: install the package, and name the installed program or give an exact version."
	}
	slow := doctor.SlowStart.WithEvidence(seen)
	slow.Advice = do
	d.report.AddFinding(slow)
}
