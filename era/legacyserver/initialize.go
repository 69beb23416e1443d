package legacyserver

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/shape"
	"github.com/mcp-bridge/mcp-bridge/era/legacyserver/internal/timers"
	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	// initializeTimeout is how long requests wait for the server to answer initialize. Then they are refused.
	initializeTimeout = time.Minute

	// maxHeldRequests is how many requests may wait for the server to answer initialize. More are refused.
	maxHeldRequests = 1000

	// maxCauseLength is how many bytes of the server's own words are repeated to clients when
	// initialize has failed.
	maxCauseLength = 500
)

// handshake sends initialize, holds the requests that come before the answer, and
// keeps what the server has said.
type handshake struct {
	timers           *timers.Timers    // those of the Filter: they end the wait for the answer to initialize
	ownRequests      *ownRequests      // sends initialize
	resultTranslator *resultTranslator // gets the server's serverInfo
	// onOpened is called when the server has answered initialize with a result, with the requests that
	// were held.
	onOpened func(now time.Time, held []jsonrpc.Message, out *era.Out)

	clientInfo, clientCapabilities []byte // what initialize says of the client; raw

	isOpen       bool              // the server has answered initialize with a result, of a version that the bridge knows
	failure      *era.Refusal      // why initialize has failed; nil: it has not
	heldRequests []jsonrpc.Message // clients' requests that wait for the answer to initialize, in order
	failed       atomic.Bool       // failure is not nil; for HasFailed, which others call

	capabilities   []byte // the server's capabilities, as it declares them; raw
	discoverResult []byte // the raw result with which server/discover is answered
	version        string // the legacy version that the server has chosen
}

// start sends initialize. The capabilities in it hold for all clients (C.1).
func (h *handshake) start(now time.Time, out *era.Out) {
	late := h.timers.Set(now.Add(initializeTimeout), func(_ time.Time, out *era.Out) {
		h.fail(&era.Refusal{Code: jsonrpc.CodeInternalError, Text: "the server has not answered initialize within a minute", Data: shape.ReasonData("initialize_timeout")}, out)
	})
	h.ownRequests.send("initialize", InitializeParams(h.clientCapabilities, h.clientInfo), func(now time.Time, m jsonrpc.Message, out *era.Out) {
		h.timers.Stop(late)
		h.handleAnswer(now, m, out)
	}, out)
}

// InitializeParams returns the raw params of the initialize that a Filter with these
// Options.Capabilities and Options.ClientInfo sends.
func InitializeParams(capabilities, clientInfo []byte) []byte {
	if !shape.IsObject(capabilities) {
		capabilities = []byte("{}")
	}
	if !isImplementation(clientInfo) { // the server may refuse initialize, and so all clients
		clientInfo = buildinfo.Implementation()
	}
	params := shape.AppendMember([]byte{'{'}, "protocolVersion", jsonrpc.Quote(era.NewestLegacy))
	params = shape.AppendMember(params, "capabilities", capabilities)
	params = shape.AppendMember(params, "clientInfo", clientInfo)
	return append(params, '}')
}

// admitRequest returns true if a client's request can be served now. Otherwise it holds or
// refuses the request.
func (h *handshake) admitRequest(m jsonrpc.Message, out *era.Out) bool {
	switch {
	case h.isOpen:
		return true
	case h.failure != nil:
		out.Client(h.failure.Response(m.ID()).WithRelated(m.ID()))
	case len(h.heldRequests) == maxHeldRequests:
		refuse(m.ID(), jsonrpc.CodeInternalError, "too many requests wait for the server to start", shape.ReasonData("busy"), out)
	default:
		h.heldRequests = append(h.heldRequests, m)
	}
	return false
}

// removeHeld removes the held request with this id, which its client has cancelled. False: no
// request with this id is held.
func (h *handshake) removeHeld(id jsonrpc.ID) bool {
	i := slices.IndexFunc(h.heldRequests, func(m jsonrpc.Message) bool { return m.ID().Equivalent(id) })
	if i < 0 {
		return false
	}
	h.heldRequests = slices.Delete(h.heldRequests, i, i+1)
	return true
}

// failHeld answers the requests that are held, because the server has ended.
func (h *handshake) failHeld(text string, out *era.Out) {
	for _, m := range h.heldRequests {
		refuse(m.ID(), jsonrpc.CodeInternalError, text, shape.ReasonData("server_ended"), out)
	}
	h.heldRequests = nil
}

// isImplementation reports whether info is a valid clientInfo. Some servers check
// all members that they know.
func isImplementation(info []byte) bool {
	if !shape.IsObject(info) {
		return false
	}
	var name, version bool
	for m := range jsonrpc.Members(info) {
		ok := true
		switch m.Key {
		case "name":
			ok = shape.IsString(m.Value)
			name = ok
		case "version":
			ok = shape.IsString(m.Value)
			version = ok
		case "title", "description", "websiteUrl":
			ok = shape.IsString(m.Value)
		case "icons":
			ok = areIcons(m.Value)
		}
		if !ok {
			return false
		}
	}
	return name && version
}

// areIcons reports whether a raw value is a valid list of icons.
func areIcons(raw []byte) bool {
	if !shape.IsArray(raw) {
		return false
	}
	for _, icon := range jsonrpc.Elements(raw) {
		if !shape.IsObject(icon) || !shape.IsString(shape.Member(icon, "src")) {
			return false
		}
		for m := range jsonrpc.Members(icon) {
			switch m.Key {
			case "mimeType", "theme":
				if !shape.IsString(m.Value) {
					return false
				}
			case "sizes":
				if !shape.IsArray(m.Value) {
					return false
				}
			}
		}
	}
	return true
}

// fail notes that initialize has failed: the requests that are held, and later ones, are refused
// with why. If the server answers after all, requests are served again.
func (h *handshake) fail(why *era.Refusal, out *era.Out) {
	h.failure = why
	for _, m := range h.heldRequests {
		out.Client(why.Response(m.ID()).WithRelated(m.ID()))
	}
	h.heldRequests = nil
	h.failed.Store(true)
}

// handleAnswer takes the answer to initialize.
func (h *handshake) handleAnswer(now time.Time, m jsonrpc.Message, out *era.Out) {
	version, _ := jsonrpc.Text(m.Lookup("result", "protocolVersion"))
	if m.IsError() || !era.IsLegacy(version) {
		h.fail(initializeRefusal(m, version), out)
		return
	}
	h.isOpen, h.failure, h.version = true, nil, version
	h.failed.Store(false)
	h.capabilities = []byte("{}")
	if c := m.Lookup("result", "capabilities"); shape.IsObject(c) {
		h.capabilities = c
	}
	h.resultTranslator.setServerInfo(m.Lookup("result", "serverInfo"))
	h.discoverResult = discoveryResult(h.capabilities, m.Lookup("result", "instructions"))
	out.Server(jsonrpc.NewNotification("notifications/initialized", nil))

	held := h.heldRequests
	h.heldRequests = nil
	h.onOpened(now, held, out)
}

// initializeRefusal returns the Refusal for clients' requests after m, the answer to initialize, was
// an error or had a version that the bridge does not know; version is that version, or "" if m has none.
func initializeRefusal(m jsonrpc.Message, version string) *era.Refusal {
	text := "the server answered initialize with a protocol version that the bridge does not know"
	if m.IsError() {
		text = "initialize has failed" // the server has refused it, or could not be started
		if cause, ok := jsonrpc.Text(m.Lookup("error", "message")); ok {
			text += ": " + cause[:min(len(cause), maxCauseLength)]
		}
	} else if version != "" {
		text += ": " + version[:min(len(version), maxCauseLength)]
	}
	return &era.Refusal{Code: jsonrpc.CodeInternalError, Text: text, Data: shape.ReasonData("initialize_failed")}
}

// discoveryResult returns the result of server/discover (C.1). The bridge itself
// implements subscriptions/listen and all versions. The capabilities are the
// server's, without tasks (C.0, C.5).
func discoveryResult(capabilities, instructions []byte) []byte {
	capabilities = jsonrpc.Without(capabilities, "tasks")
	if extensions := shape.Member(capabilities, "extensions"); shape.IsObject(extensions) {
		capabilities = jsonrpc.With(capabilities, "extensions", jsonrpc.Without(extensions, era.ExtensionTasks))
	}
	versions := []byte{'['}
	for i, v := range era.Auto.Versions() {
		if i > 0 {
			versions = append(versions, ',')
		}
		versions = append(versions, jsonrpc.Quote(v)...)
	}
	out := shape.AppendMember([]byte{'{'}, "supportedVersions", append(versions, ']'))
	out = shape.AppendMember(out, "capabilities", capabilities)
	if _, ok := jsonrpc.Text(instructions); ok {
		out = shape.AppendMember(out, "instructions", instructions)
	}
	return append(out, '}')
}
