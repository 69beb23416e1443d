package legacyclient

import (
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// handshake is the beginning of a session: initialize becomes server/discover, and
// other messages are held until the server has answered that.
type handshake struct {
	session         *session // gets what client and server say
	serverInfo      []byte   // Options.ServerInfo: who the server is said to be if it does not say so itself, raw; nil: the bridge
	defaultLogLevel string   // the log level of calls until the client sets one
	// serveQueued is called once initialize is answered, with the messages that were held.
	serveQueued func(now time.Time, queued []jsonrpc.Message, out *era.Out)

	phase             phase             // how far the session is
	initializeRequest jsonrpc.Message   // the client's initialize, until it is answered
	discoverID        jsonrpc.ID        // the id of the server/discover that waits for its answer; zero: none does
	discoverRetried   bool              // server/discover was sent a second time for this initialize
	queued            []jsonrpc.Message // the client's messages that came while discovering, and wait
	queuedBytes       int               // how many bytes the messages in queued have, all together
}

// phase is how far a session is.
type phase int

const (
	notStarted  phase = iota // the phase before the session: the client has not sent initialize, or it was refused
	discovering              // the phase in which the client's initialize waits for the server's answer to server/discover
	ready                    // the phase of the session itself: initialize was answered
)

// startDiscovery takes initialize: it becomes server/discover (C.2).
func (o *handshake) startDiscovery(m jsonrpc.Message, out *era.Out) {
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
	o.initializeRequest = m
	o.session.version = version
	o.session.declared = projectCapabilities(m.Lookup("params", "capabilities"), version)
	o.session.metaWithoutLogLevel = o.session.requestMeta(m.Lookup("params", "clientInfo"))
	o.discoverID = o.session.nextID()
	out.Server(jsonrpc.NewRequest(o.discoverID, "server/discover", o.session.ownParams("")))
}

// queue holds a message that came before the answer to initialize: a client in a
// shell pipe does not wait for it.
func (o *handshake) queue(m jsonrpc.Message, out *era.Out) {
	if size := o.queuedBytes + m.Size(); len(o.queued) < maxQueuedMessages && size <= maxQueuedBytes {
		o.queued, o.queuedBytes = append(o.queued, m), size
		return
	}
	if m.Kind() == jsonrpc.Request {
		refuse(m.ID(), jsonrpc.CodeInternalError, "too many requests before the answer to initialize", shape.ReasonData("busy"), out)
		return
	}
	out.Drop(m, "too many messages before the answer to initialize")
}

// unqueue removes the request that cancel names from the queue, or drops cancel if it is not
// there: initialize itself cannot be cancelled (J11).
func (o *handshake) unqueue(cancel jsonrpc.Message, out *era.Out) {
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

// handleDiscovery takes the answer to server/discover and answers initialize, or sends server/discover once more.
func (o *handshake) handleDiscovery(now time.Time, m jsonrpc.Message, out *era.Out) {
	if shape.ErrorCode(m) == era.CodeUnsupportedVersion && !o.discoverRetried && era.HasModern(m.Lookup("error", "data", "supported")) {
		// The server supports the version that was sent: send it once more (C.2).
		o.discoverRetried = true
		o.discoverID = o.session.nextID()
		out.Server(jsonrpc.NewRequest(o.discoverID, "server/discover", o.session.ownParams("")))
		return
	}
	id := o.initializeRequest.ID()
	o.discoverRetried = false
	o.initializeRequest, o.discoverID = jsonrpc.Message{}, jsonrpc.ID{}
	if refusal := checkDiscovery(m); refusal != nil {
		o.phase = notStarted
		out.Client(refusal.Response(id).WithRelated(id))
	} else {
		o.phase = ready
		o.session.readCapabilities(m.Lookup("result", "capabilities"))
		o.session.setRequestedLogLevel(jsonrpc.Quote(o.defaultLogLevel))
		reply(id, o.initializeResult(m), out)
	}
	queued := o.queued
	o.queued, o.queuedBytes = nil, 0
	o.serveQueued(now, queued, out)
}

// checkDiscovery returns why no session is possible with the server that has sent
// this answer; nil: one is possible.
func checkDiscovery(m jsonrpc.Message) *era.Refusal {
	if m.IsError() {
		return discoveryRefusal(m)
	}
	if parts := readResult(m); !parts.valid || parts.resultType != "complete" {
		return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server has answered server/discover with no valid result", Data: shape.ReasonData("invalid_result")}
	}
	supported := m.Lookup("result", "supportedVersions")
	if supported != nil && !era.HasModern(supported) {
		return noCommonVersionRefusal(supported)
	}
	return nil
}

// discoveryRefusal returns the Refusal of initialize for an error in answer to
// server/discover.
func discoveryRefusal(m jsonrpc.Message) *era.Refusal {
	code := shape.ErrorCode(m)
	text, _ := jsonrpc.Text(m.Lookup("error", "message"))
	switch code {
	case era.CodeUnsupportedVersion:
		return noCommonVersionRefusal(m.Lookup("error", "data", "supported"))
	case era.CodeHeaderMismatch, jsonrpc.CodeMethodNotFound:
		return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server cannot be discovered: " + text, Data: shape.ReasonData("discovery_failed")}
	case era.CodeMissingCapability:
		return &era.Refusal{Code: code, Text: text, Data: m.Lookup("error", "data")}
	}
	return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: text, Data: m.Lookup("error", "data")}
}

// noCommonVersionRefusal returns the Refusal of initialize if the bridge and the server
// have no version in common. supported is the server's raw list.
func noCommonVersionRefusal(supported []byte) *era.Refusal {
	if len(supported) == 0 || supported[0] != '[' {
		supported = []byte("[]")
	}
	return &era.Refusal{
		Code: jsonrpc.CodeInvalidParams,
		Text: "the server does not speak 2026-07-28, which the bridge was to speak with it (--protocol)",
		Data: []byte(`{"supported":` + string(supported) + `}`),
	}
}

// initializeResult returns the raw result of initialize, made of m, the answer to server/discover.
func (o *handshake) initializeResult(m jsonrpc.Message) []byte {
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

// failQueued answers initialize and the requests that are held with an error, because the server has
// ended: text is its message, and data its raw data.
func (o *handshake) failQueued(text string, data []byte, out *era.Out) {
	if o.phase == discovering {
		refuse(o.initializeRequest.ID(), jsonrpc.CodeInternalError, text, data, out)
	}
	for _, m := range o.queued {
		if m.Kind() == jsonrpc.Request {
			refuse(m.ID(), jsonrpc.CodeInternalError, text, data, out)
		}
	}
}
