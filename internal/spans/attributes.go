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
	maxName    = 128
	maxText    = 256
	maxURI     = 1024
	maxContent = 16 << 10
)

// truncate returns a text of that many bytes at most, in valid UTF-8: a collector refuses anything
// else, with all spans that come with it.
func truncate(text string, max int) string {
	return strings.ToValidUTF8(printable.Clip(text, max), "\uFFFD")
}

// nameOf returns the name of a request's span: the method, and the tool or prompt, which is its subject. A URI
// would make too many names.
func (s *Spans) nameOf(method, subject string) string {
	name := s.redacted(method, maxName)
	if (method == "tools/call" || method == "prompts/get") && subject != "" {
		name += " " + s.redacted(subject, maxName)
	}
	return name
}

// attributes returns what is known of a request when it passes. subject is its name of a tool or prompt, or URI.
func (s *Spans) attributes(p *observe.Passed, subject string) []attribute.KeyValue {
	c, m := p.Call, &p.Message
	all := make([]attribute.KeyValue, 0, 12)
	put := func(name attribute.Key, value string, max int) {
		if value != "" {
			all = append(all, name.String(s.redacted(value, max)))
		}
	}
	put("mcp.method.name", c.Method, maxName)
	put("jsonrpc.request.id", idText(c.ID), maxName)
	put("mcp_bridge.server", p.Session.Server, maxName)
	if isSession(p.Session) {
		put("mcp.session.id", p.Session.Name, maxName)
	}
	put("mcp.protocol.version", revision(p), maxName)
	transport, protocol := p.Session.Network(p.Hop)
	put("network.transport", transport, maxName)
	put("network.protocol.name", protocol, maxName)
	switch c.Method {
	case "tools/call":
		put("gen_ai.operation.name", "execute_tool", maxName)
		put("gen_ai.tool.name", subject, maxName)
		if s.recordsContent {
			put("gen_ai.tool.call.arguments", string(m.Lookup("params", "arguments")), maxContent)
		}
	case "prompts/get":
		put("gen_ai.prompt.name", subject, maxName)
	default:
		put("mcp.resource.uri", printable.URL(subject, "REDACTED"), maxURI)
	}
	return all
}

// resultAttributes appends what a result adds.
func (s *Spans) resultAttributes(p *observe.Passed, all []attribute.KeyValue) []attribute.KeyValue {
	switch {
	case p.Call.Method == "initialize":
		if version, _ := jsonrpc.Text(p.Message.Lookup("result", "protocolVersion")); version != "" {
			all = append(all, attribute.String("mcp.protocol.version", truncate(version, maxName)))
		}
	case p.Call.Method == "tools/call" && s.recordsContent:
		all = append(all, attribute.String("gen_ai.tool.call.result", s.redacted(string(p.Message.Result()), maxContent)))
	}
	return all
}

func idText(id jsonrpc.ID) string {
	if text, ok := jsonrpc.Text([]byte(id.String())); ok {
		return text
	}
	return id.String()
}

// isSession is false for a request of 2026-07-28 over HTTP, which is alone.
func isSession(s *observe.Session) bool { return !strings.HasPrefix(s.Name, "q") || s.Transport == "" }

// revision returns the protocol version of a request; "": it is not known.
func revision(p *observe.Passed) string {
	if p.Message.Meta() != nil {
		if version, _ := jsonrpc.Text(p.Message.Lookup("params", "_meta", "io.modelcontextprotocol/protocolVersion")); version != "" {
			return version
		}
	}
	return p.Session.Revision()
}
