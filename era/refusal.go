package era

import (
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Codes of errors that 2026-07-28 defines.
const (
	CodeHeaderMismatch     = -32020
	CodeMissingCapability  = -32021 // data.requiredCapabilities
	CodeUnsupportedVersion = -32022 // data.supported, data.requested
	CodeResourceNotFound   = -32002 // legacy only (J10)
	CodeURLElicitation     = -32042 // 2025-11-25 only (J10)
)

// Refusal is why a request is not served.
type Refusal struct {
	Code int
	Text string
	Data []byte // raw JSON; nil: none
}

// Response is the error response that says so.
func (r *Refusal) Response(id jsonrpc.ID) jsonrpc.Message {
	return jsonrpc.NewError(id, r.Code, r.Text, r.Data)
}

// Check finds what is wrong with the meta of a modern request, in the order of
// MI10: what is missing (MI7), then the version (MI9), then the log level (MI18).
// nil: nothing.
func (m Meta) Check(served Eras) *Refusal {
	if _, ok := jsonrpc.Text(m.Version); !ok {
		return InvalidParams("params._meta needs " + KeyVersion + ", a string")
	}
	if len(m.Capabilities) == 0 || m.Capabilities[0] != '{' {
		return InvalidParams("params._meta needs " + KeyCapabilities + ", an object")
	}
	if v := m.Revision(); served == OnlyLegacy || !IsModern(v) {
		return Unsupported(served, v)
	}
	if m.LogLevel != nil && LogRank(m.LogLevel) < 0 {
		return InvalidParams("params._meta " + KeyLogLevel + " is no log level")
	}
	return nil
}

// InvalidParams is the Refusal of a request whose params are not as they must be.
func InvalidParams(text string) *Refusal {
	return &Refusal{Code: jsonrpc.CodeInvalidParams, Text: text}
}

// Unsupported refuses a version (MI9, ED5).
func Unsupported(served Eras, requested string) *Refusal {
	data := []byte(`{"supported":[`)
	text := "unsupported protocol version; supported: "
	for i, v := range served.Versions() {
		if i > 0 {
			data = append(data, ',')
			text += ", "
		}
		data = append(data, jsonrpc.Quote(v)...)
		text += v
	}
	data = append(data, `],"requested":`...)
	data = append(data, jsonrpc.Quote(requested)...)
	return &Refusal{Code: CodeUnsupportedVersion, Text: text, Data: append(data, '}')}
}

// NotFound refuses a method that there is not in 2026-07-28 (MI11).
func NotFound(method string) *Refusal {
	return &Refusal{Code: jsonrpc.CodeMethodNotFound, Text: "there is no method " + method + " in " + NewestModern}
}

// AnswerTo is what a client of 2026-07-28 says to a request of its server (ST10).
// That revision has none, but some servers ask all the same, and wait: a ping,
// by which a server finds out whether somebody is there, gets a result, and
// anything else is refused.
func AnswerTo(request jsonrpc.Message) jsonrpc.Message {
	if request.Method() == "ping" {
		return jsonrpc.NewResult(request.ID(), nil)
	}
	return NotFound(request.Method()).Response(request.ID())
}

// ModernCode returns what a modern client gets in place of a code that 2026-07-28
// does not leave to servers; ok is false if it does (J10).
func ModernCode(code int) (_ int, ok bool) {
	switch {
	case code == CodeResourceNotFound:
		return jsonrpc.CodeInvalidParams, true
	case code <= -32020 && code >= -32099:
		return jsonrpc.CodeInternalError, true
	}
	return code, false
}
