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

// pageStyle is the CSS of the page that exportHTML writes.
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
		page.keptBodies.add(v.Record)
		lost += lostRecordsOf(v.Record)
		if err := page.writeRow(v); err != nil {
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

// htmlPage writes the rows of the table in the page of exportHTML.
type htmlPage struct {
	out        *bufio.Writer // the page; its Flush returns an error of an earlier write
	keptBodies bodies        // texts of received messages, which are shown beside those that were made of them
}

// writeRow writes the row of a record, with its details if it has any. The error may be that of an earlier write.
func (h *htmlPage) writeRow(v *View) error {
	p := printer{}
	p.appendRecord(v)
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
		h.writeDetails(v)
		subject = "</details>"
	}
	_, err := h.out.WriteString(subject + "</td></tr>\n") // err may be of an earlier write
	return err
}

// htmlText returns a text made printable, and escaped for HTML.
func htmlText[T string | []byte](text T) string { return html.EscapeString(printable.Text(text)) }

// writeText writes a text, which may be long, made printable and escaped for HTML.
func (h *htmlPage) writeText(text []byte) {
	for piece := range splitText(text) {
		_, _ = h.out.WriteString(htmlText(piece)) // writeRow returns the error
	}
}

// hasDetails reports whether the row of a record shows more once it is opened: headers, a body, what was redacted.
func hasDetails(v *View) bool {
	x := v.HTTP
	return x != nil && len(x.RequestHeader)+len(x.ResponseHeader) > 0 || v.Body.Text != nil && v.Kind != trace.Stderr || len(v.Redacted) > 0
}

// writeDetails writes what the row of a record shows once it is opened: headers, the body (of a message made of another one,
// both with what differs marked), what was redacted.
func (h *htmlPage) writeDetails(v *View) {
	if x := v.HTTP; x != nil {
		p := printer{}
		p.appendHeaders("> ", x.RequestHeader)
		p.appendHeaders("< ", x.ResponseHeader)
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
		h.writeMarked(before, left)
		_, _ = h.out.WriteString("</pre><pre>")
		h.writeMarked(text, right)
		_, _ = h.out.WriteString("</pre></div>")
	default:
		_, _ = h.out.WriteString("<pre>")
		h.writeText(text)
		_, _ = h.out.WriteString("</pre>")
	}
	if len(v.Redacted) > 0 {
		fmt.Fprintf(h.out, "<p>redacted: %s</p>", htmlText(strings.Join(v.Redacted, ", ")))
	}
}

// writeMarked writes a text, escaped for HTML, in which the parts spans are marked.
func (h *htmlPage) writeMarked(text []byte, spans []textRange) {
	from := 0
	for _, s := range spans {
		h.writeText(text[from:s.From])
		_, _ = h.out.WriteString("<mark>")
		h.writeText(text[s.From:s.To])
		_, _ = h.out.WriteString("</mark>")
		from = s.To
	}
	h.writeText(text[from:])
}
