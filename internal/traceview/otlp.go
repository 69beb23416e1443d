package traceview

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/lazyregexp"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// otlpSpan is a span in the JSON of OTLP. The numbers of 64 bits are strings there.
type otlpSpan struct {
	Trace  string     `json:"traceId"`                // id of the trace that the span belongs to, in hexadecimal
	ID     string     `json:"spanId"`                 // id of the span, in hexadecimal
	Parent string     `json:"parentSpanId,omitempty"` // id of the span above, in hexadecimal; "": there is none
	Name   string     `json:"name"`                   // the method of the request, and the name of its tool or prompt
	Kind   int        `json:"kind"`                   // 2 (SERVER): the bridge has received the request; 3 (CLIENT): it has sent it
	Start  string     `json:"startTimeUnixNano"`      // when the request passed, in nanoseconds since 1970
	End    string     `json:"endTimeUnixNano"`        // when its answer passed, or the trace ends, in nanoseconds since 1970
	Attrs  []otlpAttr `json:"attributes"`             // attributes of the span, such as the method and the tool of the request
	Status otlpStatus `json:"status"`                 // whether the request failed
}

// otlpStatus is the status of a span.
type otlpStatus struct {
	Code    int    `json:"code,omitempty"`    // 2: the request failed or has no answer; 0: it did not fail
	Message string `json:"message,omitempty"` // why, if there is no answer; "": nothing is said
}

// otlpAttr is an attribute of a span.
type otlpAttr struct {
	Key   string `json:"key"`   // name of the attribute
	Value any    `json:"value"` // value of the attribute, as stringAttr makes it
}

// stringAttr returns an attribute whose value is a string.
func stringAttr(key, value string) otlpAttr {
	return otlpAttr{key, map[string]string{"stringValue": validText([]byte(value))}}
}

// spanContext is the ids of the span of a request, in hexadecimal.
type spanContext struct {
	trace string // id of the trace
	span  string // id of the span
}

// exportOTLP writes a span for each request at each end of the bridge.
func exportOTLP(w io.Writer, records iter.Seq[*View]) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"mcp-bridge"}}]},"scopeSpans":[{"scope":{"name":"mcp-bridge","version":%s},"spans":[`,
		jsonrpc.Quote(buildinfo.Version()))
	known := make(map[uint64]spanContext)
	first := true
	for v := range records {
		if v.Kind != trace.Request {
			continue
		}
		text, err := json.Marshal(spanOf(v, known))
		if err != nil {
			return err
		}
		if !first {
			_ = out.WriteByte(',') // Flush returns the error
		}
		first = false
		_, _ = out.Write(text)
	}
	_, _ = out.WriteString("]}]}]}\n")
	return out.Flush()
}

// spanOf returns the span of a request. known are the ids of the spans of earlier requests, by their Seq: it adds those of this
// one.
func spanOf(v *View, known map[uint64]spanContext) otlpSpan {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d %s", v.Time.UnixNano(), v.Seq, v.Session))
	ids := spanContext{hex.EncodeToString(sum[:16]), hex.EncodeToString(sum[16:24])}
	s := otlpSpan{ID: ids.span, Name: validText([]byte(v.Method)), Kind: 2, Start: unixNanos(v.Time)}
	if !isReceived(v.Record) {
		s.Kind = 3
	}
	if cause, ok := known[v.CauseSeq]; ok && v.CauseSeq != 0 {
		ids.trace, s.Parent = cause.trace, cause.span
	} else if parent := parentOf(&v.Body); parent.trace != "" {
		ids.trace, s.Parent = parent.trace, parent.span
	}
	s.Trace = ids.trace
	if v.Seq != 0 {
		known[v.Seq] = ids
	}
	s.Attrs = append(s.Attrs, stringAttr("mcp.method.name", v.Method), stringAttr("jsonrpc.request.id", v.ID.String()),
		stringAttr("mcp.session.id", v.Session), stringAttr("mcp_bridge.server", v.Server), stringAttr("mcp_bridge.hop", v.Hop))
	switch v.Method {
	case "tools/call":
		s.Name += " " + validText([]byte(v.Name))
		s.Attrs = append(s.Attrs, stringAttr("gen_ai.tool.name", v.Name), stringAttr("gen_ai.operation.name", "execute_tool"))
	case "prompts/get":
		s.Name += " " + validText([]byte(v.Name))
		s.Attrs = append(s.Attrs, stringAttr("gen_ai.prompt.name", v.Name))
	case "resources/read":
		s.Attrs = append(s.Attrs, stringAttr("mcp.resource.uri", v.Name))
	}
	end := v.Time.Add(v.Waited)
	switch a := v.Answer; {
	case a == nil && v.Cancelled:
		s.Status = otlpStatus{2, "cancelled"}
	case a == nil:
		s.Status = otlpStatus{2, "no answer"}
	case a.Code != 0:
		s.Status = otlpStatus{Code: 2}
		s.Attrs = append(s.Attrs, stringAttr("error.type", strconv.Itoa(a.Code)), stringAttr("rpc.response.status_code", strconv.Itoa(a.Code)))
	case a.Failed:
		s.Status = otlpStatus{Code: 2}
		s.Attrs = append(s.Attrs, stringAttr("error.type", "tool_error"))
	}
	s.End = unixNanos(end)
	return s
}

// unixNanos returns the nanoseconds since 1970 as a decimal number. Times before 1970, or too late for Time.UnixNano, become
// the first or last second that can be told.
func unixNanos(t time.Time) string {
	seconds := min(max(t.Unix(), 0), math.MaxInt64/int64(time.Second)-1)
	n := time.Unix(seconds, 0).UnixNano()
	if seconds == t.Unix() {
		n += int64(t.Nanosecond())
	}
	return strconv.FormatInt(n, 10)
}

// traceparent matches the JSON string of a traceparent (W3C trace context), and has groups for the ids of trace and span. It
// matches no version ff, which is not allowed.
var traceparent = lazyregexp.New(`^"(?:[0-9a-e][0-9a-f]|f[0-9a-e])-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}"$`)

// parentOf returns the span that a request names as its parent (params._meta.traceparent); zero: it names none.
func parentOf(b *trace.Body) (ids spanContext) {
	if b.OmittedBytes == 0 {
		if m := traceparent.FindSubmatch(memberAt(b.Text, "params", "_meta", "traceparent")); m != nil && !isZero(m[1]) && !isZero(m[2]) {
			return spanContext{string(m[1]), string(m[2])}
		}
	}
	return ids
}

// isZero reports whether an id in hexadecimal has only zeros, which stands for none.
func isZero(id []byte) bool { return len(bytes.Trim(id, "0")) == 0 }
