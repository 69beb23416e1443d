package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// pinned is an action at a commit. The tag that a comment names is for people.
var pinned = regexp.MustCompile(`uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// The workflows say which permissions they have, each job ends, and every action is a commit: a tag can be moved
// to other code.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../.github/workflows/*.yml")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there is no workflow")
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		var w struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Timeout int `yaml:"timeout-minutes"`
				Steps   []struct{ Uses, Run string }
			}
		}
		if err := yaml.Unmarshal(text, &w); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if len(w.Permissions) == 0 {
			t.Errorf("%s has no permissions of its own, so it has those of the repository", file)
		}
		for name, job := range w.Jobs {
			if job.Timeout == 0 || len(job.Steps) == 0 {
				t.Errorf("%s: the job %s has no timeout-minutes or no steps", file, name)
			}
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); strings.Contains(line, "uses:") && !pinned.MatchString(line) {
				t.Errorf("%s: %s: write the commit, and its version in a comment", file, line)
			}
		}
	}
}

// What people fill in on GitHub is YAML, and every field of it has a label.
func TestIssueTemplates(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../.github/ISSUE_TEMPLATE/*.yml")
	must(t, err)
	for _, file := range append(files, "../.github/dependabot.yml") {
		text, err := os.ReadFile(file)
		must(t, err)
		var form struct {
			Name, Description string
			Body              []struct {
				Type       string
				ID         string
				Attributes struct{ Label, Value string }
			}
		}
		if err := yaml.Unmarshal(text, &form); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, field := range form.Body {
			if form.Name == "" || form.Description == "" || field.Attributes.Label == "" && field.Type != "markdown" {
				t.Errorf("%s: the field %q, or the form, lacks its name", file, field.ID)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
