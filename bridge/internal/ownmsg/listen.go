package ownmsg

import (
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// ListenEnd returns the messages that tell a client that its subscription id has ended, which the client itself has not
// cancelled (ST13): the result, and then the cancellation. Both have id as their Related.
func ListenEnd(id jsonrpc.ID) (result, cancelled jsonrpc.Message) {
	text := id.String()
	result = jsonrpc.NewResult(id, []byte(`{"resultType":"complete","_meta":{"`+era.KeySubscription+`":`+text+`}}`))
	return result.WithRelated(id), SubscriptionCancelled(id).WithRelated(id)
}

// SubscriptionCancelled returns the notification with which a server says that the subscription id is over.
func SubscriptionCancelled(id jsonrpc.ID) jsonrpc.Message {
	return jsonrpc.NewNotification(Cancelled, []byte(`{"requestId":`+id.String()+`}`))
}

// SubscriptionOf returns the id of the subscription that a notification belongs to (ST12); zero:
// none.
func SubscriptionOf(m jsonrpc.Message) jsonrpc.ID {
	id, _ := jsonrpc.ParseID(m.Lookup("params", "_meta", era.KeySubscription))
	return id
}

// WithSubscription returns m with id as that of its subscription, in params (of a notification)
// or result (of a response). Every other byte stays. If these, or the _meta in them, are no object, m is returned as it is.
func WithSubscription(m jsonrpc.Message, id jsonrpc.ID) jsonrpc.Message {
	in := "params"
	if m.Kind() == jsonrpc.Response {
		in = "result"
	}
	old := m.Bytes()
	at, end := find(old, in, "_meta", era.KeySubscription)
	if end == 0 {
		return insertSubscription(m, id)
	}
	raw := make([]byte, 0, len(old)-(end-at)+len(id.String()))
	raw = append(raw, old[:at]...)
	raw = append(raw, id.String()...)
	raw = append(raw, old[end:]...)
	changed, err := jsonrpc.Parse(raw)
	if err != nil { // cannot be: one value took the place of another
		return m
	}
	return changed.WithRelated(m.Related()).WithMark(m.Mark())
}

// insertSubscription returns m, which names no subscription yet, with id as that of its subscription; m itself if it
// has no place for that.
func insertSubscription(m jsonrpc.Message, id jsonrpc.ID) jsonrpc.Message {
	in, object := "params", m.Params()
	if m.Kind() == jsonrpc.Response {
		in, object = "result", m.Result()
	}
	meta := m.Lookup(in, "_meta")
	if isNoObject(object) || isNoObject(meta) {
		return m
	}
	object = jsonrpc.With(object, "_meta", jsonrpc.With(meta, era.KeySubscription, []byte(id.String())))
	if m.Kind() == jsonrpc.Response {
		return m.WithResult(object)
	}
	return m.WithParams(object)
}

// isNoObject reports whether a raw JSON value is not empty and no object.
func isNoObject(raw []byte) bool { return len(raw) > 0 && raw[0] != '{' }

// find returns where the value at a path of keys begins and ends in a raw JSON object; end is 0 if there is none. Of
// equal keys the last counts.
func find(object []byte, path ...string) (at, end int) {
	base := 0
	for _, key := range path {
		at, end = 0, 0
		for member := range jsonrpc.Members(object) {
			if member.Key == key {
				at, end = member.At, member.At+len(member.Value)
			}
		}
		if end == 0 {
			return 0, 0
		}
		object = object[at:end]
		base += at
	}
	return base, base + len(object)
}
