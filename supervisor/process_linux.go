package supervisor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// system is the part of a child that differs between the Unixes.
type system struct {
	// pidfd becomes readable when the process exits, so that a waiting
	// goroutine needs no thread; nil if the kernel has none (before 5.4).
	pidfd *os.File
}

// start starts the file at path as s says, on the starter's thread, with its marker in its environment; files are its
// stdin, stdout and stderr. ctx bounds the wait for that thread.
func (c *child) start(ctx context.Context, path string, s *Spec, files [3]*os.File) error {
	env := withVar(s.Env, markerVar, c.marker)
	pidfd := -1
	var err error
	aborted := startThread.run(ctx, func() {
		c.pid, err = children.fork(path, s, env, files, &syscall.SysProcAttr{
			Pdeathsig: unix.SIGKILL,
			PidFD:     &pidfd,
		})
	})
	if aborted != nil {
		return aborted
	}
	if err != nil {
		startThread.release()
		return err
	}
	if pidfd >= 0 {
		_ = unix.SetNonblock(pidfd, true)
		c.pidfd = os.NewFile(uintptr(pidfd), "pidfd")
	}
	return nil
}

// siginfo is the kernel's siginfo_t as waitid fills it. Only 64-bit systems have the padding after code.
type siginfo struct {
	signo, errno int32 // not used
	code         int32 // whether an exit or a signal has ended the process
	_            [unsafe.Sizeof(uintptr(0)) / 8]int32
	pid          int32 // the id of the process that has ended; 0: none has
	uid          int32 // not used
	status       int32 // the exit status of the process, or the signal that has ended it
	_            [128]byte
}

// wait waits until the process has exited and returns how it ended: nil for exit status 0, else
// the error for Process.ExitError. It does not reap the process: until the process is reaped, no
// other process gets its id or its group's id.
func (c *child) wait() error {
	var info siginfo
	look := func(options int) (exited bool, err error) {
		for {
			err = unix.Waitid(unix.P_PID, c.pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT|options, nil)
			if err != unix.EINTR {
				return info.pid == int32(c.pid), err
			}
		}
	}
	exited, err := c.awaitPidfd(func() (bool, error) { return look(unix.WNOHANG) })
	if !exited && err == nil {
		_, err = look(0)
	}
	if err != nil {
		return fmt.Errorf("exit status unknown: %w", err)
	}
	const cldExited = 1
	if info.code == cldExited {
		return exitError(syscall.WaitStatus(info.status << 8))
	}
	return killedBy(syscall.Signal(info.status))
}

// awaitPidfd calls look at once, and again each time the pidfd has become readable, until look reports the exit or an
// error, and returns that. It returns false, nil if there is no usable pidfd.
func (c *child) awaitPidfd(look func() (bool, error)) (exited bool, err error) {
	if c.pidfd == nil {
		return false, nil
	}
	raw, rawErr := c.pidfd.SyscallConn()
	if rawErr != nil {
		return false, nil
	}
	_ = raw.Read(func(uintptr) bool {
		exited, err = look()
		return exited || err != nil
	})
	return exited, err
}

// reapZombie frees the id of the process, which must have exited: it waits for it otherwise. The caller holds children.mu.
func (c *child) reapZombie() {
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(c.pid, &ws, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// release closes the pidfd, and lets go of the starter thread. It is called once, after reapZombie.
func (c *child) release() {
	if c.pidfd != nil {
		_ = c.pidfd.Close()
	}
	startThread.release()
}

// startThread is the thread on which all children are started. The kernel sends the parent-death signal when the
// *thread* that has forked ends, and Go may end any thread. So one goroutine, locked to its thread, starts all
// children and lives while there is any child.
var startThread starter

// A starter runs functions on one thread of the operating system, which lives as long as there is a child that was started on it.
type starter struct {
	mu    sync.Mutex    // guards users, jobs and ended
	users int           // children that were started and not released, and calls of run; 0: there is no thread
	jobs  chan func()   // functions that the thread is to run; closed to end the thread
	ended chan struct{} // closed when the thread's goroutine has ended
}

// run runs f on the starter's thread, and waits for f. The thread lives on until release is called. If ctx is done before f's
// turn, it returns ctx's error, has not run f, and release must not be called.
func (s *starter) run(ctx context.Context, f func()) error {
	s.mu.Lock()
	s.users++
	if s.users == 1 {
		s.jobs, s.ended = make(chan func()), make(chan struct{})
		go serveStarts(s.jobs, s.ended)
	}
	jobs := s.jobs
	s.mu.Unlock()

	done := make(chan struct{})
	select {
	case jobs <- func() { f(); close(done) }:
		<-done
		return nil
	case <-ctx.Done():
		s.release()
		return ctx.Err()
	}
}

// release is called once for each run that has returned nil; a run that returns an error calls it itself. The last one ends
// the thread, and waits for that.
func (s *starter) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if s.users == 0 {
		close(s.jobs)
		<-s.ended
	}
}

// serveStarts is the goroutine of a starter's thread: it runs jobs until that is closed, and then closes ended.
func serveStarts(jobs <-chan func(), ended chan<- struct{}) {
	defer close(ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for f := range jobs {
		f()
	}
}

// newMarker returns a new unique marker for a child. If this process is itself the child of a supervisor, the marker
// extends our own, so that the outer supervisor finds our descendants too.
func newMarker() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b) // never fails
	own := hex.EncodeToString(b)
	if outer := os.Getenv(markerVar); outer != "" {
		return outer + "." + own
	}
	return own
}

// matchesMarker reports whether marker, found in a process's environment, is m or extends it, so that the process
// descends from the child with the marker m. It is false for an empty m.
func matchesMarker(m, marker string) bool {
	rest, ok := strings.CutPrefix(marker, m)
	return ok && m != "" && (rest == "" || rest[0] == '.')
}

// markerOf returns the marker in the environment of a process; "" if the environment has
// no marker (sure is true) or cannot be read now (sure is false).
func markerOf(pid int) (marker string, sure bool) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil || len(env) == 0 { // the environment is empty in the middle of an exec
		return "", false
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if m, ok := bytes.CutPrefix(v, []byte(markerVar+"=")); ok {
			return string(m), true
		}
	}
	return "", true
}

// A procStat is the part of /proc/PID/stat that we use.
type procStat struct {
	state byte // the letter that ps shows for the state of the process: R, S, Z and so on
	// ppid is the id of the process's parent, and pgid that of its process group.
	ppid, pgid int
}

// readStat returns what /proc says of a process; an error if there is no such process.
func readStat(pid int) (st procStat, err error) {
	text, err := statOf(pid)
	if err != nil {
		return st, err
	}
	_, err = fmt.Sscanf(text, " %c %d %d", &st.state, &st.ppid, &st.pgid)
	return st, err
}

// statOf returns the text of /proc/PID/stat from behind the command name, which stands in parentheses and may hold any
// characters: it begins with the state.
func statOf(pid int) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return string(b[bytes.LastIndexByte(b, ')')+1:]), err
}

// isDead reports whether the process has ended, though it may not be reaped yet.
func (st procStat) isDead() bool { return st.state == 'Z' || st.state == 'X' }

// allPids lists the ids of all processes of the system.
func allPids() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

// groupIsDead reports whether all members of the group are zombies; false if that cannot be found out. They stay
// zombies where process 1 does not reap orphans.
func groupIsDead(pgid int) bool {
	pids, err := allPids()
	if err != nil {
		return false
	}
	for _, pid := range pids {
		st, err := readStat(pid)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			return false
		}
		if err == nil && st.pgid == pgid && !st.isDead() {
			return false
		}
	}
	return true
}
