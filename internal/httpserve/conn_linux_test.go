package httpserve

import (
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
)

// quickConn returns what a request on the near end of a connection knows of it.
func quickConn(t *testing.T, major int) (q *InlineReply, near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bridgetest.Must(t, err)
	defer l.Close()
	if far, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	r, err := http.NewRequestWithContext(WithInlineReply(t.Context(), near), "POST", "/", nil)
	bridgetest.Must(t, err)
	r.ProtoMajor = major
	return InlineReplyOf(r), near, far
}

// A reply is written at once to a client that has taken what was written before,
// and that is known once; to another one it is not.
func TestQuick(t *testing.T) {
	q, near, _ := quickConn(t, 1)
	if q == nil || q.resetReplyWritten() {
		t.Fatal("nothing was written yet")
	}
	wrote := false
	if !q.TryWrite(func() { wrote = true }) || !wrote {
		t.Error("a reply to a client that has taken everything is written")
	}
	if !q.resetReplyWritten() || q.resetReplyWritten() {
		t.Error("that a reply was written is known once")
	}
	for err := error(nil); err == nil; { // until the client must read
		_ = near.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // of each write: all of them may take longer
		_, err = near.Write(make([]byte, 64<<10))
	}
	if q.TryWrite(func() { t.Error("this may wait") }) || q.resetReplyWritten() {
		t.Error("a reply to a client that reads nothing is not written")
	}
}

// A write that takes too long all the same is cut off; one that does not is not,
// nor what comes after it.
func TestQuickPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		defer near.Close()
		q := newInlineReply(near, func() bool { return true })
		write := func() (err error) {
			q.TryWrite(func() { _, err = near.Write([]byte{1}) })
			return err
		}
		for range 3 {
			go func() {
				time.Sleep(sockstate.InlineWriteTimeout - time.Millisecond)
				_, _ = far.Read(make([]byte, 1))
			}()
			if err := write(); err != nil {
				t.Errorf("a client that reads in time: %v", err)
			}
			time.Sleep(time.Hour)
		}
		began := time.Now()
		if err := write(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != sockstate.InlineWriteTimeout {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Of a connection that requests share nothing is known, nor of one that was not
// looked at.
func TestQuickUnknown(t *testing.T) {
	if q, _, _ := quickConn(t, 2); q != nil {
		t.Error("HTTP/2")
	}
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "/", nil)
	if q := InlineReplyOf(r); q != nil || q.resetReplyWritten() {
		t.Error("no connection")
	}
}

// deadlineConn calls set when a write deadline is set.
type deadlineConn struct {
	net.Conn
	set func()
}

func (c *deadlineConn) SetWriteDeadline(t time.Time) error {
	c.set()
	return c.Conn.SetWriteDeadline(t)
}

// A write that ends just when it was to be cut off has no deadline left behind
// for the next reply of its connection.
func TestQuickPatienceJustOver(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	late, returned := make(chan struct{}), make(chan struct{})
	set := make(chan bool, 1)
	q := newInlineReply(&deadlineConn{near, func() {
		close(late)
		select { // the goroutine that cuts off is held up
		case <-returned:
			set <- true
		case <-time.After(100 * time.Millisecond):
			set <- false
		}
	}}, func() bool { return true })
	q.TryWrite(func() { <-late })
	close(returned)
	if <-set {
		t.Error("the deadline is set when the write has returned")
	}
}
