// Command compare measures what a call through mcp-bridge and through other bridges costs, side by side: one stdio
// server behind Streamable HTTP, with one client of revision 2025-06-18. It also runs the server scenarios of the official
// conformance suite through each of them, and directly. It prints the table of the README as Markdown.
//
//	go run ./tests/compare
//
// It needs npm, which installs the other bridges in the versions of tests/compare/package-lock.json, and the suite in that of
// tests/package-lock.json. Each round
// asks all bridges in turn, so that a machine that becomes slower does so for all. Linux only: elsewhere the memory is
// not known.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if os.Getenv("COMPARE_SERVER") != "" {
		if err := serveStdio(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "compare: server:", err)
			os.Exit(1)
		}
		return
	}
	rounds := flag.Int("rounds", 5, "how often each bridge is started and measured")
	binary := flag.String("binary", "", "the mcp-bridge to measure (default: build it)")
	conform := flag.Bool("conformance", true, "run the conformance suite, too; with -rounds 0 only that")
	flag.Parse()
	if err := compare(*binary, *rounds, *conform); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// A contender is a bridge that serves a command over Streamable HTTP.
type contender struct {
	name   string                                   // what the table calls the bridge
	args   func(port int, server []string) []string // returns the program and its arguments, to serve the command server at a port
	rows   map[string][]float64                     // what was measured in each round, by the name of the row (metrics); a row has no value where the bridge has refused
	scores map[string]score                         // how the bridge does in the conformance suite, by revision; nil: that was not run
	pid    int                                      // the process id of the bridge that start has started last
}

// metrics are the rows of the table, and how a median of theirs is shown.
var metrics = []struct {
	name string               // what the table calls the row
	show func(float64) string // returns a median as the table shows it
}{
	{"start, until the first answer", millis},
	{"a call of 100 bytes", millis},
	{"a call of 10 KB", millis},
	{"a call of 1 MB", millis},
	{"calls a second, 32 at a time", func(v float64) string { return fmt.Sprintf("%.0f", v) }},
	{"memory, one session", func(v float64) string { return fmt.Sprintf("%.0f MiB", v) }},
	{"a call from a web page of another site", func(v float64) string {
		if v < 300 {
			return "accepted"
		}
		return fmt.Sprintf("refused (%.0f)", v)
	}},
	{"other machines can connect, by default", func(v float64) string {
		if v == 0 {
			return "no"
		}
		return "yes"
	}},
}

// millis returns a number of milliseconds as the table shows it.
func millis(v float64) string {
	if v < 10 {
		return fmt.Sprintf("%.2f ms", v)
	}
	return fmt.Sprintf("%.0f ms", v)
}

// compare measures all contenders in so many rounds, and prints the table. binary is the mcp-bridge to measure; "": it is built.
// conform: the conformance suite is run, too.
func compare(binary string, rounds int, conform bool) error {
	dir, err := os.MkdirTemp("", "mcp-bridge-compare")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary == "" {
		binary = filepath.Join(dir, "mcp-bridge")
		build := exec.Command("go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w", "-o", binary, "github.com/mcp-bridge/mcp-bridge/cmd/mcp-bridge")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Dockerfile builds it
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building mcp-bridge: %w\n%s", err, out)
		}
	}
	tests, err := testsDir()
	if err != nil {
		return err
	}
	peers, err := installPeers(filepath.Join(tests, "compare"))
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	all := contenders(binary, peers)
	for round := range rounds {
		for _, c := range all {
			if err := c.measure(self); err != nil {
				return fmt.Errorf("%s, round %d: %w", c.name, round+1, err)
			}
		}
	}
	var direct map[string]score
	if conform {
		suite, err := installSuite(tests)
		if err != nil {
			return err
		}
		if direct, err = suite.runAll(all); err != nil {
			return err
		}
	}
	print(all, direct, rounds)
	return nil
}

// contenders returns all bridges that are compared: binary, and the peers.
func contenders(binary string, peers installed) []*contender {
	return []*contender{
		{name: "mcp-bridge", args: func(port int, server []string) []string {
			return append([]string{binary, "serve", "--port", strconv.Itoa(port), "--"}, server...)
		}},
		{name: "supergateway " + peers.version("supergateway"), args: func(port int, server []string) []string {
			return []string{peers.bin("supergateway"), "--stdio", strings.Join(server, " "), "--outputTransport", "streamableHttp", "--stateful",
				"--logLevel", "none", "--port", strconv.Itoa(port)}
		}},
		{name: "mcp-proxy (npm) " + peers.version("mcp-proxy"), args: func(port int, server []string) []string {
			return append([]string{peers.bin("mcp-proxy"), "--port", strconv.Itoa(port), "--"}, server...)
		}},
	}
}

// print prints the table: the medians of all rounds, and the scores. direct are those of the server without a bridge; nil: the suite was not
// run.
func print(all []*contender, direct map[string]score, rounds int) {
	head, line := "| |", "|---|"
	for _, c := range all {
		head, line = head+" "+c.name+" |", line+"---|"
	}
	fmt.Println(head + "\n" + line)
	for _, m := range metrics {
		if rounds == 0 {
			break
		}
		text := "| " + m.name + " |"
		for _, c := range all {
			switch values := c.rows[m.name]; {
			case len(values) == 0:
				text += " refused |"
			default:
				slices.Sort(values)
				text += " " + m.show(values[len(values)/2]) + " |"
			}
		}
		fmt.Println(text)
	}
	for _, revision := range revisions {
		if direct == nil {
			break
		}
		text := fmt.Sprintf("| conformance suite, %s (without a bridge: %s) |", revision, direct[revision])
		for _, c := range all {
			text += " " + c.scores[revision].String() + " |"
		}
		fmt.Println(text)
	}
	fmt.Printf("\nMedians of %d rounds.\n", rounds)
}

// installed are the other bridges, as npm has installed them.
type installed struct {
	dir string // the folder in which npm has installed them
}

// installPeers has npm install the other bridges in dir.
func installPeers(dir string) (installed, error) { return installed{dir}, npmInstall(dir) }

// testsDir returns the folder tests of this module.
func testsDir() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/mcp-bridge/mcp-bridge/tests/compare").Output()
	if err != nil {
		return "", fmt.Errorf("run it in the module of mcp-bridge: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// npmInstall has npm install what dir/package-lock.json names.
func npmInstall(dir string) error {
	npm := exec.Command("npm", "ci", "--no-fund", "--no-audit", "--loglevel=error")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci in %s: %w\n%s", dir, err, out)
	}
	return nil
}

// bin returns the path of a program of an installed package.
func (p installed) bin(name string) string { return filepath.Join(p.dir, "node_modules", ".bin", name) }

// version returns the version of an installed package, as its package.json says; "": that cannot be read, or has none.
func (p installed) version(name string) string {
	f, err := os.Open(filepath.Join(p.dir, "node_modules", name, "package.json"))
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if v, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), `"version": "`); ok {
			return strings.TrimRight(v, `",`)
		}
	}
	return ""
}

// start starts the bridge at a port, with the command server behind it, and does not wait until it listens. stop ends both.
func (c *contender) start(port int, server ...string) (stop func(), err error) {
	line := c.args(port, server)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "COMPARE_SERVER=1")
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	return func() {
		endGroup(cmd)
		_ = cmd.Wait()
	}, nil
}

// measure starts the bridge with server, a program, behind it, adds what is measured to the rows, and stops the bridge. A size of calls that
// the bridge refuses, or memory that is not known, adds no value.
func (c *contender) measure(server string) (err error) {
	if c.rows == nil {
		c.rows = map[string][]float64{}
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	began := time.Now()
	stop, err := c.start(port, server)
	if err != nil {
		return err
	}
	defer stop()
	add := func(row string, v float64) { c.rows[row] = append(c.rows[row], v) }
	s, err := open(port)
	if err != nil {
		return err
	}
	add("start, until the first answer", float64(time.Since(began).Microseconds())/1e3)
	for _, size := range []struct {
		row         string
		bytes, warm int
		calls       int
	}{{"a call of 100 bytes", 100, 200, 400}, {"a call of 10 KB", 10_000, 50, 200}, {"a call of 1 MB", 1_000_000, 3, 10}} {
		took, err := s.median(size.bytes, size.warm, size.calls)
		switch {
		case errors.Is(err, errTooLarge):
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", size.row, err)
		}
		add(size.row, float64(took.Nanoseconds())/1e6)
	}
	rate, err := s.rate(32, 2*time.Second)
	if err != nil {
		return err
	}
	add("calls a second, 32 at a time", rate)
	if bytes, err := residentBytes(c.pid); err == nil {
		add("memory, one session", float64(bytes)/(1<<20))
	}
	status, err := s.postFromForeignPage()
	if err != nil {
		return err
	}
	add("a call from a web page of another site", float64(status))
	everywhere := 0.0
	// Who listens on 127.0.0.1 alone is not there at another address of the same network.
	if conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.2:%d", port), time.Second); err == nil {
		everywhere = 1
		conn.Close()
	}
	add("other machines can connect, by default", everywhere)
	return nil
}
