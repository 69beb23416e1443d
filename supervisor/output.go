package supervisor

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// outputGrace is how long a Read waits for output after the process has exited. If none
// comes, the output counts as ended, although a descendant may hold the pipe open. It is
// also the longest that Done waits for the end of stderr.
const outputGrace = 200 * time.Millisecond

// A childOutput is our end of a child's stdout or stderr. The output ends at EOF, or when the process has exited and
// a Read has waited for outputGrace in vain. A childOutput has a read deadline like a file: with the deadline a Read can be
// interrupted without a goroutine of its own.
type childOutput struct {
	f *os.File // our end of the pipe or terminal

	readMu   sync.Mutex // held by Read and finish; guards leftover and endErr
	leftover []byte     // what was in the pipe when finish closed it, and Read has not returned yet
	endErr   error      // what Read returns after the last bytes; nil: the output has not ended

	deadlineMu    sync.Mutex // guards the fields below, and is held while f's read deadline is set
	deadline      time.Time  // the reader's, set with SetReadDeadline; zero: none
	exited        bool       // the process has exited
	quietDeadline time.Time  // once the process has exited: until when a Read waits; if nothing comes, the output has ended. Each Read sets it anew
	finishing     bool       // finish was called: the output ends with what is in the pipe now
}

// Read implements io.Reader; after SetReadDeadline's time it returns os.ErrDeadlineExceeded. At the output's end it
// returns io.EOF.
func (o *childOutput) Read(b []byte) (int, error) {
	o.readMu.Lock()
	defer o.readMu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	if len(o.leftover) > 0 {
		n := copy(b, o.leftover)
		o.leftover = o.leftover[n:]
		return n, nil
	}
	if o.endErr != nil {
		return 0, o.endErr
	}
	o.renewGrace()
	n, err := o.f.Read(b)
	if n <= 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		// After the deadline Read of a file returns no data even if there is some: we
		// may have been slow, and not the child. So read once more, without waiting.
		var ours bool
		if n, err, ours = o.readLast(b); !ours {
			return 0, os.ErrDeadlineExceeded
		}
	}
	if n > 0 {
		return n, nil
	}
	o.endErr = endOfOutput(err)
	return 0, o.endErr
}

// SetReadDeadline sets the time at which a Read that waits gives up, as that of an os.File does; zero: none. After the process has
// exited, a Read waits for outputGrace at most, whatever is set, and then returns io.EOF.
func (o *childOutput) SetReadDeadline(t time.Time) error {
	o.deadlineMu.Lock()
	defer o.deadlineMu.Unlock()
	o.deadline = t
	return o.setDeadline()
}

// processExited notes that the process has exited: from now on each Read waits for outputGrace at most, and so does
// one that waits already.
func (o *childOutput) processExited() {
	o.deadlineMu.Lock()
	o.exited = true
	o.deadlineMu.Unlock()
	o.renewGrace()
}

// renewGrace has outputGrace begin now, if the process has exited. Read calls it, so that each Read waits that long.
func (o *childOutput) renewGrace() {
	o.deadlineMu.Lock()
	defer o.deadlineMu.Unlock()
	if o.exited {
		o.quietDeadline = time.Now().Add(outputGrace)
		_ = o.setDeadline()
	}
}

// setDeadline sets the file's deadline to whichever comes first: the reader's, or, after the process has exited,
// quietDeadline. After finish it is in the past. The caller holds deadlineMu.
func (o *childOutput) setDeadline() error {
	d := o.deadline
	switch {
	case o.finishing:
		d = time.Unix(1, 0)
	case o.exited && (d.IsZero() || d.After(o.quietDeadline)):
		d = o.quietDeadline
	}
	return o.f.SetReadDeadline(d)
}

// readLast is called when Read has run into the file's deadline. If the output is over, by outputGrace or by finish, it reads what
// is in the pipe, without waiting, and ours is true. If it was the reader's deadline, it reads nothing, and ours is false.
func (o *childOutput) readLast(b []byte) (n int, err error, ours bool) {
	o.deadlineMu.Lock()
	defer o.deadlineMu.Unlock()
	if !o.finishing && !(o.exited && !time.Now().Before(o.quietDeadline)) {
		return 0, nil, false
	}
	n, err = o.readNow(b)
	return n, err, true
}

// finish ends the output and closes the pipe. It keeps what is in the pipe for Read, which returns io.EOF afterwards.
func (o *childOutput) finish() {
	o.deadlineMu.Lock()
	o.finishing = true
	_ = o.setDeadline() // wakes a Read that is waiting
	o.deadlineMu.Unlock()

	o.readMu.Lock()
	defer o.readMu.Unlock()
	b := make([]byte, 4096)
	for o.endErr == nil {
		n, err, _ := o.readLast(b)
		o.leftover = append(o.leftover, b[:n]...)
		if n == 0 {
			o.endErr = endOfOutput(err)
		} else if len(o.leftover) > maxLeftover {
			o.endErr = io.EOF
		}
	}
	_ = o.f.Close()
}

// maxLeftover is about how many bytes of what is in the pipe finish keeps for Read. No pipe holds so much by default:
// only a process that has survived, and goes on writing, reaches it.
const maxLeftover = 1 << 20

// endOfOutput returns io.EOF for nil and for the errors with which the output of a child ends in an orderly way, and
// any other error as it is.
func endOfOutput(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, os.ErrClosed) || isTerminalEnd(err) {
		return io.EOF
	}
	return err
}
