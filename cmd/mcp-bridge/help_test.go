package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/manual"
)

// Each page of help is as it stands in testdata/help, which UPDATE=1 writes, and fits a terminal of 80 columns.
func TestHelp(t *testing.T) {
	pages := append([]string{""}, newManual().PageNames()...)
	var files []string
	for _, page := range pages {
		args, file := []string{"help", page}, filepath.Join("testdata/help", page+".txt")
		if page == "" {
			args, file = []string{"help"}, "testdata/help/help-itself.txt"
		}
		files = append(files, file)
		status, out, errs := try(t, args...)
		if status != exitOK || errs != "" {
			t.Errorf("%q: status %d, stderr %q", args, status, errs)
		}
		for n, line := range strings.Split(out, "\n") {
			if len(line) > 80 || strings.TrimRight(line, " ") != line {
				t.Errorf("%s, line %d has more than 80 columns, or ends with a space: %q", file, n+1, line)
			}
		}
		if os.Getenv("UPDATE") != "" {
			bridgetest.Must(t, os.WriteFile(file, []byte(out), 0o644))
		}
		golden, err := os.ReadFile(file)
		if err != nil || string(golden) != out {
			t.Errorf("%s is not what %q prints (UPDATE=1 writes it): %v", file, args, err)
		}
	}
	there, err := filepath.Glob("testdata/help/*")
	bridgetest.Must(t, err)
	for _, file := range there {
		if !slices.Contains(files, filepath.ToSlash(file)) {
			t.Errorf("%s is of no page", file)
		}
	}
}

// Help can be asked for in every way that people are used to.
func TestHelpIsAskedFor(t *testing.T) {
	for _, test := range []struct{ args, page string }{
		{"-h", ""}, {"--help", ""}, {"nonsense --help", ""}, {"--port 1 --help", ""},
		{"serve --help", "serve"}, {"connect -h", "connect"}, {"connect --nonsense http://x/ -h", "connect"},
		{"https://x/mcp --help", "connect"}, {"help --help", "help"}, {"login --help", "login"}, {"unwrap -h", "unwrap"},
	} {
		_, want, _ := try(t, strings.Fields(strings.TrimSpace("help "+test.page))...)
		status, out, errs := try(t, strings.Fields(test.args)...)
		if status != exitOK || out != want || errs != "" {
			t.Errorf("%s: status %d, stderr %q, and it is not the page %q:\n%s", test.args, status, errs, test.page, out)
		}
	}
}

// Every flag is explained, in the words of one group, and nothing is explained that no command has.
func TestHelpNamesEveryFlag(t *testing.T) {
	m := newManual()
	used := map[string]bool{}
	for _, c := range m.Commands {
		for _, name := range m.UngroupedFlags(c.Name) {
			t.Errorf("--%s of %s is missing in flagGroups", name, c.Name)
		}
		page, _ := m.Page(c.Name)
		for _, k := range c.Flags {
			used[c.Name+" "+k.Name] = true
			if !m.IsFlagShown(c.Name, k.Name) {
				if k.Name != "detached" && !slices.Contains(flagsWithoutEffect[c.Name], k.Name) { // detached is for programs
					t.Errorf("--%s of %s is not shown", k.Name, c.Name)
				}
			} else if len(c.AlsoFlagsOf) == 0 && strings.Count(page, "--"+k.Name+" ")+strings.Count(page, "--"+k.Name+"\n")+strings.Count(page, "--"+k.Name+"[") == 0 {
				t.Errorf("the help of %s does not have --%s", c.Name, k.Name)
			}
		}
	}
	for _, g := range m.Groups {
		for _, f := range g.Flags {
			if !slices.ContainsFunc(m.Commands, func(c manual.Command) bool {
				return used[c.Name+" "+f.Name] && (g.Commands == nil || slices.Contains(g.Commands, c.Name))
			}) {
				t.Errorf("no command has --%s of the group %q", f.Name, g.Title)
			}
		}
	}
}

// The topics fit on a screen, and the lines of mcp-bridge in them and in the examples have no unknown flag or command.
func TestHelpIsRight(t *testing.T) {
	m := newManual()
	texts := []string{m.FrontPage()}
	for _, page := range m.PageNames() {
		text, _ := m.Page(page)
		texts = append(texts, text)
	}
	for _, topic := range m.Topics {
		if n := strings.Count(topic.Text, "\n"); n > 50 {
			t.Errorf("the topic %s has %d lines", topic.Name, n)
		}
	}
	for _, text := range texts {
		for _, line := range strings.Split(strings.ReplaceAll(text, "\\\n", ""), "\n") {
			line, is := strings.CutPrefix(strings.TrimSpace(line), "mcp-bridge ")
			words := strings.Fields(line)
			if !is || len(words) == 0 || strings.HasSuffix(words[0], ":") || words[0] == "connects" {
				continue
			}
			flags := flagsOf(words[0])
			if !slices.Contains(commandNames(), words[0]) {
				t.Errorf("%q: no such command", line)
			}
			for _, w := range words[1:] {
				if w == "--" {
					break
				}
				if name, is := strings.CutPrefix(w, "--"); is && !slices.Contains(flags, name) {
					t.Errorf("%q: no such flag: %s", line, w)
				}
			}
		}
	}
}
