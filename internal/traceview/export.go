package traceview

import (
	"fmt"
	"io"
	"iter"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// Formats are the formats that Viewer.Export writes: HAR 1.2, spans as the JSON of OTLP, and a page of HTML that needs nothing
// else.
var Formats = []string{"har", "otlp", "html"}

// export writes records in a format, one of Formats; the error says so if it is none.
func export(w io.Writer, format string, records iter.Seq[*View]) error {
	switch format {
	case "har":
		return exportHAR(w, records)
	case "otlp":
		return exportOTLP(w, records)
	case "html":
		return exportHTML(w, records)
	}
	return fmt.Errorf("there is no format %q", format)
}

// lostRecordsOf returns how many records are missing where r stands, if r is a Gap; 0: it is none.
func lostRecordsOf(r *trace.Record) uint64 {
	if r.Kind != trace.Gap {
		return 0
	}
	return max(r.Lost, 1)
}
