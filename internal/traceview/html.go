package traceview

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

const pageStyle = `body{font:14px/1.4 system-ui,sans-serif;margin:1em}
table{border-collapse:collapse}td{padding:1px 8px;vertical-align:top;white-space:nowrap}
td.s{white-space:normal;font-family:ui-monospace,monospace}tr.bad td{color:#b00020}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0;padding:4px;background:#8881}
.both{display:grid;grid-template-columns:1fr 1fr;gap:8px}mark{background:#fc06;color:inherit}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}tr.bad td{color:#f77}}`

// exportHTML writes one page that needs nothing else. It has no script, its policy allows none,
// and all that a record holds is text.
func exportHTML(w io.Writer, records iter.Seq[*View]) error {
	sum := sha256.Sum256([]byte(pageStyle))
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'">
<title>mcp-bridge trace</title><style>%s</style></head><body>
<h1>mcp-bridge trace</h1>
<table>
`, base64.StdEncoding.EncodeToString(sum[:]), pageStyle)
	page := htmlPage{out: out}
	var lost uint64
	for v := range records {
		page.keptBodies.keep(v.Record)
		lost += lostRecordsOf(v.Record)
		if err := page.row(v); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("</table>\n") // Flush returns the error
	if lost > 0 {
		fmt.Fprintf(out, "<p>%s missing in the trace.</p>\n", printable.Count(lost, "record is", "records are"))
	}
	_, _ = out.WriteString("</body></html>\n")
	return out.Flush()
}

// htmlPage writes rows.
type htmlPage struct {
	out        *bufio.Writer
	keptBodies bodies
}

func (h *htmlPage) row(v *View) error {
	p := printer{}
	p.recordText(v)
	class := ""
	if hasFailed(v.Record) || v.Pending {
		class = ` class="bad"`
	}
	when := ""
	if !v.Time.IsZero() {
		when = v.Time.UTC().Format(time.RFC3339Nano)
	}
	fmt.Fprintf(h.out, "<tr%s><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td class=\"s\">", class,
		when, htmlText(v.Server), htmlText(v.Session), html.EscapeString(arrow(v.Record)))
	subject := html.EscapeString(string(p.buf))
	if hasDetails(v) {
		fmt.Fprintf(h.out, "<details><summary>%s</summary>", subject)
		h.details(v)
		subject = "</details>"
	}
	_, err := h.out.WriteString(subject + "</td></tr>\n") // or that of a write before
	return err
}

func htmlText[T string | []byte](text T) string { return html.EscapeString(printable.Text(text)) }

// text writes a text that may be long.
func (h *htmlPage) text(text []byte) {
	for piece := range splitText(text) {
		_, _ = h.out.WriteString(htmlText(piece)) // row returns the error
	}
}

// hasDetails reports whether a row shows more once it is opened.
func hasDetails(v *View) bool {
	x := v.HTTP
	return x != nil && len(x.RequestHeader)+len(x.ResponseHeader) > 0 || v.Body.Text != nil && v.Kind != trace.Stderr || len(v.Redacted) > 0
}

// details writes what a row shows once it is opened.
func (h *htmlPage) details(v *View) {
	if x := v.HTTP; x != nil {
		p := printer{}
		p.headers("> ", x.RequestHeader)
		p.headers("< ", x.ResponseHeader)
		if len(p.buf) > 0 {
			fmt.Fprintf(h.out, "<pre>%s</pre>", html.EscapeString(string(p.buf)))
		}
	}
	text := bodyText(&v.Body)
	cause := h.keptBodies.bodyOf(v.CauseSeq)
	switch {
	case text == nil || v.Kind == trace.Stderr:
	case cause != nil && v.CauseSeq != 0:
		before := bodyText(cause)
		left, right := diff(before, text)
		_, _ = h.out.WriteString(`<div class="both"><pre>`)
		h.marked(before, left)
		_, _ = h.out.WriteString("</pre><pre>")
		h.marked(text, right)
		_, _ = h.out.WriteString("</pre></div>")
	default:
		_, _ = h.out.WriteString("<pre>")
		h.text(text)
		_, _ = h.out.WriteString("</pre>")
	}
	if len(v.Redacted) > 0 {
		fmt.Fprintf(h.out, "<p>redacted: %s</p>", htmlText(strings.Join(v.Redacted, ", ")))
	}
}

func (h *htmlPage) marked(text []byte, spans []textRange) {
	from := 0
	for _, s := range spans {
		h.text(text[from:s.From])
		_, _ = h.out.WriteString("<mark>")
		h.text(text[s.From:s.To])
		_, _ = h.out.WriteString("</mark>")
		from = s.To
	}
	h.text(text[from:])
}
