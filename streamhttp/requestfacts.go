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
// to repeat, and what must not stand there twice.
type requestFacts struct {
	meta           era.Meta // what its _meta says
	name           []byte   // the name of the tool or prompt, the URI of the resource, or the taskId, raw; nil: it names nothing
	arguments      []byte   // params.arguments of any request, raw, so of tools/call and prompts/get; nil: none
	requestState   []byte   // params.requestState, raw, kept to notice a second one; nil: none
	inputResponses []byte   // params.inputResponses, raw, kept to notice a second one; nil: none
	duplicateKey   string   // a key in params or _meta, of those that are read here, that stands twice, so that two readers could differ about it; "": none does
}

// readRequestFacts reads the requestFacts of m.
func readRequestFacts(m jsonrpc.Message) (facts requestFacts) {
	name := wire.NameParamKey(m.Method())
	for member := range m.ParamsObject().Members() {
		switch member.Key {
		case "_meta": // Parse refuses two
			facts.readMeta(member.Value)
		case name:
			facts.setMember(&facts.name, member)
		case "arguments":
			facts.setMember(&facts.arguments, member)
		case "requestState":
			facts.setMember(&facts.requestState, member)
		case "inputResponses":
			facts.setMember(&facts.inputResponses, member)
		}
	}
	return facts
}

// readMeta reads the raw _meta of the request into q.meta, and notes a key that stands twice.
func (q *requestFacts) readMeta(meta []byte) {
	for member := range jsonrpc.Members(meta) {
		switch member.Key {
		case era.KeyVersion:
			q.setMember(&q.meta.Version, member)
		case era.KeyClientInfo:
			q.setMember(&q.meta.ClientInfo, member)
		case era.KeyCapabilities:
			q.setMember(&q.meta.Capabilities, member)
		case era.KeyLogLevel:
			q.setMember(&q.meta.LogLevel, member)
		}
	}
}

// setMember keeps the value of a member in field, and notes a key that stands twice.
func (q *requestFacts) setMember(field *[]byte, member jsonrpc.Member) {
	if *field != nil {
		q.duplicateKey = member.Key
	}
	*field = member.Value
}

// isModern reports whether the request is a modern one (ED1).
func (q *requestFacts) isModern() bool {
	return rawTextIs(q.meta.Version, era.NewestModern) || q.meta.IsModern()
}

// namesModern reports whether an MCP-Protocol-Version header names a modern revision that the bridge knows.
func namesModern(header http.Header) bool {
	for _, v := range header[wire.HeaderVersion] {
		if era.IsModern(trimHeaderSpace(v)) {
			return true
		}
	}
	return false
}

// trimHeaderSpace returns the value of a header without the spaces and tabs around it, which RFC 9110
// (5.5) does not count to the value. Over HTTP/1 net/http has removed them.
func trimHeaderSpace(value string) string {
	if n := len(value); n > 0 && value[0] > ' ' && value[n-1] > ' ' {
		return value // mostly so
	}
	return strings.Trim(value, " \t")
}

// headerIs reports whether a header, whose values these are, was sent once, and says what the raw JSON
// string means.
func headerIs(values []string, raw []byte) bool {
	return len(values) == 1 && rawTextIs(raw, trimHeaderSpace(values[0]))
}

// rawTextIs reports whether the JSON value raw is a string that is text once its escapes are decoded. It is false for
// any other value, and for none.
func rawTextIs(raw []byte, text string) bool {
	if len(raw) < 2 || raw[0] != '"' {
		return false
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == text // copies nothing
	}
	got, _ := jsonrpc.Text(raw)
	return got == text
}

// headerMismatch returns the Refusal of a request whose headers do not fit its body (-32020); text
// says in which way.
func headerMismatch(text string) *era.Refusal {
	return &era.Refusal{Code: era.CodeHeaderMismatch, Text: "header mismatch: " + text}
}

// headerMismatchOf returns the Refusal of a request whose header name, with these values, is missing,
// sent more than once, or does not repeat what, which stands in the body.
func headerMismatchOf(name string, values []string, what string) *era.Refusal {
	switch len(values) {
	case 0:
		return headerMismatch("the " + name + " header is missing")
	case 1:
		return headerMismatch("the " + name + " header is not what " + what + " is")
	}
	return headerMismatch("there is more than one " + name + " header")
}

// checkHeaders compares the headers Mcp-Method and Mcp-Name with the body (MI5, MI6); nil: they fit.
func (h *Handler) checkHeaders(header http.Header, method string, facts *requestFacts) *era.Refusal {
	values := header[wire.HeaderMCPMethod]
	if len(values) != 1 || trimHeaderSpace(values[0]) != method {
		return headerMismatchOf(wire.HeaderMCPMethod, values, "the method")
	}
	key := wire.NameParamKey(method)
	if key == "" {
		return nil
	}
	values = header[wire.HeaderMCPName]
	_, named := jsonrpc.Text(facts.name)
	switch {
	case len(values) == 0 && !named:
		return nil // that something is not named well is for the server to say
	case len(values) != 1:
		return headerMismatchOf(wire.HeaderMCPName, values, "params."+key)
	case h.opts.RawNames && rawTextIs(facts.name, trimHeaderSpace(values[0])):
		return nil
	}
	got, err := toolheader.DecodeValue(values[0])
	switch {
	case err != nil:
		return headerMismatch("the " + wire.HeaderMCPName + " header is invalid: " + err.Error())
	case !rawTextIs(facts.name, got):
		return headerMismatchOf(wire.HeaderMCPName, values, "params."+key)
	}
	return nil
}

// headerAnnotation is the key in a tool's input schema that asks for an argument to be repeated in a
// header. A schema with neither headerAnnotation nor unicodeEscape in its text need not be parsed.
var headerAnnotation = []byte("x-mcp-header")

// unicodeEscape begins an escape in a JSON string, in which a schema could spell headerAnnotation.
var unicodeEscape = []byte(`\u`)

// checkParamHeaders compares the Mcp-Param headers of a tool's call with its
// arguments, if the tool's input schema asks for any (MI22); nil: they fit.
func (h *Handler) checkParamHeaders(ctx context.Context, header http.Header, m jsonrpc.Message, facts *requestFacts) *era.Refusal {
	if h.opts.ToolSchema == nil || m.Method() != "tools/call" {
		return nil
	}
	tool, ok := jsonrpc.Text(facts.name)
	if !ok {
		return nil
	}
	schema, known := h.opts.ToolSchema(ctx, m, tool)
	if !known || !bytes.Contains(schema, headerAnnotation) && !bytes.Contains(schema, unicodeEscape) {
		return nil
	}
	params, err := toolheader.ParseAnnotations(schema)
	if err != nil || len(params) == 0 {
		return nil // whoever lists such a tool to clients says what is wrong with it
	}
	if err := toolheader.CheckHeaders(params, facts.arguments, header); err != nil {
		return &era.Refusal{Code: era.CodeHeaderMismatch, Text: err.Error()}
	}
	return nil
}
