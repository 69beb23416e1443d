package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// isModern reports whether a message is served as one of 2026-07-28, without a session: it claims to be
// modern, or it is a request that only 2026-07-28 has. The latter may lack the _meta that
// it needs, and is refused then (MI7).
func isModern(m jsonrpc.Message) bool {
	if m.Kind() == jsonrpc.Request && (m.Method() == "server/discover" || m.Method() == "subscriptions/listen") {
		return true
	}
	return era.IsModernMessage(m)
}

// serveModern serves one request of 2026-07-28. It relies on nothing but the request itself (MI23).
func (s *session) serveModern(m jsonrpc.Message) {
	req := &modernRequest{session: s, id: m.ID(), method: m.Method(), params: m.Params(), meta: era.MetaOf(m)}
	s.mu.Lock()
	used := s.isIDInUse(req.id)
	s.mu.Unlock()
	if used {
		req.reply(nil, errIDInUse)
		return
	}
	if refusal := req.refusal(); refusal != nil {
		s.send(refusal.Response(req.id))
		return
	}
	switch {
	case req.method == "server/discover":
		req.reply(s.discover())
	case req.method == "subscriptions/listen":
		if err := s.listen(req.id, req.params); err != nil {
			req.reply(nil, err)
		}
	default:
		if err := req.readRetry(); err != nil {
			req.reply(nil, err)
			return
		}
		s.serve(m, req)
	}
}

// refusal returns why the request is refused before its method runs: its _meta is wrong, or its method is unknown or was
// removed. nil: it is not refused.
func (f *modernRequest) refusal() *era.Refusal {
	if refusal := f.meta.Check(era.Auto); refusal != nil {
		return refusal
	}
	_, known := methods[f.method]
	if f.method == "server/discover" || f.method == "subscriptions/listen" || known && !era.IsRemovedMethod(f.method) {
		return nil
	}
	return era.MethodNotFound(f.method)
}

// discover returns the result of server/discover: supported versions, capabilities and instructions.
func (s *session) discover() (any, error) {
	return struct {
		Versions     []string `json:"supportedVersions"`
		Capabilities any      `json:"capabilities"`
		Instructions string   `json:"instructions"`
	}{era.Auto.Versions(), capabilities, instructions}, nil
}

// modernRequest is a request of 2026-07-28. It says itself who the client is. If the client
// has to be asked, the request is answered with the questions (input_required), and
// the client sends it again with the answers.
type modernRequest struct {
	*session            // serves the connection that the request came over
	id       jsonrpc.ID // the request's id
	method   string     // the request's method
	params   []byte     // the params of the request, raw
	meta     era.Meta   // the _meta of the request, which says who the client is

	state     requestState               // what the earlier rounds of this request have brought; empty in the first round
	binding   string                     // what its requestState is bound to (requestBinding)
	responses map[string]json.RawMessage // the answers in this round (inputResponses), by the Key of their Question; nil: there are none
}

// requestState is what the member requestState of results and retries holds, sealed: all that is known of a request whose
// client was asked for something. The client can neither read nor change it, and can use it for this request only. It may use it
// twice, which does no harm here.
type requestState struct {
	Expires int64                      `json:"expires"` // seconds since 1970
	Waiting []string                   `json:"waiting"` // keys of the questions that the next round is to answer
	Answers map[string]json.RawMessage `json:"answers"` // the answers of all rounds so far, by the keys of the questions
}

// stateLifetime is how long after it was made a requestState is accepted.
const stateLifetime = 10 * time.Minute

// requestBinding returns a text that is the same for a request and its retries, however they are spelled,
// and differs for requests that mean something else.
func requestBinding(method string, params []byte) string {
	params = jsonrpc.Without(params, "_meta", "inputResponses", "requestState")
	var v any
	dec := json.NewDecoder(bytes.NewReader(params))
	dec.UseNumber()
	if dec.Decode(&v) == nil {
		params, _ = json.Marshal(v) // with the keys in order
	}
	sum := sha256.Sum256(params)
	return method + " " + string(sum[:])
}

// seal returns f.state as text, sealed and valid for stateLifetime: the requestState for the round after this one.
func (f *modernRequest) seal() string {
	f.state.Expires = time.Now().Add(stateLifetime).Unix()
	raw, _ := json.Marshal(f.state) // the answers were read as JSON
	return f.sealer.Bind(f.binding, string(raw))
}

// unseal reads a sealed requestState into f.state. It is an error if it was not made in this session, for this request, or is too old.
func (f *modernRequest) unseal(text string) error {
	raw, err := f.sealer.Unbind(f.binding, text)
	if err != nil || json.Unmarshal([]byte(raw), &f.state) != nil || time.Now().Unix() >= f.state.Expires {
		return invalidParams("invalid or expired requestState")
	}
	return nil
}

// client returns what the client says of itself in the _meta of the request.
func (f *modernRequest) client() clientInfo {
	c := clientInfo{Revision: f.meta.Revision(), Info: f.meta.ClientInfo, Capabilities: map[string]json.RawMessage{}}
	for member := range jsonrpc.Members(f.meta.Capabilities) {
		c.Capabilities[member.Key] = member.Value
	}
	return c
}

// wantsLog reports whether the request takes log messages of a level, an index of era.LogLevels. Without logLevel in its _meta it
// takes none (MI18).
func (f *modernRequest) wantsLog(level int) bool {
	return f.meta.LogLevel != nil && level >= era.LogRank(f.meta.LogLevel)
}

// inputRequired is the error that ends a round of a modern request in which something was asked. reply answers with an input_required result then.
type inputRequired struct {
	questions []Question // the questions that the client is to answer in the next round
	state     string     // the sealed requestState; "": the result has none
}

// Error returns a fixed text, which no client sees.
func (e *inputRequired) Error() string { return "the client is to answer first" }

// readRetry reads requestState and inputResponses, which a client sends when it retries a request with its answers, into f. In
// the first round there are none. It is an error if they are not valid.
func (f *modernRequest) readRetry() error {
	var p struct {
		State     *string         `json:"requestState"`
		Responses json.RawMessage `json:"inputResponses"`
	}
	if err := decode(f.params, &p); err != nil {
		return err
	}
	f.binding = requestBinding(f.method, f.params)
	f.state.Answers = map[string]json.RawMessage{}
	if p.State != nil {
		if err := f.unseal(*p.State); err != nil {
			return err
		}
	}
	if p.Responses != nil && (json.Unmarshal(p.Responses, &f.responses) != nil || f.responses == nil) {
		return invalidParams("inputResponses must be an object")
	}
	return nil
}

// ask returns the answers that this and earlier rounds have brought. If some are missing, it returns an *inputRequired that asks
// for them. Answers that nobody asked for are ignored.
func (f *modernRequest) ask(_ context.Context, questions []Question) ([]json.RawMessage, error) {
	var answers []json.RawMessage
	var unanswered []Question
	stateless := false
	for _, q := range questions {
		stateless = stateless || q.Stateless
		answer, known := f.state.Answers[q.Key]
		if response, ok := f.responses[q.Key]; ok && !known && (q.Stateless || slices.Contains(f.state.Waiting, q.Key)) {
			if !isAnswerTo(q.Method, response) {
				return nil, invalidParams("the answer to " + q.Key + " in inputResponses is none to " + q.Method)
			}
			answer, known = response, true
			f.state.Answers[q.Key] = response
		}
		if !known {
			unanswered = append(unanswered, q)
		}
		answers = append(answers, answer)
	}
	switch {
	case len(unanswered) == 0:
		return answers, nil
	case stateless: // answers are not remembered, so all questions are asked again
		return nil, &inputRequired{questions: questions}
	}
	f.state.Waiting = nil
	for _, q := range unanswered {
		f.state.Waiting = append(f.state.Waiting, q.Key)
	}
	return nil, &inputRequired{unanswered, f.seal()}
}

// isAnswerTo reports whether an answer has the shape of a result of method, the Method of a Question.
func isAnswerTo(method string, answer json.RawMessage) bool {
	var a struct {
		Action  string          `json:"action"`
		Role    string          `json:"role"`
		Model   *string         `json:"model"`
		Content json.RawMessage `json:"content"`
		Roots   []any           `json:"roots"`
	}
	if json.Unmarshal(answer, &a) != nil {
		return false
	}
	switch method {
	case "elicitation/create":
		return a.Action == "accept" || a.Action == "decline" || a.Action == "cancel"
	case "sampling/createMessage":
		return a.Role != "" && a.Model != nil && a.Content != nil
	}
	return a.Roots != nil // roots/list
}

// reply answers the request: with result, to which it adds what modern results have (resultType, caching, serverInfo), or with
// err if that is not nil; an *inputRequired becomes a result that asks its questions.
func (f *modernRequest) reply(result any, err error) {
	var inputErr *inputRequired
	kind := "complete"
	if errors.As(err, &inputErr) {
		kind = "input_required"
		result, err = inputErr.result(), nil
	}
	raw, err := encodeResult(f.method, result, err)
	if err != nil {
		f.respond(f.id, nil, modernError(err))
		return
	}
	raw = jsonrpc.With(raw, "resultType", jsonrpc.Quote(kind))
	if kind == "complete" && era.IsCacheable(f.method) { // MI16
		ttl := "60000"
		if f.method == "tools/list" || f.method == "prompts/list" {
			ttl = "0" // the tool "notify" says so at any time that they have changed
		}
		raw = jsonrpc.With(jsonrpc.With(raw, "ttlMs", []byte(ttl)), "cacheScope", []byte(`"public"`))
	}
	f.respond(f.id, f.withServerInfo(raw), nil)
}

// withServerInfo returns a result, which is a JSON object, with serverInfo added to its _meta (MI17).
func (s *session) withServerInfo(result []byte) []byte {
	info, _ := encode(s.srv.info()) // strings: it can be encoded
	for member := range jsonrpc.Members(result) {
		if member.Key == "_meta" {
			return jsonrpc.With(result, "_meta", jsonrpc.With(member.Value, era.KeyServerInfo, info))
		}
	}
	return jsonrpc.With(result, "_meta", jsonrpc.With([]byte("{}"), era.KeyServerInfo, info))
}

// result returns the result that asks the client the questions: inputRequests and requestState. resultType is not in it yet.
func (e *inputRequired) result() any {
	type request struct {
		Method string `json:"method"`
		Params any    `json:"params"`
	}
	requests := map[string]request{}
	for _, q := range e.questions {
		requests[q.Key] = request{q.Method, q.Params}
	}
	return struct {
		Requests map[string]request `json:"inputRequests,omitempty"`
		State    string             `json:"requestState,omitempty"`
	}{requests, e.state}
}

// modernError returns err with the code that 2026-07-28 has for it, where that differs from the legacy one (J10).
func modernError(err error) error {
	var missing *missingCapability
	var e *rpcError
	switch {
	case errors.As(err, &missing):
		return &rpcError{code: era.CodeMissingCapability, message: missing.Error(), data: missing.data}
	case errors.As(err, &e) && e.code == era.CodeResourceNotFound:
		return &rpcError{code: jsonrpc.CodeInvalidParams, message: e.message, data: e.data}
	}
	return err
}
