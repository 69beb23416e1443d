package streamhttp

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/toolheader"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// requestFacts is what a request says of itself in its params: what its headers have
// to repeat.
type requestFacts struct {
	meta           era.Meta
	name           []byte // what it asks for, raw; nil: nothing is named
	arguments      []byte // the arguments of a tool's call, raw; nil: none
	requestState   []byte // requestState, raw; nil: none. Bound to who may come back with it (A6)
	inputResponses []byte // inputResponses, raw; nil: none
	duplicateKey   string // a key of these that stands twice: two readers could differ about it
}

// readQuery walks over the params once, and once over their _meta.
func readQuery(m jsonrpc.Message) (q requestFacts) {
	name := wire.NameKey(m.Method())
	for member := range m.ParamsObject().Members() {
		switch member.Key {
		case "_meta": // Parse refuses two
			q.readMeta(member.Value)
		case name:
			q.note(&q.name, member)
		case "arguments":
			q.note(&q.arguments, member)
		case "requestState":
			q.note(&q.requestState, member)
		case "inputResponses":
			q.note(&q.inputResponses, member)
		}
	}
	return q
}

func (q *requestFacts) readMeta(meta []byte) {
	for member := range jsonrpc.Members(meta) {
		switch member.Key {
		case era.KeyVersion:
			q.note(&q.meta.Version, member)
		case era.KeyClientInfo:
			q.note(&q.meta.ClientInfo, member)
		case era.KeyCapabilities:
			q.note(&q.meta.Capabilities, member)
		case era.KeyLogLevel:
			q.note(&q.meta.LogLevel, member)
		}
	}
}

func (q *requestFacts) note(field *[]byte, member jsonrpc.Member) {
	if *field != nil {
		q.duplicateKey = member.Key
	}
	*field = member.Value
}

// isModern reports whether the request is a modern one (ED1).
func (q *requestFacts) isModern() bool {
	return textIs(q.meta.Version, era.NewestModern) || q.meta.IsModern()
}

// namesModern reports whether a version header names a modern revision.
func namesModern(header http.Header) bool {
	for _, v := range header[wire.HeaderVersion] {
		if era.IsModern(trimSpace(v)) {
			return true
		}
	}
	return false
}

// trimSpace takes away what RFC 9110 (5.5) does not count to the value of a header.
// Over HTTP/1 net/http has done so.
func trimSpace(value string) string {
	if n := len(value); n > 0 && value[0] > ' ' && value[n-1] > ' ' {
		return value // mostly so
	}
	return strings.Trim(value, " \t")
}

// isOnly reports whether a header was sent once, with what a raw JSON string means.
func isOnly(values []string, raw []byte) bool {
	return len(values) == 1 && textIs(raw, trimSpace(values[0]))
}

// textIs reports whether a raw JSON string means text.
func textIs(raw []byte, text string) bool {
	if len(raw) < 2 || raw[0] != '"' {
		return false
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == text // copies nothing
	}
	got, _ := jsonrpc.Text(raw)
	return got == text
}

func headerMismatch(text string) *era.Refusal {
	return &era.Refusal{Code: era.CodeHeaderMismatch, Text: "header mismatch: " + text}
}

// headerMismatchOf says in which way a header with these values does not repeat what
// stands in the body.
func headerMismatchOf(name string, values []string, what string) *era.Refusal {
	switch len(values) {
	case 0:
		return headerMismatch("the " + name + " header is missing")
	case 1:
		return headerMismatch("the " + name + " header is not what " + what + " is")
	}
	return headerMismatch("there is more than one " + name + " header")
}

// refuseHeaders compares Mcp-Method and Mcp-Name with the body (MI5, MI6).
func (h *Handler) refuseHeaders(header http.Header, method string, q *requestFacts) *era.Refusal {
	values := header[wire.HeaderMethod]
	if len(values) != 1 || trimSpace(values[0]) != method {
		return headerMismatchOf(wire.HeaderMethod, values, "the method")
	}
	key := wire.NameKey(method)
	if key == "" {
		return nil
	}
	values = header[wire.HeaderName]
	_, named := jsonrpc.Text(q.name)
	switch {
	case len(values) == 0 && !named:
		return nil // that something is not named well is for the server to say
	case len(values) != 1:
		return headerMismatchOf(wire.HeaderName, values, "params."+key)
	case h.opts.RawNames && textIs(q.name, trimSpace(values[0])):
		return nil
	}
	got, err := toolheader.Decode(values[0])
	switch {
	case err != nil:
		return headerMismatch("the " + wire.HeaderName + " header is invalid: " + err.Error())
	case !textIs(q.name, got):
		return headerMismatchOf(wire.HeaderName, values, "params."+key)
	}
	return nil
}

// annotation is the key of an input schema that asks for a header. Where it
// does not stand, not even in disguise, there is no need to look closer.
var annotation, escape = []byte("x-mcp-header"), []byte(`\u`)

// refuseParams compares the Mcp-Param headers of a tool's call with its
// arguments, if the tool has any (MI22).
func (h *Handler) refuseParams(ctx context.Context, header http.Header, m jsonrpc.Message, q *requestFacts) *era.Refusal {
	if h.opts.ToolSchema == nil || m.Method() != "tools/call" {
		return nil
	}
	tool, ok := jsonrpc.Text(q.name)
	if !ok {
		return nil
	}
	schema, known := h.opts.ToolSchema(ctx, m, tool)
	if !known || !bytes.Contains(schema, annotation) && !bytes.Contains(schema, escape) {
		return nil
	}
	params, err := toolheader.Parse(schema)
	if err != nil || len(params) == 0 {
		return nil // whoever lists such a tool to clients says what is wrong with it
	}
	if err := toolheader.Check(params, q.arguments, header); err != nil {
		return &era.Refusal{Code: era.CodeHeaderMismatch, Text: err.Error()}
	}
	return nil
}
