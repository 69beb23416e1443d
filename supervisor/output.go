package supervisor

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// An output is our end of a child's stdout or stderr. It ends at EOF, or when
// the process has exited and whoever else holds the other end was silent for
// outputGrace.
type output struct {
	f      *os.File
	exited atomic.Bool

	mu   sync.Mutex // held while reading
	rest []byte     // what was in the pipe when finish closed it
	end  error      // once set, the output has ended
}

// Read implements io.Reader.
func (o *output) Read(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	if len(o.rest) > 0 {
		n := copy(b, o.rest)
		o.rest = o.rest[n:]
		return n, nil
	}
	if o.end != nil {
		return 0, o.end
	}
	if o.exited.Load() {
		_ = o.f.SetReadDeadline(time.Now().Add(outputGrace))
	}
	n, err := o.f.Read(b)
	if n <= 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		// The deadline wins over data that is there (we may have been slow, not
		// the child), so have one more look, which does not wait.
		n, err = o.readNow(b)
	}
	if n > 0 {
		return n, nil
	}
	o.end = endOfOutput(err)
	return 0, o.end
}

// processExited tells o that from now on silence means the end. It wakes a
// Read that is waiting.
func (o *output) processExited() {
	o.exited.Store(true)
	_ = o.f.SetReadDeadline(time.Now().Add(outputGrace))
}

// finish ends the output and closes the pipe. What is in the pipe is kept for
// Read, which returns io.EOF after it.
func (o *output) finish() {
	_ = o.f.SetReadDeadline(time.Unix(1, 0)) // wakes a Read that is waiting
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.end == nil {
		b := make([]byte, 4096)
		n, err := o.readNow(b)
		if n <= 0 {
			o.end = endOfOutput(err)
			break
		}
		o.rest = append(o.rest, b[:n]...)
		if len(o.rest) > maxRest { // someone survived and goes on writing
			o.end = io.EOF
		}
	}
	_ = o.f.Close()
}

// maxRest is more than any pipe holds by default.
const maxRest = 1 << 20

// endOfOutput maps the ways in which output ends to io.EOF.
func endOfOutput(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) || isTerminalEnd(err) {
		return io.EOF
	}
	return err
}
