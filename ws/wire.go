package ws

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/lazytimer"
	"github.com/mcp-bridge/mcp-bridge/internal/sockstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

// chunkSize is the size of the buffers that the pool chunks lends. Messages are read, and bytes
// written, in pieces of at most that size. A wire has a buffer only while something waits to be
// written.
const chunkSize = 64 << 10

// chunks lends buffers of chunkSize.
var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// getChunk takes a buffer out of the pool chunks.
func getChunk() []byte { return chunks.Get().(*[chunkSize]byte)[:] }

// putChunk gives back a buffer of getChunk.
func putChunk(b []byte) { chunks.Put((*[chunkSize]byte)(b[:chunkSize])) }

// largeBufferSize is the size of a buffer for the longest frame. Such buffers have a pool, too, for frames that fill
// at least half of one. For smaller frames it would be too much.
const largeBufferSize = maxFrameSize + maxFrameHeader

// largeBuffers lends buffers of largeBufferSize.
var largeBuffers = sync.Pool{New: func() any { return new([largeBufferSize]byte) }}

// getBuffer returns an empty buffer with room for a frame of size bytes without its header, from a pool or a new one.
func getBuffer(size int) []byte {
	switch {
	case size <= chunkSize-maxFrameHeader:
		return getChunk()[:0]
	case size <= maxFrameSize/2:
		return make([]byte, 0, size+maxFrameHeader)
	}
	return largeBuffers.Get().(*[largeBufferSize]byte)[:0]
}

// putBuffer takes back what getBuffer has returned.
func putBuffer(b []byte) {
	switch cap(b) {
	case chunkSize:
		putChunk(b)
	case largeBufferSize:
		largeBuffers.Put((*[largeBufferSize]byte)(b[:largeBufferSize]))
	}
}

// errStalled says that a write to the peer has taken longer than it may.
var errStalled = errors.New("it takes nothing of what it is sent")

// wire is the byte stream under a WebSocket. The library flushes every frame
// for itself, and holds its lock, with a time limit of five seconds for control
// frames, while it does so. A wire takes frames into memory at once instead, and
// its owner writes them, several at a time, without holding anybody up:
//
//   - While it is corked, frames only gather.
//   - When it is not, whoever writes a frame writes out all that waits, unless
//     somebody is doing so: control frames need no one to push them.
//
// The gathering is bounded because the owner flushes as soon as a chunk has gathered, and
// after each frame of a message that has several.
type wire struct {
	rwc          io.ReadWriteCloser // the network connection
	stallTimeout time.Duration      // how long one write may take; then the stream is closed. 0 or negative: for ever
	stallTimer   lazytimer.Timer    // is set while a write goes on; closes the stream
	created      time.Time          // when the wire was made; elapsed counts from then

	burst       *burst.Burst // the messages that were read together; it ends before each Read
	unreadBytes atomic.Int64 // about how many bytes of the last Read hold frames that noteMessage was not told of

	readStart atomic.Int64 // elapsed at the beginning of the Read that goes on; 0: none does
	stalled   atomic.Bool  // the stream was closed because a write has taken too long

	mu                sync.Mutex    // guards the fields below, stallTimeout and the setting of stallTimer
	notBusy           *sync.Cond    // signalled when busy has ended or err is set
	buf               []byte        // frames that were not written yet; nil: none
	corked            bool          // frames only gather, until flush
	busy              bool          // somebody writes frames out (drain)
	shortStallTimeout time.Duration // replaces stallTimeout, if it is shorter, while flushWithin runs; 0: it does not
	err               error         // why nothing can be written any more; nil: it can
}

// maxBufferedControl is how many bytes of control frames may wait in a wire while the peer takes nothing; then their
// writers wait too.
const maxBufferedControl = chunkSize

// newWire makes a wire over a connection; a write that takes longer than stall closes it, 0 or negative: none does.
func newWire(rwc io.ReadWriteCloser, stall time.Duration) *wire {
	w := &wire{rwc: rwc, stallTimeout: stall, created: time.Now(), burst: new(burst.Burst)}
	w.notBusy = sync.NewCond(&w.mu)
	w.stallTimer.Do = func() {
		w.stalled.Store(true)
		w.closeNow()
	}
	return w
}

// peerHasTaken returns a function that asks the system whether the peer has taken all that was written
// (sockstate.OutputDrainedFunc); nil: that cannot be known.
func (w *wire) peerHasTaken() func() bool {
	c, ok := w.rwc.(net.Conn)
	if !ok {
		return nil
	}
	return sockstate.OutputDrainedFunc(c)
}

// hungUp returns a function that asks the system whether the peer has closed its end (sockstate.PeerClosedFunc); nil:
// that cannot be known.
func (w *wire) hungUp() func() error {
	c, ok := w.rwc.(net.Conn)
	if !ok {
		return nil
	}
	return sockstate.PeerClosedFunc(c)
}

// Read implements io.Reader: it reads from the connection, for silence to measure.
func (w *wire) Read(p []byte) (int, error) {
	w.burst.End()
	w.readStart.Store(int64(w.elapsed()) | 1)
	n, err := w.rwc.Read(p)
	w.readStart.Store(0)
	w.unreadBytes.Store(int64(n))
	return n, err
}

// noteMessage is called with the size of each message that was read. masked: it came from a client. It begins a Burst if another
// message follows that was read together with this one. It may be wrong either way where a message has several frames or began in an
// earlier Read, or something else than a message follows. That does no harm: the Burst ends before the next Read.
func (w *wire) noteMessage(size int, masked bool) {
	if w.unreadBytes.Add(-int64(size+frameHeaderSize(size, masked))) > 0 {
		w.burst.Begin()
	}
}

// silence returns for how long a Read has been waiting for the peer; 0 when
// nobody reads: then it is not the peer that is silent.
func (w *wire) silence() time.Duration {
	since := w.readStart.Load()
	if since == 0 {
		return 0
	}
	return w.elapsed() - time.Duration(since)
}

// elapsed returns how long ago the wire was made.
func (w *wire) elapsed() time.Duration { return time.Since(w.created) }

// Write implements io.Writer. It takes p into the buffer. Unless the wire is corked, or somebody writes already, it
// writes out all that waits. It waits only for room, and only for control frames (maxBufferedControl).
//
// The goroutine that reads writes control frames, too: a pong answers a ping. That may wait, so the Burst ends before anything is
// written out.
func (w *wire) Write(p []byte) (int, error) {
	if !w.isCorked() {
		w.burst.End()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && w.busy && !w.corked && len(w.buf) > maxBufferedControl {
		w.notBusy.Wait()
	}
	if w.err != nil {
		return 0, w.err
	}
	if w.buf == nil {
		w.buf = getChunk()[:0]
	}
	w.buf = append(w.buf, p...)
	if w.corked || w.busy {
		return len(p), nil
	}
	if err := w.drain(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// cork makes frames gather in the buffer: none is written out until flush. size, the size of the next frame without its
// header, only says how large a new buffer should be. cork may be called again before flush.
func (w *wire) cork(size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = true
	if w.buf == nil {
		w.buf = getBuffer(size)
	}
}

// maxFrameHeader is the greatest size of a frame's header, in bytes (RFC 6455).
const maxFrameHeader = 14

// frameHeaderSize returns the size of the header of a frame of size bytes, in bytes (RFC 6455, section 5.2).
func frameHeaderSize(size int, masked bool) int {
	n := 2
	switch {
	case size > 1<<16-1:
		n += 8
	case size > 125:
		n += 2
	}
	if masked {
		n += 4
	}
	return n
}

// isCorked reports whether frames only gather.
func (w *wire) isCorked() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.corked
}

// bufferedBytes returns how many bytes have gathered and are not being written.
func (w *wire) bufferedBytes() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.buf)
}

// writeErr returns why nothing can be written any more; nil: it can.
func (w *wire) writeErr() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// flush ends the corking, writes out what has gathered, and returns when that is done, with the error if nothing can
// be written any more.
func (w *wire) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corked = false
	for w.busy && w.err == nil {
		w.notBusy.Wait()
	}
	return w.drain()
}

// flushWithin writes out what has gathered, as flush does, but with a shorter time for each write: after stall the stream is
// closed.
func (w *wire) flushWithin(stall time.Duration) error {
	w.mu.Lock()
	w.shortStallTimeout = stall
	w.mu.Unlock()
	err := w.flush()
	w.mu.Lock()
	w.shortStallTimeout = 0
	w.mu.Unlock()
	return err
}

// drain writes out the buffer until nothing waits, and returns why nothing can be written any more, or nil. It is
// called with mu held while busy is false, and gives mu away while it writes.
func (w *wire) drain() error {
	w.busy = true
	for len(w.buf) > 0 && w.err == nil {
		out := w.buf
		w.buf = nil
		w.mu.Unlock()
		err := w.writeOut(out)
		putBuffer(out)
		w.mu.Lock()
		if err != nil && w.err == nil {
			w.err = err
		}
	}
	w.busy = false
	w.notBusy.Broadcast()
	return w.err
}

// writeOut writes p to the connection in chunks. A chunk that takes longer than the stall timeout closes the connection, and the error
// is errStalled. mu is not held.
func (w *wire) writeOut(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), chunkSize)
		w.setWriteTimer(true)
		_, err := w.rwc.Write(p[:n])
		w.setWriteTimer(false)
		if err != nil {
			if w.stalled.Load() {
				return errStalled
			}
			return err
		}
		p = p[n:]
	}
	return nil
}

// setWriteTimer starts stallTimer for one write, or stops it.
func (w *wire) setWriteTimer(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !on:
		w.stallTimer.Clear()
	case w.shortStallTimeout > 0 && (w.stallTimeout <= 0 || w.shortStallTimeout < w.stallTimeout):
		w.stallTimer.SetAfter(w.shortStallTimeout)
	case w.stallTimeout > 0:
		w.stallTimer.SetAfter(w.stallTimeout)
	}
}

// shortenStall sets the stall timeout to stall if it is longer now, or if there is none; that also holds for a write that
// goes on.
func (w *wire) shortenStall(stall time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stallTimeout > 0 && w.stallTimeout <= stall {
		return
	}
	w.stallTimeout = stall
	if w.busy {
		w.stallTimer.SetAfter(stall)
	}
}

// Close implements io.Closer. It waits for a write that goes on, since that may be the answer to a close frame, as long as
// the peer takes a chunk of it each second, and closes the connection.
func (w *wire) Close() error {
	w.shortenStall(time.Second)
	w.mu.Lock()
	for w.busy && w.err == nil {
		w.notBusy.Wait()
	}
	if w.err == nil {
		w.err = net.ErrClosed
	}
	w.notBusy.Broadcast()
	w.mu.Unlock()
	w.stallTimer.Stop()
	return w.closeNow()
}

// closeNow closes the connection at once, whatever goes on.
func (w *wire) closeNow() error { return w.rwc.Close() }
