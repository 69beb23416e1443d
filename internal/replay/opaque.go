package replay

import "github.com/mcp-bridge/mcp-bridge/jsonrpc"

// opaqueFields are where texts stand that a server makes up and its client only hands back: cursors, states, ids of tasks. Play
// hands back what the server says now, and does not report that this is another text than in the recording.
var opaqueFields = []struct {
	resultPath []string // where it stands in a result
	param      string   // where it comes back, in params
}{
	{[]string{"nextCursor"}, "cursor"},
	{[]string{"requestState"}, "requestState"},
	{[]string{"taskId"}, "taskId"},
	{[]string{"task", "taskId"}, "taskId"},
}

// learnOpaque adds the opaque texts in the answer to a call to newOpaqueTexts, by the texts that the recorded answer has in
// their place. It is called with mu held.
func (p *player) learnOpaque(c *call) {
	if c.request.answer == nil {
		return
	}
	for _, o := range opaqueFields {
		path := append([]string{"result"}, o.resultPath...)
		was, wasText := jsonrpc.Text(c.request.answer.m.Lookup(path...))
		is, isText := jsonrpc.Text(c.answer.Lookup(path...))
		if wasText && isText {
			p.newOpaqueTexts[o.param+" "+was] = is
		}
	}
}

// replaceOpaque returns a recorded message of the client in which opaque texts are replaced by those that the server has said
// in this run. It is called with mu held.
func (p *player) replaceOpaque(m jsonrpc.Message) jsonrpc.Message {
	for _, o := range opaqueFields {
		was, ok := jsonrpc.Text(m.Lookup("params", o.param))
		if is, known := p.newOpaqueTexts[o.param+" "+was]; ok && known && is != was {
			m = m.WithParams(jsonrpc.With(m.Params(), o.param, jsonrpc.Quote(is)))
		}
	}
	return m
}

// alignOpaque puts the opaque texts of want, a recorded answer, into got, the answer of this run, where both have one: so they
// do not count as a difference.
func alignOpaque(want, got map[string]any) {
	for _, o := range opaqueFields {
		w, i := objectAt(want["result"], o.resultPath[:len(o.resultPath)-1]), objectAt(got["result"], o.resultPath[:len(o.resultPath)-1])
		last := o.resultPath[len(o.resultPath)-1]
		wasText, ok := w[last].(string)
		if _, both := i[last].(string); ok && both {
			i[last] = wasText
		}
	}
}

// objectAt returns the object at a path of keys below v, a decoded value; nil: there is none.
func objectAt(v any, path []string) map[string]any {
	o, _ := v.(map[string]any)
	for _, key := range path {
		o, _ = o[key].(map[string]any)
	}
	return o
}
