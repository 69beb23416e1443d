package stdio

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

const (
	chunkSize       = 64 << 10 // the size of a chunk: a large buffer that is lent out; most systems' pipes hold as much
	smallBufferSize = 4 << 10  // the size of the buffer with which a Conn waits for a line
	maxKeptChunks   = 32       // lines.longChunks is kept for the next long line if it has room for no more chunks than this
)

// chunks are lent to a Conn while it reads a line that is longer than its small
// buffer, and for the time of one write. Idle Conns have none: there are many.
var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// getChunk takes a buffer of chunkSize out of the pool chunks.
func getChunk() []byte { return chunks.Get().(*[chunkSize]byte)[:] }

// putChunk gives back a buffer of getChunk.
func putChunk(b []byte) { chunks.Put((*[chunkSize]byte)(b)) }

// errInterrupted says that a read or write was given up because its context
// has ended or the Conn was closed. It never leaves the package.
var errInterrupted = errors.New("stdio: interrupted")

// A source is where a Conn reads its bytes from: directSource or backgroundSource.
type source interface {
	// fill reads once into space that it asks of l and returns the number of
	// bytes read. After errInterrupted it may be called again.
	fill(ctx context.Context, l *lines) (int, error)
	// close makes fill return errInterrupted, now and for good.
	close()
	// wait returns when everything that the source started has ended. It is
	// called after close.
	wait()
}

// lines cuts a stream into lines. A line that fits into one chunk is a view
// of it; a longer one is kept in chunks and joined once, so that every byte is
// copied once however small the pieces are in which it arrives. A line longer
// than max is not kept; only the id of its message is looked for.
type lines struct {
	src    source       // where the bytes come from
	max    int          // the longest line that is kept now, in bytes
	intake *intakeGuard // bounds the memory and time that lines may take; nil: nothing does, beside max

	burst *burst.Burst // the messages in lines that were read together; it ends before each read

	buf     []byte // the buffer that is read into: the small one, or a chunk; nil: there is none now
	small   []byte // the small buffer, kept while a chunk is in use; nil: it was never needed
	r, w    int    // buf[r:w] is read and not yet returned
	scanned int    // buf[r:scanned] has no line feed

	longChunks [][]byte // full chunks, before buf, of a line that has not ended
	longStart  int      // the index in longChunks[0] at which the line begins

	tooLongID    *jsonrpc.IDFinder // looks for the id in a line that is longer than max and is thrown away; nil: the line is not
	droppedBytes int               // how many bytes of a line that is too long were thrown away so far

	err error // how the stream has ended; nil: it has not
}

// line is one line without its line feed.
type line struct {
	text  []byte // the line's bytes; valid until the next call of await, unless owned
	owned bool   // text is an allocation of its own, of its exact size
	size  int    // the length of the line in bytes

	tooLong bool         // the line is longer than lines.max: text is nil; id and kind are set
	id      jsonrpc.ID   // the id of the message in a line that is too long; zero: it was not found
	kind    jsonrpc.Kind // the Kind of the message in a line that is too long, as far as known
}

// await reads until there is a whole line, which take returns then, or returns the
// error with which the stream has ended; errInterrupted: ctx has ended, and it may be
// called again. What stands behind the last line feed is a line too. The text of the
// line before is no longer valid.
func (l *lines) await(ctx context.Context) error {
	if len(l.longChunks) == 0 { // else await was interrupted in the middle of one
		l.intake.releaseAll()
	}
	for {
		if l.hasLine() {
			return nil
		}
		if l.err != nil {
			if l.lineSize(l.w) > 0 {
				return nil
			}
			l.release()
			return l.err
		}
		if err := l.makeRoom(); err != nil {
			return err
		}
		l.burst.End()
		l.intake.expectChunk(l.lineSize(l.w))
		n, err := l.src.fill(ctx, l)
		l.w += n
		switch {
		case errors.Is(err, errInterrupted):
			l.intake.clearSlowTimer() // nobody waits for it now
			return err
		case err != nil:
			l.err = err
		}
	}
}

// hasLine reports whether there is a whole line, so that await need not read.
func (l *lines) hasLine() bool {
	i := bytes.IndexByte(l.buf[l.scanned:l.w], '\n')
	if i < 0 {
		l.scanned = l.w
		return false
	}
	l.scanned += i
	return true
}

// lineSize returns the length of the line being read, in bytes, if it ended at index
// end of buf.
func (l *lines) lineSize(end int) int {
	return l.droppedBytes + len(l.longChunks)*chunkSize - l.longStart + end - l.r
}

// take returns the line that await has found, and goes on behind it. The error is
// errBudgetExhausted.
func (l *lines) take() (line, error) {
	end, next := l.scanned, l.scanned
	if end < l.w { // else the stream has ended without a line feed
		next++
	}
	l.intake.clearSlowTimer()
	ln := line{size: l.lineSize(end)}
	if ln.size > l.max {
		l.dropUntil(end)
		ln.tooLong = true
		ln.id, ln.kind = l.tooLongID.Result()
		l.tooLongID, l.droppedBytes = nil, 0
	} else if len(l.longChunks) > 0 {
		beyond := len(l.longChunks) * chunkSize
		if !l.intake.hold(ln.size) {
			return line{}, errBudgetExhausted
		}
		ln.text, ln.owned = l.join(end), true
		l.intake.release(beyond)
	} else {
		ln.text = l.buf[l.r:end]
	}
	l.r, l.scanned = next, next
	return ln, nil
}

// join returns a long line, which ends at index end of buf, in one piece, and gives
// its chunks back. (bytes.Join does not clear the memory that it is about to fill; for
// a megabyte that matters.)
func (l *lines) join(end int) []byte {
	first := l.longChunks[0]
	l.longChunks[0] = first[l.longStart:]
	text := bytes.Join(append(l.longChunks, l.buf[l.r:end]), nil)
	l.longChunks[0] = first
	l.forgetLong()
	return text
}

// forgetLong gives back the chunks in longChunks.
func (l *lines) forgetLong() {
	for _, chunk := range l.longChunks {
		putChunk(chunk)
	}
	clear(l.longChunks)
	l.longChunks, l.longStart = l.longChunks[:0], 0
	if cap(l.longChunks) > maxKeptChunks {
		l.longChunks = nil
	}
}

// dropUntil throws away what there is of a line that is too long, up to index end of
// buf. It looks for the id of its message in that.
func (l *lines) dropUntil(end int) {
	l.droppedBytes = l.lineSize(end)
	if l.tooLongID == nil {
		l.tooLongID = new(jsonrpc.IDFinder)
	}
	for i, chunk := range l.longChunks {
		if i == 0 {
			chunk = chunk[l.longStart:]
		}
		l.tooLongID.Write(chunk)
	}
	l.forgetLong()
	l.tooLongID.Write(l.buf[l.r:end])
	l.r = end
	l.intake.releaseAll()
}

// makeRoom makes space behind w in the buffer, if there is one: it moves what is
// unread, or takes a larger buffer. A line that is too long is thrown away. The error
// is errBudgetExhausted.
func (l *lines) makeRoom() error {
	if l.lineSize(l.w) > l.max {
		l.dropUntil(l.w)
	}
	switch kept := l.w - l.r; {
	case kept == 0:
		l.r, l.w = 0, 0
	case l.w < len(l.buf):
		return nil
	case kept <= len(l.buf)/2:
		copy(l.buf, l.buf[l.r:l.w])
		l.r, l.w = 0, kept
	case len(l.buf) < chunkSize:
		chunk := getChunk()
		copy(chunk, l.buf[l.r:l.w])
		l.buf, l.r, l.w = chunk, 0, kept
	case !l.intake.hold(chunkSize):
		return errBudgetExhausted
	default:
		if len(l.longChunks) == 0 {
			l.longStart = l.r
		}
		l.longChunks = append(l.longChunks, l.buf)
		l.buf, l.r, l.w = getChunk(), 0, 0
	}
	l.scanned = l.w
	return nil
}

// freeSpace returns where the next bytes are to be read to: the small buffer, as long
// as there is nothing unread, because this is what a source waits with.
func (l *lines) freeSpace() []byte {
	if l.w == 0 && len(l.buf) != smallBufferSize {
		l.release()
		if l.small == nil {
			l.small = make([]byte, smallBufferSize)
		}
		l.buf = l.small
	}
	return l.buf[l.w:]
}

// release gives the buffer back if it holds nothing unread.
func (l *lines) release() {
	if l.r < l.w {
		return
	}
	if len(l.buf) == chunkSize {
		putChunk(l.buf)
	}
	l.buf, l.r, l.w, l.scanned = nil, 0, 0, 0
}
