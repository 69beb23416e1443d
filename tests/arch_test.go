package tests

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/mcp-bridge/mcp-bridge/"

// imports is the architecture: for each package, all that it may import
// beside the standard library. Imports point down only; ARCHITECTURE.md says
// why. A package that is not here has no place yet: give it one.
var imports = map[string][]string{
	// Leaves: they know nothing of the project.
	"admission":  {},
	"jsonrpc":    {},
	"era":        {"buildinfo", "jsonrpc"},
	"budget":     {},
	"buildinfo":  {},
	"toolheader": {"jsonrpc"},
	"sse":        {},
	"outq":       {"golang.org/x/sys/unix"},
	"httpguard":  {},
	"httpclient": {"jsonrpc"},
	"httpserver": {"budget", "jsonrpc", "outq"},
	"renew":      {"jsonrpc"},
	"supervisor": {"github.com/creack/pty", "golang.org/x/sys/unix", "golang.org/x/sys/windows"},
	"watch":      {"github.com/fsnotify/fsnotify"},
	"config":     {"github.com/tailscale/hujson"},
	"listen": {"httpguard", "watch", "github.com/hashicorp/go-hclog", "golang.org/x/sys/unix",
		"github.com/coreos/go-systemd/v22/activation", "github.com/coreos/go-systemd/v22/daemon"},

	// The middle never knows a transport.
	"bridge":            {"admission", "budget", "era", "jsonrpc"},
	"bridge/bridgetest": {"bridge", "jsonrpc"},
	"toolfilter":        {"bridge", "jsonrpc"},

	// Transports know the middle and the leaves, and not each other.
	"stdio":      {"bridge", "budget", "jsonrpc", "outq", "supervisor", "github.com/hashicorp/go-hclog", "golang.org/x/sys/unix", "golang.org/x/sys/windows"},
	"streamhttp": {"bridge", "budget", "buildinfo", "era", "toolheader", "jsonrpc", "sse", "httpguard", "httpserver", "httpclient", "renew", "github.com/hashicorp/go-hclog"},
	"legacysse":  {"bridge", "budget", "jsonrpc", "sse", "httpguard", "httpserver", "httpclient", "renew", "github.com/hashicorp/go-hclog"},
	"ws":         {"bridge", "budget", "jsonrpc", "outq", "httpguard", "httpclient", "renew", "github.com/hashicorp/go-hclog", "github.com/coder/websocket"},

	// What brings transports together: towards the server, and towards clients.
	"remote":   {"bridge", "era", "jsonrpc", "httpclient", "streamhttp", "legacysse", "ws", "stdio", "renew", "github.com/hashicorp/go-hclog"},
	"upstream": {"admission", "bridge", "buildinfo", "era", "httpclient", "jsonrpc", "remote", "stdio", "supervisor", "toolfilter", "github.com/hashicorp/go-hclog"},
	"hub":      {"admission", "bridge", "budget", "era", "httpguard", "httpserver", "streamhttp", "legacysse", "ws", "stdio", "upstream", "github.com/hashicorp/go-hclog"},

	"demo": {"bridge", "buildinfo", "era", "jsonrpc", "stdio"},
	"cmd/mcp-bridge": {"bridge", "buildinfo", "config", "demo", "era", "httpclient", "httpguard", "httpserver", "hub", "jsonrpc", "listen", "remote", "stdio", "supervisor",
		"toolfilter", "upstream", "watch",
		"github.com/hashicorp/go-hclog", "github.com/spf13/pflag", "golang.org/x/sys/unix", "golang.org/x/sys/windows"},

	// Tests look at the binary from outside.
	"tests":                {},
	"tests/bench":          {"golang.org/x/sys/unix"}, // to have one CPU
	"tests/matrix":         {},
	"tests/fixtures/child": {},
	"tests/fixtures/relay": {},
}

// TestImports asserts the import graph, on every system that we build for.
func TestImports(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "darwin", "windows"} {
		t.Run(goos, func(t *testing.T) {
			t.Parallel()
			for _, pkg := range goList(t, goos) {
				name := strings.TrimPrefix(pkg.ImportPath, module)
				allowed, known := imports[name]
				if !known {
					t.Errorf("package %s is not in the table of imports", name)
					continue
				}
				for _, imp := range pkg.Imports {
					short := strings.TrimPrefix(imp, module)
					if standard(imp) || slices.Contains(allowed, short) {
						continue
					}
					t.Errorf("package %s must not import %s", name, short)
				}
			}
		})
	}
}

// standard reports whether a path belongs to the standard library.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

type listed struct {
	ImportPath string
	Imports    []string
}

func goList(t *testing.T, goos string) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("there is no file *%s", ending)
	}
	return files
}
