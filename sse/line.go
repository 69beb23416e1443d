package sse

import (
	"bytes"
	"io"
	"sync"
)

const (
	smallBufferSize = 4 << 10 // size of a lineReader's first buffer, which it goes back to between large events
	maxPooledSize   = 4 << 20 // a larger buffer is not put into the pool buffers
	// how many reads in a row may give no byte and no error; then the stream ends with
	// io.ErrNoProgress
	maxEmptyReads = 100
)

// buffers is the pool of the buffers of lines that did not fit into a small one, so
// that a stream of large events does not allocate one for each. Its elements are
// *[]byte.
var buffers sync.Pool

// bom is the byte order mark in UTF-8, which may stand at the beginning of a stream.
var bom = []byte("\xEF\xBB\xBF")

// lineReader cuts a stream into lines that end by LF, CR or CRLF.
//
// buf[start:end] is what was read and not yet returned. noLFBefore and noCRBefore say how far
// the search for each byte has come, so that no byte is searched twice for the
// same one however small the reads are, and whichever of the two ends lines.
type lineReader struct {
	r   io.Reader // the stream that is cut into lines
	err error     // how reading r has ended; returned once buf has no more whole line; nil: it has not

	buf        []byte // what was read: small, or *big
	start, end int    // buf[start:end] was not returned yet
	noLFBefore int    // buf[start:noLFBefore] holds no '\n'
	noCRBefore int    // buf[start:noCRBefore] holds no '\r'; noCRBefore <= noLFBefore

	startTrimmed bool // the beginning of the stream was looked at, and if there was a BOM it was dropped
	afterCR      bool // the last line ended by CR: an LF that follows belongs to it
	skipping     bool // what comes up to the end of the line is dropped

	small []byte  // the buffer that is used while no line is long
	big   *[]byte // the larger buffer that is used for a long line; nil: buf is small
}

// newLineReader returns a lineReader of r with a small buffer.
func newLineReader(r io.Reader) lineReader {
	small := make([]byte, smallBufferSize)
	return lineReader{r: r, buf: small, small: small}
}

// next returns the next line without its end. It is valid until the next call.
//
// whole is false when the line so far fills the buffer: the caller must call
// grow, to get the line again with more of it, or skipRest.
func (l *lineReader) next() (line []byte, whole bool, err error) {
	for {
		l.trimStart()
		if line, ok := l.cutLine(); ok {
			if !l.skipping {
				return line, true, nil
			}
			l.skipping = false
			continue
		}
		if l.skipping {
			l.start = l.end
		}
		if l.err != nil {
			l.shrink()
			return nil, false, l.err
		}
		if !l.makeRoom() {
			return l.buf[l.start:l.end], false, nil
		}
		l.read()
	}
}

// trimStart drops a byte order mark from the start of the stream, and the LF
// of a CRLF whose CR has ended a line already. That line was not held back to
// see what follows: nothing might, for a long time.
func (l *lineReader) trimStart() {
	if !l.startTrimmed && l.end >= len(bom) {
		l.startTrimmed = true
		if bytes.HasPrefix(l.buf[:l.end], bom) {
			l.start = len(bom)
		}
	}
	if l.afterCR && l.start < l.end {
		l.afterCR = false
		if l.buf[l.start] == '\n' {
			l.start++
		}
	}
}

// cutLine returns the next whole line without its end, and goes on behind it; ok is
// false if the buffer has no whole line.
func (l *lineReader) cutLine() (line []byte, ok bool) {
	l.noLFBefore = indexFrom(l.buf[:l.end], max(l.noLFBefore, l.start), '\n')
	l.noCRBefore = indexFrom(l.buf[:l.noLFBefore], max(l.noCRBefore, l.start), '\r')
	if l.noCRBefore == l.end {
		return nil, false
	}
	// noCRBefore == noLFBefore means that there is no CR before the LF.
	l.startTrimmed = true
	l.afterCR = l.noCRBefore < l.noLFBefore
	line = l.buf[l.start:l.noCRBefore]
	l.start = l.noCRBefore + 1
	return line, true
}

// indexFrom returns the index of the first c in b[from:], or len(b).
func indexFrom(b []byte, from int, c byte) int {
	i := bytes.IndexByte(b[from:], c)
	if i < 0 {
		return len(b)
	}
	return from + i
}

// makeRoom makes room for more input in the buffer that there is, or in the small one.
// It moves bytes only where that frees at least half of the buffer, which keeps the
// work linear. It returns false when the buffer must grow (grow).
func (l *lineReader) makeRoom() bool {
	unread := l.end - l.start
	switch {
	case len(l.buf) > smallBufferSize && unread <= smallBufferSize/2:
		l.shrink()
	case unread == 0:
		l.moveTo(l.buf)
	case l.end < len(l.buf):
		// There is room.
	case unread <= len(l.buf)/2:
		l.moveTo(l.buf)
	default:
		return false
	}
	return true
}

// grow goes over to a buffer of at least twice the size, from the pool or a new one, and keeps what is unread.
func (l *lineReader) grow() {
	size := 2 * len(l.buf)
	big, _ := buffers.Get().(*[]byte)
	if big == nil || len(*big) < size {
		b := make([]byte, size)
		big = &b
	}
	l.moveTo(*big)
	l.big = big
}

// shrink goes back to the small buffer, and gives a larger one of up to maxPooledSize to the pool. It keeps what is unread,
// which must fit; after the end of the stream it drops that.
func (l *lineReader) shrink() {
	if l.err != nil {
		l.start = l.end
	}
	l.moveTo(l.small)
	if l.big != nil && len(*l.big) <= maxPooledSize {
		buffers.Put(l.big)
	}
	l.big = nil
}

// moveTo makes buf the buffer, and puts what is unread at its beginning.
func (l *lineReader) moveTo(buf []byte) {
	copy(buf, l.buf[l.start:l.end])
	l.end -= l.start
	l.noLFBefore = max(l.noLFBefore-l.start, 0)
	l.noCRBefore = max(l.noCRBefore-l.start, 0)
	l.start = 0
	l.buf = buf
}

// skipRest drops the line that next has returned in part: what the buffer holds, and
// what is to come up to its end.
func (l *lineReader) skipRest() {
	l.start = l.end
	l.skipping = true
}

// read reads from the stream into the buffer: once, or again while the stream gives
// neither a byte nor an error (maxEmptyReads). It sets err if reading the stream has ended.
func (l *lineReader) read() {
	for range maxEmptyReads {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		l.err = err
		if n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}
