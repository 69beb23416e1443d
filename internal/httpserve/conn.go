package httpserve

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
)

// quickKey is under which a request's context knows its Quick.
type quickKey struct{}

// WithConn is what an http.Server has for ConnContext, so that QuickOf knows of
// its connections.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	taken := sockstate.Of(c)
	if taken == nil {
		return ctx
	}
	return context.WithValue(ctx, quickKey{}, newQuick(c, taken))
}

// Quick is a connection of HTTP/1 that knows when a small reply does not wait for
// the client. Its methods are for the request in progress: they must not be called
// concurrently, nor when its handler has returned.
type Quick struct {
	conn    net.Conn
	taken   func() bool
	late    lazytimer.Timer // calls cut
	written bool

	mu    sync.Mutex // held while the deadline is set
	began time.Time  // when the write in progress began; zero: there is none
}

// newQuick returns one for c, of which taken is what sockstate.Of says.
func newQuick(c net.Conn, taken func() bool) *Quick {
	q := &Quick{conn: c, taken: taken}
	q.late.Do = q.cut
	return q
}

// cut breaks off a write that takes too long. The alarm may be late: there may
// be none any more, or another one.
func (q *Quick) cut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.began.IsZero() && time.Since(q.began) >= sockstate.Patience {
		_ = q.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

// begin notes when a write has begun; the zero time: it has ended.
func (q *Quick) begin(at time.Time) {
	q.mu.Lock()
	q.began = at
	q.mu.Unlock()
}

// QuickOf returns what the connection of a request knows; nil: nothing. Over
// HTTP/2 nothing can be known: others share the connection.
func QuickOf(r *http.Request) *Quick {
	if r.ProtoMajor != 1 {
		return nil
	}
	q, _ := r.Context().Value(quickKey{}).(*Quick)
	return q
}

// Write calls write, which writes a whole reply of at most sockstate.Small bytes, with
// the header, and flushes it; but not if that would wait for the client. One that
// takes longer than sockstate.Patience all the same is cut off, whatever deadline it has.
func (q *Quick) Write(write func()) bool {
	if !q.taken() {
		return false
	}
	q.begin(time.Now())
	q.late.After(sockstate.Patience)
	write()
	q.late.Clear()
	q.begin(time.Time{})
	q.written = true
	return true
}

// TakeWritten reports whether there is nothing more to be written to the reply in
// progress, for Write has done it. Whoever serves requests that Write is used for
// asks once at the end of each, also of a nil Quick.
func (q *Quick) TakeWritten() bool {
	if q == nil {
		return false
	}
	written := q.written
	q.written = false
	return written
}
