package traceview

import (
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// maxBodies is how much text Printer.Both keeps of messages of which the bridge may still
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
	if !r.Kind.IsMessage() || r.Cause != 0 || r.Seq == 0 || r.Body.Text == nil {
		return
	}
	if b.kept == nil {
		b.kept = make(map[uint64]*trace.Body)
	}
	if b.kept[r.Seq] != nil {
		return
	}
	body := r.Body
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

func (b *bodies) of(seq uint64) *trace.Body { return b.kept[seq] }

// sides appends two messages side by side, with what differs marked.
func (p *Printer) sides(in, out *trace.Body) {
	a, b := bodyText(in), bodyText(out)
	left, right := Diff(a, b)
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
	rows, others := p.wrap(a, left, width, "[-", "-]"), p.wrap(b, right, width, "[+", "+]")
	for i := range max(len(rows), len(others)) {
		p.buf = append(p.buf, indent...)
		have := 0
		if i < len(rows) {
			p.buf, have = append(p.buf, rows[i].text...), rows[i].width
		}
		p.buf = append(p.buf, strings.Repeat(" ", width-have)...)
		p.buf = append(p.buf, " | "...)
		if i < len(others) {
			p.buf = append(p.buf, others[i].text...)
		}
		p.buf = append(p.buf, '\n')
	}
}

// row is a line of a column; width is how many characters it shows.
type row struct {
	text  []byte
	width int
}

// wrap breaks a text into rows, with its spans marked: by colour, or by open and end.
func (p *Printer) wrap(text []byte, spans []Span, width int, open, end string) (rows []row) {
	var line row
	put := func(shown []rune) {
		for len(shown) > 0 {
			n := min(len(shown), width-line.width)
			line.text = append(line.text, string(shown[:n])...)
			line.width += n
			if shown = shown[n:]; line.width == width {
				rows = append(rows, line)
				line = row{}
			}
		}
	}
	for i, at := 0, 0; at < len(text); i++ {
		next := Span{len(text), len(text)}
		if i < len(spans) {
			next = spans[i]
		}
		put([]rune(printable.Text(text[at:next.From])))
		if next.From < next.To {
			put(p.marked(text[next.From:next.To], open, end))
		}
		at = next.To
	}
	if line.width > 0 {
		rows = append(rows, line)
	}
	if p.Color {
		p.colour(rows)
	}
	return rows
}

// Until the rows are complete, the marks of colours are these characters, which printable.Append
// never lets through.
const (
	markOn  = '\x0e'
	markOff = '\x0f'
)

func (p *Printer) marked(text []byte, open, end string) []rune {
	shown := printable.Text(text)
	if p.Color {
		return []rune(string(markOn) + shown + string(markOff))
	}
	return []rune(open + shown + end)
}

// colour replaces the marks. A colour ends with its row, and begins again in the next one.
func (p *Printer) colour(rows []row) {
	on := false
	for i := range rows {
		r := &rows[i]
		var text []byte
		if on {
			text = append(text, inverse...)
		}
		for _, c := range r.text {
			switch c {
			case markOn:
				on, text = true, append(text, inverse...)
				r.width--
			case markOff:
				on, text = false, append(text, plain...)
				r.width--
			default:
				text = append(text, c)
			}
		}
		if on {
			text = append(text, plain...)
		}
		r.text = slices.Clip(text)
	}
}
