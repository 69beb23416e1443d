package era

import (
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// MaxListen is how many bytes of a subscriptions/listen are kept at most, as long as
// it is open.
const MaxListen = 64 << 10

// MaxResources is how many resources one subscriptions/listen may name.
const MaxResources = 1000

// NotAcknowledged is the text of the error in place of a subscription that the
// server does not acknowledge (MI21).
const NotAcknowledged = "the server does not acknowledge subscriptions/listen"

// KeptListen returns what has to be kept of a subscriptions/listen as long as it is
// open, to open it again: of one that is longer than MaxListen, its notifications
// and its _meta only. It refuses one of which they would be longer, too.
func KeptListen(m jsonrpc.Message) (kept jsonrpc.Message, _ *Refusal) {
	if m.Size() <= MaxListen {
		return m, nil
	}
	filter, meta := m.Lookup("params", "notifications"), m.Meta()
	if len(filter)+len(meta) > MaxListen {
		return kept, InvalidParams("notifications and _meta of a subscriptions/listen must not have more than " + strconv.Itoa(MaxListen) + " bytes")
	}
	params := []byte{'{'}
	if meta != nil {
		params = shape.AppendMember(params, "_meta", meta)
	}
	if filter != nil {
		params = shape.AppendMember(params, "notifications", filter)
	}
	return jsonrpc.NewRequest(m.ID(), m.Method(), append(params, '}')), nil
}
