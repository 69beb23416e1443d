package streamhttp

import (
	"net/http"
	"slices"

	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// serveBatch takes an array of messages, which is part of revision 2025-03-26
// alone (LI8 to LI12).
func (h *Handler) serveBatch(w http.ResponseWriter, r *http.Request, body []byte, share *httpserve.BodyMemory) {
	messages, errorResponses, ok := h.parseBatch(w, r, body)
	if !ok || h.refuseModernBatch(w, r, messages) || !h.checkAuthorized(w, r, jsonrpc.ID{}, messages...) {
		return
	}
	if h.opts.Stateless {
		h.serveStatelessBatch(w, r, messages, errorResponses, share)
		return
	}
	s := h.findSession(w, r, jsonrpc.ID{})
	if s == nil {
		return
	}
	s.beginExchange()
	defer s.endExchange()
	if !checkBatch(w, r, s.revision()) {
		return
	}
	requests := onlyRequests(messages)
	switch {
	case len(requests) > 0:
		h.serveRequests(&post{w: w, r: r, s: s, share: share, batchIDs: requestIDs(requests)}, messages, requests, errorResponses)
	case len(errorResponses) > 0:
		if h.passAllToServer(w, r, s, messages, share) {
			refuseInvalidBatch(w, r, errorResponses)
		}
	default:
		h.serveOneWay(w, r, s, messages, share)
	}
}

// parseBatch returns the messages in an array, and an error response for each element
// that is no message. ok is false if the whole array was refused: the request is answered.
func (h *Handler) parseBatch(w http.ResponseWriter, r *http.Request, body []byte) (messages, errorResponses []jsonrpc.Message, ok bool) {
	parts, err := jsonrpc.SplitBatch(body, h.opts.MaxBatch)
	if err != nil {
		e := asError(err)
		httpserve.WriteError(w, r, "LI9", http.StatusBadRequest, e.Code, e.ID, e.Message)
		return nil, nil, false
	}
	for _, part := range parts {
		m, err := jsonrpc.ParseDepth(part, h.opts.MaxDepth)
		if err != nil {
			e := asError(err)
			id := e.ID
			if id.IsZero() {
				id = jsonrpc.NullID
			}
			errorResponses = append(errorResponses, jsonrpc.NewError(id, e.Code, e.Message, nil))
			continue
		}
		if m.Method() == "initialize" {
			refuseID(w, r, "LI9", http.StatusBadRequest, jsonrpc.ID{}, "initialize must not be part of a batch")
			return nil, nil, false
		}
		messages = append(messages, httpserve.WithTraceContext(m, r.Header))
	}
	return messages, errorResponses, true
}

// checkBatch reports whether the revision has batches. If it has none, it answers the request (LI8).
func checkBatch(w http.ResponseWriter, r *http.Request, revision string) bool {
	if jsonrpc.HasBatches(revision) {
		return true
	}
	refuseID(w, r, "LI8", http.StatusBadRequest, jsonrpc.ID{}, "a batch is no message of revision "+revision+"; POST the messages one by one")
	return false
}

// refuseInvalidBatch answers a batch in which nothing is a request, but some of it
// is no message at all: with status 400 and an array of errorResponses, one for each such element.
func refuseInvalidBatch(w http.ResponseWriter, r *http.Request, errorResponses []jsonrpc.Message) {
	observe.Refuse(w, r, "LI12", http.StatusBadRequest, "nothing in the batch is a request, and some of it is no message")
	w.Header()["Content-Type"] = valueJSON
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(jsonArray(errorResponses))
}

// requestIDs returns the ids of the requests, in order.
func requestIDs(requests []jsonrpc.Message) []jsonrpc.ID {
	ids := make([]jsonrpc.ID, len(requests))
	for i, m := range requests {
		ids[i] = m.ID()
	}
	return ids
}

// onlyRequests returns those of the messages that are requests, in order.
func onlyRequests(messages []jsonrpc.Message) []jsonrpc.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m jsonrpc.Message) bool { return m.Kind() != jsonrpc.Request })
}

// jsonArray returns the JSON array of the messages.
func jsonArray(messages []jsonrpc.Message) []byte {
	body := []byte{'['}
	for i, m := range messages {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, m.Bytes()...)
	}
	return append(body, ']')
}

// inRequestOrder sorts responses as their requests stood in the batch; the bridge's
// own errors about what was no request come last.
func inRequestOrder(events []event, requests []jsonrpc.ID) []event {
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
func (s *session) prepend(st *stream, errorResponses []jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range errorResponses {
		st.push(m)
	}
}
