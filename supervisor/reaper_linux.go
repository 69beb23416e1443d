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

// Subreap makes this operating-system process the one that adopts its orphaned
// descendants, as process 1 always does. From then on orphans are reaped when
// they exit, and Process.Stop also ends the descendants of its child that left the
// process group. A descendant is recognised by the marker in its environment;
// one that cleared its environment is not, and lives until stop is called.
//
// stop ends and reaps all orphans, of whatever origin, and takes a few seconds
// if they resist; call it when every Process was stopped.
//
// Subreap is for main: it takes over every child that this package did
// not start, so os/exec does not work beside it. On other systems than Linux
// it does nothing.
func Subreap() (stop func(), err error) {
	children.mu.Lock()
	defer children.mu.Unlock()
	if children.adopts {
		return nil, errors.New("subreap: already active")
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("subreap: %w", err)
	}
	children.adopts = true
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
		children.adopts = false
		children.mu.Unlock()
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}), nil
}

// serveSigchld reaps orphans as they exit. Children of our own that exit call
// for it too, in vain, so it pauses after each look.
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
	reapPause = 20 * time.Millisecond
	// orphanWait is what orphans get after SIGTERM, and again after SIGKILL.
	orphanWait = 2 * time.Second
)

func endAllOrphans() {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL} {
		sent := map[int]bool{}
		for end := time.Now().Add(orphanWait); time.Now().Before(end); time.Sleep(maxPoll / 2) {
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

// reapOrphans reaps the orphans that have exited.
func (t *childTable) reapOrphans() { t.eachOrphan("", func(int) {}) }

// eachOrphan reaps the orphans that have exited and calls f for each living
// one whose marker is or extends m; every one if m is "". f may signal the
// pid: nobody reaps it meanwhile. unsure says that there is one whose marker
// cannot be read yet, so that it may be one of them.
func (t *childTable) eachOrphan(m string, f func(pid int)) (unsure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.adopts {
		return false
	}
	for _, pid := range t.adopted() {
		marker := t.orphans[pid]
		if marker == "" { // new, or not readable the last time (in the middle of an exec)
			var sure bool
			if marker, sure = markerOf(pid); !sure {
				unsure = t.execs(pid) || unsure
			}
			if t.orphans == nil {
				t.orphans = make(map[int]string)
			}
			t.orphans[pid] = marker
		}
		if m == "" || marks(m, marker) {
			f(pid)
		}
	}
	return unsure
}

// execWait is how long an orphan without an environment is taken for one in the
// middle of an exec, which shows none. After that it has none.
const execWait = 2 * time.Second

// execs reports whether an orphan may be in the middle of an exec.
func (t *childTable) execs(pid int) bool {
	since, seen := t.unsure[pid]
	if !seen {
		if t.unsure == nil {
			t.unsure = make(map[int]time.Time)
		}
		since = time.Now()
		t.unsure[pid] = since
	}
	return time.Since(since) < execWait
}

// adopted lists the living children that we did not start, and reaps the dead
// ones. The lock is held, which makes the list exact: the kernel's may
// skip entries only if others are reaped while it is read. Who dies leaves us its
// children first, so there may be more of them for each one that was reaped.
func (t *childTable) adopted() []int {
	for {
		pids, err := ourChildren()
		if err != nil {
			return nil
		}
		living, died := pids[:0], false
		for _, pid := range pids {
			if t.own[pid] {
				continue
			}
			if reaped, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); reaped == pid {
				delete(t.orphans, pid)
				delete(t.unsure, pid)
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

// ourChildren lists the children of all our threads, reaped ones excluded.
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
			return childrenByParent() // a kernel without CONFIG_PROC_CHILDREN
		}
		for field := range bytes.FieldsSeq(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// childrenByParent is ourChildren the slow way.
func childrenByParent() ([]int, error) {
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
