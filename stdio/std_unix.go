//go:build unix

package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// openIn returns another file for what f is open on, whose blocked reads can be ended
// by a deadline, and a function that undoes what was done. Where there is no such
// file, it returns f itself.
func openIn(f *os.File) (*os.File, func()) {
	if g, undo := makePollable(f, unix.O_RDONLY); g != nil {
		return g, undo
	}
	return f, func() {}
}

// openOut returns another file for what f is open on, and a function that undoes what
// was done. Its blocked writes can be ended by a deadline if the system allows that;
// else it is a plain duplicate, because a failing write to os.Stdout itself would kill
// the process. It returns f only if f cannot be duplicated.
func openOut(f *os.File) (*os.File, func()) {
	if g, undo := makePollable(f, unix.O_WRONLY); g != nil {
		return g, undo
	}
	if g := duplicate(f); g != nil {
		return g, func() { g.Close() }
	}
	return f, func() {}
}

// makePollable returns another file for what f is open on, with working deadlines, and
// a function that undoes what was done. mode is unix.O_RDONLY or O_WRONLY. It returns
// nil where there is none: f is a regular file or a terminal that cannot be opened
// again, or our stderr is the same pipe or socket.
func makePollable(f *os.File, mode int) (*os.File, func()) {
	info, err := f.Stat()
	if err != nil || info.Mode().IsRegular() {
		return nil, nil
	}
	if g := reopen(f, mode); g != nil {
		return g, func() { g.Close() }
	}
	if info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 || sameAsStderr(info) {
		return nil, nil
	}
	return setNonblocking(f)
}

// setNonblocking returns a duplicate of f with working deadlines, for which it makes f
// non-blocking, and a function that undoes that; nil, nil after an error. Non-blocking
// is a property of the open file, which other processes may share (a terminal: the
// shell), and our own stderr too; hence only for pipes and sockets that are not
// stderr, and until Close.
func setNonblocking(f *os.File) (*os.File, func()) {
	was, err := withDescriptor(f, func(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0) })
	if err != nil {
		return nil, nil
	}
	block := func(on bool) error {
		_, err := withDescriptor(f, func(fd int) (int, error) { return 0, unix.SetNonblock(fd, !on) })
		return err
	}
	if err := block(false); err != nil {
		return nil, nil
	}
	g := duplicate(f)
	if g == nil {
		block(was&unix.O_NONBLOCK == 0)
		return nil, nil
	}
	return g, func() {
		g.Close()
		block(was&unix.O_NONBLOCK == 0)
	}
}

// sameAsStderr reports whether our stderr is this file.
func sameAsStderr(info os.FileInfo) bool {
	stderr, err := os.Stderr.Stat()
	return err == nil && os.SameFile(info, stderr)
}

// duplicate returns a new file for a duplicate of f's descriptor; nil after an error.
func duplicate(f *os.File) *os.File {
	fd, err := withDescriptor(f, func(fd int) (int, error) {
		return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	})
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// withDescriptor calls call with f's descriptor, and returns what that returns. (f.Fd
// would make the file blocking.)
func withDescriptor(f *os.File, call func(fd int) (int, error)) (n int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := raw.Control(func(fd uintptr) { n, err = call(int(fd)) }); e != nil {
		return 0, e
	}
	return n, err
}
