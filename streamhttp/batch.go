package streamhttp

import (
	"net/http"
	"slices"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// serveBatch takes an array of messages, which is part of revision 2025-03-26
// alone (LI8 to LI12).
func (h *Handler) serveBatch(w http.ResponseWriter, r *http.Request, body []byte, share *share) {
	parts, err := jsonrpc.SplitBatch(body, h.opts.MaxBatch)
	if err != nil {
		e := asError(err)
		writeError(w, r, http.StatusBadRequest, e.Code, e.ID, e.Message)
		return
	}
	var messages, failed []jsonrpc.Message
	for _, part := range parts {
		m, err := jsonrpc.Parse(part)
		if err != nil {
			e := asError(err)
			id := e.ID
			if id.IsZero() {
				id = jsonrpc.NullID
			}
			failed = append(failed, jsonrpc.NewError(id, e.Code, e.Message, nil))
			continue
		}
		if m.Method() == "initialize" {
			refuseID(w, r, http.StatusBadRequest, jsonrpc.ID{}, "initialize must not be part of a batch")
			return
		}
		messages = append(messages, m)
	}
	s := h.find(w, r, jsonrpc.ID{})
	if s == nil {
		return
	}
	s.begin()
	defer s.finish()
	if v := s.revision(); v != version2025_03_26 {
		refuseID(w, r, http.StatusBadRequest, jsonrpc.ID{}, "a batch is no message of revision "+v+"; POST the messages one by one")
		return
	}
	requests := onlyRequests(messages)
	switch {
	case len(requests) > 0:
		p := &post{w: w, r: r, s: s, share: share}
		for _, m := range requests {
			p.batch = append(p.batch, m.ID())
		}
		h.serveRequests(p, messages, requests, failed)
	case len(failed) > 0:
		if !h.passAll(w, r, s, messages) {
			return
		}
		w.Header()["Content-Type"] = valueJSON
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(array(failed))
	default:
		h.serveOneWay(w, r, s, messages)
	}
}

func onlyRequests(messages []jsonrpc.Message) []jsonrpc.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m jsonrpc.Message) bool { return m.Kind() != jsonrpc.Request })
}

func array(messages []jsonrpc.Message) []byte {
	body := []byte{'['}
	for i, m := range messages {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, m.Bytes()...)
	}
	return append(body, ']')
}

// inOrder sorts responses as their requests stood in the batch; the bridge's
// own errors about what was no request come last.
func inOrder(events []event, requests []jsonrpc.ID) []event {
	place := make(map[jsonrpc.ID]int, len(requests))
	for i, id := range requests {
		place[id] = i
	}
	at := func(e event) int {
		if m, err := jsonrpc.Parse(e.line); err == nil {
			if i, ok := place[m.ID()]; ok {
				return i
			}
		}
		return len(requests)
	}
	slices.SortStableFunc(events, func(a, b event) int { return at(a) - at(b) })
	return events
}

// prepend puts the bridge's own answers on a stream before the server's.
func (s *session) prepend(st *stream, failed []jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range failed {
		st.push(m)
	}
}
