package sse

import (
	"bytes"
	"io"
	"sync"
)

const (
	smallBufferSize = 4 << 10 // what an idle stream holds
	maxPooledSize   = 4 << 20 // a buffer above this goes to the garbage collector
	maxEmptyReads   = 100     // reads of nothing, without an error, before giving up
)

// buffers holds the buffers of lines that did not fit into a small one, so
// that a stream of large events does not allocate one for each.
var buffers sync.Pool // of *[]byte

var bom = []byte("\xEF\xBB\xBF")

// lineReader cuts a stream into lines that end by LF, CR or CRLF.
//
// buf[start:end] is what was read and not yet returned. noLFBefore and noCRBefore say how far
// the search for each byte has come, so that no byte is searched twice for the
// same one however small the reads are, and whichever of the two ends lines.
type lineReader struct {
	r   io.Reader
	err error // of r, returned when buf has no more whole line

	buf        []byte
	start, end int
	noLFBefore int // buf[start:noLFBefore] holds no '\n'
	noCRBefore int // buf[start:noCRBefore] holds no '\r'; noCRBefore <= noLFBefore

	startTrimmed bool // the stream's first bytes were seen: a BOM was cut off
	afterCR      bool // the last line ended by CR: an LF that follows belongs to it
	skipping     bool // the rest of the line is not wanted

	small []byte  // the buffer of smallBufferSize
	big   *[]byte // where buf is from when it is not small
}

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

// cutLine takes a whole line from the buffer, if there is one.
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

// makeRoom makes room for more input without a larger buffer. It moves bytes
// only where that frees at least half of the buffer, which keeps the work
// linear. It reports false when the buffer must grow.
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

// grow doubles the buffer at least.
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

// shrink goes back to the small buffer, if what is unread fits into it or will
// never be read.
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

// skipRest drops what the buffer holds and all of the line that is to come.
func (l *lineReader) skipRest() {
	l.start = l.end
	l.skipping = true
}

// read reads once, or more often while the reader gives nothing.
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
