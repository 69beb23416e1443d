package trace

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Sink takes the lines of a trace. It may be called concurrently.
type Sink interface {
	// MaxText returns how many bytes of the text of a message the Sink wants to have at most; 0: none;
	// below 0: all.
	MaxText() int

	// Put takes a line, with its line feed. It does not wait, and does not keep line.
	Put(line []byte)

	// PutGap says that n lines are missing before the next one.
	PutGap(n uint64)
}

// Recorder is an observe.Watcher that makes Records of what it is told, without secrets, and
// hands their lines to Sinks. While it has none, it does not watch. Its methods may be called
// concurrently.
type Recorder struct {
	observer     *observe.Observer               // what the Recorder watches: it tells the Recorder what passes and what happens, and numbers the records
	redactor     atomic.Pointer[redact.Redactor] // takes the secrets out of the trace
	textRedactor atomic.Pointer[redact.Redactor] // takes the secrets out for RedactText; nil: redactor does; see SetTextRedactor

	mu             sync.Mutex             // held while sinks are added or removed; guards sinkUserCounts and stopWatch
	sinkUserCounts map[Sink]int           // by Sink: how many calls of AddSink for it were not released so far
	stopWatch      func()                 // ends observer.Watch; nil: it does not watch
	sinks          atomic.Pointer[[]Sink] // the Sinks that get lines; never empty; nil: there are none
	backlog        backlog                // what waits to be recorded; has a lock of its own
}

// NewRecorder returns a Recorder of what o tells; d takes the secrets out. It records once it has a Sink (AddSink).
func NewRecorder(o *observe.Observer, d *redact.Redactor) *Recorder {
	r := &Recorder{observer: o, sinkUserCounts: map[Sink]int{}}
	r.redactor.Store(d)
	return r
}

// SetRedactor has d, a Redactor that nobody has used, take secrets out of the trace from now on. d goes on with what the one
// before has learned.
func (r *Recorder) SetRedactor(d *redact.Redactor) {
	d.Inherit(r.redactor.Load())
	r.redactor.Store(d)
}

// SetTextRedactor has d, a Redactor that nobody has used, take secrets out for RedactText from now on: for a trace in which
// they are left. d learns from what is recorded, as the Redactor of a trace does.
func (r *Recorder) SetTextRedactor(d *redact.Redactor) {
	if before := r.textRedactor.Load(); before != nil {
		d.Inherit(before)
	}
	r.textRedactor.Store(d)
}

// RedactText returns a text without secrets, for a log or others who do not read the trace. The Redactor of SetTextRedactor
// takes them out; if there is none, that of the trace does.
func (r *Recorder) RedactText(text string) string {
	if d := r.textRedactor.Load(); d != nil {
		return d.String(text)
	}
	return r.Redact(text)
}

// RedactLine is RedactText for a line of a server process, which may have a secret that an earlier message has named. It waits
// until all earlier messages have been looked through, so traffic must not wait for it.
func (r *Recorder) RedactLine(line string) string {
	if r.backlog.unseen.Load() > 0 {
		r.RunBetween(func() {})
	}
	return r.RedactText(line)
}

// Redact returns a text without the secrets that are taken out of the trace.
func (r *Recorder) Redact(text string) string { return r.redactor.Load().String(text) }

// AddSink has s get lines until release is called. A Sink that was added several times gets each line once, until it was
// released as often. Lines are made in a goroutine of the Recorder's, and come a moment later, also after release; Wait awaits
// those of what was told before release.
func (r *Recorder) AddSink(s Sink) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sinkUserCounts[s]++
	r.updateSinks()
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.sinkUserCounts[s]--; r.sinkUserCounts[s] == 0 {
			delete(r.sinkUserCounts, s)
		}
		r.updateSinks()
	})
}

// updateSinks makes sinks those that sinkUserCounts has, and begins or ends watching the observer. It is called with mu held.
func (r *Recorder) updateSinks() {
	if len(r.sinkUserCounts) == 0 {
		r.sinks.Store(nil)
		r.stopWatch()
		r.stopWatch = nil
		return
	}
	all := slices.Collect(maps.Keys(r.sinkUserCounts))
	r.sinks.Store(&all)
	if r.stopWatch == nil {
		r.stopWatch = r.observer.Watch(r)
	}
}

// WaitingLine returns the line of a request that had no answer yet when somebody began to look at the trace (Record.Earlier), as a
// Sink gets lines.
func (r *Recorder) WaitingLine(w *observe.WaitingCall) []byte {
	m := recordMaker{now: time.Now()}
	m.makeWaitingCall(r.redactor.Load(), w)
	return Append(nil, &m.Record)
}

// recordMaker makes records and their lines, one after the other. The zero value works.
type recordMaker struct {
	Record
	messageText messageBuffer // memory for the text of a message
	line        []byte        // memory for the line of the record
	now         time.Time     // when the event was told, or WaitingLine was called

	members memberCache // members that many lines have

	exchange      Exchange     // memory for Record.HTTP
	headers       []byte       // memory for the headers in Record.HTTP, as they stand in the line
	redactedPaths [4]string    // memory for Record.Redacted
	recentFields  recentFields // headers that many lines have
}

// maxReusedBytes is how large memory of a recordMaker or messageBuffer may be, in bytes, to be used again.
const maxReusedBytes = 256 << 10

// messageBuffer is memory for the text of a message whose bytes lie in several places.
type messageBuffer []byte

// messageBuffers are buffers that findSecrets takes and gives back.
var messageBuffers = sync.Pool{New: func() any { return new(messageBuffer) }}

// join returns the bytes of a message, copied into the buffer if they lie in several places. They are good until the next call.
func (b *messageBuffer) join(msg *jsonrpc.Message) []byte {
	first, id, rest := msg.SplitAtID()
	if id == "" && len(rest) == 0 {
		return first
	}
	*b = append(append(append((*b)[:0], first...), id...), rest...)
	return *b
}

// clear gives the buffer's memory up if it is larger than maxReusedBytes.
func (b *messageBuffer) clear() {
	if cap(*b) > maxReusedBytes {
		*b = nil
	}
}

// reset empties the record once its line was given to the Sinks, and gives up memory that is larger than maxReusedBytes.
func (m *recordMaker) reset() {
	if m.HTTP != nil {
		m.exchange = Exchange{}
		if m.headers = m.headers[:0]; cap(m.headers) > maxReusedBytes {
			m.headers = nil
		}
	}
	m.Record = Record{}
	m.messageText.clear()
	if cap(m.line) > maxReusedBytes {
		m.line = nil
	}
}

// putInto makes the line of the record and gives it to each of the sinks, with as much of the text as that Sink wants.
func (m *recordMaker) putInto(sinks []Sink) {
	whole := m.Body
	made := -1 // how much text m.line has
	for _, s := range sinks {
		m.Body = whole.truncated(s.MaxText())
		if have := len(m.Body.Text) + len(m.Body.Tail); have != made || m.Body.OmittedBytes > 0 {
			m.line = m.members.appendLine(m.line[:0], &m.Record)
			made = have
		}
		s.Put(m.line)
	}
}

// truncated returns b with at most most bytes of its text, three quarters from the beginning and one from the end; below 0: all
// of it.
func (b Body) truncated(most int) Body {
	n := len(b.Text)
	switch {
	case most < 0 || n <= most:
		return b
	case most == 0:
		return Body{OmittedBytes: n}
	}
	head := runeStart(b.Text, most-most/4)
	tail := n - most/4
	for i := 0; i < 3 && tail < n && b.Text[tail]&0xC0 == 0x80; i++ {
		tail++
	}
	if tail < head || tail == n {
		return Body{Text: b.Text[:head], OmittedBytes: n - head}
	}
	return Body{Text: b.Text[:head], Tail: b.Text[tail:], OmittedBytes: tail - head}
}

// runeStart returns the index of the first byte of the character to which byte i of text belongs.
func runeStart(text []byte, i int) int {
	for n := 0; n < 4 && i-n > 0 && i-n < len(text); n++ {
		if text[i-n]&0xC0 != 0x80 {
			return i - n
		}
	}
	return i
}
