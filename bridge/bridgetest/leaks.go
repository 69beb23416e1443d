package bridgetest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// settleTime is how long goroutines and processes that were told to end may take to be gone.
const settleTime = 3 * time.Second

// CheckLeaks is the whole of a TestMain: it runs the tests and exits with a
// failure if they failed or left a goroutine or (on Linux) a child process
// behind.
func CheckLeaks(m *testing.M) {
	before := goroutines()
	code := m.Run()
	if code == 0 {
		if left := settleGoroutines(before); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left after the tests:\n%s\n", left)
			code = 1
		}
		if left := settleChildren(); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "processes left after the tests: %v\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// FDs returns how many files this process has open; -1 where that cannot be
// told (anywhere but on Linux).
func FDs() int {
	names, err := readNames("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(names) - 1 // less the one that read them
}

// Children returns the process ids of this process's children, dead ones that
// nobody has waited for included; nil if there are none, and where that cannot
// be told (anywhere but on Linux).
func Children() []int {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	var pids []int
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// readNames returns the names of the entries of a directory.
func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

// settleChildren waits, for settleTime at most, until this process has no children, and returns those that are left.
func settleChildren() (left []int) {
	eventually(func() bool {
		left = Children()
		return len(left) == 0
	})
	return left
}

// settleGoroutines waits, for settleTime at most, until no goroutines run but those in before (see goroutines), and
// returns the stacks of those that are left.
func settleGoroutines(before map[string]string) (left string) {
	eventually(func() bool {
		left = newStacks(before)
		return left == ""
	})
	return left
}

// newStacks returns the stacks of the goroutines that are not in before; "": there are none.
func newStacks(before map[string]string) string {
	var stacks []string
	for id, stack := range goroutines() {
		if _, old := before[id]; !old {
			stacks = append(stacks, stack)
		}
	}
	return strings.Join(stacks, "\n\n")
}

// eventually calls ok again and again until it is true, or settleTime is over: the end of a goroutine is no event that
// can be waited for.
func eventually(ok func() bool) {
	deadline := time.Now().Add(settleTime)
	for !ok() && time.Now().Before(deadline) {
		runtime.Gosched()
		<-time.After(time.Millisecond)
	}
}

// goroutines returns the stacks of all goroutines, by their number, but for the caller's and those of the packages testing
// and os/signal.
func goroutines() map[string]string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := make(map[string]string)
	stacks := strings.Split(string(buf), "\n\n")
	for _, stack := range stacks[1:] { // the first is the caller's
		if strings.Contains(stack, "created by testing.") || strings.Contains(stack, "created by os/signal.") ||
			strings.Contains(stack, "testing.(*M).Run(") || strings.Contains(stack, "os/signal.signal_recv") {
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		all[id] = stack
	}
	return all
}
