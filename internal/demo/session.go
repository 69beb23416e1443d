package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// latestLegacy is the revision that a client gets if it asks for one that is not legacy.
const latestLegacy = "2025-11-25"

// clientInfo is what the client told about itself in initialize, or in the _meta of a modern request.
type clientInfo struct {
	Revision     string                     `json:"protocolVersion"`      // as negotiated, or that of the modern request
	Info         json.RawMessage            `json:"clientInfo,omitempty"` // name, version and the rest, as sent
	Capabilities map[string]json.RawMessage `json:"capabilities"`         // the capabilities that the client has declared, by name
}

// rpcError is an error that becomes a JSON-RPC error response.
type rpcError struct {
	code    int    // the code of the response
	message string // the message of the response
	data    any    // the data of the response; nil: it has none
}

// Error returns the message.
func (e *rpcError) Error() string { return e.message }

// invalidParams returns an rpcError with the code of invalid params.
func invalidParams(message string) error {
	return &rpcError{code: jsonrpc.CodeInvalidParams, message: message}
}

// invalidRequest returns an rpcError with the code of an invalid request.
func invalidRequest(message string) error {
	return &rpcError{code: jsonrpc.CodeInvalidRequest, message: message}
}

// errIDInUse is the answer to a request whose id another request in progress has (J3).
var errIDInUse = invalidRequest("a request with this id is in progress")

// method says how a method is served that both eras have, or the legacy era alone. Either handle or job is set.
type method struct {
	handle func(s *session, params []byte) (any, error) // returns the result at once
	job    func(c *Call, params []byte) (any, error)    // returns the result, and runs in a goroutine of its own, as it can take long
}

// methods are the methods that are served, by name, but for those that only the modern era has.
var methods = map[string]method{
	"initialize":               {handle: (*session).initialize},
	"ping":                     {handle: func(*session, []byte) (any, error) { return struct{}{}, nil }},
	"logging/setLevel":         {handle: (*session).setLevel},
	"completion/complete":      {handle: (*session).complete},
	"tools/list":               {handle: (*session).listTools},
	"tools/call":               {job: (*Call).callTool},
	"prompts/list":             {handle: (*session).listPrompts},
	"prompts/get":              {job: (*Call).getPrompt},
	"resources/list":           {handle: (*session).listResources},
	"resources/templates/list": {handle: (*session).listTemplates},
	"resources/read":           {handle: (*session).readResource},
	"resources/subscribe":      {handle: (*session).subscribe},
	"resources/unsubscribe":    {handle: (*session).unsubscribe},
}

// dispatch handles one message from the client.
func (s *session) dispatch(m jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Response:
		s.handleResponse(m)
	case jsonrpc.Notification:
		s.handleNotification(m)
	case jsonrpc.Request:
		if isModern(m) {
			s.serveModern(m)
			return
		}
		req := &legacyRequest{s, m.ID(), m.Method()}
		if err := s.admit(m); err != nil {
			req.reply(nil, err)
			return
		}
		s.serve(m, req)
	}
}

// serve answers m, a request whose method is in methods: at once, or by a goroutine that it starts (method.job). req is
// m as its era shows it.
func (s *session) serve(m jsonrpc.Message, req eraRequest) {
	if method := methods[m.Method()]; method.handle != nil {
		req.reply(method.handle(s, m.Params()))
	} else {
		s.start(m, req, method.job)
	}
}

// admit returns why a legacy request is refused before its handler sees it: its id is in use, its method is unknown,
// or it does not fit in with initialize. nil: it is admitted.
func (s *session) admit(m jsonrpc.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	initialized := s.clientInfo.Revision != ""
	_, known := methods[m.Method()]
	switch {
	case s.isIDInUse(m.ID()):
		return errIDInUse
	case !known:
		return &rpcError{code: jsonrpc.CodeMethodNotFound, message: "method not found"}
	case m.Method() == "initialize" && initialized:
		return invalidRequest("initialize was already called")
	case m.Method() != "initialize" && m.Method() != "ping" && !initialized:
		return invalidRequest("initialize must be called first")
	}
	return nil
}

// isIDInUse reports whether a request with that id is in progress. The caller holds s.mu.
func (s *session) isIDInUse(id jsonrpc.ID) bool {
	_, called := s.calls[id]
	return called || s.listenIndex(id) >= 0
}

// handleNotification handles a notification of the client: a cancellation, or a change of its roots, which it answers with a log
// message. Others are ignored, as JSON-RPC wants it.
func (s *session) handleNotification(m jsonrpc.Message) {
	switch m.Method() {
	case "notifications/cancelled":
		if id := m.CancelledID(); !s.takeCall(id) { // which ends its context
			s.removeListen(id) // if the id is unknown, the answer was faster
		}
	case "notifications/roots/list_changed":
		if !isModern(m) && s.wantsLog(levelInfo) { // modern clients do not tell
			s.log(levelInfo, "roots", "the client says that its roots changed; the tool \"roots\" lists them")
		}
	}
}

// initialize answers initialize: it opens the legacy session, in the revision that was negotiated.
func (s *session) initialize(params []byte) (any, error) {
	var p clientInfo
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if p.Revision == "" {
		return nil, invalidParams("protocolVersion is missing")
	}
	p.Revision = negotiate(p.Revision)
	if p.Capabilities == nil {
		p.Capabilities = map[string]json.RawMessage{}
	}
	s.mu.Lock()
	s.clientInfo = p
	s.listens = slices.Insert(s.listens, 0, &listen{listenFilter: listenFilter{Tools: true, Prompts: true, Resources: true}})
	s.mu.Unlock()
	if s.srv.onNegotiated != nil {
		s.srv.onNegotiated(p.Revision)
	}
	return struct {
		ProtocolVersion string         `json:"protocolVersion"`
		Capabilities    any            `json:"capabilities"`
		ServerInfo      implementation `json:"serverInfo"`
		Instructions    string         `json:"instructions"`
	}{p.Revision, capabilities, s.srv.info(), instructions}, nil
}

// negotiate returns the revision that a legacy session gets: the one that the client asks for if it is a legacy one, else latestLegacy.
func negotiate(requested string) string {
	if era.IsLegacy(requested) {
		return requested
	}
	return latestLegacy
}

// capabilities are the capabilities that this server declares, in both eras.
var capabilities = map[string]map[string]bool{
	"completions": {},
	"logging":     {},
	"prompts":     {"listChanged": true},
	"resources":   {"listChanged": true, "subscribe": true},
	"tools":       {"listChanged": true},
}

// implementation is what this server says about itself (serverInfo).
type implementation struct {
	Name    string `json:"name"`    // the name of the server, for programs
	Title   string `json:"title"`   // the name of the server, for people
	Version string `json:"version"` // the version of the server
}

// info returns the serverInfo, with the version that Server.Version says, or else that of the build.
func (srv *Server) info() implementation {
	version := srv.Version
	if version == "" {
		version = buildinfo.Version()
	}
	return implementation{"mcp-bridge-demo", "mcp-bridge demo server", version}
}

// instructions are the instructions for the client's model, in the results of initialize and server/discover.
const instructions = "A server to try clients and bridges with. Start with the tools \"echo\" and \"slow\"; " +
	"the tool \"session\" tells what this server knows about the client. Nothing here reads or changes " +
	"anything outside this process."

// can reports whether the client declared the capability, and the part of it unless part is "".
func (c clientInfo) can(capability, part string) bool {
	raw, ok := c.Capabilities[capability]
	if !ok || part == "" {
		return ok
	}
	var parts map[string]json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return false
	}
	_, ok = parts[part]
	return ok
}

const levelInfo = 1 // the level "info", with which a legacy session starts: its index in era.LogLevels

// wantsLog reports whether the legacy session takes log messages of that level.
func (s *session) wantsLog(level int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return level >= s.level
}

// log sends the client a log message (notifications/message), whether or not it wants the level. level is an index of era.LogLevels.
func (s *session) log(level int, logger string, data any) {
	s.notify("notifications/message", struct {
		Level  string `json:"level"`
		Logger string `json:"logger"`
		Data   any    `json:"data"`
	}{era.LogLevels[level], logger, data})
}

// setLevel answers logging/setLevel: it sets the level of the legacy session.
func (s *session) setLevel(params []byte) (any, error) {
	var p struct {
		Level string `json:"level"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	level := slices.Index(era.LogLevels, p.Level)
	if level < 0 {
		return nil, invalidParams("level must be one of " + strings.Join(era.LogLevels, ", "))
	}
	s.mu.Lock()
	s.level = level
	s.mu.Unlock()
	return struct{}{}, nil
}

// takeCall forgets a call, ends its context, and reports whether the call was in progress.
// Only who has taken a call may answer it. So it is answered once or, if a cancellation has taken it, never.
func (s *session) takeCall(id jsonrpc.ID) bool {
	s.mu.Lock()
	cancel, ok := s.calls[id]
	delete(s.calls, id)
	s.mu.Unlock()
	if ok {
		cancel()
	}
	return ok
}

// encode is json.Marshal that leaves <, > and & as they are, so that what a
// client sent comes back with the same bytes.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// decode reads params into v; absent params are like {}. The error is one of invalidParams.
func decode(params []byte, v any) error {
	if params == nil {
		return nil
	}
	if err := json.Unmarshal(params, v); err != nil {
		return invalidParams(describeDecodeError(err))
	}
	return nil
}

// describeDecodeError returns the text for an error of json.Unmarshal: it says which value has the wrong type, but not the value itself.
func describeDecodeError(err error) string {
	var t *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &t):
		return "params cannot be read; they may be nested too deeply"
	case t.Field == "":
		return "params must be an object, not " + t.Value
	}
	return t.Field + " must be of another type than " + t.Value
}
