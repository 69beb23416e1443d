// Package peers builds and starts the programs that the interop and
// conformance tests put on either side of the bridge: the bridge itself, the
// servers of the Go and TypeScript SDKs, and Node.
//
// A test that lacks what npm installs is skipped, or fails where TEST_NODE is
// set, and says what to run.
package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"
)

// Root returns the top folder of the project. Tests run in the folder of their package, which lies
// three folders below it; the place of this file is not asked, as -trimpath hides it.
func Root() string { return root() }

// root finds out, once, what Root returns.
var root = sync.OnceValue(func() string {
	dir, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		panic(err)
	}
	return dir
})

// Modules returns the folder that `npm ci` in tests/ fills.
func Modules() string { return filepath.Join(Root(), "tests", "node_modules") }

// Node returns the path of the pinned Node.js, new enough for the conformance suite. If it is not installed, t is skipped, or fails
// where TEST_NODE is set.
func Node(t testing.TB) string {
	t.Helper()
	found, _ := filepath.Glob(filepath.Join(Modules(), "node-*", "bin", "node"))
	if len(found) == 0 {
		missing(t, "no Node in tests/node_modules")
	}
	return found[0]
}

// missing skips a test for want of what npm installs, unless TEST_NODE says that it is there.
func missing(t testing.TB, what string) {
	t.Helper()
	what += ": run `npm ci` in tests/"
	if os.Getenv("TEST_NODE") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// Conformance returns the beginning of a command line that runs the official conformance suite.
func Conformance(t testing.TB) []string {
	t.Helper()
	return []string{Node(t), module(t, "@modelcontextprotocol/conformance/dist/index.js")}
}

// NodeEverything returns the command line of npm's server-everything in a mode, such as
// "streamableHttp" or "sse"; with no mode it speaks stdio.
func NodeEverything(t testing.TB, mode ...string) []string {
	t.Helper()
	return append([]string{Node(t), module(t, "@modelcontextprotocol/server-everything/dist/index.js")}, mode...)
}

// Inspector returns the beginning of a command line that runs the official inspector's CLI.
func Inspector(t testing.TB) []string {
	t.Helper()
	return []string{Node(t), filepath.Join(Modules(), ".bin", "mcp-inspector-cli")}
}

// Version returns the version of an npm package that is installed here.
func Version(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(module(t, name+"/package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var pkg struct{ Version string }
	if err := json.Unmarshal(data, &pkg); err != nil {
		t.Fatal(err)
	}
	return pkg.Version
}

// module returns the path of name, a file in an installed package of npm. If it is missing, t is skipped, or fails where TEST_NODE is
// set.
func module(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Modules(), filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		missing(t, err.Error())
	}
	return path
}

// bin returns the folder for what is built, which the first call makes.
var bin = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "mcp-bridge-peers-") })

// goBuild returns a function that builds the package pkg of the module in dir, once, and
// returns the path of the program. race puts the race detector in, if the tests have it.
func goBuild(dir, pkg string, race bool) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		to, err := bin()
		if err != nil {
			return "", err
		}
		args := []string{"build", "-o", to + string(filepath.Separator)}
		if race && raceEnabled {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, pkg)...)
		cmd.Dir = filepath.Join(Root(), dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %v\n%s", pkg, err, out)
		}
		return filepath.Join(to, path.Base(pkg)), nil
	})
}

var (
	buildBridge       = goBuild(".", "./cmd/mcp-bridge", true)                                                                 // builds mcp-bridge
	buildStdioClient  = goBuild("tests/interop", "./stdioclient", true)                                                        // builds the client for the conformance suite
	buildGoPeer       = goBuild("tests/interop", "./gopeer", false)                                                            // builds the client and server on the Go SDK; without the race detector, with which the SDK takes seconds for a megabyte
	buildDemo         = goBuild(".", "./tests/fixtures/everything", true)                                                      // builds the demo server with all that the conformance suite wants
	buildGoEverything = goBuild("tests/interop", "github.com/modelcontextprotocol/go-sdk/conformance/everything-server", true) // builds the everything-server of the Go SDK
)

// Main runs the tests and removes what was built for them. TestMain calls it.
// With the race detector in the tests, it is in what they build, too (but not
// in gopeer), and a race ends the program that has it. On its own, the detector makes every
// program stay for a second longer.
func Main(m *testing.M) {
	os.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=50")
	code := m.Run()
	if dir, err := bin(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// built returns the path of a program that build has made, or fails the test.
func built(t testing.TB, build func() (string, error)) string {
	t.Helper()
	name, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Bridge returns the path of the mcp-bridge under test, built from this tree.
func Bridge(t testing.TB) string { t.Helper(); return built(t, buildBridge) }

// StdioClient returns the path of the stdio client that the conformance suite drives.
func StdioClient(t testing.TB) string { t.Helper(); return built(t, buildStdioClient) }

// GoPeer returns the beginning of a command line that runs clients on the Go SDK: that of gopeer, with "play". The jobs follow.
func GoPeer(t testing.TB) []string { t.Helper(); return []string{built(t, buildGoPeer), "play"} }

// GoServer starts a server on the Go SDK on a transport of gopeer's, and
// returns its URL.
func GoServer(t testing.TB, transport string) string {
	t.Helper()
	return StartAndListen(t, []string{built(t, buildGoPeer), transport})
}

// GoStdio returns the command line of the server on the Go SDK that speaks stdio.
func GoStdio(t testing.TB) []string { t.Helper(); return []string{built(t, buildGoPeer), "stdio"} }

// GoPings returns the command line of a server on the Go SDK that speaks stdio, pings its client, and ends when nobody answers.
func GoPings(t testing.TB) []string {
	t.Helper()
	return []string{built(t, buildGoPeer), "stdio-pings"}
}

// DemoEverything returns the path of the demo server with what the conformance suite asks
// for; it speaks stdio.
func DemoEverything(t testing.TB) string { t.Helper(); return built(t, buildDemo) }

// GoEverything returns the path of the Go SDK's conformance server; without flags it speaks stdio.
func GoEverything(t testing.TB) string { t.Helper(); return built(t, buildGoEverything) }

// listening matches the log line that names an endpoint, in text and in JSON.
var listening = regexp.MustCompile(`listening.*url"?[=:]\s*"?((?:http:/|unix:)/[^\s"]+)`)

// Serve starts `mcp-bridge serve ARGS` on a free port, until the test ends, and returns the URL that it logs first.
func Serve(t testing.TB, args ...string) string {
	t.Helper()
	return StartAndListen(t, append([]string{Bridge(t), "serve", "--listen", "127.0.0.1:0"}, args...))
}

// StartAndListen runs a program until the test ends, as Start does, and returns the first URL that it logs with "listening". If there is
// none for a minute, the test ends.
func StartAndListen(t testing.TB, argv []string) string {
	t.Helper()
	urls := make(chan string, 1)
	Start(t, func(line string) {
		if m := listening.FindStringSubmatch(line); m != nil {
			select {
			case urls <- m[1]:
			default:
			}
		}
	}, nil, argv...)
	select {
	case url := <-urls:
		return url
	case <-time.After(time.Minute):
		t.Fatalf("%q did not say what it listens on", argv)
		return ""
	}
}

// GoHTTP starts the Go SDK's everything-server on a port of its own, with
// sessions, that is, for the revisions before 2026-07-28, and returns its URL.
func GoHTTP(t testing.TB) string { t.Helper(); return goOnPort(t, "-stateless=false") }

// GoModernHTTP starts the Go SDK's everything-server on a port of its own, without
// sessions, that is, for 2026-07-28, and returns its URL. The server takes the older
// revisions, too, but has nothing to ask their clients with.
func GoModernHTTP(t testing.TB) string { t.Helper(); return goOnPort(t) }

// goOnPort starts the everything-server of the Go SDK with these flags on a port of its own, and returns its address.
func goOnPort(t testing.TB, flags ...string) string {
	t.Helper()
	addr := FreeAddr(t)
	Start(t, nil, nil, append([]string{GoEverything(t), "-http", addr}, flags...)...)
	waitFor(t, addr)
	return "http://" + addr + "/"
}

// TypeScript returns the command line of a server on the TypeScript SDK 2.x: script is
// in the folder of the test, and mode is one of serve.mjs: "stdio" for both eras,
// "legacy" for stdio without 2026-07-28.
func TypeScript(t testing.TB, script, mode string) []string {
	t.Helper()
	return []string{Node(t), script, mode}
}

// TypeScriptHTTP starts a server on the TypeScript SDK 2.x over Streamable HTTP on a port of its own, for all revisions, and returns its
// URL. script is in the folder of the test.
func TypeScriptHTTP(t testing.TB, script string) string {
	t.Helper()
	return StartAndListen(t, TypeScript(t, script, "http"))
}

// TypeScriptPlain does what TypeScriptHTTP does, for a server that has sessions for no revision.
func TypeScriptPlain(t testing.TB, script string) string {
	t.Helper()
	return StartAndListen(t, TypeScript(t, script, "plain"))
}

// NodeHTTP starts npm's server-everything over Streamable HTTP on a port of its own, and returns its URL.
func NodeHTTP(t testing.TB) string { t.Helper(); return nodeOnPort(t, "streamableHttp") + "/mcp" }

// NodeSSE starts npm's server-everything over HTTP+SSE on a port of its own, and returns its URL.
func NodeSSE(t testing.TB) string { t.Helper(); return nodeOnPort(t, "sse") + "/sse" }

// nodeOnPort starts npm's server-everything in a mode on a port of its own, and returns its address, http://HOST:PORT.
func nodeOnPort(t testing.TB, mode string) string {
	t.Helper()
	addr := FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	Start(t, nil, []string{"PORT=" + port}, NodeEverything(t, mode)...)
	waitFor(t, addr)
	return "http://" + addr
}

// Start runs a long-lived program, argv, until the test ends. line, if not nil, sees
// every line of its stderr; env are variables besides the tests' own. A failed test
// shows the last of what the program wrote. One that does not end within 15 seconds of
// an interrupt fails the test, and is killed.
func Start(t testing.TB, line func(string), env []string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var tail bytes.Buffer
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		in := bufio.NewScanner(pipe)
		in.Buffer(nil, 1<<24)
		for in.Scan() {
			if line != nil {
				line(in.Text())
			}
			if tail.Len() > 1<<16 {
				tail.Reset()
			}
			tail.Write(in.Bytes())
			tail.WriteByte('\n')
		}
		io.Copy(io.Discard, pipe)
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		stopped := make(chan struct{})
		go func() { <-drained; cmd.Wait(); close(stopped) }()
		select {
		case <-stopped:
		case <-time.After(time.Minute):
			cmd.Process.Kill()
			t.Errorf("%s was still running a minute after an interrupt", filepath.Base(argv[0]))
			<-stopped
		}
		if t.Failed() {
			t.Logf("stderr of %s:\n%s", filepath.Base(argv[0]), tail.Bytes())
		}
	})
}

// givenPorts are the UDP sockets of what FreeAddr has given, by address.
var givenPorts sync.Map

// FreeAddr returns an address of this machine that nobody listens on, and that nobody else gets
// before the caller listens: the system gives no such port to who asks for any, nor to who connects,
// and the tests of other packages, which run at the same time, do not get it either: this process
// keeps the UDP port of the same number until it ends.
func FreeAddr(t testing.TB) string {
	t.Helper()
	const least, most = 10_000, 32_000
	for range 1000 {
		addr := fmt.Sprint("127.0.0.1:", least+rand.IntN(most-least))
		claim, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		givenPorts.Store(addr, claim) // so that it is not closed as garbage
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// waitFor asks until somebody answers HTTP at addr.
func waitFor(t testing.TB, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // Node on a busy machine
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, _ := http.NewRequestWithContext(ctx, http.MethodOptions, "http://"+addr+"/", nil)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("nothing answers at %s", addr)
		}
	}
}
