package clientstate

import (
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// NegotiatedVersion is the protocol revision that a session has negotiated, as seen by
// a transport that has the session's client at the other end: what may be on
// the wire depends on it. The zero NegotiatedVersion knows nothing yet. It may be used
// by many goroutines.
type NegotiatedVersion struct {
	version atomic.Pointer[string] // the protocol version that was agreed on; nil: initialize was not answered yet
}

// NoteSent notes the revision if m, on its way to the client, is the answer to initialize. It is called
// with each message; the others cost next to nothing.
func (r *NegotiatedVersion) NoteSent(m jsonrpc.Message) {
	if m.Kind() == jsonrpc.Response && r.version.Load() == nil {
		r.noteInitializeResult(m)
	}
}

// noteInitializeResult notes the revision if the response m has one in its result.
func (r *NegotiatedVersion) noteInitializeResult(m jsonrpc.Message) {
	if version, _ := jsonrpc.Text(m.Lookup("result", "protocolVersion")); version != "" {
		r.version.Store(&version)
	}
}

// String returns the revision, such as "2025-06-18"; "" before initialize was answered.
func (r *NegotiatedVersion) String() string {
	if text := r.version.Load(); text != nil {
		return *text
	}
	return ""
}

// AllowsBatches reports whether the client may send arrays of messages: the negotiated revision is 2025-03-26. It is false before initialize
// was answered.
func (r *NegotiatedVersion) AllowsBatches() bool { return jsonrpc.HasBatches(r.String()) }
