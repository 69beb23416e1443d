package doctor

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func report() *Report {
	r := NewReport("node server.js")
	r.SetFact("transport", "stdio")
	r.SetFact("tools", "%d", 3)
	r.AddFinding(Finding{Code: "C14", Severity: Warning, Title: "w", Evidence: "s", Consequence: "m", Advice: "d"})
	r.AddFinding(Finding{Code: "C3", Severity: Warning, Title: "w", Evidence: "s", Consequence: "m", Advice: "d"})
	r.AddFinding(Finding{Code: "C5", Severity: Error, Title: "e", Evidence: "s", Consequence: "m", Advice: strings.Repeat("word ", 40) + "end"})
	r.Finish()
	return r
}

func TestFindingsAreSortedAndKeptOnce(t *testing.T) {
	r := report()
	r.AddFinding(Finding{Code: "C3", Severity: Warning, Title: "again", Evidence: "s"})
	var codes []string
	for _, f := range r.Findings() {
		codes = append(codes, f.Code)
	}
	if got := strings.Join(codes, " "); got != "C5 C3 C14" {
		t.Errorf("findings %s, want the worst first, then by number", got)
	}
}

func TestEvidenceIsSafeToPrint(t *testing.T) {
	r := NewReport("x")
	r.AddFinding(Finding{Code: "C3", Severity: Error, Evidence: "\x1b[2Jhi\r\n\xff\u202e" + strings.Repeat("é", 500)})
	seen := r.Findings()[0].Evidence
	if len(seen) > MaxEvidenceBytes || !utf8.ValidString(seen) || !strings.HasPrefix(seen, `\u001b[2Jhi\r\n\xff\u202eéé`) || !strings.HasSuffix(seen, " ...") {
		t.Errorf("evidence of %d bytes: %s", len(seen), seen)
	}
}

func TestNoSecretLeavesTheReport(t *testing.T) {
	const secret = "hunter2hunter2"
	r := NewReport("run --key " + secret)
	r.AddFinding(Finding{Code: "C1", Severity: Error, Title: secret, Evidence: strings.Repeat("x", MaxEvidenceBytes-8) + secret, Consequence: secret, Advice: secret})
	r.SetFact("server", "%s", secret)
	r.HideSecrets(secret, "ab")
	r.AddFinding(Finding{Code: "C2", Severity: Error, Title: "cab", Evidence: strings.Repeat("x", MaxEvidenceBytes-8) + secret})
	text, js := render(t, r)
	for _, out := range []string{text, js} {
		if strings.Contains(out, secret) || strings.Contains(out[strings.LastIndex(out, "xxx"):], "hunter") {
			t.Errorf("a secret is in\n%s", out)
		}
		if !strings.Contains(out, "cab") {
			t.Errorf("a value too short to be a secret was taken out of\n%s", out)
		}
	}
}

func TestFormsOfTheReport(t *testing.T) {
	text, js := render(t, report())
	if !strings.HasPrefix(text, "node server.js\n\ntransport  stdio\ntools      3\n\nerror C5: e\n  seen:  s\n") {
		t.Errorf("text begins\n%s", text)
	}
	if !strings.Contains(text, "errors: 1, warnings: 2, notes: 0 (in ") {
		t.Errorf("text ends\n%s", text)
	}
	for line := range strings.Lines(text) {
		if len(line) > lineWidth+1 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	var parsed struct {
		Version    int
		Target     string
		DurationMs *int
		Facts      []Fact
		Findings   []Finding
	}
	bridgetest.Must(t, json.Unmarshal([]byte(js), &parsed))
	if parsed.Version != 1 || parsed.Target != "node server.js" || parsed.DurationMs == nil || len(parsed.Facts) != 2 || len(parsed.Findings) != 3 {
		t.Errorf("JSON: %s", js)
	}
	if _, js := render(t, NewReport("x")); !strings.Contains(js, `"facts":[],"findings":[]`) {
		t.Errorf("an empty report has null in place of a list: %s", js)
	}
}

func TestReportIsSafeForConcurrentUse(t *testing.T) {
	r := NewReport("x")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			r.SetFact("a", "b")
			r.HideSecrets("secret")
			r.AddFinding(Finding{Code: "H1", Severity: Note, Evidence: "secret"})
			r.HasFinding("H1")
			r.Findings()
		})
	}
	wg.Wait()
	if n := len(r.Findings()); n != 1 {
		t.Errorf("%d findings with the same code and evidence", n)
	}
}

func render(t *testing.T, r *Report) (text, js string) {
	t.Helper()
	var b strings.Builder
	bridgetest.Must(t, r.WriteText(&b))
	out, err := json.Marshal(r)
	bridgetest.Must(t, err)
	return b.String(), string(out)
}
