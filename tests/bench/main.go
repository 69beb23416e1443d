// Command bench measures what the bridge costs, with real processes over
// loopback, and prints the ratio to the floor measured in the same run: what
// a bare net/http call and a bare stdio call with the same bytes cost together.
//
//	go run ./tests/bench
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

func main() {
	if role := os.Getenv("BENCH_ROLE"); role != "" {
		runRole(role)
		return
	}
	quick := flag.Bool("quick", false, "few calls, to see that it works")
	only := flag.String("only", "", "one step: latency, throughput, notifications, eras, translation, remote, connect, start, watched, memory")
	binary := flag.String("binary", "", "the mcp-bridge to measure (default: build it)")
	flag.Parse()
	if err := measure(*binary, *only, *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// runRole is the process's role when it was started by itself.
func runRole(role string) {
	var err error
	switch role {
	case "stdio":
		err = stdioServer(os.Stdin, os.Stdout, legacy)
	case "modern":
		err = stdioServer(os.Stdin, os.Stdout, modern)
	case "http":
		err = httpServer(os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench", role+":", err)
		os.Exit(1)
	}
}

// measure prints all tables, or the step only. binary is the program to measure; "": it is built.
func measure(binary, only string, quick bool) error {
	dir, err := os.MkdirTemp("", "mcp-bridge-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary == "" {
		binary = filepath.Join(dir, "mcp-bridge")
		if runtime.GOOS == "windows" {
			binary += ".exe"
		}
		build := exec.Command("go", "build", "-tags", "grpcnotrace", "-trimpath", "-ldflags", "-s -w", "-o", binary, "github.com/mcp-bridge/mcp-bridge/cmd/mcp-bridge")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Dockerfile builds it
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("building the bridge: %w", err)
		}
	}
	installed := filepath.Join(dir, "installed"+filepath.Ext(binary))
	if err := copyProgram(binary, installed); err != nil {
		return err
	}
	b := &bench{binary: installed, dir: dir, calls: 1600, bigCalls: 80, scenes: 10, rounds: 3, measureTime: time.Second, notes: 200_000, sessions: 500, quick: quick}
	if quick {
		b.calls, b.bigCalls, b.scenes, b.rounds, b.measureTime, b.notes, b.sessions = 200, 8, 1, 1, 100*time.Millisecond, 10_000, 50
	}
	if only == onOneCPU {
		return b.compare("one CPU")
	}
	fmt.Printf("%s %s/%s, %d cores; medians, floor and bridge in turn: calls with %d times new processes, all else in %d rounds\n\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), b.scenes, b.rounds)
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"latency", b.measureLatency}, {"throughput", b.measureThroughput}, {"notifications", b.measureNotifications}, {"eras", b.measureEras}, {"translation", b.measureTranslation},
		{"remote", b.measureRemote}, {"connect", b.measureConnect}, {"start", b.measureStart}, {"watched", b.measureWatching}, {"memory", b.measureMemory},
	} {
		if only != "" && only != step.name {
			continue
		}
		if err := step.run(); err != nil {
			return err
		}
	}
	return nil
}

// copyProgram copies a program as an installer does. Linux has a file that the linker has written, and that was not read from disk since, in single
// pages in its cache: to map them takes milliseconds of each start, which no user has.
func copyProgram(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// bench is one run of the program: how much is measured, and of what.
type bench struct {
	binary          string        // the path of the bridge's program
	dir             string        // the folder for sockets and traces
	lastSocket      int           // the number in the path that socket has returned last; 0: there was none yet
	calls, bigCalls int           // how many calls of each row are made in a scene, and how many if they have 1 MB
	scenes          int           // how often calls are timed with new processes
	rounds          int           // how often all else is measured
	measureTime     time.Duration // how long a rate is measured
	notes           int           // how many notifications a rate of notifications is measured with
	sessions        int           // how many sessions the memory is measured with
	quick           bool          // -quick: the numbers above are small, to see that all works
}

// micros returns d as the tables show it.
func micros(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/1e3) }
