package era

import (
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// MaxListen is how many bytes of a subscriptions/listen are kept at most, as long as
// it is open.
const MaxListen = 64 << 10

// KeptListen returns what has to be kept of a subscriptions/listen as long as it is
// open, to open it again: of one that is longer than MaxListen, its notifications
// and its _meta only. It refuses one of which they would be longer, too.
func KeptListen(m jsonrpc.Message) (kept jsonrpc.Message, _ *Refusal) {
	if m.Size() <= MaxListen {
		return m, nil
	}
	filter, meta := m.Lookup("params", "notifications"), m.Meta()
	if len(filter)+len(meta) > MaxListen {
		return kept, invalid("notifications and _meta of a subscriptions/listen must not have more than " + strconv.Itoa(MaxListen) + " bytes")
	}
	params := []byte{'{'}
	if meta != nil {
		params = appendMember(params, "_meta", meta)
	}
	if filter != nil {
		params = appendMember(params, "notifications", filter)
	}
	return jsonrpc.NewRequest(m.ID(), m.Method(), append(params, '}')), nil
}
