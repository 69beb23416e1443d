package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Subreap makes this operating-system process adopt its orphaned descendants, as process 1 always does. From then on
// orphans are reaped when they exit, and Process.Stop also ends the descendants of its child that left the process
// group. A descendant is recognised by the marker in its environment. A descendant that has cleared its environment is
// not recognised, and lives until stop is called.
//
// stop ends and reaps all orphans, whatever they descend from. This takes up to four seconds if orphans ignore
// signals. Call stop after Stop of every Process.
//
// Subreap is for main: it reaps every child that this package has not started, so os/exec does not work beside it.
// Only Linux has it; elsewhere Subreap does nothing.
func Subreap() (stop func(), err error) {
	children.mu.Lock()
	defer children.mu.Unlock()
	if children.adoptsOrphans {
		return nil, errors.New("subreap: already active")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("subreap: %w", err)
	}
	children.adoptsOrphans = true
	sigchld := make(chan os.Signal, 1)
	signal.Notify(sigchld, unix.SIGCHLD)
	quit, ended := make(chan struct{}), make(chan struct{})
	go serveSigchld(sigchld, quit, ended)
	return sync.OnceFunc(func() {
		endAllOrphans()
		signal.Stop(sigchld)
		close(quit)
		<-ended
		children.mu.Lock()
		children.adoptsOrphans = false
		children.mu.Unlock()
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}), nil
}

// serveSigchld is the goroutine of Subreap: it reaps orphans after each SIGCHLD, until quit is closed, and then closes
// ended. The children of this package cause SIGCHLD as well, so it pauses for reapPause after each one.
func serveSigchld(sigchld <-chan os.Signal, quit <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	pause := time.NewTicker(reapPause)
	defer pause.Stop()
	for {
		select {
		case <-sigchld:
			children.reapOrphans()
		case <-quit:
			return
		}
		select {
		case <-pause.C:
		case <-quit:
			return
		}
	}
}

const (
	reapPause = 20 * time.Millisecond // how long serveSigchld pauses after it has reaped orphans
	// orphanWait is how long orphans may take to end after SIGTERM, and again after SIGKILL.
	orphanWait = 2 * time.Second
)

// endAllOrphans sends SIGTERM and then SIGKILL to all orphans, and returns when none is left, or after twice orphanWait.
func endAllOrphans() {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL} {
		sent := map[int]bool{}
		for end := time.Now().Add(orphanWait); time.Now().Before(end); time.Sleep(maxPollInterval / 2) {
			left := 0
			children.eachOrphan("", func(pid int) {
				left++
				if !sent[pid] {
					sent[pid] = true
					_ = unix.Kill(pid, sig)
				}
			})
			if left == 0 {
				return
			}
		}
	}
}

// reapOrphans reaps the orphans, adopted by this process (Subreap), that have exited. Those that live go on.
func (t *childTable) reapOrphans() { t.eachOrphan("", func(int) {}) }

// eachOrphan reaps the orphans that have exited, and calls f for each living orphan whose marker is or extends m. An
// empty m stands for all orphans. f may signal the pid: nobody reaps it during the call. unsure is true if the marker
// of an orphan cannot be read yet, so that the orphan may be one of those that m asks for.
func (t *childTable) eachOrphan(m string, f func(pid int)) (unsure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.adoptsOrphans {
		return false
	}
	for _, pid := range t.adoptedChildren() {
		marker := t.orphans[pid]
		if marker == "" { // the orphan is new, or was in the middle of an exec the last time
			var sure bool
			if marker, sure = markerOf(pid); !sure {
				unsure = t.mayBeExecing(pid) || unsure
			}
			if t.orphans == nil {
				t.orphans = make(map[int]string)
			}
			t.orphans[pid] = marker
		}
		if m == "" || matchesMarker(m, marker) {
			f(pid)
		}
	}
	return unsure
}

// execWait is how long an orphan with an empty environment counts as one in the middle of an exec, when a process has
// none. After that it has cleared its environment.
const execWait = 2 * time.Second

// mayBeExecing is called for an orphan whose environment is empty or cannot be read. It reports whether that has been
// so for less than execWait, so that the orphan may be in the middle of an exec.
func (t *childTable) mayBeExecing(pid int) bool {
	since, seen := t.markerless[pid]
	if !seen {
		if t.markerless == nil {
			t.markerless = make(map[int]time.Time)
		}
		since = time.Now()
		t.markerless[pid] = since
	}
	return time.Since(since) < execWait
}

// adoptedChildren returns the living children that this package has not started, and reaps the dead ones. The caller
// holds the lock, so the list is exact: the kernel's list skips entries only if children are reaped while it is read.
// A process that dies passes its children to us, so the list is read again after one was reaped.
func (t *childTable) adoptedChildren() []int {
	for {
		pids, err := ourChildren()
		if err != nil {
			return nil
		}
		living, died := pids[:0], false
		for _, pid := range pids {
			if t.ownPIDs[pid] {
				continue
			}
			if reaped, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid {
				delete(t.orphans, pid)
				delete(t.markerless, pid)
				died = true
				continue
			}
			living = append(living, pid)
		}
		if !died {
			return living
		}
	}
}

// ourChildren returns the ids of the children of all our threads that are not reaped, zombies included.
func ourChildren() ([]int, error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, thread := range threads {
		list, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/children")
		if errors.Is(err, os.ErrNotExist) {
			if _, gone := os.Stat("/proc/self/task/" + thread.Name()); gone != nil {
				continue
			}
			return ourChildrenByScan() // a kernel without CONFIG_PROC_CHILDREN
		}
		for field := range bytes.FieldsSeq(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// ourChildrenByScan returns the ids of our children that are not reaped, on kernels that do not list children: it
// looks at every process of the system.
func ourChildrenByScan() ([]int, error) {
	pids, err := allPids()
	if err != nil {
		return nil, err
	}
	self := os.Getpid()
	ours := pids[:0]
	for _, pid := range pids {
		if st, err := readStat(pid); err == nil && st.ppid == self {
			ours = append(ours, pid)
		}
	}
	return ours, nil
}
