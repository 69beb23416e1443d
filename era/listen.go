package era

import (
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// MaxListen is how many bytes of a subscriptions/listen the bridge keeps while the
// subscription is open.
const MaxListen = 64 << 10

// MaxResources is how many resources one subscriptions/listen may name.
const MaxResources = 1000

// NotAcknowledged is the error text for a subscription if the server does not
// acknowledge subscriptions/listen (MI21).
const NotAcknowledged = "the server does not acknowledge subscriptions/listen"

// KeptListen returns the part of a subscriptions/listen that is kept while it is
// open, to open it again at another server. A request of up to MaxListen bytes is
// kept whole; of a longer one only notifications and _meta are kept. If these two
// are longer than MaxListen, the request is refused.
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
