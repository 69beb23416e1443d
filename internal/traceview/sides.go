package traceview

import (
	"bytes"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

const (
	maxBodyBytes = 64 << 20 // how long the texts that bodies keep may be together, in bytes; one longer text may be kept alone
	maxBodyCount = 20_000   // of how many messages bodies keep the text at most
)

// bodies keeps the texts of the latest received messages, to be shown beside messages that the bridge makes of them later.
type bodies struct {
	kept  map[uint64]*trace.Body // the Bodies, by trace.Record.Seq of their messages
	order []uint64               // the keys of kept, the oldest first
	bytes int                    // how long the texts in kept are together
}

// add keeps a copy of the Body of a record, if it is of a received message with a text. The oldest ones make room.
func (b *bodies) add(r *trace.Record) {
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
	for len(b.order) > 1 && (b.bytes > maxBodyBytes || len(b.order) > maxBodyCount) {
		old := b.kept[b.order[0]]
		b.bytes -= len(old.Text) + len(old.Tail)
		delete(b.kept, b.order[0])
		b.order = b.order[1:]
	}
}

// bodyOf returns the Body of the message with this Seq; nil: it is not kept.
func (b *bodies) bodyOf(seq uint64) *trace.Body { return b.kept[seq] }

// appendSideBySide appends two messages, one received (in) and the one made of it (out), side by side, with what differs
// marked.
func (p *printer) appendSideBySide(in, out *trace.Body) {
	a, b := bodyText(in), bodyText(out)
	left, right := diff(a, b)
	if len(left) == 0 && len(right) == 0 {
		p.buf = append(append(p.buf, indent...), "the same at both ends:\n"...)
		p.appendIndented(b)
		return
	}
	width := p.Width
	if width == 0 {
		width = 160
	}
	width = max((width-len(indent)-3)/2, 20)
	here, stop := iter.Pull(p.wrapText(a, left, width, "[-", "-]"))
	defer stop()
	there, stop := iter.Pull(p.wrapText(b, right, width, "[+", "+]"))
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

// wrappedRow is a line of one of the two columns of appendSideBySide.
type wrappedRow struct {
	text  []byte // the text, with the escape sequences of colours
	width int    // how many characters it shows
}

// wrapText breaks a text, made printable, into rows of width characters. Its parts spans are marked: by colour, or without Color by the
// texts opening and closing around them. A row is good until the next one is asked for.
func (p *printer) wrapText(text []byte, spans []textRange, width int, opening, closing string) iter.Seq[wrappedRow] {
	return func(yield func(wrappedRow) bool) {
		w := textWrapper{width: width, yield: yield}
		for i, at := 0, 0; at < len(text); i++ {
			next := textRange{len(text), len(text)}
			if i < len(spans) {
				next = spans[i]
			}
			marked := next.From < next.To
			ok := w.appendText(text[at:next.From])
			switch {
			case !marked:
			case p.Color:
				w.setColour(inverse)
				ok = ok && w.appendText(text[next.From:next.To])
				w.setColour(resetColor)
			default:
				ok = ok && w.appendText([]byte(opening)) && w.appendText(text[next.From:next.To]) && w.appendText([]byte(closing))
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

// textWrapper breaks text into rows for wrapText.
type textWrapper struct {
	width   int                   // characters of a row
	yield   func(wrappedRow) bool // takes a full row; false: no more is wanted
	line    wrappedRow            // the row that is being filled
	inverse bool                  // the text that follows is shown inverse
}

// setColour begins the colour inverse, or ends it (resetColor).
func (w *textWrapper) setColour(colour string) {
	w.inverse = colour == inverse
	w.line.text = append(w.line.text, colour...)
}

// appendText appends text, made printable, and yields each row that is full; false: no more is wanted. A colour ends with its
// row, and begins again in the next one.
func (w *textWrapper) appendText(text []byte) bool {
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
			w.line = wrappedRow{text: w.line.text[:0]}
			if w.inverse {
				w.line.text = append(w.line.text, inverse...)
			}
		}
	}
	return true
}
