package supervisor

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// outputGrace is how long output may be silent before it counts as ended,
// once the process has exited and only a descendant holds the pipe open.
const outputGrace = 200 * time.Millisecond

// A childOutput is our end of a child's stdout or stderr. It ends at EOF, or when
// the process has exited and whoever else holds the other end was silent for
// outputGrace. It has a read deadline like a file's, so that its reader needs
// no goroutine of its own to be interruptible.
type childOutput struct {
	f *os.File

	reading sync.Mutex // held by Read and finish; guards the next two
	rest    []byte     // what was in the pipe when finish closed it
	end     error      // once set, the output has ended

	limits   sync.Mutex // guards what follows and the file's deadline
	deadline time.Time  // the reader's own
	exited   bool
	quiet    time.Time // after exited: when silence means the end
	closing  bool
}

// Read implements io.Reader.
func (o *childOutput) Read(b []byte) (int, error) {
	o.reading.Lock()
	defer o.reading.Unlock()
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
	o.renewGrace()
	n, err := o.f.Read(b)
	if n <= 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		// A deadline wins over data that is there (we may have been slow, not
		// the child), so have one more look, which does not wait.
		var ours bool
		if n, err, ours = o.readLast(b); !ours {
			return 0, os.ErrDeadlineExceeded
		}
	}
	if n > 0 {
		return n, nil
	}
	o.end = endOfOutput(err)
	return 0, o.end
}

// SetReadDeadline is as that of an os.File.
func (o *childOutput) SetReadDeadline(t time.Time) error {
	o.limits.Lock()
	defer o.limits.Unlock()
	o.deadline = t
	return o.setDeadline()
}

// processExited tells o that from now on silence means the end. It wakes a
// Read that is waiting.
func (o *childOutput) processExited() {
	o.limits.Lock()
	o.exited = true
	o.limits.Unlock()
	o.renewGrace()
}

// renewGrace gives a Read that begins its full time.
func (o *childOutput) renewGrace() {
	o.limits.Lock()
	defer o.limits.Unlock()
	if o.exited {
		o.quiet = time.Now().Add(outputGrace)
		_ = o.setDeadline()
	}
}

// setDeadline gives the file the earliest deadline; limits is held.
func (o *childOutput) setDeadline() error {
	d := o.deadline
	switch {
	case o.closing:
		d = time.Unix(1, 0)
	case o.exited && (d.IsZero() || d.After(o.quiet)):
		d = o.quiet
	}
	return o.f.SetReadDeadline(d)
}

// readLast reads what is there, without waiting, after a deadline has passed. It does
// not (ours is false) if that was the reader's own deadline, hence not the end.
func (o *childOutput) readLast(b []byte) (n int, err error, ours bool) {
	o.limits.Lock()
	defer o.limits.Unlock()
	if !o.closing && !(o.exited && !time.Now().Before(o.quiet)) {
		return 0, nil, false
	}
	n, err = o.readNow(b)
	return n, err, true
}

// finish ends the output and closes the pipe. What is in the pipe is kept for
// Read, which returns io.EOF after it.
func (o *childOutput) finish() {
	o.limits.Lock()
	o.closing = true
	_ = o.setDeadline() // wakes a Read that is waiting
	o.limits.Unlock()

	o.reading.Lock()
	defer o.reading.Unlock()
	b := make([]byte, 4096)
	for o.end == nil {
		n, err, _ := o.readLast(b)
		o.rest = append(o.rest, b[:n]...)
		if n == 0 {
			o.end = endOfOutput(err)
		} else if len(o.rest) > maxRest { // someone survived and goes on writing
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
