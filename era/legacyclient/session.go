package legacyclient

import (
	"strings"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// session is what the client and the server have said about themselves, the log level that the client has set, and what
// requests to the server are made with.
type session struct {
	version             string             // the session's protocol version, a legacy one; "": the client has not sent initialize
	declared            clientCapabilities // what the client can do
	server              serverCapabilities // what the server can do
	logLevel            int                // the log level that the client has set, an index in LogLevels; -1: none
	callMeta            jsonrpc.Fragment   // the members that the _meta of every call gets, the log level among them
	metaWithoutLogLevel []byte             // the _meta of the Filter's own requests: a raw object
	lastID              int64              // the id of the latest request to the server
}

// nextID returns an id for a request to the server.
func (s *session) nextID() jsonrpc.ID {
	s.lastID++
	return jsonrpc.IntID(s.lastID)
}

// requestMeta returns the raw _meta of the session's requests, without a log level. clientInfo is
// the raw one of initialize.
func (s *session) requestMeta(clientInfo []byte) []byte {
	meta := era.Meta{Version: jsonrpc.Quote(era.NewestModern), Capabilities: s.declared.raw}
	if shape.IsObject(clientInfo) {
		meta.ClientInfo = clientInfo
	}
	return meta.Object()
}

// ownParams returns the params of a request of the Filter itself: _meta, and then members, which
// are raw JSON that begins with a comma, or "".
func (s *session) ownParams(members string) []byte {
	return []byte(`{"_meta":` + string(s.metaWithoutLogLevel) + members + `}`)
}

// readCapabilities notes what the server can do, from its raw capabilities.
func (s *session) readCapabilities(capabilities []byte) {
	isTrue := func(feature, flag string) bool {
		return string(shape.Member(shape.Member(capabilities, feature), flag)) == "true"
	}
	s.server = serverCapabilities{
		logging:   shape.IsObject(shape.Member(capabilities, "logging")),
		subscribe: isTrue("resources", "subscribe"),
		announcedLists: listSet{
			tools:     isTrue("tools", "listChanged"),
			prompts:   isTrue("prompts", "listChanged"),
			resources: isTrue("resources", "listChanged"),
		},
	}
}

// setRequestedLogLevel sets the log level, raw JSON, that later calls ask the server for. The
// bridge always asks for logs: some servers log without announcing it, and before 2026-07-28
// clients did not have to ask.
func (s *session) setRequestedLogLevel(level []byte) {
	s.callMeta = jsonrpc.NewFragment(jsonrpc.With(s.metaWithoutLogLevel, era.KeyLogLevel, level))
}

// handleSetLevel takes and answers the client's logging/setLevel: the level holds for all later
// calls (C.2).
func (s *session) handleSetLevel(m jsonrpc.Message, out *era.Out) {
	if !s.server.logging {
		refuse(m.ID(), jsonrpc.CodeMethodNotFound, "the server has no logging", nil, out)
		return
	}
	level := era.LogRank(m.Lookup("params", "level"))
	if level < 0 {
		refuse(m.ID(), jsonrpc.CodeInvalidParams, "params.level must be one of "+strings.Join(era.LogLevels, ", "), nil, out)
		return
	}
	s.logLevel = level
	s.setRequestedLogLevel(jsonrpc.Quote(era.LogLevels[level]))
	reply(m.ID(), nil, out)
}
