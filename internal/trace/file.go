package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"
)

// FileOptions bound a File. The zero value works.
type FileOptions struct {
	MaxText  int   // of one message, in bytes. 0: DefaultFileMaxText; below 0: all of it
	NoText   bool  // no text of messages at all
	MaxBytes int64 // of one file; 0: DefaultFileMaxBytes; below 0: there is only one
	MaxFiles int   // how many there are at most; 0: DefaultMaxFiles

	// OnError is told of an error of the file, once until it works again, in a goroutine of the File's.
	// nil: nobody is.
	OnError func(err error)
}

// The defaults of FileOptions.
const (
	DefaultFileMaxText  = 1 << 20
	DefaultFileMaxBytes = 64 << 20
	DefaultMaxFiles     = 4
)

// What may wait to be written.
const (
	maxWaitingBytes = 8 << 20
	maxWaitingLines = 16 << 10
)

// filePause is how long lines may wait for others that are written with them. A write for each of them would
// cost more than all else.
const filePause = 10 * time.Millisecond

// File is a Sink that writes lines to a file. Lines that come faster than they can be written are left out, and
// the line of a Gap stands in their place. When a file is full it gets the name NAME.1, the older ones NAME.2
// and so on; a file that is there when the first one is opened gets that name, too. Its methods may
// be called concurrently.
type File struct {
	name string
	o    FileOptions

	mu      sync.Mutex
	waiting []byte // lines
	count   int    // of waiting
	skipped uint64 // how many lines were left out since the last one of waiting
	lost    uint64 // all that were left out, or could not be written
	spare   []byte // memory for waiting
	closed  bool

	wake     chan struct{} // holds one element when there is something to write, or it is the end
	flushNow chan struct{} // holds one element when the writer should not wait for more
	done     chan struct{} // closed when write has returned

	file        *os.File // write's; nil: it could not be opened again
	size        int64
	failed      bool
	partialLine bool  // the last line in the file may have no end
	err         error // the last one
}

// NewFile opens a file, which only its owner may read, and begins to write to it. Close must be called.
func NewFile(name string, o FileOptions) (*File, error) {
	switch {
	case o.NoText:
		o.MaxText = 0
	case o.MaxText == 0:
		o.MaxText = DefaultFileMaxText
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultFileMaxBytes
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = DefaultMaxFiles
	}
	f := &File{name: name, o: o, wake: make(chan struct{}, 1), flushNow: make(chan struct{}, 1), done: make(chan struct{})}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if err := f.rotate(); err != nil {
		return nil, err
	}
	go f.write()
	return f, nil
}

// MaxText implements Sink.
func (f *File) MaxText() int { return f.o.MaxText }

// Lost returns how many lines are missing in the file.
func (f *File) Lost() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Put implements Sink.
func (f *File) Put(line []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.count > 0 && (f.count >= maxWaitingLines || len(f.waiting)+len(line) > maxWaitingBytes) {
		f.skipped++
		f.lost++
		return
	}
	f.appendGap()
	f.waiting = append(f.waiting, line...)
	if f.count++; f.count == 1 {
		signal(f.wake)
	}
	if f.count == maxWaitingLines/4 || len(f.waiting) > maxWaitingBytes/4 {
		signal(f.flushNow)
	}
}

// Skip implements Sink.
func (f *File) Skip(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skipped += n
	f.lost += n
}

// appendGap adds the line of what was left out. It is called with mu held.
func (f *File) appendGap() {
	if f.skipped > 0 {
		f.waiting = Append(f.waiting, &Record{Kind: Gap, Time: time.Now(), Lost: f.skipped})
		f.skipped = 0
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close writes what waits, and closes the file. The error is the last one that the file had.
func (f *File) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	signal(f.wake)
	signal(f.flushNow)
	<-f.done
	return f.err
}

// write writes what waits, until the end.
func (f *File) write() {
	defer close(f.done)
	pause := time.NewTimer(0)
	<-pause.C
	for over := false; !over; {
		<-f.wake
		pause.Reset(filePause)
		select {
		case <-pause.C:
		case <-f.flushNow:
			pause.Stop()
		}
		f.mu.Lock()
		f.appendGap()
		lines, count := f.waiting, f.count
		f.waiting, f.spare, f.count = f.spare[:0], nil, 0
		over = f.closed
		f.mu.Unlock()
		f.save(lines, count)
		if cap(lines) <= maxWaitingBytes/2 {
			f.mu.Lock()
			f.spare = lines[:0]
			f.mu.Unlock()
		}
	}
	if f.file != nil {
		f.fail(f.file.Close(), 0)
	}
}

// save writes lines, and begins a new file where one is full.
func (f *File) save(lines []byte, count int) {
	for len(lines) > 0 {
		n := len(lines)
		if room := f.o.MaxBytes - f.size; f.o.MaxBytes > 0 && int64(n) > room {
			n = bytes.LastIndexByte(lines[:max(room, 0)], '\n') + 1
			if n == 0 && f.size == 0 { // a line that no file has room for
				n = bytes.IndexByte(lines, '\n') + 1
			}
		}
		if n == 0 || f.file == nil {
			if err := f.rotate(); err != nil {
				f.fail(err, count)
				return
			}
			continue
		}
		if f.partialLine {
			f.partialLine = f.put([]byte("\n")) != nil
		}
		if err := f.put(lines[:n]); err != nil {
			f.partialLine = true
			f.fail(err, count)
			return
		}
		f.failed = false
		lines = lines[n:]
	}
}

func (f *File) put(text []byte) error {
	n, err := f.file.Write(text)
	f.size += int64(n)
	return err
}

// fail notes an error; count is how many lines may be lost by it.
func (f *File) fail(err error, count int) {
	if err == nil {
		return
	}
	f.err = err
	f.mu.Lock()
	f.lost += uint64(count)
	f.skipped += uint64(count)
	f.mu.Unlock()
	if !f.failed && f.o.OnError != nil {
		f.o.OnError(err)
	}
	f.failed = true
}

// rotate gives the files their next names, and opens a new one.
func (f *File) rotate() error {
	if f.file != nil {
		err := f.file.Close()
		if f.file = nil; err != nil {
			f.fail(err, 0)
		}
	}
	for i := f.o.MaxFiles - 1; i > 0; i-- {
		if err := os.Rename(f.rotatedName(i-1), f.rotatedName(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if f.o.MaxFiles == 1 {
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	file, err := os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	f.file, f.size, f.partialLine = file, 0, false
	return nil
}

// rotatedName returns the name of the ith file; the one that is written to is 0.
func (f *File) rotatedName(i int) string {
	if i == 0 {
		return f.name
	}
	return f.name + "." + strconv.Itoa(i)
}
