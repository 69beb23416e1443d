package traceview

import (
	"bufio"
	"bytes"
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
	var kept bodies
	var lost uint64
	for v := range records {
		kept.keep(v.Record)
		lost += missing(v.Record)
		if _, err := out.Write(htmlRow(v, kept.of(v.Cause))); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("</table>\n") // Flush returns the error
	if lost > 0 {
		fmt.Fprintf(out, "<p>%d records are missing in the trace.</p>\n", lost)
	}
	_, _ = out.WriteString("</body></html>\n")
	return out.Flush()
}

func htmlRow(v *View, cause *trace.Body) []byte {
	var row bytes.Buffer
	p := Printer{}
	p.subject(v)
	class := ""
	if failed(v.Record) || v.Pending {
		class = ` class="bad"`
	}
	when := ""
	if !v.Time.IsZero() {
		when = v.Time.UTC().Format(time.RFC3339Nano)
	}
	fmt.Fprintf(&row, "<tr%s><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td class=\"s\">", class,
		when, htmlText(v.Server), htmlText(v.Session), html.EscapeString(arrow(v.Record)))
	details := htmlDetails(v, cause)
	if details == "" {
		fmt.Fprintf(&row, "%s", html.EscapeString(string(p.buf)))
	} else {
		fmt.Fprintf(&row, "<details><summary>%s</summary>%s</details>", html.EscapeString(string(p.buf)), details)
	}
	row.WriteString("</td></tr>\n")
	return row.Bytes()
}

func htmlText[T string | []byte](text T) string { return html.EscapeString(printable.Text(text)) }

// htmlDetails returns what a row shows once it is opened; "": nothing.
func htmlDetails(v *View, cause *trace.Body) string {
	var out strings.Builder
	if x := v.HTTP; x != nil {
		p := Printer{}
		p.headers("> ", x.Request)
		p.headers("< ", x.Response)
		if len(p.buf) > 0 {
			fmt.Fprintf(&out, "<pre>%s</pre>", html.EscapeString(string(p.buf)))
		}
	}
	text := bodyText(&v.Body)
	switch {
	case text == nil || v.Kind == trace.Stderr:
	case cause != nil && v.Cause != 0:
		before := bodyText(cause)
		left, right := Diff(before, text)
		fmt.Fprintf(&out, `<div class="both"><pre>%s</pre><pre>%s</pre></div>`, htmlMarked(before, left), htmlMarked(text, right))
	default:
		fmt.Fprintf(&out, "<pre>%s</pre>", htmlText(text))
	}
	if len(v.Redacted) > 0 {
		fmt.Fprintf(&out, "<p>redacted: %s</p>", htmlText(strings.Join(v.Redacted, ", ")))
	}
	return out.String()
}

func htmlMarked(text []byte, spans []Span) string {
	var out strings.Builder
	from := 0
	for _, s := range spans {
		out.WriteString(htmlText(text[from:s.From]))
		out.WriteString("<mark>" + htmlText(text[s.From:s.To]) + "</mark>")
		from = s.To
	}
	out.WriteString(htmlText(text[from:]))
	return out.String()
}
