package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// FormatVersion is the version of the JSON form of a Report. It goes up when a member
// changes its meaning or is taken away, not when one is added.
const FormatVersion = 1

// A Severity says how much a fault hurts clients.
type Severity string

// The severities, the worst first.
const (
	Error   Severity = "error"   // clients fail, as a rule
	Warning Severity = "warning" // some clients fail, or all of them in some situations
	Note    Severity = "note"    // clients work, but the user should know of it
)

// rank returns the place of a severity in the report: 0 for Error, the worst; 2 for Note.
func (s Severity) rank() int {
	return slices.Index([]Severity{Error, Warning, Note}, s)
}

// A Finding is one fault of a server, or of what lies between it and its clients.
type Finding struct {
	Code        string   `json:"code"`     // the diagnosis: C1 to C15 for commands, H1 to H26 for URLs (docs/doctor.md)
	Severity    Severity `json:"severity"` // how much it hurts clients
	Title       string   `json:"title"`    // what is wrong, in a few words
	Evidence    string   `json:"seen"`     // what was seen; shown as an Excerpt
	Consequence string   `json:"means"`    // what follows for clients
	Advice      string   `json:"do"`       // what the user can do about it
}

// A Fact is a line of what a server is and has, such as its transport or its tools.
type Fact struct {
	Name  string `json:"name"`  // what the line is about: "transport"
	Value string `json:"value"` // the fact itself: "stdio"
}

// A Report is what was found out about one server. Its methods may be called
// concurrently. The zero value is a report about nothing; use NewReport.
type Report struct {
	mu        sync.Mutex    // guards what follows, but for target and startedAt
	target    string        // URL or command line of the server
	startedAt time.Time     // when NewReport was called
	duration  time.Duration // how long the diagnosis took; 0: Finish was not called so far
	facts     []Fact        // the facts, in the order in which they came
	findings  []Finding     // the findings with their secrets, in the order in which they came
	secrets   []string      // the values that HideSecrets was given, of four bytes or more, the longest first
}

// NewReport returns an empty report about target, which is a URL or a command line as it
// may be shown: without credentials.
func NewReport(target string) *Report {
	return &Report{target: target, startedAt: time.Now()}
}

// HideSecrets takes each of these values out of all texts that the report gives away. Values
// shorter than four bytes are ignored: they occur by chance.
func (r *Report) HideSecrets(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		if len(s) >= 4 && !slices.Contains(r.secrets, s) {
			r.secrets = append(r.secrets, s)
		}
	}
	slices.SortFunc(r.secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
}

// SetFact adds a fact to the report; format and args make its value. Facts are shown in the order in which they came; a second
// one of the same name replaces the first.
func (r *Report) SetFact(name, format string, args ...any) {
	value := fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.facts {
		if r.facts[i].Name == name {
			r.facts[i].Value = value
			return
		}
	}
	r.facts = append(r.facts, Fact{name, value})
}

// maxKeptEvidenceBytes is how much of Finding.Evidence a Report keeps, in bytes, until it shows an Excerpt: secrets that become
// known later are looked for in all of it.
const maxKeptEvidenceBytes = 16 << 10

// NoCallFact is the value of the fact "call" of a server that has tools, of which none was called, and in which no error and nothing to
// warn of was found so far.
const NoCallFact = "no tool was called; --call NAME calls one"

// AddFinding adds a finding to the report. One with the same code and evidence as an earlier one is dropped.
func (r *Report) AddFinding(f Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Evidence = f.Evidence[:min(len(f.Evidence), maxKeptEvidenceBytes)] // all of it is searched for secrets later
	if !slices.ContainsFunc(r.findings, func(g Finding) bool { return g.Code == f.Code && g.Evidence == f.Evidence }) {
		r.findings = append(r.findings, f)
	}
}

// HasFinding reports whether there is a finding with this code.
func (r *Report) HasFinding(code string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.findings, func(f Finding) bool { return f.Code == code })
}

// HasFaults reports whether there is a finding that is an Error or a Warning.
func (r *Report) HasFaults() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.findings, func(f Finding) bool { return f.Severity != Note })
}

// Finish says that the diagnosis is over: the report tells how long it took until now.
func (r *Report) Finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.duration = time.Since(r.startedAt)
}

// Facts returns the facts, in the order in which they came, without secrets; of each value an Excerpt.
func (r *Report) Facts() []Fact {
	r.mu.Lock()
	defer r.mu.Unlock()
	facts := make([]Fact, 0, len(r.facts))
	for _, f := range r.facts {
		facts = append(facts, Fact{f.Name, Excerpt(r.withoutSecrets(f.Value))})
	}
	return facts
}

// Findings returns the findings, the worst first, then by code, without secrets; of the evidence an Excerpt.
func (r *Report) Findings() []Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	findings := make([]Finding, 0, len(r.findings))
	for _, f := range r.findings {
		// Secrets may have become known since f was added.
		f.Title, f.Evidence = printable.Text(r.withoutSecrets(f.Title)), Excerpt(r.withoutSecrets(f.Evidence))
		f.Consequence, f.Advice = printable.Text(r.withoutSecrets(f.Consequence)), printable.Text(r.withoutSecrets(f.Advice))
		findings = append(findings, f)
	}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), compareCodes(a.Code, b.Code))
	})
	return findings
}

// compareCodes orders codes of findings by their letter, then by their number: "C9" before "C10". It returns below 0 if a comes
// before b.
func compareCodes(a, b string) int {
	if a == "" || b == "" {
		return cmp.Compare(a, b)
	}
	m, _ := strconv.Atoi(a[1:])
	n, _ := strconv.Atoi(b[1:])
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(m, n))
}

// withoutSecrets returns text with "(hidden)" in place of each of the report's secrets. It is called with mu held.
func (r *Report) withoutSecrets(text string) string {
	for _, s := range r.secrets {
		text = strings.ReplaceAll(text, s, "(hidden)")
	}
	return text
}

// heading returns the target without secrets, and how long the diagnosis took, or takes so far.
func (r *Report) heading() (target string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	took = r.duration
	if took == 0 {
		took = time.Since(r.startedAt)
	}
	return printable.Text(r.withoutSecrets(r.target)), took
}

// jsonReport is the JSON form of a Report.
type jsonReport struct {
	Version    int       `json:"version"`    // FormatVersion
	Target     string    `json:"target"`     // URL or command line of the server, without secrets
	DurationMS int64     `json:"durationMs"` // how long the diagnosis took, or takes so far, in milliseconds
	Facts      []Fact    `json:"facts"`      // as Report.Facts returns them
	Findings   []Finding `json:"findings"`   // as Report.Findings returns them
}

// jsonForm returns the report as it is encoded in JSON.
func (r *Report) jsonForm() jsonReport {
	target, took := r.heading()
	return jsonReport{FormatVersion, target, took.Milliseconds(), r.Facts(), r.Findings()}
}

// MarshalJSON returns the report as JSON, whose members docs/doctor.md describes; it implements json.Marshaler.
func (r *Report) MarshalJSON() ([]byte, error) { return json.Marshal(r.jsonForm()) }

// WriteJSON writes the report as JSON, indented for people.
func (r *Report) WriteJSON(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(r.jsonForm())
}
