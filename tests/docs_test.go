package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

var (
	docLink = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	docFlag = regexp.MustCompile("`(--[a-z][a-z-]*)")
)

// docFiles returns the documents for users.
func docFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	return append(files, "../README.md")
}

func readDoc(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	bridgetest.Must(t, err)
	return string(text)
}

// TestDocLinks: links between documents lead somewhere, also those to a heading.
func TestDocLinks(t *testing.T) {
	t.Parallel()
	for _, file := range docFiles(t) {
		for _, link := range docLink.FindAllStringSubmatch(readDoc(t, file), -1) {
			target := file
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(file), link[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", file, link[0])
				continue
			}
			if link[2] != "" && !slices.Contains(anchors(readDoc(t, target)), link[2]) {
				t.Errorf("%s: %s names no heading of %s", file, link[0], target)
			}
		}
	}
}

// TestDocBlocks: each block of code says what it is; sh is what one types, and TestDocumentedCommands runs it.
func TestDocBlocks(t *testing.T) {
	t.Parallel()
	known := []string{"sh", "console", "text", "json", "jsonc", "toml", "yaml", "dockerfile", "nginx", "go"}
	for _, file := range append(docFiles(t), "../contrib/clients/README.md") {
		inBlock := false
		for i, line := range strings.Split(readDoc(t, file), "\n") {
			lang, fence := strings.CutPrefix(line, "```")
			if inBlock = inBlock != fence; fence && inBlock && !slices.Contains(known, lang) {
				t.Errorf("%s:%d: the block has the language %q, want one of %q", file, i+1, lang, known)
			}
		}
	}
}

// TestDocGo: the Go code of documents is that of examples, which run as tests.
func TestDocGo(t *testing.T) {
	t.Parallel()
	var examples []string
	for _, pattern := range []string{"../*/example*_test.go", "../*/*/example*_test.go"} {
		files, err := filepath.Glob(pattern)
		bridgetest.Must(t, err)
		for _, file := range files {
			examples = append(examples, unindented(readDoc(t, file)))
		}
	}
	blocks := 0
	for _, file := range docFiles(t) {
		for _, block := range regexp.MustCompile("(?s)\n```go\n(.*?\n)```").FindAllStringSubmatch(readDoc(t, file), -1) {
			blocks++
			if !slices.ContainsFunc(examples, func(e string) bool { return strings.Contains(e, unindented(block[1])) }) {
				t.Errorf("%s: no example has this code:\n%s", file, block[1])
			}
		}
	}
	if blocks == 0 {
		t.Error("no document has Go code")
	}
}

// unindented returns text without the white space in front of its lines.
func unindented(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
}

// anchors returns the anchors of a document's headings.
func anchors(text string) (all []string) {
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			title = strings.ToLower(strings.TrimSpace(title))
			title = regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(title, "")
			all = append(all, "#"+strings.ReplaceAll(title, " ", "-"))
		}
	}
	return all
}

// TestDocFlags: the flags that documents name are flags of the bridge.
func TestDocFlags(t *testing.T) {
	t.Parallel()
	var help []byte
	pages, err := filepath.Glob("../cmd/mcp-bridge/testdata/help/*.txt")
	bridgetest.Must(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		bridgetest.Must(t, err)
		help = append(help, text...)
	}
	foreign := []string{"--cidfile", "--init", "--name", "--rm", "--health-cmd", "--no-healthcheck", "--target", "--build-arg"} // of docker
	for _, file := range docFiles(t) {
		for _, flag := range docFlag.FindAllStringSubmatch(readDoc(t, file), -1) {
			known := regexp.MustCompile(regexp.QuoteMeta(flag[1]) + `\b[^-]`)
			if !known.Match(help) && !slices.Contains(foreign, flag[1]) {
				t.Errorf("%s: %s is no flag", file, flag[1])
			}
		}
	}
}
