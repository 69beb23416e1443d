package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

const module = "github.com/mcp-bridge/mcp-bridge/"

// owners is which packages may import a dependency, or whose tests may where only tests do; the
// packages of this module that each may import are in testdata/imports.txt.
var owners = map[string][]string{
	"github.com/cli/browser":                                           {"internal/auth/signin"},
	"github.com/coder/websocket":                                       {"ws"},
	"github.com/coreos/go-systemd/v22/activation":                      {"internal/listen"},
	"github.com/coreos/go-systemd/v22/daemon":                          {"internal/listen"},
	"github.com/creack/pty":                                            {"supervisor"},
	"github.com/fsnotify/fsnotify":                                     {"internal/watch"},
	"github.com/go-jose/go-jose/v4":                                    {"internal/auth"},
	"github.com/go-logr/logr":                                          {"internal/spans"},
	"github.com/gofrs/flock":                                           {"internal/auth/tokenstore"},
	"github.com/hashicorp/go-hclog":                                    {"cmd/mcp-bridge", "internal/auth/outbound", "internal/eventlog", "internal/hub", "internal/inspect", "internal/listen", "internal/remote", "internal/remoteconn", "internal/upstream", "internal/upstream/probe", "internal/upstream/sharing", "legacysse", "legacysse/sseclient", "stdio", "streamhttp", "streamhttp/streamclient", "ws"},
	"github.com/prometheus/client_golang/prometheus":                   {"internal/metrics"},
	"github.com/prometheus/client_golang/prometheus/collectors":        {"internal/metrics"},
	"github.com/prometheus/client_golang/prometheus/promhttp":          {"internal/metrics"},
	"github.com/prometheus/client_golang/prometheus/testutil/promlint": {"internal/metrics"},
	"github.com/rogpeppe/go-internal/testscript":                       {"tests"},
	"github.com/spf13/pflag":                                           {"cmd/mcp-bridge"},
	"github.com/tailscale/hujson":                                      {"internal/config", "internal/wrap"},
	"github.com/zalando/go-keyring":                                    {"internal/auth/tokenstore"},
	"go.opentelemetry.io/otel":                                         {"internal/spans"},
	"go.opentelemetry.io/otel/attribute":                               {"internal/spans"},
	"go.opentelemetry.io/otel/codes":                                   {"internal/spans"},
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp":  {"internal/spans"},
	"go.opentelemetry.io/otel/propagation":                             {"internal/spans"},
	"go.opentelemetry.io/otel/sdk/resource":                            {"internal/spans"},
	"go.opentelemetry.io/otel/sdk/trace":                               {"internal/spans"},
	"go.opentelemetry.io/otel/sdk/trace/tracetest":                     {"internal/spans"},
	"go.opentelemetry.io/proto/otlp/collector/trace/v1":                {"tests"},
	"google.golang.org/protobuf/proto":                                 {"tests"},
	"go.opentelemetry.io/otel/trace":                                   {"internal/spans"},
	"golang.org/x/sys/cpu":                                             {"internal/observe"},
	"golang.org/x/sys/unix":                                            {"cmd/mcp-bridge", "internal/listen", "internal/sockstate", "stdio", "supervisor", "tests/bench"},
	"golang.org/x/sys/windows":                                         {"supervisor"},
}

// TestImports compares the import graph, on every system that we build for, with
// testdata/imports.txt: what the code imports is there, and what is there the code imports. UPDATE=1
// writes the file anew. Each package, and nothing else, is in ARCHITECTURE.md's table of packages.
func TestImports(t *testing.T) {
	t.Parallel()
	imported := map[string]map[string]bool{} // by package; of this module
	used := map[string]map[string]bool{}     // by dependency
	tested := map[string]map[string]bool{}   // the same, of tests
	for _, goos := range []string{"linux", "darwin", "windows"} {
		for _, pkg := range goList(t, goos) {
			name := strings.TrimPrefix(pkg.ImportPath, module)
			if imported[name] == nil {
				imported[name] = map[string]bool{}
			}
			for _, imp := range pkg.Imports {
				switch short := strings.TrimPrefix(imp, module); {
				case short != imp:
					imported[name][strings.TrimPrefix(short, "internal/")] = true
				case !standard(imp):
					enter(used, imp, name)
				}
			}
			for _, imp := range append(pkg.TestImports, pkg.XTestImports...) {
				if !standard(imp) && !strings.HasPrefix(imp, module) {
					enter(tested, imp, name)
				}
			}
		}
	}
	for dep, names := range tested {
		if used[dep] == nil { // else it is the owner's, and tests may have it for a peer
			used[dep] = names
		}
	}
	for dep, names := range used {
		for name := range names {
			if !slices.Contains(owners[dep], name) {
				t.Errorf("package %s must not import %s", name, dep)
			}
		}
	}
	for dep, names := range owners {
		for _, name := range names {
			if !used[dep][name] {
				t.Errorf("package %s does not import %s, but may", name, dep)
			}
		}
	}
	const file = "testdata/imports.txt"
	text, err := os.ReadFile(file)
	bridgetest.Must(t, err)
	written := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, imports, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		written[name] = imports
	}
	documented := documentedPackages(t)
	var now strings.Builder
	for _, name := range slices.Sorted(maps.Keys(imported)) {
		if strings.HasPrefix(name, "tests") {
			continue
		}
		var imports string
		for _, imp := range slices.Sorted(maps.Keys(imported[name])) {
			imports += " " + imp
		}
		if have, ok := written[name]; (!ok || have != imports) && os.Getenv("UPDATE") == "" {
			t.Errorf("%s: %s imports\n%s, and the code\n%s", file, name, have, imports)
		}
		delete(written, name)
		fmt.Fprintf(&now, "%s:%s\n", name, imports)
		if !documented[name] {
			t.Errorf("package %s is not in ARCHITECTURE.md's table of packages", name)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("ARCHITECTURE.md's table of packages has %s, which is none", name)
	}
	if os.Getenv("UPDATE") != "" {
		bridgetest.Must(t, os.WriteFile(file, []byte(now.String()), 0o644))
		return
	}
	for name := range written {
		t.Errorf("%s has %s, which is no package", file, name)
	}
}

// documentedPackages returns the packages in ARCHITECTURE.md's last table: in each row, the names
// in the first cell and in the third.
func documentedPackages(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../ARCHITECTURE.md")
	bridgetest.Must(t, err)
	_, table, _ := strings.Cut(string(text), "\n## Packages\n")
	all := map[string]bool{}
	for line := range strings.Lines(table) {
		row := strings.Split(line, " | ")
		if len(row) != 4 {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(row[0]+row[2], -1) {
			all[name[1]] = true
		}
	}
	return all
}

// enter notes that a package imports a dependency.
func enter(in map[string]map[string]bool, dep, name string) {
	if in[dep] == nil {
		in[dep] = map[string]bool{}
	}
	in[dep][name] = true
}

// standard reports whether a path belongs to the standard library.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

type listed struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func goList(t *testing.T, goos string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	bridgetest.Must(t, err)
	var pkgs []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return pkgs
		case err != nil:
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// TestNamedFiles looks for the Go files that ARCHITECTURE.md and docs/internals name, and in each of them for the
// declarations whose names stand in parentheses behind it. In a table, a file without a folder is
// in the folder that its row has named last, or in each of them where "and" or "or" joins several.
// Where the row has named none, and in other text, it is anywhere.
func TestNamedFiles(t *testing.T) {
	t.Parallel()
	code := sources{files: map[string]bool{}, folders: map[string]bool{}}
	for _, file := range goFiles(t, ".go") {
		file = filepath.ToSlash(file)[len("../"):]
		code.files[file], code.folders[path.Dir(file)] = true, true
	}
	documents, err := filepath.Glob("../docs/internals/*.md")
	bridgetest.Must(t, err)
	named := 0
	for _, document := range append(documents, "../ARCHITECTURE.md") {
		text, err := os.ReadFile(document)
		bridgetest.Must(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			named += code.checkLine(t, fmt.Sprintf("%s:%d", filepath.Base(document), i+1), line)
		}
	}
	if named < 200 {
		t.Errorf("the documents name %d files: the test does not find them any more", named)
	}
}

// checkLine looks for the files that a line names, and returns how many it has found named. at is
// where the line is.
func (s sources) checkLine(t *testing.T, at, line string) (named int) {
	t.Helper()
	var in []string // the folder that was named last
	folderEnd, inner := 0, 0
	for _, x := range quoted.FindAllStringSubmatchIndex(line, -1) {
		name := line[x[2]:x[3]]
		if !strings.HasSuffix(name, ".go") {
			folder, ok := s.folder(name)
			if !ok || x[0] < inner || !strings.HasPrefix(line, "|") {
				continue
			}
			if joint := line[folderEnd:x[0]]; len(in) == 0 || joint != " and " && joint != " or " {
				in = nil
			}
			in, folderEnd = append(in, folder), x[1]
			continue
		}
		named++
		files := s.find(name, in)
		if len(files) == 0 {
			t.Errorf("%s: there is no file %s (folders that its row has named last: %q)", at, name, in)
		}
		if folder, ok := s.folder(path.Dir(name)); ok && strings.HasPrefix(line, "|") {
			in = []string{folder}
		}
		parentheses := behind.FindString(line[x[1]:])
		inner = max(inner, x[1]+len(parentheses))
		for _, word := range quotedWord.FindAllStringSubmatch(parentheses, -1) {
			if len(files) > 0 && !slices.ContainsFunc(files, func(file string) bool { return declares(t, file, word[1]) }) {
				t.Errorf("%s: %s does not declare %s", at, strings.Join(files, ", "), word[1])
			}
		}
	}
	return named
}

var (
	quoted     = regexp.MustCompile("`([^`]+)`")
	quotedWord = regexp.MustCompile("`([A-Za-z_][A-Za-z_0-9]*)`")
	behind     = regexp.MustCompile(`^ \([^()]*\)`)
)

// sources are the Go files and the folders that have some, from the root of the repository.
type sources struct{ files, folders map[string]bool }

// folder returns a folder in full, of whose name ARCHITECTURE.md leaves out the beginning.
func (s sources) folder(name string) (string, bool) {
	for _, before := range []string{"", "internal/", "streamhttp/", "legacysse/"} {
		if s.folders[before+name] && name != "." {
			return before + name, true
		}
	}
	return "", false
}

// find returns the files with that name; in: where it is if it has no folder. It returns none if
// one of several folders does not have it.
func (s sources) find(name string, in []string) (found []string) {
	if dir := path.Dir(name); dir != "." {
		folder, _ := s.folder(dir)
		in = []string{folder}
	}
	if len(in) == 0 {
		for file := range s.files {
			if path.Base(file) == name {
				found = append(found, file)
			}
		}
		return found
	}
	for _, folder := range in {
		file := path.Join(folder, path.Base(name))
		if !s.files[file] {
			return nil
		}
		found = append(found, file)
	}
	return found
}

// declares reports whether a file declares the name, of a method or anything that is not in a
// function.
func declares(t *testing.T, file, name string) bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.SkipObjectResolution)
	bridgetest.Must(t, err)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name {
				return true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.Name == name {
						return true
					}
				case *ast.ValueSpec:
					if slices.ContainsFunc(spec.Names, func(id *ast.Ident) bool { return id.Name == name }) {
						return true
					}
				}
			}
		}
	}
	return false
}

// TestNoSleep: a test that sleeps is slow when it passes and flaky when it does
// not. Only packages that test in testing/synctest bubbles, where time is
// fake, may sleep.
func TestNoSleep(t *testing.T) {
	t.Parallel()
	sleeps := map[string][]string{} // by folder
	bubbles := map[string]bool{}
	for _, file := range goFiles(t, "_test.go") {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		bridgetest.Must(t, err)
		dir := filepath.Dir(file)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			switch {
			case ok && selects(call.Fun, "synctest", "Test"):
				bubbles[dir] = true
			case ok && selects(call.Fun, "time", "Sleep"):
				sleeps[dir] = append(sleeps[dir], fset.Position(n.Pos()).String())
			}
			return true
		})
	}
	for dir, at := range sleeps {
		if !bubbles[dir] {
			t.Errorf("%s: tests sleep, and not in a synctest bubble: %s", dir, strings.Join(at, ", "))
		}
	}
}

// selects reports whether e is the name of a package and a member of it.
func selects(e ast.Expr, pkg, member string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != member {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// goFiles returns the files of the repository with that ending, without those
// of downloaded packages.
func goFiles(t *testing.T, ending string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ending) {
			files = append(files, path)
		}
		return err
	})
	bridgetest.Must(t, err)
	if len(files) == 0 {
		t.Fatalf("there is no file *%s", ending)
	}
	return files
}

// TestImageLinksNoTemplates: as the Dockerfile builds it, the program has no package that calls methods by names
// that are not known when it is linked. With one, the linker has to keep every method of every
// type, and the program is 3.5 MB larger.
func TestImageLinksNoTemplates(t *testing.T) {
	dockerfile, err := os.ReadFile("../Dockerfile")
	bridgetest.Must(t, err)
	const tags = "-tags grpcnotrace"
	if !strings.Contains(string(dockerfile), "go build "+tags+" ") {
		t.Errorf("the Dockerfile does not build with %s", tags)
	}
	cmd := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace", "./cmd/mcp-bridge")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	bridgetest.Must(t, err)
	for _, p := range strings.Fields(string(out)) {
		if p == "text/template" || p == "html/template" || p == "golang.org/x/net/trace" {
			t.Errorf("the program has %s", p)
		}
	}
}
