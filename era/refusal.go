package era

import (
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Error codes that 2026-07-28 defines or has taken away.
const (
	CodeHeaderMismatch     = -32020 // HTTP headers say something else than the message
	CodeMissingCapability  = -32021 // the client lacks a capability; data.requiredCapabilities has it
	CodeUnsupportedVersion = -32022 // the protocol version is not served; data has it (requested) and those that are (supported)
	CodeResourceNotFound   = -32002 // there is no such resource; in legacy revisions only (J10)
	CodeURLElicitation     = -32042 // the user has to visit URLs first; in 2025-11-25 only (J10)
)

// Refusal is the error with which a request is answered.
type Refusal struct {
	Code int    // the JSON-RPC error code
	Text string // the error's message
	Data []byte // raw JSON; nil: none
}

// Response returns the error response.
func (r *Refusal) Response(id jsonrpc.ID) jsonrpc.Message {
	return jsonrpc.NewError(id, r.Code, r.Text, r.Data)
}

// Check returns the error for what is wrong with the meta of a modern request; nil: nothing is.
// It looks in the order of MI10: for missing members (MI7), at the version (MI9), at the log
// level (MI18). The only version that passes is 2026-07-28, and not even that if served is OnlyLegacy.
func (m Meta) Check(served Eras) *Refusal {
	if _, ok := jsonrpc.Text(m.Version); !ok {
		return InvalidParams("params._meta needs " + KeyVersion + ", a string")
	}
	if len(m.Capabilities) == 0 || m.Capabilities[0] != '{' {
		return InvalidParams("params._meta needs " + KeyCapabilities + ", an object")
	}
	if v := m.Revision(); served == OnlyLegacy || !IsModern(v) {
		return UnsupportedVersion(served, v)
	}
	if m.LogLevel != nil && LogRank(m.LogLevel) < 0 {
		return InvalidParams("params._meta " + KeyLogLevel + " is no log level")
	}
	return nil
}

// InvalidParams returns a Refusal with the code for invalid params (-32602) and this text.
func InvalidParams(text string) *Refusal {
	return &Refusal{Code: jsonrpc.CodeInvalidParams, Text: text}
}

// UnsupportedVersion returns the Refusal of a request with the protocol version requested, which
// is not served (MI9, ED5). It lists the versions of served.
func UnsupportedVersion(served Eras, requested string) *Refusal {
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

// MethodNotFound returns the Refusal of a method that 2026-07-28 does not have (MI11).
func MethodNotFound(method string) *Refusal {
	return &Refusal{Code: jsonrpc.CodeMethodNotFound, Text: "there is no method " + method + " in " + NewestModern}
}

// AnswerServerRequest returns how a modern client answers a request of its server (ST10).
// 2026-07-28 has no such requests, but some servers send them and wait. A ping,
// with which a server checks the connection, gets a result; other requests are
// refused.
func AnswerServerRequest(request jsonrpc.Message) jsonrpc.Message {
	if request.Method() == "ping" {
		return jsonrpc.NewResult(request.ID(), nil)
	}
	return MethodNotFound(request.Method()).Response(request.ID())
}

// ModernCode returns the error code that replaces a code of a legacy server (J10).
// ok is false if the code may stay: 2026-07-28 reserves only some codes.
func ModernCode(code int) (_ int, ok bool) {
	switch {
	case code == CodeResourceNotFound:
		return jsonrpc.CodeInvalidParams, true
	case code <= -32020 && code >= -32099:
		return jsonrpc.CodeInternalError, true
	}
	return code, false
}
