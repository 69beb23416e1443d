package streamhttp

import (
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/buildinfo"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// This file serves POSTs without a session (HandlerOptions.Stateless). Each is
// to its bridge.Handler a session of its own, that nobody else can name and
// that lasts for as long as the POST. The server knows no sessionless
// requests, so it first gets an initialize request of the bridge's own.

// ownInitializeID is the id of the bridge's own initialize request for a stateless POST. It cannot be
// mistaken for a client's: the client's requests are passed on once it has been answered.
var ownInitializeID = jsonrpc.StringID("mcp-bridge-initialize")

// initializeMessages returns the initialize request and the notification with which the bridge opens
// the conversation of a stateless POST in the client's place. It declares no capabilities: the client
// could not answer the server's requests.
func initializeMessages(version string) []jsonrpc.Message {
	return []jsonrpc.Message{
		jsonrpc.NewRequest(ownInitializeID, "initialize", []byte(`{"protocolVersion":"`+version+
			`","capabilities":{},"clientInfo":`+string(buildinfo.Implementation())+`}`)),
		jsonrpc.NewNotification("notifications/initialized", nil),
	}
}

// serveStateless answers a POST of one message where HandlerOptions.Stateless is set: for a request, the bridge.Handler is
// called with a session of its own. Any other message is answered 202, and reaches no server.
func (h *Handler) serveStateless(w http.ResponseWriter, r *http.Request, one []jsonrpc.Message, share *httpserve.BodyMemory) {
	m := one[0]
	opens := m.Kind() == jsonrpc.Request && m.Method() == "initialize"
	version, ok := revisionOf(w, r, requestID(m), opens)
	switch {
	case !ok:
	case m.Kind() != jsonrpc.Request:
		w.WriteHeader(http.StatusAccepted) // there is nobody whom it could concern
	case opens:
		s := newStateless(&h.opts, principal(r), version)
		s.handshake.ownInitializePending = false // the client does it
		h.serveWithOwnHandler(&post{w: w, r: r, s: s, share: share}, one, one, nil)
	default:
		s := newStateless(&h.opts, principal(r), version)
		h.serveWithOwnHandler(&post{w: w, r: r, s: s, share: share}, append(initializeMessages(version), m), one, nil)
	}
}

// serveStatelessBatch answers a POST of an array where HandlerOptions.Stateless is set: for the requests in it, the
// bridge.Handler is called with one session of their own. An array without requests reaches no server. errorResponses
// are the bridge's own answers to what is no message.
func (h *Handler) serveStatelessBatch(w http.ResponseWriter, r *http.Request, messages, errorResponses []jsonrpc.Message, share *httpserve.BodyMemory) {
	version, ok := revisionOf(w, r, jsonrpc.ID{}, false)
	if !ok || !checkBatch(w, r, version) {
		return
	}
	requests := onlyRequests(messages)
	switch {
	case len(requests) > 0:
		s := newStateless(&h.opts, principal(r), version)
		p := &post{w: w, r: r, s: s, share: share, batchIDs: requestIDs(requests)}
		h.serveWithOwnHandler(p, append(initializeMessages(version), messages...), requests, errorResponses)
	case len(errorResponses) > 0:
		refuseInvalidBatch(w, r, errorResponses)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// revisionOf returns the revision that a stateless request is made in, by its header (LI11, LI24): 2025-03-26 without
// one, and for initialize, for which the header does not count. ok is false if the header is wrong: the
// request was answered, with this id (zero: none).
func revisionOf(w http.ResponseWriter, r *http.Request, id jsonrpc.ID, isInitialize bool) (version string, ok bool) {
	values := r.Header[wire.HeaderVersion]
	switch {
	case len(values) == 0 || values[0] == "" || isInitialize:
		return version2025_03_26, true
	case len(values) > 1:
		refuseID(w, r, "LI24", http.StatusBadRequest, id, "the header MCP-Protocol-Version may be sent once")
		return "", false
	case !isKnownVersion(values[0]):
		refuseID(w, r, "LI24", http.StatusBadRequest, id, unsupportedVersionText)
		return "", false
	}
	return values[0], true
}

// serveWithOwnHandler serves a stateless POST: it passes messages to a bridge.Handler that is called
// for this POST alone, and answers the requests among them. errorResponses are the bridge's own
// answers to what was no message.
func (h *Handler) serveWithOwnHandler(p *post, messages, requests, errorResponses []jsonrpc.Message) {
	s := p.s
	p.firstID = requests[0].ID()
	var used jsonrpc.ID
	var err error
	p.st, p.rd, used, err = s.openPostStream(requests)
	switch {
	case err != nil:
		httpserve.RefuseBusy(p.w, p.r, p.firstID, err.Error(), err)
		return
	case p.st == nil:
		refuseID(p.w, p.r, "J3", http.StatusBadRequest, used, duplicateIDText)
		return
	}
	s.beginExchange()
	defer s.endExchange()
	if !h.start(p.w, p.r, s, p.firstID) {
		return
	}
	// The server must not go on for a client that has its answer, or has gone:
	// it cannot come back.
	defer s.end("the request is over")
	s.prepend(p.st, errorResponses)
	h.serveStream(p, messages)
}

// newStateless makes the session of one stateless POST, in which the bridge initializes the server. owner is the
// principal that sends the POST, version the revision that the POST is made in.
func newStateless(opts *HandlerOptions, owner, version string) *session {
	s := newSession(opts, owner, version, time.Now())
	s.stateless, s.handshake.ownInitializePending = true, true
	s.handshake.accepted, s.handshake.gotInitialized = true, true
	s.calls.lastSeq = 1                             // whether the client sends it or the bridge does, initialize is nothing special here
	s.retained.maxBytes, s.retained.maxCount = 0, 0 // nobody can ask for it
	return s
}
