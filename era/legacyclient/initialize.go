package legacyclient

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// opening is the beginning of a session: initialize becomes server/discover, and
// other messages are held until the server has answered that.
type opening struct {
	session         *session
	serverInfo      []byte // the server's, if it does not say so itself; raw
	defaultLogLevel string // of calls, until the client sets one
	resume          func(now time.Time, queued []jsonrpc.Message, out *era.Out)

	phase           phase
	initialize      jsonrpc.Message // waits for the server's answer
	discover        jsonrpc.ID      // of the server/discover
	discoverRetried bool            // server/discover was sent twice
	queued          []jsonrpc.Message
	queuedBytes     int
}

// phase is how far a session is.
type phase int

const (
	notStarted  phase = iota
	discovering       // initialize waits for the answer to server/discover
	ready
)

// begin takes initialize: it becomes server/discover (C.2).
func (o *opening) begin(m jsonrpc.Message, out *era.Out) {
	if o.phase != notStarted {
		refuse(m.ID(), jsonrpc.CodeInvalidRequest, "the session has begun already: initialize is sent once", nil, out)
		return
	}
	version, ok := jsonrpc.Text(m.Lookup("params", "protocolVersion"))
	if !ok {
		refuse(m.ID(), jsonrpc.CodeInvalidParams, "params.protocolVersion must be a string", nil, out)
		return
	}
	if !era.IsLegacy(version) {
		version = era.NewestLegacy // ED6: never a modern version
	}
	o.phase = discovering
	o.initialize = m
	o.session.version = version
	o.session.declared = projectDeclared(m.Lookup("params", "capabilities"), version)
	o.session.bareMeta = o.session.everyMeta(m.Lookup("params", "clientInfo"))
	o.discover = o.session.nextID()
	out.Server(jsonrpc.NewRequest(o.discover, "server/discover", o.session.bareParams("")))
}

// queue holds a message that came before the answer to initialize: a client in a
// shell pipe does not wait for it.
func (o *opening) queue(m jsonrpc.Message, out *era.Out) {
	if size := o.queuedBytes + m.Size(); len(o.queued) < maxQueued && size <= maxQueuedBytes {
		o.queued, o.queuedBytes = append(o.queued, m), size
		return
	}
	if m.Kind() == jsonrpc.Request {
		refuse(m.ID(), jsonrpc.CodeInternalError, "too many requests before the answer to initialize", shape.Reason("busy"), out)
		return
	}
	out.Drop(m, "too many messages before the answer to initialize")
}

// unqueue removes a cancelled request from the queue. initialize itself cannot be
// cancelled (J11).
func (o *opening) unqueue(cancel jsonrpc.Message, out *era.Out) {
	before := len(o.queued)
	o.queued = slices.DeleteFunc(o.queued, func(m jsonrpc.Message) bool {
		meant := m.Kind() == jsonrpc.Request && m.ID().Equivalent(cancel.CancelledID())
		if meant {
			o.queuedBytes -= m.Size()
		}
		return meant
	})
	if len(o.queued) == before {
		out.Drop(cancel, "it names no request in flight")
	}
}

// discovered takes the answer to server/discover and answers initialize.
func (o *opening) discovered(now time.Time, m jsonrpc.Message, out *era.Out) {
	if shape.ErrorCode(m) == era.CodeUnsupportedVersion && !o.discoverRetried && era.HasModern(m.Lookup("error", "data", "supported")) {
		// The server supports the version that was sent: send it once more (C.2).
		o.discoverRetried = true
		o.discover = o.session.nextID()
		out.Server(jsonrpc.NewRequest(o.discover, "server/discover", o.session.bareParams("")))
		return
	}
	id := o.initialize.ID()
	o.discoverRetried = false
	o.initialize, o.discover = jsonrpc.Message{}, jsonrpc.ID{}
	if refusal := checkDiscovery(m); refusal != nil {
		o.phase = notStarted
		out.Client(refusal.Response(id).WithRelated(id))
	} else {
		o.phase = ready
		o.session.readCapabilities(m.Lookup("result", "capabilities"))
		o.session.askForLogs(jsonrpc.Quote(o.defaultLogLevel))
		reply(id, o.initializeResult(m), out)
	}
	queued := o.queued
	o.queued, o.queuedBytes = nil, 0
	o.resume(now, queued, out)
}

// checkDiscovery returns why no session is possible with the server that has sent
// this answer; nil: one is possible.
func checkDiscovery(m jsonrpc.Message) *era.Refusal {
	if m.IsError() {
		return discoveryFailed(m)
	}
	if parts := readResult(m); !parts.ok || parts.kind != "complete" {
		return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server has answered server/discover with no valid result", Data: shape.Reason("invalid_result")}
	}
	supported := m.Lookup("result", "supportedVersions")
	if supported != nil && !era.HasModern(supported) {
		return noCommonVersion(supported)
	}
	return nil
}

// discoveryFailed returns the Refusal of initialize for an error in answer to
// server/discover.
func discoveryFailed(m jsonrpc.Message) *era.Refusal {
	code := shape.ErrorCode(m)
	text, _ := jsonrpc.Text(m.Lookup("error", "message"))
	switch code {
	case era.CodeUnsupportedVersion:
		return noCommonVersion(m.Lookup("error", "data", "supported"))
	case era.CodeHeaderMismatch, jsonrpc.CodeMethodNotFound:
		return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server cannot be discovered: " + text, Data: shape.Reason("discovery_failed")}
	case era.CodeMissingCapability:
		return &era.Refusal{Code: code, Text: text, Data: m.Lookup("error", "data")}
	}
	return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: text, Data: m.Lookup("error", "data")}
}

// noCommonVersion returns the Refusal of initialize if the bridge and the server
// have no version in common. supported is the server's raw list.
func noCommonVersion(supported []byte) *era.Refusal {
	if len(supported) == 0 || supported[0] != '[' {
		supported = []byte("[]")
	}
	return &era.Refusal{
		Code: jsonrpc.CodeInvalidParams,
		Text: "the server does not speak 2026-07-28, which the bridge was to speak with it (--protocol)",
		Data: []byte(`{"supported":` + string(supported) + `}`),
	}
}

// initializeResult makes the result of server/discover that of initialize.
func (o *opening) initializeResult(m jsonrpc.Message) []byte {
	result := m.Result()
	capabilities := jsonrpc.Without(shape.Member(result, "capabilities"), "tasks")
	if !shape.IsObject(capabilities) {
		capabilities = []byte("{}")
	}
	if extensions := shape.Member(capabilities, "extensions"); extensions != nil {
		capabilities = replaceCapability(capabilities, "extensions", withoutTasks(extensions))
	}
	parts := readResult(m)
	info := shape.Member(parts.meta, era.KeyServerInfo)
	if !shape.IsObject(info) {
		info = o.serverInfo
	}
	if !shape.IsObject(info) {
		info = buildinfo.Implementation() // required in the result of initialize
	}
	b := []byte(`{"protocolVersion":"` + o.session.version + `","capabilities":` + string(capabilities) + `,"serverInfo":` + string(info))
	rest := jsonrpc.Without(legacyResult(result, parts, true), "supportedVersions", "capabilities", "protocolVersion", "serverInfo")
	if shape.IsEmpty(rest) {
		return append(b, '}')
	}
	return append(append(b, ','), rest[1:]...)
}

// serverEnded answers initialize and the requests that are held.
func (o *opening) serverEnded(text string, data []byte, out *era.Out) {
	if o.phase == discovering {
		refuse(o.initialize.ID(), jsonrpc.CodeInternalError, text, data, out)
	}
	for _, m := range o.queued {
		if m.Kind() == jsonrpc.Request {
			refuse(m.ID(), jsonrpc.CodeInternalError, text, data, out)
		}
	}
	o.phase, o.queued = notStarted, nil
}
