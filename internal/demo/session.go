package demo

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// revisions are the protocol revisions with an initialize handshake, oldest first.
var revisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", latest}

// latest is what a client gets that asks for a revision we do not know.
const latest = "2025-11-25"

// clientInfo is what the client told about itself in initialize.
type clientInfo struct {
	Revision     string                     `json:"protocolVersion"` // as negotiated
	Info         json.RawMessage            `json:"clientInfo,omitempty"`
	Capabilities map[string]json.RawMessage `json:"capabilities"`
}

// codeResourceNotFound is the code of the legacy revisions for a resource that is not there.
const codeResourceNotFound = -32002

// rpcError becomes a JSON-RPC error response.
type rpcError struct {
	code    int
	message string
	data    any
}

func (e *rpcError) Error() string { return e.message }

func invalidParams(message string) error {
	return &rpcError{code: jsonrpc.CodeInvalidParams, message: message}
}

// toolError is what a model is meant to read; it becomes a result with isError.
type toolError struct{ message string }

func (e *toolError) Error() string { return e.message }

// dispatch handles one message from the client.
func (s *session) dispatch(m jsonrpc.Message) {
	switch m.Kind() {
	case jsonrpc.Response:
		s.answered(m)
	case jsonrpc.Notification:
		s.notified(m)
	case jsonrpc.Request:
		if isModern(m) {
			s.modern(m)
			return
		}
		f := &legacyFace{s, m.ID(), m.Method()}
		if err := s.admit(m); err != nil {
			f.reply(nil, err)
			return
		}
		s.serve(m, f)
	}
}

// serve answers a request that was admitted.
func (s *session) serve(m jsonrpc.Message, f face) {
	run, err := s.job(m, f.client())
	switch {
	case err != nil:
		f.reply(nil, err)
	case run != nil:
		s.start(m, f, run)
	default:
		result, err := s.handle(m.Method(), m.Params())
		f.reply(result, err)
	}
}

// admit refuses what no handler should see: ids in use, and anything but
// initialize and ping before initialize has been answered.
func (s *session) admit(m jsonrpc.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used(m.ID()) {
		return errIDInUse
	}
	initialized := s.hello.Revision != ""
	switch m.Method() {
	case "ping":
		return nil
	case "initialize":
		if initialized {
			return &rpcError{code: jsonrpc.CodeInvalidRequest, message: "initialize was already called"}
		}
		return nil
	}
	if !known[m.Method()] {
		return &rpcError{code: jsonrpc.CodeMethodNotFound, message: "method not found"}
	}
	if !initialized {
		return &rpcError{code: jsonrpc.CodeInvalidRequest, message: "initialize must be called first"}
	}
	return nil
}

// errIDInUse refuses a request whose id would be ambiguous (J3).
var errIDInUse = &rpcError{code: jsonrpc.CodeInvalidRequest, message: "a request with this id is in progress"}

// used reports whether a request with that id is in progress. The caller holds s.mu.
func (s *session) used(id jsonrpc.ID) bool {
	_, called := s.calls[id]
	return called || s.listenAt(id) >= 0
}

// known are the methods that need a session.
var known = map[string]bool{
	"logging/setLevel": true, "completion/complete": true,
	"tools/list": true, "tools/call": true,
	"prompts/list": true, "prompts/get": true,
	"resources/list": true, "resources/templates/list": true, "resources/read": true,
	"resources/subscribe": true, "resources/unsubscribe": true,
}

// handle answers what is no job. Who calls it has seen to it that the method is one of the era.
func (s *session) handle(method string, params []byte) (any, error) {
	switch method {
	case "initialize":
		return s.initialize(params)
	case "logging/setLevel":
		return s.setLevel(params)
	case "completion/complete":
		return s.complete(params)
	case "tools/list":
		return s.listTools(params)
	case "prompts/list":
		return s.listPrompts(params)
	case "prompts/get":
		return s.getPrompt(params)
	case "resources/list":
		return s.listResources(params)
	case "resources/templates/list":
		return s.listTemplates(params)
	case "resources/read":
		return s.readResource(params)
	case "resources/subscribe":
		return s.subscribe(params)
	case "resources/unsubscribe":
		return s.unsubscribe(params)
	}
	return struct{}{}, nil // ping
}

// notified handles a notification; those we do not know are ignored, as JSON-RPC wants it.
func (s *session) notified(m jsonrpc.Message) {
	switch m.Method() {
	case "notifications/cancelled":
		if id := m.RequestID(); !s.take(id) { // and its context with it
			s.unlisten(id) // an unknown id is a race that was lost
		}
	case "notifications/roots/list_changed":
		if !isModern(m) && s.logs(levelInfo) { // modern clients do not tell
			s.sendLog(levelInfo, "roots", "the client says that its roots changed; the tool \"roots\" lists them")
		}
	}
}

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
	s.hello = p
	s.mu.Unlock()
	if s.srv.negotiated != nil {
		s.srv.negotiated(p.Revision)
	}

	return struct {
		ProtocolVersion string         `json:"protocolVersion"`
		Capabilities    any            `json:"capabilities"`
		ServerInfo      implementation `json:"serverInfo"`
		Instructions    string         `json:"instructions"`
	}{p.Revision, capabilities, s.srv.info(), instructions}, nil
}

type flags map[string]bool

// capabilities are what this server can do, in both eras.
var capabilities = map[string]flags{
	"completions": {},
	"logging":     {},
	"prompts":     {"listChanged": true},
	"resources":   {"listChanged": true, "subscribe": true},
	"tools":       {"listChanged": true},
}

// implementation is what this server says about itself.
type implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

func (srv *Server) info() implementation {
	return implementation{"mcp-bridge-demo", "mcp-bridge demo server", srv.version()}
}

const instructions = "A server to try clients and bridges with. Start with the tools \"echo\" and \"slow\"; " +
	"the tool \"session\" tells what this server knows about the client. Nothing here reads or changes " +
	"anything outside this process."

func (srv *Server) version() string {
	if srv.Version == "" {
		return buildinfo.Version()
	}
	return srv.Version
}

func negotiate(asked string) string {
	for _, r := range revisions {
		if r == asked {
			return r
		}
	}
	return latest
}

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

func (s *session) peer() clientInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello
}

// decode reads params; absent params are like {}.
func decode(params []byte, into any) error {
	if params == nil {
		return nil
	}
	if err := json.Unmarshal(params, into); err != nil {
		return invalidParams(explain(err))
	}
	return nil
}

// explain says which value has the wrong type, and never the value itself.
func explain(err error) string {
	var t *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &t):
		return "params cannot be read; they may be nested too deeply"
	case t.Field == "":
		return "params must be an object, not " + t.Value
	}
	return t.Field + " must be of another type than " + t.Value
}

// take forgets a call and reports whether it was known; its context ends.
// Who takes a call may answer it, so it is answered once or, when cancelled, never.
func (s *session) take(id jsonrpc.ID) bool {
	s.mu.Lock()
	cancel, ok := s.calls[id]
	delete(s.calls, id)
	s.mu.Unlock()
	if ok {
		cancel()
	}
	return ok
}

// put notes a call; it reports false when there are too many.
func (s *session) put(id jsonrpc.ID, cancel context.CancelFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) >= maxCalls {
		return false
	}
	s.calls[id] = cancel
	return true
}
