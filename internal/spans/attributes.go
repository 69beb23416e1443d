package spans

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// How long values may be, in bytes: clients and servers choose them.
const (
	maxNameBytes    = 128      // of a name, a method, an id, and other short values
	maxTextBytes    = 256      // of the text of an error
	maxURIBytes     = 1024     // of the URI of a resource
	maxContentBytes = 16 << 10 // of arguments, results and what notifications say
)

// truncate returns the first max bytes of a text at most, in valid UTF-8: a collector refuses anything else, with all spans that
// come with it. Bytes that are not UTF-8 become U+FFFD, which is longer.
func truncate(text string, max int) string {
	return strings.ToValidUTF8(printable.Clip(text, max), "\uFFFD")
}

// spanName returns the name of a request's span: the method, and the subject if that is the name of a tool or prompt. URIs
// would make too many names.
func (s *Spans) spanName(method, subject string) string {
	name := s.redacted(method, maxNameBytes)
	if (method == "tools/call" || method == "prompts/get") && subject != "" {
		name += " " + s.redacted(subject, maxNameBytes)
	}
	return name
}

// requestAttributes returns what is known of a request when it passes. subject is the name of its tool or prompt, or its URI; "": it has
// none of these.
func (s *Spans) requestAttributes(p *observe.Passed, subject string) []attribute.KeyValue {
	c, m := p.Call, &p.Message
	all := make([]attribute.KeyValue, 0, 12)
	put := func(name attribute.Key, value string, max int) {
		if value != "" {
			all = append(all, name.String(s.redacted(value, max)))
		}
	}
	put("mcp.method.name", c.Method, maxNameBytes)
	put("jsonrpc.request.id", idText(c.ID), maxNameBytes)
	put("mcp_bridge.server", p.Session.Server, maxNameBytes)
	if isSession(p.Session) {
		put("mcp.session.id", p.Session.Name, maxNameBytes)
	}
	put("mcp.protocol.version", revisionOf(p), maxNameBytes)
	transport, protocol := p.Session.Network(p.Hop)
	put("network.transport", transport, maxNameBytes)
	put("network.protocol.name", protocol, maxNameBytes)
	switch c.Method {
	case "tools/call":
		put("gen_ai.operation.name", "execute_tool", maxNameBytes)
		put("gen_ai.tool.name", subject, maxNameBytes)
		if s.recordsContent {
			put("gen_ai.tool.call.arguments", string(m.Lookup("params", "arguments")), maxContentBytes)
		}
	case "prompts/get":
		put("gen_ai.prompt.name", subject, maxNameBytes)
	default:
		put("mcp.resource.uri", printable.RedactURL(subject, "REDACTED"), maxURIBytes)
	}
	return all
}

// resultAttributes appends to all the attributes that a span gets from p, the result of its request: the negotiated version, or, if
// spans record contents, the result of a tool.
func (s *Spans) resultAttributes(p *observe.Passed, all []attribute.KeyValue) []attribute.KeyValue {
	switch {
	case p.Call.Method == "initialize":
		if version, _ := jsonrpc.Text(p.Message.Lookup("result", "protocolVersion")); version != "" {
			all = append(all, attribute.String("mcp.protocol.version", truncate(version, maxNameBytes)))
		}
	case p.Call.Method == "tools/call" && s.recordsContent:
		all = append(all, attribute.String("gen_ai.tool.call.result", s.redacted(string(p.Message.Result()), maxContentBytes)))
	}
	return all
}

// idText returns an id as it is shown: a string without its quotes.
func idText(id jsonrpc.ID) string {
	if text, ok := jsonrpc.Text([]byte(id.String())); ok {
		return text
	}
	return id.String()
}

// isSession reports whether s is the session of a client or of a shared process. It is false for a request of 2026-07-28 over HTTP,
// which is alone, and has a Session to itself.
func isSession(s *observe.Session) bool { return !strings.HasPrefix(s.Name, "q") || s.Transport == "" }

// revisionOf returns the protocol version that a request names, or else that of its session; "": it is not known.
func revisionOf(p *observe.Passed) string {
	if p.Message.Meta() != nil {
		if version, _ := jsonrpc.Text(p.Message.Lookup("params", "_meta", "io.modelcontextprotocol/protocolVersion")); version != "" {
			return version
		}
	}
	return p.Session.Revision()
}
