package stdio

import (
	"crypto/tls"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
)

// pipeBuf is how many bytes a pipe takes as a whole or not at all (pipe(7), PIPE_BUF).
const pipeBuf = 4096

// pipeTryWriter returns a tryWriter for a file. It takes nothing unless the file is a pipe whose deadlines work, and lines above pipeBuf
// only if nobody else writes to the pipe (isOurs).
func pipeTryWriter(f *os.File, isOurs bool) tryWriter {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 || f.SetWriteDeadline(time.Time{}) != nil {
		return tryWriter{} // the last means that a write may block
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return tryWriter{}
	}
	limit := pipeBuf
	if isOurs {
		limit = chunkSize
	}
	var size int
	var isEmpty bool
	look := func(fd uintptr) { isEmpty = isEmptyPipe(int(fd), size) }
	fits := func(lineSize int) bool {
		if lineSize <= pipeBuf {
			return true
		}
		size, isEmpty = lineSize, false
		_ = raw.Control(look)
		return isEmpty
	}
	w := tryWriter{limit: limit, fits: fits, write: rawWriteFunc(raw)}
	if isOurs {
		w.hasRoom = isReadAndEmptyFunc(raw)
	}
	return w
}

// isReadAndEmptyFunc returns a function that reports whether a pipe is empty, and so has room for pipeBuf bytes however small it is or
// becomes, and has a reader (pipe(7); poll(2): POLLERR; FIONREAD).
func isReadAndEmptyFunc(raw syscall.RawConn) func() bool {
	var yes bool
	look := func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		yes = err == nil && n == 1 && fds[0].Revents == unix.POLLOUT && isDrained(int(fd))
	}
	return func() bool {
		yes = false
		_ = raw.Control(look)
		return yes
	}
}

// isDrained reports whether nothing is in a pipe.
func isDrained(fd int) bool {
	unread, err := unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD, by its other name
	return err == nil && unread == 0
}

// isEmptyPipe reports whether nothing is in a pipe that holds at least size bytes (pipe(7): FIONREAD, F_GETPIPE_SZ).
func isEmptyPipe(fd, size int) bool {
	if !isDrained(fd) {
		return false
	}
	capacity, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	return err == nil && size <= capacity
}

// socketTryWriter returns a tryWriter for a connection. It takes nothing with TLS, and where the system does not say
// whether the peer has taken what was sent.
func socketTryWriter(c net.Conn) tryWriter {
	if _, encrypted := c.(*tls.Conn); encrypted {
		return tryWriter{}
	}
	taken := sockstate.OutputDrainedFunc(c)
	if taken == nil {
		return tryWriter{}
	}
	return tryWriter{sockstate.MaxInlineBytes, func(int) bool { return taken() }, taken, rawWriteFunc(sockstate.RawConn(c))}
}

// rawWriteFunc returns a function for tryWriter.write: it makes one write to raw, without waiting.
func rawWriteFunc(raw syscall.RawConn) func(line []byte) (int, error) {
	var text []byte
	var n int
	var err error
	write := func(fd uintptr) bool {
		n, err = syscall.Write(int(fd), text)
		return true
	}
	return func(p []byte) (int, error) {
		text, n, err = p, 0, nil
		if notWritten := raw.Write(write); notWritten != nil {
			err = notWritten
		}
		text = nil
		return max(n, 0), err
	}
}
