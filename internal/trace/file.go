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
	MaxText  int   // how much text of one message is written at most, in bytes; 0: DefaultFileMaxText; below 0: all of it
	NoText   bool  // no text of messages is written; MaxText does not count
	MaxBytes int64 // how long one file may be, in bytes; 0: DefaultFileMaxBytes; below 0: without limit, so that all goes into one
	MaxFiles int   // how many files there are at most, with the one that is written to; 0 or below: DefaultMaxFiles

	// OnError is told of an error of the file, in a goroutine of the File's, and then of no other until lines were written again.
	// It is also told each time that a full file cannot be renamed (ErrNotRenamed). nil: nobody is told.
	OnError func(err error)
}

const (
	DefaultFileMaxText  = 1 << 20  // the default of FileOptions.MaxText
	DefaultFileMaxBytes = 64 << 20 // the default of FileOptions.MaxBytes
	DefaultMaxFiles     = 4        // the default of FileOptions.MaxFiles
)

const (
	maxQueuedBytes = 8 << 20  // how many bytes the lines may have together that wait to be written; one line may always wait
	maxQueuedLines = 16 << 10 // how many lines may wait to be written
)

// minSpareBytes is the size up to which the memory of written lines is always used again; larger memory only if much of it was
// used. It is more than 10,000 short calls a second need: memory that was given up after a pause would be taken anew, page by page.
const minSpareBytes = 1 << 20

// batchDelay is how long a line waits for others that are written together with it. A write for each of them would cost more
// than all else.
const batchDelay = 10 * time.Millisecond

// File is a Sink that writes lines to a file. Lines that come faster than they can be written are left out, and
// the line of a Gap stands in their place. When the file NAME is full it becomes NAME.1, and the older ones NAME.2
// and so on, up to MaxFiles with NAME itself; what has no place any more is lost. So does a file NAME that is there
// when the File is made. The methods of a File may be called concurrently.
type File struct {
	path string      // name of the file that is written to
	opts FileOptions // with the defaults set

	mu            sync.Mutex // guards what follows, down to closed
	queuedLines   []byte     // the lines that wait to be written
	queuedCount   int        // how many lines queuedLines has, without those of Gaps
	skippedBefore uint64     // how many lines were left out since the last one was added to queuedLines
	lostLines     uint64     // how many lines in all were left out, or may not have been written
	spareBuffer   []byte     // memory for the next queuedLines; nil: there is none
	closed        bool       // Close was called

	wake       chan struct{} // holds one element when there is something to write, or it is the end
	flushNow   chan struct{} // holds one element when run should not wait for more lines
	writerDone chan struct{} // closed when run has returned

	// What follows is used by run alone.

	file        *os.File // the file that is written to; nil: it could not be opened again
	size        int64    // how much was written to file since it was opened, in bytes
	hasFailed   bool     // an error was reported (reportFailure), and no lines were written since
	partialLine bool     // the last line in file may have no end, because a write failed
	err         error    // the last error that there was, which Close returns; nil: none
}

// NewFile makes a file with this name, which only its owner may read, and starts the goroutine that writes to it. What has the name
// already is renamed, and must be a regular file. Close must be called.
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
	f := &File{path: name, opts: o, wake: make(chan struct{}, 1), flushNow: make(chan struct{}, 1), writerDone: make(chan struct{})}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	if err := f.rotate(); err != nil {
		return nil, err
	}
	go f.run()
	return f, nil
}

// MaxText returns how many bytes of the text of a message the File wants in a line; below 0: all. It implements Sink.
func (f *File) MaxText() int { return f.opts.MaxText }

// Lost returns how many lines are missing in the files, or may be: they came too fast or too late, could not be written, or PutGap
// has told of them.
func (f *File) Lost() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lostLines
}

// Put queues a line to be written, or leaves it out if too much waits; it implements Sink.
func (f *File) Put(line []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.queuedCount > 0 && (f.queuedCount >= maxQueuedLines || len(f.queuedLines)+len(line) > maxQueuedBytes) {
		f.skippedBefore++
		f.lostLines++
		return
	}
	f.appendGap()
	f.queuedLines = append(f.queuedLines, line...)
	if f.queuedCount++; f.queuedCount == 1 {
		wake(f.wake)
	}
	if f.queuedCount == maxQueuedLines/4 || len(f.queuedLines) > maxQueuedBytes/4 {
		wake(f.flushNow)
	}
}

// PutGap notes that n lines are missing before the next one: the line of a Gap will say so. It implements Sink.
func (f *File) PutGap(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skippedBefore += n
	f.lostLines += n
}

// appendGap queues the line of a Gap if lines were left out. It is called with mu held.
func (f *File) appendGap() {
	if f.skippedBefore > 0 {
		f.queuedLines = Append(f.queuedLines, &Record{Kind: Gap, Time: time.Now(), Lost: f.skippedBefore})
		f.skippedBefore = 0
	}
}

// wake puts an element into c, whose reader waits for one, unless c is full.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Close writes what waits, and closes the file. The error is the last one there was since NewFile. Lines that come after Close are left out.
func (f *File) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	wake(f.wake)
	wake(f.flushNow)
	<-f.writerDone
	return f.err
}

// run is the goroutine that writes what waits, until Close.
func (f *File) run() {
	defer close(f.writerDone)
	pause := time.NewTimer(0)
	<-pause.C
	for over := false; !over; {
		<-f.wake
		pause.Reset(batchDelay)
		select {
		case <-pause.C:
		case <-f.flushNow:
			pause.Stop()
		}
		f.mu.Lock()
		f.appendGap()
		lines, count := f.queuedLines, f.queuedCount
		f.queuedLines, f.spareBuffer, f.queuedCount = f.spareBuffer[:0], nil, 0
		over = f.closed
		f.mu.Unlock()
		f.writeLines(lines, count)
		if cap(lines) <= max(minSpareBytes, min(16*len(lines), maxQueuedBytes/2)) { // else it has grown when there was more
			f.mu.Lock()
			f.spareBuffer = lines[:0]
			f.mu.Unlock()
		}
	}
	if f.file != nil {
		f.reportFailure(f.file.Close(), 0)
	}
}

// writeLines writes lines, and begins a new file where one is full. count is how many lines there are.
func (f *File) writeLines(lines []byte, count int) {
	for len(lines) > 0 {
		n := len(lines)
		if room := f.opts.MaxBytes - f.size; f.opts.MaxBytes > 0 && int64(n) > room {
			n = bytes.LastIndexByte(lines[:max(room, 0)], '\n') + 1
			if n == 0 && f.size == 0 { // a line that no file has room for
				n = bytes.IndexByte(lines, '\n') + 1
			}
		}
		if n == 0 || f.file == nil {
			if err := f.rotate(); err != nil {
				f.reportFailure(err, count)
				return
			}
			continue
		}
		if f.partialLine {
			f.partialLine = f.writeText([]byte("\n")) != nil
		}
		if err := f.writeText(lines[:n]); err != nil {
			f.partialLine = true
			f.reportFailure(err, count)
			return
		}
		f.hasFailed = false
		lines = lines[n:]
	}
}

// writeSize is how many bytes are written at a time at most. A longer system call takes so long that Go's scheduler moves the goroutines of its
// thread to another one. Then it checks for a while, every 20 µs or so, which system calls take long: that costs more than further writes.
const writeSize = 32 << 10

// writeText writes text to file, and adds its length to size.
func (f *File) writeText(text []byte) error {
	for len(text) > 0 {
		part := text[:min(len(text), writeSize)]
		if end := bytes.LastIndexByte(part, '\n') + 1; end > 0 { // else the line is longer
			part = part[:end]
		}
		n, err := f.file.Write(part)
		f.size += int64(n)
		if err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// reportFailure keeps an error for Close, and tells OnError unless it was told since lines were last written; nil: it does
// nothing. count is how many lines may be lost by the error.
func (f *File) reportFailure(err error, count int) {
	if err == nil {
		return
	}
	f.err = err
	f.mu.Lock()
	f.lostLines += uint64(count)
	f.skippedBefore += uint64(count)
	f.mu.Unlock()
	if !f.hasFailed && f.opts.OnError != nil {
		f.opts.OnError(err)
	}
	f.hasFailed = true
}

// ErrNotRenamed is the error that OnError gets when a full file keeps its name, as on Windows while somebody reads it. Lines still go into
// that file, and renaming is tried again each time it has grown by MaxBytes, until it is as large as all files may be together.
var ErrNotRenamed = errors.New("the full file cannot be renamed")

// rotate closes the open file, if there is one, gives the files their next names, and opens a new one. If they cannot be renamed, it
// opens the old file again and tells OnError, unless that file is as large as all files may be together, or no file was open. After an
// error no file is open.
func (f *File) rotate() error {
	wasOpen := f.file != nil
	if wasOpen {
		err := f.file.Close()
		if f.file = nil; err != nil {
			f.reportFailure(err, 0)
		}
	}
	if err := f.renameAll(); err != nil {
		if info, _ := os.Stat(f.path); !wasOpen || info == nil || info.Size() >= f.opts.MaxBytes*int64(f.opts.MaxFiles) {
			return err
		}
		file, openErr := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND, 0)
		if openErr != nil {
			return err
		}
		if f.file, f.size = file, 0; f.opts.OnError != nil {
			f.opts.OnError(fmt.Errorf("%w: %w", ErrNotRenamed, err))
		}
		return nil
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	f.file, f.size, f.partialLine = file, 0, false
	return nil
}

// renameAll gives the files their next names: NAME becomes NAME.1, NAME.1 becomes NAME.2, up to the first name that is free. So
// no file is lost if renaming has failed halfway and is tried again. If no name is free, the oldest file is overwritten; if
// there is to be only one file, it is removed.
func (f *File) renameAll() error {
	last := f.opts.MaxFiles - 1
	for i := 1; i < last; i++ {
		if _, err := os.Lstat(f.rotatedName(i)); errors.Is(err, fs.ErrNotExist) {
			last = i
		}
	}
	err := error(nil)
	if last == 0 {
		err = os.Remove(f.path)
	}
	for i := last; i > 0 && (err == nil || errors.Is(err, fs.ErrNotExist)); i-- {
		err = os.Rename(f.rotatedName(i-1), f.rotatedName(i))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// rotatedName returns the name of the file that was written to i files ago; 0: of the one that is written to.
func (f *File) rotatedName(i int) string {
	if i == 0 {
		return f.path
	}
	return f.path + "." + strconv.Itoa(i)
}
