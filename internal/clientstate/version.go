package clientstate

import (
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// NegotiatedVersion is the protocol revision that a session has negotiated, as seen by
// a transport that has the session's client at the other end: what may be on
// the wire depends on it. The zero NegotiatedVersion knows nothing yet. It may be used
// by many goroutines.
type NegotiatedVersion struct{ text atomic.Pointer[string] }

// Note looks at a message on its way to the client: the answer to initialize
// says the revision. Other messages cost next to nothing.
func (r *NegotiatedVersion) Note(m jsonrpc.Message) {
	if m.Kind() == jsonrpc.Response && r.text.Load() == nil {
		r.note(m)
	}
}

func (r *NegotiatedVersion) note(m jsonrpc.Message) {
	if version, _ := jsonrpc.Text(m.Lookup("result", "protocolVersion")); version != "" {
		r.text.Store(&version)
	}
}

// String returns the revision, such as "2025-06-18"; "" before initialize was answered.
func (r *NegotiatedVersion) String() string {
	if text := r.text.Load(); text != nil {
		return *text
	}
	return ""
}

// Batches reports whether the client may send arrays of messages.
func (r *NegotiatedVersion) Batches() bool { return jsonrpc.HasBatches(r.String()) }
