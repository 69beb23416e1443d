package httpserver

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/outq"
)

// quickKey is under which a request's context knows its Quick.
type quickKey struct{}

// WithConn is what an http.Server has for ConnContext, so that QuickOf knows of
// its connections.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	taken := outq.Of(c)
	if taken == nil {
		return ctx
	}
	q := &Quick{taken: taken}
	q.late = outq.NewAlarm(func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
	return context.WithValue(ctx, quickKey{}, q)
}

// Quick is a connection of HTTP/1 that knows when a small reply does not wait for
// the client. What is written belongs to one request at a time, and so do Write
// and Written.
type Quick struct {
	taken   func() bool
	late    *outq.Alarm // breaks off what is being written
	written atomic.Bool
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

// Write calls write, which writes a whole reply of at most outq.Small bytes, with
// the header, and flushes it; but not if that would wait for the client. One that
// takes longer than outq.Patience all the same is cut off, whatever deadline it has.
func (q *Quick) Write(write func()) bool {
	if !q.taken() {
		return false
	}
	q.late.Set(outq.Patience)
	write()
	q.late.Clear()
	q.written.Store(true)
	return true
}

// Written reports whether there is nothing more to be written to the reply in
// progress, for Write has done it. Whoever serves requests that Write is used for
// asks once at the end of each.
func (q *Quick) Written() bool { return q != nil && q.written.Swap(false) }
