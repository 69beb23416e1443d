package traceview

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// printer prints records in lines. It must not be used concurrently. Set what is wanted before
// the first print.
type printer struct {
	Out   io.Writer
	Color bool // Out is a terminal that understands colours

	// Bodies prints messages below their lines. SideBySide prints, for a message that the bridge has
	// made of another, both side by side with what differs marked.
	Bodies, SideBySide bool

	Exchanges bool // also the kinds HTTP and Stream, with their headers
	Width     int  // characters of a line, for SideBySide; 0: 160

	buf          []byte
	err          error // of Out
	serverWidth  int   // widths of columns so far
	sessionWidth int
	bodies       bodies
	lastDay      string
}

// shows reports whether a printer shows a kind that nobody has asked for by name.
func (p *printer) shows(k trace.Kind) bool {
	switch k {
	case trace.HTTP, trace.Stream:
		return p.Exchanges
	case trace.Stderr:
		return p.Bodies || p.SideBySide
	}
	return true
}

// keepBody notes a record that is not printed: SideBySide may need its Body later.
func (p *printer) keepBody(r *trace.Record) {
	if p.SideBySide {
		p.bodies.keep(r)
	}
}

// print prints a record. The error is that of Out.
func (p *printer) print(v *View) error {
	p.keepBody(v.Record)
	p.buf = p.buf[:0]
	p.line(v)
	switch cause := p.bodies.bodyOf(v.CauseSeq); {
	case p.SideBySide && v.Kind.IsMessage() && v.CauseSeq != 0 && cause != nil && v.Body.Text != nil:
		p.sideBySide(cause, &v.Body)
	case (p.Bodies || p.SideBySide) && v.Body.Text != nil && v.Kind != trace.Stderr:
		p.indented(bodyText(&v.Body))
	}
	if (p.Bodies || p.SideBySide) && len(v.Redacted) > 0 {
		p.indented([]byte("redacted: " + strings.Join(v.Redacted, ", ")))
	}
	if x := v.HTTP; x != nil && (p.Bodies || p.SideBySide) {
		p.headers("> ", x.RequestHeader)
		p.headers("< ", x.ResponseHeader)
	}
	if p.err == nil {
		_, p.err = p.Out.Write(p.buf)
	}
	return p.err
}

// maxBuffered is how much is put together before it is written, in bytes: what is shown of a long message is longer
// than the message.
const maxBuffered = 64 << 10

// flushLarge writes what there is, once it is much. Nothing may look at it any more.
func (p *printer) flushLarge() {
	if p.Out == nil || len(p.buf) < maxBuffered {
		return
	}
	if p.err == nil {
		_, p.err = p.Out.Write(p.buf)
	}
	p.buf = p.buf[:0]
}

// line appends the line of a record.
func (p *printer) line(v *View) {
	at := v.Time.Local()
	if day := at.Format(time.DateOnly); day != p.lastDay && !v.Time.IsZero() {
		if p.lastDay != "" {
			p.buf = fmt.Appendf(p.buf, "-- %s --\n", day)
		}
		p.lastDay = day
	}
	if v.Time.IsZero() {
		p.buf = append(p.buf, strings.Repeat(" ", 12)...)
	} else {
		p.buf = at.AppendFormat(p.buf, "15:04:05.000")
	}
	p.serverWidth = p.column(v.Server, p.serverWidth)
	p.sessionWidth = p.column(v.Session, p.sessionWidth)
	p.buf = append(p.buf, "  "...)
	p.buf = append(p.buf, arrow(v.Record)...)
	p.buf = append(p.buf, "  "...)
	from := len(p.buf)
	p.recordText(v)
	bad := hasFailed(v.Record) || v.Kind == trace.Gap || v.Kind == trace.Refused || v.Kind == trace.Note
	if bad && p.Color {
		p.buf = append(slices.Insert(p.buf, from, []byte(red)...), resetColor...)
	}
	p.buf = append(p.buf, '\n')
}

// Colours of a terminal.
const (
	red        = "\x1b[31m"
	inverse    = "\x1b[7m"
	resetColor = "\x1b[0m"
)

// column appends text, at least as wide as the column was so far, and returns its width.
func (p *printer) column(text string, width int) int {
	text = truncate(printable.Text(text), 24)
	n := len([]rune(text))
	width = max(width, n)
	p.buf = append(append(p.buf, "  "...), text...)
	p.buf = append(p.buf, strings.Repeat(" ", width-n)...)
	return width
}

// arrow shows the clients at the left of the bridge, which is the bar, and the servers at its
// right.
func arrow(r *trace.Record) string {
	switch {
	case r.Hop == trace.Downstream && r.Dir == trace.ToServer:
		return "→|  "
	case r.Hop == trace.Downstream && r.Dir == trace.ToClient:
		return "←|  "
	case r.Hop == trace.Upstream && r.Dir == trace.ToServer:
		return "  |→"
	case r.Hop == trace.Upstream && r.Dir == trace.ToClient:
		return "  |←"
	case r.Hop == trace.Downstream:
		return "·|  "
	case r.Hop == trace.Upstream:
		return "  |·"
	}
	return "  |  "
}

// word appends a word that came over the wire.
func (p *printer) word(text string) {
	if text != "" {
		p.space()
		p.buf = printable.Append(p.buf, truncate(text, 200))
	}
}

func (p *printer) space() {
	if n := len(p.buf); n > 0 && p.buf[n-1] != ' ' {
		p.buf = append(p.buf, ' ')
	}
}

func (p *printer) printf(format string, args ...any) {
	p.space()
	p.buf = fmt.Appendf(p.buf, format, args...)
}

// recordText appends what a record says, which follows its time, server and session.
func (p *printer) recordText(v *View) {
	switch {
	case v.Kind.IsMessage():
		p.message(v)
	case v.HTTP != nil:
		p.exchange(v)
	case v.Kind == trace.Gap:
		p.printf("%s missing here", printable.Count(v.Lost, "record is", "records are"))
	case v.Kind == trace.Drop:
		p.word("dropped")
		p.message(v)
		p.word(v.Reason)
	case v.Event != nil:
		p.event(v)
	default:
		p.word(string(v.Kind))
		p.word(v.Reason)
	}
}

func (p *printer) message(v *View) {
	if v.Method == "" && v.Kind == trace.Response {
		p.word("(response)")
	}
	p.word(v.Method)
	p.word(v.Name)
	if !v.ID.IsZero() {
		p.word("#" + v.ID.String())
	}
	switch {
	case v.Code != 0:
		p.printf("error %d", v.Code)
	case v.Failed:
		p.word("failed")
	case v.Kind == trace.Response:
		p.word("ok")
	case v.Cancelled:
		p.word("cancelled")
	case v.Pending:
		p.printf("no answer for %s", roundedDuration(v.Waited))
	}
	if v.Earlier {
		p.word("(began before this trace: only this end of it is known)")
		return
	}
	if v.Duration > 0 {
		p.word(roundedDuration(v.Duration))
	}
	if v.TimeInBridge > 0 {
		p.printf("(bridge %s)", roundedDuration(v.TimeInBridge))
	}
	p.printf("%s", sizeText(int64(v.Size)))
	if v.Stream != "" && (p.Bodies || p.SideBySide || p.Exchanges) {
		p.word("stream " + v.Stream)
	}
}

// sizeText returns a number of bytes as people write it.
func sizeText(n int64) string {
	switch {
	case n < 10_000:
		return strconv.FormatInt(n, 10) + " B"
	case n < 10_000_000:
		return strconv.FormatInt(n/1000, 10) + " kB"
	}
	return strconv.FormatInt(n/1000_000, 10) + " MB"
}

func (p *printer) exchange(v *View) {
	x := v.HTTP
	p.word(x.Proto)
	p.word(x.Method)
	p.word(x.URL)
	if x.Status != 0 {
		p.printf("%d", x.Status)
	}
	if v.Kind == trace.Refused {
		p.word("refused")
		p.word(x.Rule)
		p.word(x.Reason)
		p.word(v.Reason)
	}
	if x.Duration > 0 {
		p.word(roundedDuration(x.Duration))
	}
	if x.FirstByte > 0 {
		p.printf("(first byte %s)", roundedDuration(x.FirstByte))
	}
	if x.RequestBytes > 0 || x.ResponseBytes > 0 {
		p.printf("in %s, out %s", sizeText(x.RequestBytes), sizeText(x.ResponseBytes))
	}
	p.word(x.Err)
}

func (p *printer) event(v *View) {
	e := v.Event
	p.word(string(v.Kind))
	if v.Kind == trace.Stderr {
		p.printf("%d:", e.PID)
		p.word(string(bodyText(&v.Body)))
		return
	}
	p.word(v.Stream)
	p.word(e.Code)
	if v.Method != "" { // a remark about a request
		p.word(v.Method)
		p.word(v.Name)
		p.word("#" + v.ID.String())
		p.word("for " + roundedDuration(v.Duration) + ":")
	}
	p.word(e.Action)
	p.word(e.Step)
	if e.PID != 0 {
		p.printf("pid %d", e.PID)
	}
	p.word(e.Program)
	p.word(e.Client)
	p.word(e.Version)
	p.word(e.Revision)
	if e.FromEventID != "" {
		p.word("from " + e.FromEventID)
	}
	if e.Calls > 0 {
		p.printf("%s", printable.Count(e.Calls, "call", "calls"))
	}
	if e.Duration > 0 {
		p.word("after " + roundedDuration(e.Duration))
	}
	if v.Size > 0 {
		p.word(sizeText(int64(v.Size)))
	}
	p.word(e.Text)
	p.word(v.Reason)
	p.word(e.Err)
}

const indent = "              "

func (p *printer) indented(text []byte) {
	p.buf = append(p.buf, indent...)
	for piece := range splitText(text) {
		p.buf = printable.Append(p.buf, piece)
		p.flushLarge()
	}
	p.buf = append(p.buf, '\n')
}

func (p *printer) headers(mark string, h map[string][]string) {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range h[name] {
			p.indented([]byte(mark + name + ": " + value))
		}
	}
}
