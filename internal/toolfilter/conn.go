package toolfilter

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A session is the filter's state for one Conn to a server.
type session struct {
	filter    *filter   // says which tools are hidden
	openLists openLists // its tools/list requests without an answer
}

// wrapServer returns the Conn to a server with the hidden tools taken out: of lists, and of what calls reach the server.
// What it costs for a message that is about no tool is a look at its method.
func (f *filter) wrapServer(server bridge.Conn) bridge.Conn {
	s := &session{filter: f}
	return bridge.Intercept(server, bridge.Hooks{Send: s.send, Receive: s.receive})
}

// send is bridge.Hooks.Send, for what the client sends. What would reach a hidden tool does not reach the
// server: a request is answered in its place, and anything else is an error.
func (s *session) send(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
	method := m.Method()
	if no := s.filter.checkClientMessage(&m, method); no != nil {
		return refuse(m, no)
	}
	switch method {
	case "tools/list":
		if m.Kind() == jsonrpc.Request {
			s.openLists.noteSent(m.ID())
		}
	case "notifications/cancelled":
		s.openLists.noteCancelled(m.CancelledID())
	}
	return m, jsonrpc.Message{}, nil
}

// refuse returns, in the form that Hooks.Send returns, what becomes of a client's message that is
// refused: a request is answered with an error, a response with an id goes to the server as an error response, and
// anything else is dropped with an error.
func refuse(m jsonrpc.Message, refusal *refusal) (out, reply jsonrpc.Message, refused error) {
	id := m.ID()
	switch {
	case m.Kind() == jsonrpc.Response && !id.IsZero() && id != jsonrpc.NullID:
		text := "the client's answer was refused: " + refusal.text
		return jsonrpc.NewError(id, jsonrpc.CodeInternalError, text, nil), jsonrpc.Message{}, nil
	case m.Kind() != jsonrpc.Request:
		return jsonrpc.Message{}, jsonrpc.Message{}, errors.New("refused: " + refusal.text)
	}
	return jsonrpc.Message{}, jsonrpc.NewError(id, refusal.code, refusal.text, nil), nil
}

// receive is bridge.Hooks.Receive: it takes the hidden tools out of the server's answers to tools/list.
func (s *session) receive(m *jsonrpc.Message) (reply *jsonrpc.Message) {
	if m.Kind() == jsonrpc.Response && s.openLists.mayAnswerList(m.ID()) {
		*m = s.filter.hideInAnswer(*m)
	}
	return nil
}

// A refusal says why a client's message does not reach the server: the code and the text of a
// JSON-RPC error.
type refusal struct {
	code int    // the code of the JSON-RPC error
	text string // the text of the JSON-RPC error, for the client
}

// checkClientMessage returns why a message must not reach the server, nil if it may.
func (f *filter) checkClientMessage(m *jsonrpc.Message, method string) *refusal {
	if name := misspelledEnvelopeKey(m); name != "" {
		return &refusal{jsonrpc.CodeInvalidRequest, misspelledKeyText(name)}
	}
	if method != "tools/call" {
		return nil
	}
	hasName := false
	for p := range m.ParamsObject().Members() {
		// Servers may disagree about which of several equal keys counts, and
		// some take Name for name. None of them may name a hidden tool.
		if !strings.EqualFold(p.Key, "name") {
			continue
		}
		name, ok := unquote(p.Value)
		switch {
		case !ok:
			return &refusal{jsonrpc.CodeInvalidParams, "the name of a tool is a string"}
		case len(name) > maxNameBytes:
			return &refusal{jsonrpc.CodeInvalidParams, fmt.Sprintf("the name of the tool is longer than %d bytes, which is the limit", maxNameBytes)}
		case !f.isVisibleName(name):
			return &refusal{jsonrpc.CodeInvalidParams, "Unknown tool: " + clipName(string(name))}
		}
		hasName = hasName || p.Key == "name"
	}
	if !hasName {
		return &refusal{jsonrpc.CodeInvalidParams, "tools/call needs the name of a tool"}
	}
	return nil
}

// envelopeKeys are the keys that a JSON-RPC message may have at its top.
var envelopeKeys = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// misspelledEnvelopeKey returns the JSON-RPC key ("id", "method" ...) that a key of m differs from
// by upper and lower case only; "": there is none. Some readers take the one for the other, so the
// message could mean something else to them than to us.
func misspelledEnvelopeKey(m *jsonrpc.Message) string {
	if !m.IsExtended() { // mostly so
		return ""
	}
	for key := range m.EnvelopeKeys() {
		if slices.Contains(envelopeKeys, key) {
			continue
		}
		for _, name := range envelopeKeys {
			if strings.EqualFold(key, name) {
				return name
			}
		}
	}
	return ""
}

// misspelledKeyText is the text of the error for a message that has a key which differs from name, a key of
// JSON-RPC, by upper and lower case only.
func misspelledKeyText(name string) string {
	return "a key of the message differs from \"" + name + "\" by upper and lower case only"
}

// clipName returns a name, to be repeated to the client who sent it: of one with more than 200 bytes, the first 200 at
// most, and "...".
func clipName(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return printable.Clip(name, most) + "..."
}

// unquote returns what a raw JSON string means; ok is false for any other value. Nothing is
// copied where nothing is escaped.
func unquote(value []byte) (name []byte, ok bool) {
	if len(value) >= 2 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1], true
	}
	decoded, ok := jsonrpc.Text(value)
	return []byte(decoded), ok
}
