package legacysse

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse/internal/wire"
)

// ServeMessage takes what a client POSTs: one message, or a batch where the
// session's revision has them. It answers 202 when the server has taken all of it, but
// for a last message that is the next one for the server. Answers come on the event
// stream (SS3).
//
// What is wrong is looked for in the order of docs/rules.md, LI, except that
// the session is looked up before the body is read: strangers send none.
func (h *Handler) ServeMessage(w http.ResponseWriter, r *http.Request) {
	if r = h.admitRequest(w, r); r == nil {
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, r, "LI3", http.StatusMethodNotAllowed, jsonrpc.ID{}, "method "+r.Method+" is not allowed here; use POST")
		return
	}
	if r.ContentLength > int64(h.bodies.MaxBytes) {
		h.bodies.Refuse(w, r, httpserve.ErrTooLarge)
		return
	}
	if !httpserve.IsJSON(r.Header) {
		refuse(w, r, "LI5", http.StatusUnsupportedMediaType, jsonrpc.ID{}, httpserve.NotJSONReason(r.Header))
		return
	}
	s := h.namedSession(w, r)
	if s == nil {
		return
	}
	share := h.bodies.NewMemory()
	defer share.Free()
	body, err := share.Read(r, h.bodies.MaxBytes)
	if err != nil {
		h.bodies.Refuse(w, r, err)
		return
	}
	messages, replies, ok := h.decode(w, r, s, body)
	if !ok {
		return
	}
	if err := s.passAllToServer(r.Context(), messages, replies, share); err != nil {
		refuse(w, r, "SS3", http.StatusNotFound, jsonrpc.ID{}, noSuchSessionText)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// checkAuthorized reports whether the sender of r may send all of these messages. If not, it answers
// the request.
func (h *Handler) checkAuthorized(w http.ResponseWriter, r *http.Request, messages []jsonrpc.Message) bool {
	a := h.opts.Guard.Authenticator
	if a == nil {
		return true
	}
	no := a.Authorize(w.Header(), r, messages...)
	if no != nil {
		h.logRefused(r, no.Reason)
		refuse(w, observe.WithCause(r, no.Cause), no.Rule, no.Status, firstRequestID(messages), no.Reason)
	}
	return no == nil
}

// firstRequestID returns the id of the first request among messages; the zero ID if there is none.
func firstRequestID(messages []jsonrpc.Message) jsonrpc.ID {
	for _, m := range messages {
		if m.Kind() == jsonrpc.Request {
			return m.ID()
		}
	}
	return jsonrpc.ID{}
}

// noSuchSessionText is the error text for a POST whose sessionId names no session of the client.
const noSuchSessionText = "there is no such session (it ends with its event stream); begin anew with a GET"

// namedSession returns the session that a request names in its query. nil: there is none, and
// the request was answered. A session whose token has expired, and that only finishes its
// calls, does not count.
func (h *Handler) namedSession(w http.ResponseWriter, r *http.Request) *session {
	id := sessionID(r.URL)
	if id == "" {
		refuse(w, r, "SS3", http.StatusBadRequest, jsonrpc.ID{}, "the query must have one sessionId, as the endpoint event has it; begin with a GET of the event stream")
		return nil
	}
	s := h.findSession(r, id)
	if s == nil || s.taking.Err() != nil {
		refuse(w, r, "SS3", http.StatusNotFound, jsonrpc.ID{}, noSuchSessionText)
		return nil
	}
	return s
}

// sessionID returns the sessionId of a query; "" if there is none, or more than one.
func sessionID(u *url.URL) string {
	// A query that is as the endpoint event has it need not be taken apart.
	if id, ok := strings.CutPrefix(u.RawQuery, "sessionId="); ok && !strings.ContainsAny(id, "&;%+") {
		return id
	}
	if ids := u.Query()["sessionId"]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// decode returns the messages in a body, and the bridge's own answers, for the event stream, to what
// is no message or is of 2026-07-28. ok is false if all of the body is refused: the request was answered.
func (h *Handler) decode(w http.ResponseWriter, r *http.Request, s *session, body []byte) (messages, ownReplies []jsonrpc.Message, ok bool) {
	messages, faults := jsonrpc.Decode(body, s.revision.AllowsBatches(), h.opts.MaxBatch, h.opts.MaxDepth)
	// Nothing of a batch that is refused is taken: what was to be an answer to the server may come again.
	if !h.checkAuthorized(w, r, messages) {
		return nil, nil, false
	}
	messages, faults = s.convertBrokenAnswers(messages, faults)
	if len(messages) == 0 && len(faults) == 1 {
		httpserve.WriteError(w, r, "J4", http.StatusBadRequest, faults[0].Code, faults[0].ID, faults[0].Message)
		return nil, nil, false
	}
	for _, fault := range faults {
		if reply, ok := fault.Reply(); ok {
			ownReplies = append(ownReplies, reply)
		}
	}
	legacy := messages[:0]
	var id jsonrpc.ID // of the first request, for errors
	for _, m := range messages {
		if no, modern := refusalOfModern(m); modern {
			ownReplies = append(ownReplies, no)
			continue
		}
		legacy = append(legacy, httpserve.WithTraceContext(m, r.Header))
		if id.IsZero() && m.Kind() == jsonrpc.Request {
			id = m.ID()
		}
	}
	// The body says more than the header: of a request of another era it is
	// told on the stream.
	if len(legacy) > 0 || len(messages) == 0 {
		if text := versionProblem(r.Header); text != "" {
			refuse(w, r, "LI24", http.StatusBadRequest, id, text)
			return nil, nil, false
		}
	}
	return legacy, ownReplies, true
}

// convertBrokenAnswers takes those faults out that were meant as answers to requests of the server, and
// appends an error response for the server to messages for each. The client is not told of them: it
// could take that for the answer to a request of its own.
func (s *session) convertBrokenAnswers(messages []jsonrpc.Message, faults []*jsonrpc.Error) ([]jsonrpc.Message, []*jsonrpc.Error) {
	others := faults[:0]
	for _, fault := range faults {
		if !s.serverRequests.WasMeantAsResponse(fault) {
			others = append(others, fault)
			continue
		}
		text := "the client's answer was not valid JSON-RPC: " + fault.Message
		messages = append(messages, jsonrpc.NewError(fault.ID, jsonrpc.CodeInternalError, text, nil))
	}
	return messages, others
}

// versionProblem returns, in words, what is wrong with the MCP-Protocol-Version header (SS8); "":
// nothing is, or there is none.
func versionProblem(h http.Header) string {
	switch v := h[wire.HeaderVersion]; {
	case len(v) == 0 || len(v) == 1 && (v[0] == "" || isKnownVersion(v[0])):
		return ""
	case len(v) > 1:
		return "the header MCP-Protocol-Version may be sent once"
	}
	return "unsupported MCP-Protocol-Version; supported: " + version2024_11_05 + ", " + version2025_03_26 + ", " + wire.Version2025_06_18 + ", " + version2025_11_25
}

// codeUnsupportedVersion is the code of the error that a request names a revision that is not served;
// the error's data lists those that are (revision 2026-07-28).
const codeUnsupportedVersion = -32022

// metaVersion is the member of _meta in which a modern request names its revision.
const metaVersion = "io.modelcontextprotocol/protocolVersion"

// refusalOfModern returns the answer to a request whose _meta names a revision that is not
// served. Such a revision (2026-07-28 or later) has no sessions, and this transport has
// nothing else (SS9). modern is false for any other message.
func refusalOfModern(m jsonrpc.Message) (no jsonrpc.Message, modern bool) {
	if m.Kind() != jsonrpc.Request || !bytes.Contains(m.Params(), []byte(metaVersion)) {
		return jsonrpc.Message{}, false
	}
	raw := m.Lookup("params", "_meta", metaVersion)
	var claim string
	if raw == nil || json.Unmarshal(raw, &claim) != nil || isKnownVersion(claim) {
		return jsonrpc.Message{}, false
	}
	data := `{"supported":["` + version2024_11_05 + `","` + version2025_03_26 + `","` + wire.Version2025_06_18 + `","` + version2025_11_25 + `"],"requested":` + string(raw) + `}`
	return jsonrpc.NewError(m.ID(), codeUnsupportedVersion,
		"HTTP+SSE has no requests without a session; begin with initialize, or use Streamable HTTP", []byte(data)), true
}

// passAllToServer queues ownReplies, the bridge's own answers, for the client, and then
// passes the messages to the server. The error says that the session takes no more, or
// that ctx is done.
func (s *session) passAllToServer(ctx context.Context, messages, ownReplies []jsonrpc.Message, share *httpserve.BodyMemory) error {
	for _, m := range ownReplies {
		if err := s.Send(ctx, m); err != nil {
			return err
		}
	}
	for i, m := range messages {
		var held *budget.Share
		if i == len(messages)-1 { // until then all of the body is needed
			held = share.Detach()
		}
		if err := s.offerAndWait(ctx, m, held); err != nil {
			held.ReleaseAll()
			return err
		}
	}
	return nil
}
