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

// printer prints records in lines. It must not be used concurrently. The exported fields are set before
// the first print.
type printer struct {
	Out   io.Writer // where the lines go; nil: only the append methods are used
	Color bool      // Out is a terminal that understands colours

	Bodies     bool // the text of a message is printed below its line, and headers and what was redacted
	SideBySide bool // like Bodies, but a message that the bridge has made of another is printed beside that one, with what differs marked

	Exchanges bool // records of the kinds HTTP and Stream are shown, too, and with a message the name of the stream on which it passed
	Width     int  // how many characters a line of SideBySide may have; 0: 160

	buf          []byte // text that was not written to Out so far
	err          error  // the first error of Out, after which nothing is written; nil: none so far
	serverWidth  int    // width of the column of servers so far, in characters
	sessionWidth int    // width of the column of sessions so far, in characters
	bodies       bodies // texts of received messages, for SideBySide
	lastDay      string // date of the last line that has a time; "": none had
}

// showsByDefault reports whether records of a kind are shown where the filter has no word with the key "kind" or "status".
func (p *printer) showsByDefault(k trace.Kind) bool {
	switch k {
	case trace.HTTP, trace.Stream:
		return p.Exchanges
	case trace.Stderr:
		return p.Bodies || p.SideBySide
	}
	return true
}

// keepBody keeps the Body of a received message if SideBySide may need it later.
func (p *printer) keepBody(r *trace.Record) {
	if p.SideBySide {
		p.bodies.add(r)
	}
}

// print prints a record: its line, and below that what Bodies and SideBySide want. The error is the first one of Out.
func (p *printer) print(v *View) error {
	p.keepBody(v.Record)
	p.buf = p.buf[:0]
	p.appendLine(v)
	switch cause := p.bodies.bodyOf(v.CauseSeq); {
	case p.SideBySide && v.Kind.IsMessage() && v.CauseSeq != 0 && cause != nil && v.Body.Text != nil:
		p.appendSideBySide(cause, &v.Body)
	case (p.Bodies || p.SideBySide) && v.Body.Text != nil && v.Kind != trace.Stderr:
		p.appendIndented(bodyText(&v.Body))
	}
	if (p.Bodies || p.SideBySide) && len(v.Redacted) > 0 {
		p.appendIndented([]byte("redacted: " + strings.Join(v.Redacted, ", ")))
	}
	if x := v.HTTP; x != nil && (p.Bodies || p.SideBySide) {
		p.appendHeaders("> ", x.RequestHeader)
		p.appendHeaders("< ", x.ResponseHeader)
	}
	if p.err == nil {
		_, p.err = p.Out.Write(p.buf)
	}
	return p.err
}

// maxBuffered is the length of printer.buf, in bytes, from which on flushLarge writes it: the text that is shown of a long
// message is longer than the message.
const maxBuffered = 64 << 10

// flushLarge writes buf to Out and empties it, if it has maxBuffered bytes or more. Only who does not look back into buf may
// call it.
func (p *printer) flushLarge() {
	if p.Out == nil || len(p.buf) < maxBuffered {
		return
	}
	if p.err == nil {
		_, p.err = p.Out.Write(p.buf)
	}
	p.buf = p.buf[:0]
}

// appendLine appends the line of a record: time, server, session, arrow, and what the record says. If the day is another than
// that of the line before, a line with the date comes first.
func (p *printer) appendLine(v *View) {
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
	p.serverWidth = p.appendColumn(v.Server, p.serverWidth)
	p.sessionWidth = p.appendColumn(v.Session, p.sessionWidth)
	p.buf = append(p.buf, "  "...)
	p.buf = append(p.buf, arrow(v.Record)...)
	p.buf = append(p.buf, "  "...)
	from := len(p.buf)
	p.appendRecord(v)
	bad := hasFailed(v.Record) || v.Kind == trace.Gap || v.Kind == trace.Refused || v.Kind == trace.Note
	if bad && p.Color {
		p.buf = append(slices.Insert(p.buf, from, []byte(red)...), resetColor...)
	}
	p.buf = append(p.buf, '\n')
}

// Colours of a terminal.
const (
	red        = "\x1b[31m" // begins red text on a terminal
	inverse    = "\x1b[7m"  // swaps text and background colour on a terminal, to mark a difference
	resetColor = "\x1b[0m"  // ends red and inverse
)

// appendColumn appends a column: text, cut to 24 characters, with spaces up to width. It returns width, or the width of text if
// that is more.
func (p *printer) appendColumn(text string, width int) int {
	text = truncate(printable.Text(text), 24)
	n := len([]rune(text))
	width = max(width, n)
	p.buf = append(append(p.buf, "  "...), text...)
	p.buf = append(p.buf, strings.Repeat(" ", width-n)...)
	return width
}

// arrow returns a picture of where a record passed, and where to: the bar is the bridge, with the clients at its left and the servers
// at its right.
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

// appendWord appends a space and text, which may have come over the wire: cut to 200 characters, and made printable. "": it
// appends nothing.
func (p *printer) appendWord(text string) {
	if text != "" {
		p.appendSpace()
		p.buf = printable.Append(p.buf, truncate(text, 200))
	}
}

// appendSpace appends a space, unless buf is empty or ends in one.
func (p *printer) appendSpace() {
	if n := len(p.buf); n > 0 && p.buf[n-1] != ' ' {
		p.buf = append(p.buf, ' ')
	}
}

// printf appends a space and a text of our own, which needs no escape.
func (p *printer) printf(format string, args ...any) {
	p.appendSpace()
	p.buf = fmt.Appendf(p.buf, format, args...)
}

// appendRecord appends what a record says, without its time, server and session.
func (p *printer) appendRecord(v *View) {
	switch {
	case v.Kind.IsMessage():
		p.appendMessage(v)
	case v.HTTP != nil:
		p.appendExchange(v)
	case v.Kind == trace.Gap:
		p.printf("%s missing here", printable.Count(v.Lost, "record is", "records are"))
	case v.Kind == trace.Drop:
		p.appendWord("dropped")
		p.appendMessage(v)
		p.appendWord(v.Reason)
	case v.Event != nil:
		p.appendEvent(v)
	default:
		p.appendWord(string(v.Kind))
		p.appendWord(v.Reason)
	}
}

// appendMessage appends what the record of a message or Drop says: method, name, id, how it went, times and size.
func (p *printer) appendMessage(v *View) {
	if v.Method == "" && v.Kind == trace.Response {
		p.appendWord("(response)")
	}
	p.appendWord(v.Method)
	p.appendWord(v.Name)
	if !v.ID.IsZero() {
		p.appendWord("#" + v.ID.String())
	}
	switch {
	case v.Code != 0:
		p.printf("error %d", v.Code)
	case v.Failed:
		p.appendWord("failed")
	case v.Kind == trace.Response:
		p.appendWord("ok")
	case v.Cancelled:
		p.appendWord("cancelled")
	case v.Pending:
		p.printf("no answer for %s", roundedDuration(v.Waited))
	}
	if v.Earlier {
		p.appendWord("(began before this trace: only this end of it is known)")
		return
	}
	if v.Duration > 0 {
		p.appendWord(roundedDuration(v.Duration))
	}
	if v.TimeInBridge > 0 {
		p.printf("(bridge %s)", roundedDuration(v.TimeInBridge))
	}
	p.printf("%s", sizeText(int64(v.Size)))
	if v.Stream != "" && (p.Bodies || p.SideBySide || p.Exchanges) {
		p.appendWord("stream " + v.Stream)
	}
}

// sizeText returns a number of bytes as people write it: "512 B", "24 kB".
func sizeText(n int64) string {
	switch {
	case n < 10_000:
		return strconv.FormatInt(n, 10) + " B"
	case n < 10_000_000:
		return strconv.FormatInt(n/1000, 10) + " kB"
	}
	return strconv.FormatInt(n/1000_000, 10) + " MB"
}

// appendExchange appends what the record of an HTTP exchange or of a refusal says.
func (p *printer) appendExchange(v *View) {
	x := v.HTTP
	p.appendWord(x.Proto)
	p.appendWord(x.Method)
	p.appendWord(x.URL)
	if x.Status != 0 {
		p.printf("%d", x.Status)
	}
	if v.Kind == trace.Refused {
		p.appendWord("refused")
		p.appendWord(x.Rule)
		p.appendWord(x.Reason)
		p.appendWord(v.Reason)
	}
	if x.Duration > 0 {
		p.appendWord(roundedDuration(x.Duration))
	}
	if x.FirstByte > 0 {
		p.printf("(first byte %s)", roundedDuration(x.FirstByte))
	}
	if x.RequestBytes > 0 || x.ResponseBytes > 0 {
		p.printf("in %s, out %s", sizeText(x.RequestBytes), sizeText(x.ResponseBytes))
	}
	p.appendWord(x.Err)
}

// appendEvent appends what a record with an Event says, or a line of stderr.
func (p *printer) appendEvent(v *View) {
	e := v.Event
	p.appendWord(string(v.Kind))
	if v.Kind == trace.Stderr {
		p.printf("%d:", e.PID)
		p.appendWord(string(bodyText(&v.Body)))
		return
	}
	p.appendWord(v.Stream)
	p.appendWord(e.Code)
	if v.Method != "" { // a remark about a request
		p.appendWord(v.Method)
		p.appendWord(v.Name)
		p.appendWord("#" + v.ID.String())
		p.appendWord("for " + roundedDuration(v.Duration) + ":")
	}
	p.appendWord(e.Action)
	p.appendWord(e.Step)
	if e.PID != 0 {
		p.printf("pid %d", e.PID)
	}
	p.appendWord(e.Program)
	p.appendWord(e.Client)
	p.appendWord(e.Version)
	p.appendWord(e.Revision)
	if e.FromEventID != "" {
		p.appendWord("from " + e.FromEventID)
	}
	if e.Calls > 0 {
		p.printf("%s", printable.Count(e.Calls, "call", "calls"))
	}
	if e.Duration > 0 {
		p.appendWord("after " + roundedDuration(e.Duration))
	}
	if v.Size > 0 {
		p.appendWord(sizeText(int64(v.Size)))
	}
	p.appendWord(e.Text)
	p.appendWord(v.Reason)
	p.appendWord(e.Err)
}

// indent stands before lines that belong to the record of the line above.
const indent = "              "

// appendIndented appends text, which may be long, as a line behind indent, made printable.
func (p *printer) appendIndented(text []byte) {
	p.buf = append(p.buf, indent...)
	for piece := range splitText(text) {
		p.buf = printable.Append(p.buf, piece)
		p.flushLarge()
	}
	p.buf = append(p.buf, '\n')
}

// appendHeaders appends a line for each value of the headers h, sorted by name, that begins with mark.
func (p *printer) appendHeaders(mark string, h map[string][]string) {
	names := make([]string, 0, len(h))
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, value := range h[name] {
			p.appendIndented([]byte(mark + name + ": " + value))
		}
	}
}
