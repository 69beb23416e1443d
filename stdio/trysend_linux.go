package stdio

import (
	"crypto/tls"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
)

// pipeBuf is how many bytes a pipe takes as a whole or not at all (pipe(7), PIPE_BUF).
const pipeBuf = 4096

// pipeTryWriter returns a tryWriter for a file. It returns nil unless the file is a pipe whose deadlines work.
func pipeTryWriter(f *os.File) tryWriter {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 || f.SetWriteDeadline(time.Time{}) != nil {
		return nil // the last means that a write may block
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	write := rawTryWriter(raw)
	return func(p []byte) int {
		if len(p) > pipeBuf {
			return 0
		}
		return write(p)
	}
}

// socketTryWriter returns a tryWriter for a connection. It returns nil for TLS, and where the system does not say
// whether the peer has taken what was sent.
func socketTryWriter(c net.Conn) tryWriter {
	if _, encrypted := c.(*tls.Conn); encrypted {
		return nil
	}
	taken := sockstate.OutputDrainedFunc(c)
	if taken == nil {
		return nil
	}
	write := rawTryWriter(sockstate.RawConn(c))
	return func(p []byte) int {
		if len(p) > sockstate.MaxInlineBytes || !taken() {
			return 0
		}
		return write(p)
	}
}

// rawTryWriter returns a tryWriter that makes one write to raw, without waiting.
func rawTryWriter(raw syscall.RawConn) tryWriter {
	var text []byte
	var n int
	write := func(fd uintptr) bool {
		n, _ = syscall.Write(int(fd), text)
		return true
	}
	return func(p []byte) int {
		text, n = p, 0
		_ = raw.Write(write)
		text = nil
		return max(n, 0)
	}
}
