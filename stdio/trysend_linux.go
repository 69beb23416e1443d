package stdio

import (
	"os"
	"syscall"
	"time"
)

// pipeBuf is what a pipe takes as a whole or not at all (pipe(7), PIPE_BUF).
const pipeBuf = 4096

// tryPipe is newTryWriter for a file, if that is a pipe.
func tryPipe(f *os.File) func(p []byte) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 || f.SetWriteDeadline(time.Time{}) != nil {
		return nil // the last means that a write may block
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	return func(p []byte) bool {
		if len(p) > pipeBuf {
			return false
		}
		written := false
		err := raw.Write(func(fd uintptr) bool {
			n, err := syscall.Write(int(fd), p)
			written = n == len(p) && err == nil
			return true
		})
		return written && err == nil
	}
}
