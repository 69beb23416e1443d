package stdio

import (
	"io"
	"os"
)

// Std returns the Conn of the client that started this process, on in and out:
// os.Stdin and os.Stdout, or, in tests, any reader and writer. Options.Peer
// is Client.
//
// What Close and the end of a context can do depends on what the two are:
//
//   - Pipes and sockets on Unix, terminals on Linux: a blocked Receive or Send is
//     ended at once.
//   - Anything else (files, /dev/null, consoles, all of Windows): a blocked
//     Receive returns, but its goroutine goes on reading until the process ends;
//     a blocked Send waits until the client reads or is gone.
//
// Close closes neither in nor out. When the client is gone, Send returns an
// error (EPIPE); the process is not killed by SIGPIPE, as it would be after a
// write to os.Stdout itself. The caller should then end.
//
// Nothing else may read in or write to out (ST3).
func Std(in io.Reader, out io.Writer, opts Options) *Conn {
	opts.Peer = Client
	var undo []func()
	if f, ok := in.(*os.File); ok {
		r, close := openIn(f)
		in, undo = r, append(undo, close)
	}
	if f, ok := out.(*os.File); ok {
		w, close := openOut(f)
		out, undo = w, append(undo, close)
	}
	closer := func() error {
		for _, f := range undo {
			f()
		}
		return nil
	}
	return newConn(in, out, closer, opts, true)
}
