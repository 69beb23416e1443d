package stdio

import (
	"crypto/tls"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/mcp-bridge/mcp-bridge/outq"
)

// pipeBuf is what a pipe takes as a whole or not at all (pipe(7), PIPE_BUF).
const pipeBuf = 4096

// tryPipe is newTryWriter for a file, if that is a pipe.
func tryPipe(f *os.File) tryWriter {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 || f.SetWriteDeadline(time.Time{}) != nil {
		return nil // the last means that a write may block
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return func(p []byte) int {
		if len(p) > pipeBuf {
			return 0
		}
		return writeNow(raw, p)
	}
}

// trySocket is newTryWriter for a connection.
func trySocket(c net.Conn) tryWriter {
	if _, encrypted := c.(*tls.Conn); encrypted {
		return nil
	}
	taken := outq.Of(c)
	if taken == nil {
		return nil
	}
	raw := outq.Raw(c)
	return func(p []byte) int {
		if len(p) > outq.Small || !taken() {
			return 0
		}
		return writeNow(raw, p)
	}
}

// writeNow writes as much as is taken at once, and returns how much that was.
func writeNow(raw syscall.RawConn, p []byte) (n int) {
	_ = raw.Write(func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), p)
		return true
	})
	return max(n, 0)
}
