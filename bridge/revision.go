package bridge

import (
	"encoding/json"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Revision is the protocol revision that a session has negotiated, as seen by
// a transport that has the session's client at the other end: what may be on
// the wire depends on it. The zero Revision knows nothing yet. It may be used
// by many goroutines.
type Revision struct{ text atomic.Pointer[string] }

// Note looks at a message on its way to the client: the answer to initialize
// says the revision. Other messages cost next to nothing.
func (r *Revision) Note(m jsonrpc.Message) {
	if m.Kind() == jsonrpc.Response && r.text.Load() == nil {
		r.note(m)
	}
}

func (r *Revision) note(m jsonrpc.Message) {
	var version string
	if raw := m.Lookup("result", "protocolVersion"); raw != nil && json.Unmarshal(raw, &version) == nil && version != "" {
		r.text.Store(&version)
	}
}

// String returns the revision, such as "2025-06-18"; "" before initialize was answered.
func (r *Revision) String() string {
	if text := r.text.Load(); text != nil {
		return *text
	}
	return ""
}

// Batches reports whether the client may send arrays of messages: only
// revision 2025-03-26 has them (J7).
func (r *Revision) Batches() bool { return r.String() == "2025-03-26" }
