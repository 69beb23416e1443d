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

// inlineReplyKey is the key of the InlineReply in the context of a request.
type inlineReplyKey struct{}

// WithInlineReply is for the ConnContext of an http.Server: it puts an InlineReply for c into the
// ctx of the connection's requests. Where the system cannot tell what a client has taken, it
// returns ctx itself.
func WithInlineReply(ctx context.Context, c net.Conn) context.Context {
	taken := sockstate.OutputDrainedFunc(c)
	if taken == nil {
		return ctx
	}
	return context.WithValue(ctx, inlineReplyKey{}, newInlineReply(c, taken))
}

// InlineReply writes a small reply on a connection of HTTP/1 if it need not wait for the
// client. If it would have to wait, it writes nothing, and TryWrite returns false. Its
// methods are for the request in progress: they must not be called concurrently, nor after
// the request's handler has returned.
type InlineReply struct {
	conn          net.Conn        // the client's connection
	outputDrained func() bool     // reports whether the client has taken all that was written to conn (sockstate.OutputDrainedFunc)
	writeTimer    lazytimer.Timer // calls abortLateWrite
	replyWritten  bool            // TryWrite has written the reply to the request in progress

	mu         sync.Mutex // guards writeBegan; held while abortLateWrite sets the deadline
	writeBegan time.Time  // when the write in progress began; zero: there is none
}

// newInlineReply returns an InlineReply for c. taken is its outputDrained.
func newInlineReply(c net.Conn, taken func() bool) *InlineReply {
	q := &InlineReply{conn: c, outputDrained: taken}
	q.writeTimer.Do = q.abortLateWrite
	return q
}

// abortLateWrite breaks off the write of TryWrite if it has taken too long. The timer may call it late:
// the write may have ended, and another one may have begun.
func (q *InlineReply) abortLateWrite() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.writeBegan.IsZero() && time.Since(q.writeBegan) >= sockstate.InlineWriteTimeout {
		_ = q.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

// setWriteBegan notes when the write of TryWrite has begun; the zero time: it has ended.
func (q *InlineReply) setWriteBegan(at time.Time) {
	q.mu.Lock()
	q.writeBegan = at
	q.mu.Unlock()
}

// InlineReplyOf returns the InlineReply of the connection of a request. nil: there is none, as
// always over HTTP/2, where other requests share the connection.
func InlineReplyOf(r *http.Request) *InlineReply {
	if r.ProtoMajor != 1 {
		return nil
	}
	q, _ := r.Context().Value(inlineReplyKey{}).(*InlineReply)
	return q
}

// TryWrite calls write, which must write and flush a whole reply of at most sockstate.MaxInlineBytes
// bytes, header and all. If write would have to wait for the client, TryWrite does nothing and returns
// false. A write that takes longer than sockstate.InlineWriteTimeout all the same is cut off.
func (q *InlineReply) TryWrite(write func()) (written bool) {
	if !q.outputDrained() {
		return false
	}
	q.setWriteBegan(time.Now())
	q.writeTimer.SetAfter(sockstate.InlineWriteTimeout)
	write()
	q.writeTimer.Clear()
	q.setWriteBegan(time.Time{})
	q.replyWritten = true
	return true
}

// resetReplyWritten reports whether TryWrite has written the reply to the request in progress, and
// forgets that. It is called once at the end of each request. A nil InlineReply has written nothing.
func (q *InlineReply) resetReplyWritten() bool {
	if q == nil {
		return false
	}
	written := q.replyWritten
	q.replyWritten = false
	return written
}
