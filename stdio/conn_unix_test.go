//go:build unix

package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A context that ends before anything was written does no harm; one that ends
// in the middle of a message makes the Conn unusable, and says so.
func TestSendCutOff(t *testing.T) {
	r, w := osPipe(t)
	c := NewConn(strings.NewReader(""), w, closeAll(r, w), Options{})
	defer c.Close(nil)
	ctx, cancel := context.WithCancel(t.Context())
	big := benchMessage(1 << 20)
	result := make(chan error)
	go func() { result <- c.Send(ctx, big) }()

	// Once a byte has arrived, Send is in the middle of the message.
	if _, err := r.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	waiting, cancelWaiting := context.WithCancel(t.Context())
	cancelWaiting()
	if err := c.Send(waiting, benchMessage(100)); err != context.Canceled {
		t.Errorf("Send that waits for its turn = %v, want context.Canceled", err)
	}
	cancel()
	if err := <-result; !errors.Is(err, ErrCutOff) || !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want ErrCutOff and context.Canceled", err)
	}
	if err := c.Send(t.Context(), benchMessage(100)); !errors.Is(err, ErrCutOff) {
		t.Errorf("Send afterwards = %v, want ErrCutOff", err)
	}
	if _, err := bridgetest.Recv(t.Context(), c); !errors.Is(err, ErrCutOff) {
		t.Errorf("Recv afterwards = %v, want ErrCutOff", err)
	}
}

// A Send that waits for room, and has written nothing, can be given up.
func TestSendGivenUp(t *testing.T) {
	r, w := osPipe(t)
	c := NewConn(strings.NewReader(""), w, closeAll(r, w), Options{})
	defer c.Close(nil)
	fillPipe(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- c.Send(ctx, benchMessage(1000)) }()
	for !c.out.dest.(*deadlineWriter).in.watching() {
		runtime.Gosched() // until Send waits
	}
	cancel()
	if err := <-result; err != context.Canceled {
		t.Errorf("Send = %v, want context.Canceled", err)
	}
	drainPipe(t, r)
	m := benchMessage(100)
	if err := c.Send(t.Context(), m); err != nil {
		t.Fatalf("the next Send: %v", err)
	}
	got := make([]byte, 1000)
	n, err := r.Read(got)
	if err != nil || string(got[:n]) != string(m.Bytes())+"\n" {
		t.Errorf("read %q, %v; want the second message only", got[:n], err)
	}
}

// A Receive that was given up in the middle of a line loses nothing of it.
func TestRecvGivenUp(t *testing.T) {
	for name, wrap := range map[string]func(*os.File) io.Reader{
		"direct":     func(f *os.File) io.Reader { return f },
		"background": func(f *os.File) io.Reader { return plain{f} },
	} {
		t.Run(name, func(t *testing.T) {
			r, w := osPipe(t)
			c := NewConn(wrap(r), io.Discard, closeAll(r, w), Options{})
			defer c.Close(nil)
			long := new(benchMessage(200_000)).Bytes()
			half := make(chan struct{})
			go func() {
				w.Write(long[:100_000])
				close(half)
			}()
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error)
			go func() { _, err := bridgetest.Recv(ctx, c); result <- err }()
			cancel()
			if err := <-result; err != context.Canceled {
				t.Errorf("Recv = %v, want context.Canceled", err)
			}
			go func() {
				<-half
				w.Write(long[100_000:])
				w.WriteString("\n" + pong + "\n")
			}()
			for _, want := range []string{string(long), pong} {
				m, err := bridgetest.Recv(t.Context(), c)
				if err != nil || string(m.Bytes()) != want {
					t.Fatalf("received %.100q (%d bytes), %v; want the whole message", m.Bytes(), len(m.Bytes()), err)
				}
			}
		})
	}
}

// A Conn that waits holds a small buffer, even after a long message: there are
// hundreds of idle sessions.
func TestIdleMemory(t *testing.T) {
	for name, wrap := range map[string]func(*os.File) io.Reader{
		"direct":     func(f *os.File) io.Reader { return f },
		"background": func(f *os.File) io.Reader { return plain{f} },
	} {
		t.Run(name, func(t *testing.T) {
			r, w := osPipe(t)
			conn := NewConn(wrap(r), io.Discard, closeAll(r, w), Options{})
			defer conn.Close(nil)
			m := benchMessage(300_000)
			go w.Write(append(m.Bytes(), '\n'))
			if _, err := bridgetest.Recv(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
			w.WriteString(pong + "\n" + note + "\n")
			for range 2 {
				if _, err := bridgetest.Recv(t.Context(), conn); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 { // on a busy machine the time may be over before Recv begins
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				if _, err := bridgetest.Recv(ctx, conn); err != context.DeadlineExceeded {
					t.Errorf("Recv = %v", err)
				}
				cancel()
				if len(conn.in.lines.buf) <= smallBufferSize {
					break
				}
			}
			if got := len(conn.in.lines.buf); got > smallBufferSize {
				t.Errorf("an idle Conn holds a buffer of %d bytes, want at most %d", got, smallBufferSize)
			}
		})
	}
}

func (i *interrupter) watching() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.watchedDone != nil
}

// fillPipe writes to w until it would have to wait.
func fillPipe(t *testing.T, w *os.File) (n int) {
	t.Helper()
	raw, err := w.SyscallConn()
	bridgetest.Must(t, err)
	raw.Write(func(fd uintptr) bool {
		for size := 4096; size > 0; {
			m, err := syscall.Write(int(fd), make([]byte, size))
			if err == syscall.EAGAIN {
				size /= 2 // a page may have room for less
				continue
			}
			n += m
		}
		return true
	})
	return n
}

func drainPipe(t *testing.T, r *os.File) {
	t.Helper()
	raw, err := r.SyscallConn()
	bridgetest.Must(t, err)
	raw.Read(func(fd uintptr) bool {
		buf := make([]byte, 1<<20)
		for {
			if n, err := syscall.Read(int(fd), buf); n <= 0 || err != nil {
				return true
			}
		}
	})
}
