//go:build unix

package supervisor

import (
	"syscall"
	"time"
)

// readNow reads what is in the pipe and does not wait. It returns 0, nil if the pipe is empty or has ended.
func (o *childOutput) readNow(b []byte) (n int, err error) {
	_ = o.f.SetReadDeadline(time.Time{}) // with an expired deadline the read below fails
	raw, err := o.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, readErr = syscall.Read(int(fd), b)
			if readErr != syscall.EINTR {
				return true
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case readErr == syscall.EAGAIN:
		return 0, nil
	}
	return max(n, 0), readErr
}
