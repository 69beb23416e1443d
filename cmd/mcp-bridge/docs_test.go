package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A documented line is one of a document's code that calls mcp-bridge.
type documentedLine struct {
	file, text string
	args       []string
}

var (
	lineAssignment = regexp.MustCompile(`^[A-Z_]+=("[^"]*"|'[^']*'|\S*) +`)
	lineEntry      = regexp.MustCompile(`"command":\s*"mcp-bridge",\s*"args":\s*(\[[^]]*\])`)
	lineCode       = regexp.MustCompile("`mcp-bridge [^`]*`")
	lineWord       = regexp.MustCompile(`"[^"]*"|'[^']*'|[^\s"']+|\s+`)
)

// documentedLines returns the lines of README.md, docs and contrib/clients that call mcp-bridge: in blocks of code, in
// the text, and in the configuration of clients.
func documentedLines(t *testing.T) (lines []documentedLine) {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	bridgetest.Must(t, err)
	for _, file := range append(files, "../../README.md", "../../contrib/clients/README.md") {
		data, err := os.ReadFile(file)
		bridgetest.Must(t, err)
		text := strings.ReplaceAll(string(data), "\\\n", " ")
		for _, entry := range lineEntry.FindAllStringSubmatch(text, -1) {
			var args []string
			bridgetest.Must(t, json.Unmarshal([]byte(entry[1]), &args))
			lines = append(lines, documentedLine{file, entry[0], args})
		}
		inBlock, isCode := false, false
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if lang, fence := strings.CutPrefix(line, "```"); fence {
				inBlock, isCode = !inBlock, slices.Contains([]string{"sh", "console"}, lang)
				continue
			}
			found := lineCode.FindAllString(line, -1)
			if inBlock && isCode {
				found = []string{line}
			}
			for _, code := range found {
				if args, ok := documentedArgs(strings.Trim(code, "`")); ok && (inBlock || len(args) > 1) { // one that is only named does nothing
					lines = append(lines, documentedLine{file, code, args})
				}
			}
		}
	}
	return lines
}

// documentedArgs returns the arguments of a line that calls mcp-bridge; false: it does not, or it is a synopsis.
func documentedArgs(line string) (args []string, ok bool) {
	line = strings.TrimPrefix(line, "$ ")
	for a := lineAssignment.FindString(line); a != ""; a = lineAssignment.FindString(line) {
		line = line[len(a):]
	}
	if i := strings.Index(line, " -- mcp-bridge "); i > 0 { // the line of a client that takes it over
		line = line[i+len(" -- "):]
	}
	line, ok = strings.CutPrefix(line, "mcp-bridge ")
	line = strings.ReplaceAll(line, "URL", "https://mcp.example.com/mcp")
	if !ok || strings.Contains(line, "[flags]") || strings.Contains(line, "...") {
		return nil, false
	}
	line = regexp.MustCompile(` +#.*$| +[|>&<].*$| {2,}[a-z].*$`).ReplaceAllString(line, "")
	word := ""
	for _, part := range append(lineWord.FindAllString(line, -1), " ") {
		switch {
		case strings.TrimSpace(part) != "":
			word += strings.Trim(part, `"'`)
		case word != "":
			args, word = append(args, word), ""
		}
	}
	return args, true
}

// What documents say to type is taken: no flag has another name, and none is missing.
func TestDocumentedLines(t *testing.T) {
	lines := documentedLines(t)
	if len(lines) < 80 {
		t.Errorf("the documents have only %d lines that call mcp-bridge", len(lines))
	}
	for _, line := range lines {
		if err := parseLine(line.args); err != nil {
			t.Errorf("%s: %s: %v", line.file, line.text, err)
		}
	}
}

// parseLine parses a line and does nothing.
func parseLine(args []string) error {
	name, rest := splitCommand(args)
	if _, asked := parseHelp(args, name); asked {
		return nil
	}
	switch name {
	case "serve":
		_, _, err := new(serveFlags).parse(rest)
		return err
	case "connect":
		_, _, err := new(connectFlags).parse(rest)
		return err
	case "doctor":
		_, _, err := new(doctorFlags).parse(rest)
		return err
	}
	c, ok := findCommand(name)
	if !ok {
		return usagef("%q is no command", name)
	}
	if c.newFlagSet == nil {
		return nil
	}
	_, _, err := parseFlags(c.newFlagSet(), rest)
	return err
}
