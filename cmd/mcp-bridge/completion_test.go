package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/manual"
)

// script writes a shell's completion to a file, into a folder in which mcp-bridge is this program.
func script(t *testing.T, shell string) (dir, file string) {
	t.Helper()
	status, text, errs := try(t, "completion", shell)
	if status != exitOK || errs != "" {
		t.Fatalf("completion %s: status %d, stderr %q", shell, status, errs)
	}
	for _, word := range []string{"PROGRAM", "FUNCTION"} {
		if strings.Contains(text, word) {
			t.Errorf("completion %s has %s in it", shell, word)
		}
	}
	dir = t.TempDir()
	file = filepath.Join(dir, "completion")
	bridgetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	self, err := os.Executable()
	bridgetest.Must(t, err)
	if err := os.Symlink(self, filepath.Join(dir, "mcp-bridge")); err != nil {
		t.Skip(err)
	}
	return dir, file
}

// A real bash sources the script and completes lines, which it has split as it does: at "=" and ":", too.
func TestBashCompletion(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	dir, file := script(t, "bash")
	bridgetest.Must(t, os.Mkdir(filepath.Join(dir, "a folder"), 0o700))
	bridgetest.Must(t, os.WriteFile(filepath.Join(dir, "a file.json"), nil, 0o600))
	const ask = `source "$1" || exit; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _mcp_bridge_complete; printf '%s\n' "${COMPREPLY[@]}"`
	for _, test := range []struct{ line, offers string }{
		{"con", "connect"},
		{"connect --isol", ""},
		{"serve --isol", "--isolation"},
		{"serve --isolation p", "principal"},
		{"serve --isolation = p", "principal"},
		{"serve --transport = ", "http-first sse-first http-only sse-only"},
		{"serve --transport =", "http-first sse-first http-only sse-only"},
		{"serve -e A = B --header X : y --log-f", "--log-format"},
		{"--allow-h", "--allow-host"},
		{"replay --ser", "--serve"},
		{"login --detach", ""},
		{"help era", "eras"},
		{"help isolation e", ""},
		{"completion ", "bash zsh fish powershell"},
		{"serve --config a", "a folder|a file.json"},
		{"serve --config = a", "a folder|a file.json"},
		{"serve --cwd a", "a folder"},
		{"serve -- mcp-brid", "mcp-bridge"},
		{"serve -- cat a", "a folder|a file.json"},
		{"doctor --js", "--json"},
	} {
		words := strings.Split("mcp-bridge "+test.line, " ")
		cmd := exec.CommandContext(t.Context(), bash, append([]string{"--norc", "-c", ask, "bash", file}, words...)...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir}
		out, err := cmd.CombinedOutput()
		got, sep := strings.Split(strings.TrimSpace(string(out)), "\n"), " "
		if strings.Contains(test.offers, "|") || strings.HasPrefix(test.offers, "a ") {
			sep = "|"
		}
		want := strings.Split(test.offers, sep)
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", test.line, got, err, want)
		}
	}
}

// The other shells accept their scripts, where there are such shells.
func TestCompletionSyntax(t *testing.T) {
	for shell, check := range map[string][]string{
		"bash": {"bash", "-n"}, "zsh": {"zsh", "-n"}, "fish": {"fish", "--no-execute"},
		"powershell": {"pwsh", "-NoProfile", "-Command", "[void][scriptblock]::Create((Get-Content -Raw $args[0]))", "-args"},
	} {
		_, file := script(t, shell)
		if _, err := exec.LookPath(check[0]); err != nil {
			t.Log(err)
		} else if out, err := exec.CommandContext(t.Context(), check[0], append(check[1:], file)...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bahs"}, {manual.CompleteCommand}, {manual.CompleteCommand, "3", "serve"}, {"man", "serve"}} {
		if status, out, errs := try(t, args...); status != exitUsage || out != "" || errs == "" {
			t.Errorf("%q: status %d, stdout %q, stderr %q", args, status, out, errs)
		}
	}
	if _, _, errs := try(t, "man", "nonsense"); strings.Contains(errs, "help nonsense") {
		t.Errorf("man says that there is help about anything: %q", errs)
	}
	if status, out, _ := try(t, manual.CompleteCommand, "2", "serve", "--help"); status != exitOK || !strings.Contains(out, "--help\t") {
		t.Errorf("--help is taken for a question: status %d, %q", status, out)
	}
}

// Every flag and its choices can be completed.
func TestCompletionKnowsEveryFlag(t *testing.T) {
	m := newManual()
	for _, c := range m.Commands {
		offered := m.Complete([]string{c.Name, "--"})
		for _, name := range flagsOf(c.Name) {
			if !slices.ContainsFunc(offered, func(line string) bool { return strings.HasPrefix(line, "--"+name+"\t") }) {
				t.Errorf("--%s of %s is not offered", name, c.Name)
			}
		}
	}
}

// The man page has every command, flag and topic, and its reader finds nothing wrong with it.
func TestMan(t *testing.T) {
	status, page, errs := try(t, "man")
	if status != exitOK || errs != "" {
		t.Fatalf("status %d, stderr %q", status, errs)
	}
	m := newManual()
	for _, c := range m.Commands {
		for _, name := range flagsOf(c.Name) {
			if !strings.Contains(page, `\-\-`+strings.ReplaceAll(name, "-", `\-`)) {
				t.Errorf("the man page does not have --%s", name)
			}
		}
	}
	for _, topic := range m.Topics {
		if !strings.Contains(page, "\n.SH \""+strings.ToUpper(topic.Name)+"\"\n") {
			t.Errorf("the man page does not have the topic %s", topic.Name)
		}
	}
	for _, reader := range [][]string{{"groff", "-man", "-Tascii", "-P-cbou", "-ww", "-b", "-rLL=78n"}, {"mandoc", "-Tlint", "-Wwarning"}} {
		if _, err := exec.LookPath(reader[0]); err != nil {
			t.Log(err)
			continue
		}
		cmd := exec.CommandContext(t.Context(), reader[0], reader[1:]...)
		var shown, wrong strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(page), &shown, &wrong
		if err := cmd.Run(); reader[0] == "groff" && err != nil || wrong.Len() > 0 {
			t.Errorf("%q: %v: %s", reader, err, wrong.String())
		}
		for _, line := range strings.Split(shown.String(), "\n") {
			if reader[0] == "mandoc" && line != "" && !strings.Contains(line, "missing date") { // two builds are to have the same page
				t.Error(line)
			}
		}
		if reader[0] == "groff" && !strings.Contains(shown.String(), "--isolation auto|session|principal") {
			t.Error("groff does not show --isolation")
		}
	}
}
