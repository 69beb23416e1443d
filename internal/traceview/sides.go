package traceview

import (
	"bytes"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// maxBodies is how much text printer.SideBySide keeps of messages of which the bridge may still
// make others, in bytes, and maxBodyCount of how many.
const (
	maxBodies    = 64 << 20
	maxBodyCount = 20_000
)

// bodies are the latest received messages.
type bodies struct {
	kept  map[uint64]*trace.Body
	order []uint64
	bytes int
}

func (b *bodies) keep(r *trace.Record) {
	if !r.Kind.IsMessage() || r.CauseSeq != 0 || r.Seq == 0 || r.Body.Text == nil {
		return
	}
	if b.kept == nil {
		b.kept = make(map[uint64]*trace.Body)
	}
	if b.kept[r.Seq] != nil {
		return
	}
	body := trace.Body{Text: bytes.Clone(r.Body.Text), Tail: bytes.Clone(r.Body.Tail), OmittedBytes: r.Body.OmittedBytes} // not the line, which may be longer
	b.kept[r.Seq] = &body
	b.order = append(b.order, r.Seq)
	b.bytes += len(body.Text) + len(body.Tail)
	for len(b.order) > 1 && (b.bytes > maxBodies || len(b.order) > maxBodyCount) {
		old := b.kept[b.order[0]]
		b.bytes -= len(old.Text) + len(old.Tail)
		delete(b.kept, b.order[0])
		b.order = b.order[1:]
	}
}

func (b *bodies) bodyOf(seq uint64) *trace.Body { return b.kept[seq] }

// sideBySide appends two messages side by side, with what differs marked.
func (p *printer) sideBySide(in, out *trace.Body) {
	a, b := bodyText(in), bodyText(out)
	left, right := diff(a, b)
	if len(left) == 0 && len(right) == 0 {
		p.buf = append(append(p.buf, indent...), "the same at both ends:\n"...)
		p.indented(b)
		return
	}
	width := p.Width
	if width == 0 {
		width = 160
	}
	width = max((width-len(indent)-3)/2, 20)
	here, stop := iter.Pull(p.wrap(a, left, width, "[-", "-]"))
	defer stop()
	there, stop := iter.Pull(p.wrap(b, right, width, "[+", "+]"))
	defer stop()
	for {
		l, more := here()
		r, others := there()
		if !more && !others {
			return
		}
		p.buf = append(append(p.buf, indent...), l.text...)
		p.buf = append(p.buf, strings.Repeat(" ", width-l.width)...)
		p.buf = append(append(p.buf, " | "...), r.text...)
		p.buf = append(p.buf, '\n')
		p.flushLarge()
	}
}

// row is a line of a column; width is how many characters it shows.
type row struct {
	text  []byte
	width int
}

// wrap breaks a text into rows, with its spans marked: by colour, or by open and end. A row is good until the next one.
func (p *printer) wrap(text []byte, spans []textRange, width int, open, end string) iter.Seq[row] {
	return func(yield func(row) bool) {
		w := wrapper{width: width, yield: yield}
		for i, at := 0, 0; at < len(text); i++ {
			next := textRange{len(text), len(text)}
			if i < len(spans) {
				next = spans[i]
			}
			marked := next.From < next.To
			ok := w.put(text[at:next.From])
			switch {
			case !marked:
			case p.Color:
				w.mark(inverse)
				ok = ok && w.put(text[next.From:next.To])
				w.mark(resetColor)
			default:
				ok = ok && w.put([]byte(open)) && w.put(text[next.From:next.To]) && w.put([]byte(end))
			}
			if !ok {
				return
			}
			at = next.To
		}
		if w.line.width > 0 {
			yield(w.line)
		}
	}
}

// wrapper fills rows.
type wrapper struct {
	width   int
	yield   func(row) bool
	line    row
	inverse bool
}

// mark begins or ends a colour.
func (w *wrapper) mark(colour string) {
	w.inverse = colour == inverse
	w.line.text = append(w.line.text, colour...)
}

// put appends text; false: no more is wanted. A colour ends with its row, and begins again in the next one.
func (w *wrapper) put(text []byte) bool {
	for piece := range splitText(text) {
		for _, r := range printable.Text(piece) {
			w.line.text = utf8.AppendRune(w.line.text, r)
			if w.line.width++; w.line.width < w.width {
				continue
			}
			if w.inverse {
				w.line.text = append(w.line.text, resetColor...)
			}
			if !w.yield(w.line) {
				return false
			}
			w.line = row{text: w.line.text[:0]}
			if w.inverse {
				w.line.text = append(w.line.text, inverse...)
			}
		}
	}
	return true
}
