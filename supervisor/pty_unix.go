//go:build unix

package supervisor

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// openTerminal makes a raw pseudo-terminal. ours is the end to read from, with working read deadlines; childs becomes
// a child's stdout.
func openTerminal() (ours, childs *os.File, err error) {
	ours, childs, err = pty.Open()
	if err != nil {
		return nil, nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	polled, err := pollableFile(ours)
	if err == nil {
		err = makeRaw(childs)
	}
	_ = ours.Close()
	if err != nil {
		_, _ = polled.Close(), childs.Close()
		return nil, nil, fmt.Errorf("set up the pseudo-terminal: %w", err)
	}
	return polled, childs, nil
}

// pollableFile returns a duplicate of f that has working read deadlines. Those of f itself do not work, because the
// pty library has called f.Fd.
func pollableFile(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var polled *os.File
	var opErr error
	err = raw.Control(func(fd uintptr) {
		var again int
		if again, opErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); opErr != nil {
			return
		}
		if opErr = unix.SetNonblock(again, true); opErr != nil {
			_ = unix.Close(again)
			return
		}
		polled = os.NewFile(uintptr(again), f.Name())
	})
	return polled, errors.Join(err, opErr)
}

// makeRaw sets the terminal f so that what a child writes to it comes out unchanged: it turns off what changes the output
// (\n to \r\n, tabs), the echo of input, and the bytes of input that edit a line or mean a signal.
func makeRaw(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	err = raw.Control(func(fd uintptr) {
		t, err := unix.IoctlGetTermios(int(fd), getTermios)
		if err != nil {
			opErr = err
			return
		}
		t.Oflag &^= unix.OPOST
		t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		opErr = unix.IoctlSetTermios(int(fd), setTermios, t)
	})
	return errors.Join(err, opErr)
}

// isTerminalEnd reports whether err is how reading a terminal ends once no process has the other end open: EIO on Linux.
func isTerminalEnd(err error) bool { return errors.Is(err, syscall.EIO) }
