package streamhttp

import (
	"context"
	"net/http"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// This file tells the eras apart (docs/rules.md, ED) and serves requests of
// 2026-07-28 (MI): each POST is alone, and nothing is known from one to the next.

// servesModern reports whether the Handler serves requests of 2026-07-28.
func (h *Handler) servesModern() bool { return h.opts.Eras != era.OnlyLegacy }

// refuseModernMethod answers a request that is no POST, such as a GET or DELETE, with 405 if its header names 2026-07-28, which
// has POST only (MI1), or if only that revision is served. It reports whether it did.
func (h *Handler) refuseModernMethod(w http.ResponseWriter, r *http.Request) (refused bool) {
	modern := h.opts.Eras == era.OnlyModern || h.servesModern() && namesModern(r.Header)
	if modern {
		notAllowed(w, r, "POST")
	}
	return modern
}

// serveByEra answers a POST of 2026-07-28, or one that is refused because of its era.
// false: the POST is a legacy one, and was not answered. The body decides; the version
// header is only checked against it (ED1 to ED5). Of a request that is served, *m is
// zeroed, so that nobody keeps its bytes.
func (h *Handler) serveByEra(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message, share *httpserve.BodyMemory) (served bool) {
	if m.Kind() == jsonrpc.Response {
		if h.servesModern() && (h.opts.Eras == era.OnlyModern || namesModern(r.Header)) {
			refuseID(w, r, "MI3", http.StatusBadRequest, jsonrpc.ID{}, "a response is no message that a client of "+era.NewestModern+" sends") // MI3
			return true
		}
		return false // ED4
	}
	var facts requestFacts
	if namesModern(r.Header) || m.Meta() != nil {
		facts = readRequestFacts(*m)
	}
	switch {
	case m.Kind() == jsonrpc.Notification:
		return h.serveModernNotification(w, r, *m, &facts)
	case !facts.isModern():
		no := h.checkLegacyRequest(r, *m, &facts)
		if no == nil {
			return false
		}
		writeRefusal(w, r, m.ID(), no)
	default:
		if no := h.checkModernRequest(r, *m, &facts); no != nil {
			writeRefusal(w, r, m.ID(), no)
			return true
		}
		h.serveModern(w, r, m, &facts, share)
	}
	return true
}

// serveModernNotification answers a notification of 2026-07-28, and passes it on to nobody: there is
// none that could mean anything here, as a cancellation names an id that other clients use as well
// (MI4). False: the notification is a legacy one, and was not answered.
func (h *Handler) serveModernNotification(w http.ResponseWriter, r *http.Request, m jsonrpc.Message, facts *requestFacts) (answered bool) {
	claims := facts.isModern()
	if !claims && h.opts.Eras != era.OnlyModern && !(h.servesModern() && namesModern(r.Header)) {
		return false // ED4
	}
	var refusal *era.Refusal
	version, method := r.Header[wire.HeaderVersion], r.Header[wire.HeaderMCPMethod]
	switch {
	case len(version) > 0 && facts.meta.Version != nil && !headerIs(version, facts.meta.Version):
		refusal = headerMismatchOf(wire.HeaderVersion, version, era.KeyVersion)
	case claims && (!h.servesModern() || !era.IsModern(facts.meta.Revision())):
		refusal = era.UnsupportedVersion(h.opts.Eras, facts.meta.Revision())
	case len(method) > 0 && (len(method) > 1 || trimHeaderSpace(method[0]) != m.Method()):
		refusal = headerMismatchOf(wire.HeaderMCPMethod, method, "the method")
	}
	if refusal != nil {
		writeRefusal(w, r, jsonrpc.ID{}, refusal)
		return true
	}
	w.WriteHeader(http.StatusAccepted)
	return true
}

// checkLegacyRequest says what is wrong with a request that does not claim to be
// a modern one; nil: nothing, it is legacy.
func (h *Handler) checkLegacyRequest(r *http.Request, m jsonrpc.Message, facts *requestFacts) *era.Refusal {
	switch {
	case namesModern(r.Header) && m.Method() == "initialize": // ED2
		return headerMismatch("the " + wire.HeaderVersion + " header names a revision that has no initialize")
	case namesModern(r.Header) && facts.meta.Version != nil: // MI8
		return headerMismatch("the " + wire.HeaderVersion + " header is not what " + era.KeyVersion + " is")
	case namesModern(r.Header): // ED3
		return &era.Refusal{Code: jsonrpc.CodeInvalidParams, Text: "params._meta needs " + era.KeyVersion + " and " + era.KeyCapabilities}
	case h.opts.Eras == era.OnlyModern: // ED5
		return era.UnsupportedVersion(h.opts.Eras, requestedVersion(r, m, facts))
	}
	return nil
}

// requestedVersion returns the version that a legacy request wants: that of its _meta, of the params
// of initialize, or of its header; "" if it names none.
func requestedVersion(r *http.Request, m jsonrpc.Message, facts *requestFacts) string {
	if facts.meta.Version != nil {
		return facts.meta.Revision()
	}
	if m.Method() == "initialize" {
		text, _ := jsonrpc.Text(m.Lookup("params", "protocolVersion"))
		return text
	}
	return r.Header.Get(wire.HeaderVersion)
}

// checkModernRequest says what is wrong with a modern request, in the order of MI10;
// nil: nothing that can be told without its server.
func (h *Handler) checkModernRequest(r *http.Request, m jsonrpc.Message, facts *requestFacts) *era.Refusal {
	if facts.duplicateKey != "" {
		return &era.Refusal{Code: jsonrpc.CodeInvalidRequest, Text: "the key " + facts.duplicateKey + " stands twice"}
	}
	if version := r.Header[wire.HeaderVersion]; facts.meta.Version[0] == '"' && !headerIs(version, facts.meta.Version) {
		return headerMismatchOf(wire.HeaderVersion, version, era.KeyVersion) // MI8
	}
	if no := facts.meta.Check(h.opts.Eras); no != nil { // MI7, MI9
		return no
	}
	if era.IsRemovedMethod(m.Method()) { // MI11
		return era.MethodNotFound(m.Method())
	}
	if m.Method() == "subscriptions/listen" && m.Size() > era.MaxListen {
		if _, no := era.KeptListen(m); no != nil {
			return no
		}
	}
	return h.checkHeaders(r.Header, m.Method(), facts)
}

// serveModern lets HandlerOptions.Modern serve one request, or answers it if there is no place for it
// or its Mcp-Param headers are wrong. Of a request that is served, *m and *facts are zeroed, so that
// nobody keeps their bytes.
func (h *Handler) serveModern(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message, facts *requestFacts, share *httpserve.BodyMemory) {
	e := newExchange(h, w, r, *m, share)
	defer e.cancel(nil)
	if err := h.exchanges.add(e, h.opts.MaxExchanges); err != nil {
		h.logRefused(r, err.Error())
		httpserve.RefuseBusy(w, r, e.id, err.Error(), err)
		return
	}
	defer h.exchanges.remove(e)
	if token := access.TokenContext(r); token.Done() != nil {
		stream := m.Method() == "subscriptions/listen"
		defer context.AfterFunc(token, func() {
			if stream || context.Cause(token) != access.ErrExpired { // a call may go on to its end
				e.cancel(errRevoked)
			}
		})()
	}
	defer e.release()
	if no := h.checkParamHeaders(e.ctx, r.Header, *m, facts); no != nil { // it may have to ask the server
		observe.Refuse(w, r, ruleOfRefusal(no), statusOfRefusal(no), no.Text)
		e.refuse(no)
		return
	}
	*m, *facts = jsonrpc.Message{}, requestFacts{} // the bytes are e's now, and then the server's
	if err := h.opts.Modern.ServeConn(&e.handlerCtx, e); err != nil && e.ctx.Err() == nil {
		h.logUnserved(err)
	}
}

// logUnserved warns that a request was not served, for the reason err. It warns only now and
// then: the reason may be the same for each request.
func (h *Handler) logUnserved(err error) {
	level := hclog.Debug
	if h.refusalWarnings.Allow() {
		level = hclog.Warn
	}
	h.opts.Logger.Log(level, "request not served", "error", err)
}

// writeRefusal answers a request that is not served with the error refusal, and the HTTP status that
// belongs to it (MI13).
func writeRefusal(w http.ResponseWriter, r *http.Request, id jsonrpc.ID, refusal *era.Refusal) {
	status := statusOfRefusal(refusal)
	observe.Refuse(w, r, ruleOfRefusal(refusal), status, refusal.Text)
	answer := refusal.Response(id)
	w.Header()["Content-Type"] = valueJSON
	w.WriteHeader(status)
	httpserve.WriteWithDeadline(w, answer.Bytes())
}

// statusOfRefusal returns the HTTP status with which a modern request is refused.
func statusOfRefusal(refusal *era.Refusal) int {
	if refusal.Code == jsonrpc.CodeMethodNotFound {
		return http.StatusNotFound
	}
	return http.StatusBadRequest
}

// ruleOfRefusal returns the rule of docs/rules.md by which a modern request is refused, for an Observer.
func ruleOfRefusal(refusal *era.Refusal) string {
	switch refusal.Code {
	case era.CodeHeaderMismatch:
		if strings.Contains(refusal.Text, wire.HeaderVersion) {
			return "MI8"
		}
		return "MI5"
	case era.CodeMissingCapability:
		return "MI12"
	case era.CodeUnsupportedVersion:
		return "MI9"
	case jsonrpc.CodeMethodNotFound:
		return "MI11"
	case jsonrpc.CodeInvalidParams:
		return "MI7"
	}
	return "MI10"
}

// answerStatus returns the HTTP status of the reply if m, the answer to a request of method,
// is all of it (MI13).
func answerStatus(m jsonrpc.Message, method string) int {
	if !m.IsError() {
		return http.StatusOK
	}
	switch string(m.Lookup("error", "code")) {
	case "-32020", "-32021", "-32022":
		return http.StatusBadRequest
	case "-32601":
		// The server has no such method, or nothing to serve it with. Only of
		// a tool's call it may mean the tool: older servers say so (MI11).
		if method != "tools/call" {
			return http.StatusNotFound
		}
	case "-32603":
		if reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason")); reason == "busy" {
			return http.StatusServiceUnavailable
		}
	}
	return http.StatusOK
}

// refuseModernBatch answers 400 to an array if its headers or one of its messages
// are modern, or only modern clients are served: 2026-07-28 has no batches (MI3). It reports whether it did.
func (h *Handler) refuseModernBatch(w http.ResponseWriter, r *http.Request, messages []jsonrpc.Message) bool {
	modern := h.opts.Eras == era.OnlyModern || h.servesModern() && namesModern(r.Header)
	for _, m := range messages {
		modern = modern || era.IsModernMessage(m)
	}
	if modern {
		refuseID(w, r, "MI3", http.StatusBadRequest, jsonrpc.ID{}, "a batch is no message of revision "+era.NewestModern+"; POST the messages one by one")
	}
	return modern
}
