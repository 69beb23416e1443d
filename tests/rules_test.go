package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// ruleID is what a rule's number looks like, in Go files and in docs/rules.md.
const ruleID = `(?:(?:A|ED|J|LE|LI|ME|MI|SS|ST|WS)[1-9][0-9]?|[A-E]\.[1-9][0-9]?(?:\.[1-9][0-9]?)?)`

var (
	ruleCited  = regexp.MustCompile(`\b` + ruleID + `\b`)
	ruleStated = regexp.MustCompile(`(?m)^- \*\*(` + ruleID + `)\*\* `)
)

// TestRules: whoever meets the number of a rule in a Go file finds the rule in
// docs/rules.md, once, and what stands there is of use to somebody.
func TestRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.FromSlash("../docs/rules.md"))
	bridgetest.Must(t, err)
	stated := map[string]bool{}
	for _, m := range ruleStated.FindAllSubmatch(text, -1) {
		id := string(m[1])
		if stated[id] {
			t.Errorf("docs/rules.md states %s twice", id)
		}
		stated[id] = true
	}
	cited := map[string]string{} // by rule: a file
	for _, file := range goFiles(t, ".go") {
		source, err := os.ReadFile(file)
		bridgetest.Must(t, err)
		for _, id := range ruleCited.FindAll(source, -1) {
			cited[string(id)] = file
		}
	}
	for _, id := range ruleCited.FindAll(text, -1) {
		if !stated[string(id)] {
			t.Errorf("docs/rules.md mentions %s and does not state it", id)
		}
	}
	for id, file := range cited {
		if !stated[id] {
			t.Errorf("%s cites %s, which docs/rules.md does not state", file, id)
		}
	}
	for id := range stated {
		if cited[id] == "" {
			t.Errorf("no Go file cites %s of docs/rules.md", id)
		}
	}
}
