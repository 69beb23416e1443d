package supervisor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A process that has exited keeps its id until Stop, so that no signal reaches another
// process.
func TestExitedProcessIsHeldUntilStop(t *testing.T) {
	p := mustStart(t, sh("exit 0"))
	<-p.Done()
	if st, err := readStat(p.PID()); err != nil || st.state != 'Z' || st.pgid != p.PID() {
		t.Errorf("before Stop: %c, %v; want a zombie that leads its group", st.state, err)
	}
	mustStop(t, p)
	if st, err := readStat(p.PID()); err == nil && st.ppid == os.Getpid() {
		t.Error("not reaped by Stop")
	}
}

// Without pidfd (before Linux 5.4) waiting works as well.
func TestWaitWithoutPidfd(t *testing.T) {
	p := mustStart(t, sh("exit 5"))
	<-p.Done()
	old := &child{pid: p.PID()}
	if err := old.wait(); err == nil || err.Error() != "exit status 5" {
		t.Errorf("wait: %v", err)
	}
}

// The end of the thread on which Start was called must not kill the child.
func TestStartingThreadMayEnd(t *testing.T) {
	type started struct {
		p   *Process
		tid int
	}
	got := make(chan started)
	var both sync.WaitGroup
	both.Add(2)
	for range 2 { // two threads at once, of which one is not the main one, which never ends
		go func() {
			runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
			both.Done()
			both.Wait()
			got <- started{mustStart(t, Spec{Path: "cat"}), unix.Gettid()}
		}()
	}
	for range 2 {
		s := <-got
		for s.tid != os.Getpid() && threadLives(s.tid) {
			runtime.Gosched()
		}
		io.WriteString(s.p.Stdin(), "alive\n")
		if line := readLine(t, s.p.Stdout()); line != "alive" {
			t.Errorf("got %q", line)
		}
	}
}

func threadLives(tid int) bool {
	_, err := os.Stat("/proc/self/task/" + strconv.Itoa(tid))
	return err == nil
}

// When the bridge is killed, its child dies with it...
func TestKilledBridgeTakesItsChild(t *testing.T) {
	life := newLifeline(t)
	b := startBridge(t)
	b.say(t, "start", `exec 9>"$1"; echo; exec sleep 1000`, life.path)
	kill(t, b.process.PID())
	life.awaitEnd(t)
}

// ... and with the watchdog every descendant, also one in its own session.
func TestKilledBridgeTakesDescendants(t *testing.T) {
	for _, script := range []string{
		`exec 9>"$1"; trap '' TERM HUP; sleep 1000 & echo; cat; sleep 1000`,
		`exec 9>"$1"; setsid sh -c 'sleep 1000; :' & echo; sleep 1000`,
		`exec 9>"$1"; env -i sh -c 'echo; exec sleep 1000' & sleep 1000`, // known by its group only
	} {
		life := newLifeline(t)
		b := startBridge(t)
		b.say(t, "watchdog")
		b.say(t, "watchdog") // the second call does nothing
		b.say(t, "start", script, life.path)
		b.say(t, "start", "echo")
		kill(t, b.process.PID())
		life.awaitEnd(t)
	}
}

// ... also those of a child of which the bridge had no time to tell the watchdog.
func TestKilledBridgeTakesWhatItIsStarting(t *testing.T) {
	life := newLifeline(t)
	b := startBridge(t)
	b.say(t, "watchdog")
	b.say(t, "fork", `exec 9>"$1"; sleep 1000 & echo; sleep 1000`, life.path)
	kill(t, b.process.PID())
	life.awaitEnd(t)
}

// The watchdog knows of a child before it is started, and knows of nothing when it has ended or cannot be started.
func TestWatchdogIsToldOfStarts(t *testing.T) {
	r, w, err := os.Pipe()
	bridgetest.Must(t, err)
	defer r.Close()
	watchdog.w = w
	defer func() { watchdog.w = nil }()
	p := mustStart(t, sh("exit 0"))
	mustStop(t, p)
	if _, err := Start(t.Context(), Spec{Path: "cat", Args: []string{strings.Repeat("x", 1<<20)}}); err == nil { // too long an argument for Linux
		t.Fatal("it was started")
	}
	_ = w.Close()
	text, err := io.ReadAll(r)
	bridgetest.Must(t, err)
	lines := strings.Split(string(text), "\n")
	if len(lines) != 6 || len(lines[0]) < 2 || len(lines[3]) < 2 {
		t.Fatalf("it was told %q", lines)
	}
	first, second := lines[0][1:], lines[3][1:]
	if want := []string{"?" + first, fmt.Sprintf("+%d %s", p.PID(), first), fmt.Sprintf("-%d", p.PID()), "?" + second, "!" + second, ""}; !slices.Equal(lines, want) {
		t.Errorf("it was told %q, want %q", lines, want)
	}
}

// ... and containers, of which nothing is left in the directory for temporary files.
func TestKilledBridgeTakesContainers(t *testing.T) {
	e := newEngine(t, nil)
	t.Setenv("RUN_ROLE", "engine")
	t.Setenv("LOG", e.log)
	t.Setenv("LARGE", strings.Repeat("x", 100_000)) // is passed on to the watchdog
	b := startBridge(t)
	b.say(t, "watchdog")
	b.say(t, "await-watchdog")
	fd, err := unix.PidfdOpen(watchdogOf(t, b.process.PID()), 0)
	bridgetest.Must(t, err)
	defer unix.Close(fd)
	b.say(t, "run", e.Path, "--context", "x", "run", "-i", "--rm", "IMAGE", "polite") // which has ended
	b.say(t, "stop")
	if got := e.calls(t); len(got) > 0 {
		t.Fatalf("the engine was called with %q", got)
	}
	b.say(t, "run", e.Path, "--context", "x", "run", "-i", "--rm", "IMAGE", "stubborn")
	os.Remove(e.log)
	kill(t, b.process.PID())
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 60_000); n != 1 {
		t.Fatal("the watchdog does not end", err)
	}
	log, err := os.ReadFile(e.log)
	if want := "--context x kill --signal KILL " + fakeID + "\n--context x rm -f " + fakeID + "\n"; string(log) != want {
		t.Errorf("the engine was called with %q (%v), want %q", log, err, want)
	}
	if left, err := os.ReadDir(e.temp); err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v %v", left, err)
	}
}

// The watchdog ends with a bridge that ends by itself, and touches nothing
// that was stopped.
func TestWatchdogEndsWithTheBridge(t *testing.T) {
	b := startBridge(t)
	b.say(t, "watchdog")
	b.say(t, "await-watchdog")
	b.say(t, "start", "echo; cat")
	b.say(t, "stop")
	dog := watchdogOf(t, b.process.PID())
	fd, err := unix.PidfdOpen(dog, 0)
	bridgetest.Must(t, err)
	defer unix.Close(fd)
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		awaitIgnored(t, dog, sig)
	}
	b.process.Stdin().Close()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 10_000); n != 1 {
		t.Error("the watchdog outlives the bridge", err)
	}
}

// watchdogOf returns the only child of a process.
func watchdogOf(t *testing.T, pid int) int {
	t.Helper()
	all, err := allPids()
	bridgetest.Must(t, err)
	for _, p := range all {
		if st, err := readStat(p); err == nil && st.ppid == pid {
			return p
		}
	}
	t.Fatal("no watchdog")
	return 0
}

// awaitIgnored waits until a process that has just started ignores sig.
func awaitIgnored(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 10*time.Second; runtime.Gosched() {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		bridgetest.Must(t, err)
		_, rest, _ := strings.Cut(string(status), "SigIgn:\t")
		mask, _ := strconv.ParseUint(rest[:16], 16, 64)
		if mask&(1<<(sig-1)) != 0 {
			return
		}
	}
	t.Errorf("the watchdog does not ignore %v", sig)
}

// Descendants that made their own session are ended by Stop, those of other
// processes are not.
func TestSubreapEndsStrays(t *testing.T) {
	for _, stray := range []string{
		"sleep 1000",
		`trap "" TERM; sleep 1000; sleep 1000`,
		"setsid sh -c \"sleep 1000; :\" & sleep 1000", // comes to light when its parent dies
	} {
		mine, other := newLifeline(t), newLifeline(t)
		b := startBridge(t)
		b.say(t, "subreap")
		b.say(t, "watchdog") // is no stray
		b.say(t, "start", `exec 9>"$1"; setsid sh -c "$2" & echo; cat`, mine.path, stray)
		b.say(t, "stop")
		if mine.held() {
			t.Errorf("%s: outlived Stop", stray)
		}
		b.say(t, "start", `exec 9>"$1"; setsid sleep 1000 & echo; cat`, other.path)
		b.say(t, "stop") // stops the second one only; the first stays stopped
		if other.held() {
			t.Errorf("%s: second outlived Stop", stray)
		}
		if n := b.say(t, "children"); n != "1" {
			t.Errorf("%s: %s children left, want the watchdog only", stray, n)
		}
		b.say(t, "unreap")
		if n := b.say(t, "children"); n != "1" {
			t.Errorf("%s: %s children left in the end, want the watchdog", stray, n)
		}
	}
}

// A stray gets one SIGTERM, however long Stop waits for it.
func TestStrayIsAskedOnce(t *testing.T) {
	unreap, err := Subreap()
	bridgetest.Must(t, err)
	defer unreap()
	log := filepath.Join(t.TempDir(), "log")
	s := sh(`setsid sh -c 'trap "echo TERM >>$0" TERM; echo; while :; do sleep 0.01; done' "$1" & cat`, log)
	s.Stop = short
	p := mustStart(t, s)
	readLine(t, p.Stdout())
	mustStop(t, p)
	if got, _ := os.ReadFile(log); string(got) != "TERM\n" {
		t.Errorf("it got %q", got)
	}
}

// Without Subreap a stray survives, but it cannot hold up anything.
func TestStrayCannotHoldOutput(t *testing.T) {
	for name, stray := range map[string]string{"writes": "yes", "silent": "sleep 1000"} {
		for _, reads := range []bool{true, false} {
			s := sh(`setsid "$@" & echo $!; echo; echo >&2; cat`, strings.Fields(stray)...)
			p := mustStart(t, s)
			pid := 0
			for pid == 0 { // "yes" may have written before
				pid, _ = strconv.Atoi(strings.Trim(readLine(t, p.Stdout()), "y"))
			}
			read := make(chan int64, 1)
			drain := func() { n, _ := io.Copy(io.Discard, p.Stdout()); read <- n }
			if reads {
				go drain()
			}
			mustStop(t, p)
			if !reads {
				drain()
			}
			if n := <-read; !reads && n > 2*maxLeftover {
				t.Errorf("%s, read after Stop: %d bytes", name, n)
			}
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// The table of orphans does not grow, and a second Subreap is refused.
func TestSubreapForgets(t *testing.T) {
	unreap, err := Subreap()
	bridgetest.Must(t, err)
	if _, err := Subreap(); err == nil {
		t.Error("Subreap twice: no error")
	}
	s := sh(`setsid sleep 1000 & echo; cat`)
	s.Stop = short
	p := mustStart(t, s)
	readLine(t, p.Stdout())
	mustStop(t, p)
	unreap()
	unreap()
	if len(children.orphans) != 0 || len(children.ownPIDs) != 0 {
		t.Errorf("left: %v, %v", children.orphans, children.ownPIDs)
	}
}

// All starts happen on one thread.
func TestStartsAreOnOneThread(t *testing.T) {
	first := 0
	for i := range 200 {
		tid := 0
		bridgetest.Must(t, startThread.run(context.Background(), func() { tid = unix.Gettid() }))
		defer startThread.release()
		if i == 0 {
			first = tid
		} else if tid != first {
			t.Fatalf("start %d on thread %d, the first one on %d", i, tid, first)
		}
		var wg sync.WaitGroup
		for range 4 { // gives the scheduler reasons to move goroutines around
			wg.Go(func() { unix.Nanosleep(&unix.Timespec{Nsec: 100_000}, nil) })
		}
		wg.Wait()
	}
}

// An orphan that has cleared its environment cannot be recognised: it lives until the stop
// function of Subreap is called. An orphan that exits is reaped.
func TestSubreapUnknownOrphans(t *testing.T) {
	life := newLifeline(t)
	b := startBridge(t)
	b.say(t, "subreap")
	b.say(t, "start", `exec 9>"$1"; setsid env -i sh -c "echo up; exec sleep 1000" & (setsid env -i true &) ; cat`, life.path)
	b.say(t, "stop")
	if !life.held() {
		t.Error("a process that may be anyone's was ended")
	}
	b.say(t, "wait-children", "1") // the other one is reaped
	b.say(t, "unreap")
	if life.held() {
		t.Error("outlived the end")
	}
	if n := b.say(t, "children"); n != "0" {
		t.Errorf("%s children left", n)
	}
}

// As process 1 every orphan is reaped, wherever it came from.
func TestProcessOneReaps(t *testing.T) {
	exe, err := os.Executable()
	bridgetest.Must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleVar+"=init", noPause)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		skipNamespaces(t, "the right to make namespaces", err)
	}
	defer cmd.Wait()
	defer in.Close()
	b := &bridgeProcess{in: in, out: bufio.NewReader(out)}
	if ready, _ := b.out.ReadString('\n'); ready != "ready\n" {
		skipNamespaces(t, "the right to mount /proc", ready)
	}
	// Before Subreap nobody reaps orphans. Dead ones must not count as survivors.
	b.say(t, "start", "sleep 1000 & echo; cat")
	b.say(t, "stop")
	b.say(t, "subreap")
	b.say(t, "watchdog") // is not needed, and not started
	for range 3 {
		b.say(t, "start", `(setsid env -i true &); setsid true & sh -c "true &" ; exec echo`)
	}
	b.say(t, "wait-children", "3") // the shells, until they are stopped
	b.say(t, "stop")
	if n := b.say(t, "children"); n != "0" {
		t.Errorf("%s children left", n)
	}
}

// skipNamespaces skips a test that needs what this system does not give, or
// fails it if TEST_NAMESPACES, which CI sets, says that it should.
func skipNamespaces(t *testing.T, needs string, why any) {
	t.Helper()
	if os.Getenv("TEST_NAMESPACES") != "" {
		t.Fatalf("needs %s, which TEST_NAMESPACES says is there: %v", needs, why)
	}
	t.Skipf("needs %s: %v", needs, why)
}

func init() { roles["init"] = roleInit }

// roleInit is the role "bridge" as process 1 with a /proc of its own.
func roleInit([]string) {
	err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	roleBridge(nil)
}

// kill kills a process that is our child, as kill -9 would.
func kill(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("kill %d would reach others", pid)
	}
	bridgetest.Must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// Both ways to list children agree.
func TestOurChildren(t *testing.T) {
	p, q := mustStart(t, sh("cat")), mustStart(t, sh("exit 0"))
	<-q.Done() // a zombie counts
	for name, list := range map[string]func() ([]int, error){"children": ourChildren, "by parent": ourChildrenByScan} {
		pids, err := list()
		if err != nil || len(pids) != 2 || !slices.Contains(pids, p.PID()) || !slices.Contains(pids, q.PID()) {
			t.Errorf("%s: %v, %v; want %d and %d", name, pids, err, p.PID(), q.PID())
		}
	}
}

func TestMatchesMarker(t *testing.T) {
	for _, c := range []struct {
		m, marker string
		want      bool
	}{
		{"a", "a", true}, {"a", "a.b", true}, {"a.b", "a.b.c", true},
		{"a", "ab", false}, {"a.b", "a", false}, {"a", "", false}, {"", "a", false}, {"b", "a.b", false},
	} {
		if got := matchesMarker(c.m, c.marker); got != c.want {
			t.Errorf("matchesMarker(%q, %q) = %v", c.m, c.marker, got)
		}
	}
	t.Setenv(markerVar, "outer")
	if m := newMarker(); !matchesMarker("outer", m) || strings.Count(m, ".") != 1 {
		t.Errorf("newMarker inside a marked process: %q", m)
	}
}
