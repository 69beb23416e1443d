package streamhttp

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/sse"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// servePOST takes the messages of one POST and answers them.
func (h *Handler) servePOST(w http.ResponseWriter, r *http.Request) {
	share := h.bodies.NewMemory()
	defer share.Free()
	body, ok := h.readBody(w, r, share)
	if !ok {
		return
	}
	if jsonrpc.IsBatch(body) {
		h.serveBatch(w, r, body, share)
		return
	}
	var m jsonrpc.Message
	if !h.parseMessage(w, r, body, &m) || h.serveByEra(w, r, &m, share) {
		return
	}
	opens := m.Kind() == jsonrpc.Request && m.Method() == "initialize"
	if opens {
		m = era.LegacyInitialize(m)
	}
	one := []jsonrpc.Message{m}
	if h.opts.Stateless {
		h.serveStateless(w, r, one, share)
		return
	}
	if opens {
		h.serveInitialize(w, r, one, share)
		return
	}
	s := h.findSession(w, r, requestID(m))
	if s == nil {
		return
	}
	s.beginExchange()
	defer s.endExchange()
	if m.Kind() == jsonrpc.Request {
		h.serveRequests(&post{w: w, r: r, s: s, share: share}, one, one, nil)
		return
	}
	h.serveOneWay(w, r, s, one, share)
}

// readBody returns the body of a POST, whose memory share takes from the budget. If the body is too large or cannot be read, or the
// headers Accept and Content-Type are not what they must be, it answers the POST and returns false.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, share *httpserve.BodyMemory) (body []byte, ok bool) {
	max, sessionless := h.maxBody(r)
	if r.ContentLength > int64(max) {
		h.refuseBody(w, r, httpserve.ErrTooLarge, sessionless)
		return nil, false
	}
	if !httpserve.Accepts(r.Header, wire.TypeJSON, wire.TypeSSE) {
		refuse(w, r, "LI4", http.StatusNotAcceptable, "the Accept header must admit both application/json and text/event-stream")
		return nil, false
	}
	if !httpserve.IsJSON(r.Header) {
		refuse(w, r, "LI5", http.StatusUnsupportedMediaType, httpserve.NotJSONReason(r.Header))
		return nil, false
	}
	body, err := share.Read(r, max)
	if err != nil {
		h.refuseBody(w, r, err, sessionless)
	}
	return body, err == nil
}

// parseMessage sets *m to the message of a POST. If the body is no message, or the client may not send it, parseMessage answers the
// POST and returns false.
func (h *Handler) parseMessage(w http.ResponseWriter, r *http.Request, body []byte, m *jsonrpc.Message) (ok bool) {
	parsed, err := jsonrpc.ParseDepth(body, h.opts.MaxDepth)
	if err != nil {
		e := asError(err)
		httpserve.WriteError(w, r, "J4", http.StatusBadRequest, e.Code, e.ID, e.Message)
		return false
	}
	*m = httpserve.WithTraceContext(parsed, r.Header)
	return h.opts.Guard.Authenticator == nil || h.checkAuthorized(w, r, requestID(*m), *m)
}

// checkAuthorized reports whether the sender of r may send these messages. If not, it answers the
// request: id is the one that the answer has to carry.
func (h *Handler) checkAuthorized(w http.ResponseWriter, r *http.Request, id jsonrpc.ID, messages ...jsonrpc.Message) bool {
	a := h.opts.Guard.Authenticator
	if a == nil {
		return true
	}
	no := a.Authorize(w.Header(), r, messages...)
	if no != nil {
		h.logRefused(r, no.Reason)
		refuseID(w, observe.WithCause(r, no.Cause), no.Rule, no.Status, id, no.Reason)
	}
	return no == nil
}

// requestID returns the id that an error about m has to carry: that of a request; zero for any other message.
func requestID(m jsonrpc.Message) jsonrpc.ID {
	if m.Kind() == jsonrpc.Request {
		return m.ID()
	}
	return jsonrpc.ID{}
}

// asError returns err as the *jsonrpc.Error that it is or wraps, otherwise one that says that the
// body is no message.
func asError(err error) *jsonrpc.Error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the body is no JSON-RPC message"}
}

// serveOneWay passes notifications and responses of the client to the server, and answers the POST
// with 202 then (LI6), or with 404 if the session has ended before the server has got any.
func (h *Handler) serveOneWay(w http.ResponseWriter, r *http.Request, s *session, messages []jsonrpc.Message, share *httpserve.BodyMemory) {
	if h.passAllToServer(w, r, s, messages, share) {
		w.WriteHeader(http.StatusAccepted)
	}
}

// duplicateIDText is the error text for a request with the id of one in progress, or of another one in its batch.
const duplicateIDText = "a request with this id is already in progress"

// sessionGoneText is the error text for a request whose session ends while it is served.
const sessionGoneText = "the session has ended; begin anew with an initialize request"

// serveInitialize opens a session with one message, the client's initialize, and answers the POST (LI20, LI22).
func (h *Handler) serveInitialize(w http.ResponseWriter, r *http.Request, one []jsonrpc.Message, share *httpserve.BodyMemory) {
	m := &one[0]
	if r.Header.Get(wire.HeaderSession) != "" {
		if s := h.findSession(w, r, m.ID()); s != nil {
			refuseID(w, r, "LI22", http.StatusBadRequest, m.ID(), "the session is already initialized")
		}
		return
	}
	var asked string
	_ = json.Unmarshal(m.Lookup("params", "protocolVersion"), &asked) // not a string: the server will say so
	s := newSession(&h.opts, principal(r), asked, time.Now())
	s.retained.budget = h.opts.ResumeBudget.Share(h.opts.Guard.Party(r))
	st, rd, _, _ := s.openPostStream(one) // nothing stands against the first request
	s.beginExchange()
	defer s.endExchange()
	if !h.start(w, r, s, m.ID()) {
		return
	}
	observe.SetExchangeOrigin(w, &s.origin)
	p := &post{w: w, r: r, s: s, st: st, rd: rd, firstID: m.ID(), isInitialize: true, share: share}
	defer func() {
		if !s.isEstablished() {
			s.end("initialize failed")
		}
	}()
	h.serveStream(p, one)
}

// post is the exchange of one POST that has requests in it.
type post struct {
	w            http.ResponseWriter   // the reply
	r            *http.Request         // the POST
	s            *session              // the session of the messages
	st           *stream               // the stream on which the requests are answered
	rd           *reader               // reads st for this POST
	firstID      jsonrpc.ID            // the id of the first request
	batchIDs     []jsonrpc.ID          // the ids of the requests of a batch, in order; nil: the POST is no batch
	isInitialize bool                  // the request is the initialize that opens a session; false for any stateless POST
	share        *httpserve.BodyMemory // what the messages take of the budget until the server has them
}

// serveRequests passes the messages of one POST to the server and answers the requests among them,
// of which there is at least one. errorResponses are the bridge's own answers to what was no message.
func (h *Handler) serveRequests(p *post, messages, requests, errorResponses []jsonrpc.Message) {
	w, r, s := p.w, p.r, p.s
	p.firstID = requests[0].ID()
	var used jsonrpc.ID
	var err error
	p.st, p.rd, used, err = s.openPostStream(requests)
	switch {
	case err == errTooManyCalls:
		httpserve.RefuseBusy(w, r, p.firstID, err.Error(), err)
		return
	case err != nil:
		refuseID(w, r, "LI21", http.StatusNotFound, p.firstID, sessionGoneText)
		return
	case p.st == nil:
		refuseID(w, r, "J3", http.StatusBadRequest, used, duplicateIDText)
		return
	}
	s.prepend(p.st, errorResponses)
	h.serveStream(p, messages)
}

// serveStream passes messages to the server and writes what the stream brings.
// First it waits for what comes first: the whole answer, which becomes JSON,
// or anything else, which makes it an SSE stream (LI7).
func (h *Handler) serveStream(p *post, messages []jsonrpc.Message) {
	defer p.s.detach(p.st, p.rd)
	answer := h.inlineAnswerer(p)
	defer p.rd.setInlineAnswer(nil)
	p.s.scheduleCommit(p.st, p.isInitialize)
	toServer := serverOutbox{s: p.s, messages: messages, share: p.share}
	defer toServer.takeBack()
	nextTaken := toServer.passReady()
	var commitTime <-chan time.Time // set once the answer is there, and only the server has to take what is left
	for {
		timeUp := false
		if len(toServer.messages) == 0 {
			p.rd.setInlineAnswer(answer)
		}
		select {
		case <-nextTaken:
		case <-p.rd.wake:
		case <-commitTime:
			timeUp = true
		case <-p.r.Context().Done():
			if p.rd.setInlineAnswer(nil) {
				return
			}
			p.s.withdrawRequests(toServer.passRestToServer())
			abortHandler()
		}
		if p.rd.setInlineAnswer(nil) {
			return
		}
		// Before the look at the stream: of what comes because of it, we are told.
		nextTaken = toServer.passReady()
		answer, mustStream := p.s.jsonAnswer(p.st)
		if len(toServer.messages) > 0 && p.s.takesNoMore() {
			if len(toServer.takeBack()) == len(messages) && !p.isInitialize && !p.s.stateless {
				// No server has seen anything of it: the client may safely send
				// it again, to a new session (LI21).
				refuseID(p.w, p.r, "LI21", http.StatusNotFound, p.firstID, sessionGoneText)
				return
			}
			toServer.messages = nil // the end of the session has answered every request
		}
		if p.isInitialize && (mustStream || p.s.isEstablished()) {
			p.w.Header()[wire.HeaderSession] = []string{p.s.id}
		}
		switch {
		case answer != nil && len(toServer.messages) == 0:
			h.writeJSON(p.w, answer, p.batchIDs)
			return
		case mustStream || timeUp:
			p.s.commit(p.st)
			h.serveSSE(p.w, p.r, p.s, p.st, p.rd, &toServer)
			p.s.failUndelivered(toServer.passRestToServer())
			return
		case answer != nil && commitTime == nil: // no call is left that commitTimer would find
			commitTime = time.After(time.Until(p.st.commitAt))
		}
	}
}

// inlineAnswerer returns the function for reader.setInlineAnswer: it writes the whole answer to p,
// if that is there and the client takes it at once, and reports whether it has. nil: only the
// goroutine of the POST can write the answer.
func (h *Handler) inlineAnswerer(p *post) func() bool {
	quick := httpserve.InlineReplyOf(p.r)
	if quick == nil || p.isInitialize || p.batchIDs != nil || p.s.stateless { // a place is free when the client has its answer
		return nil
	}
	return func() bool {
		whole, stream := p.s.jsonAnswer(p.st)
		if stream || len(whole) != 1 || len(whole[0].line) > maxSmallReply || p.r.Context().Err() != nil {
			return false
		}
		return quick.TryWrite(func() {
			p.w.Header()["Content-Length"] = []string{strconv.Itoa(len(whole[0].line))}
			h.writeJSON(p.w, whole, nil)
			_ = http.NewResponseController(p.w).Flush()
		})
	}
}

// abortHandler ends, by a panic, a POST whose client has hung up before there was a reply. If the
// handler returned, net/http would send a reply with status 200 and no type, and a client that has
// closed its own direction only would read that.
func abortHandler() { panic(http.ErrAbortHandler) }

// writeJSON answers a POST with the response in events, or a batch with an array of the responses
// in the order of its requests (LI10). batch has the ids of these; nil: the POST is no batch.
func (h *Handler) writeJSON(w http.ResponseWriter, events []event, batch []jsonrpc.ID) {
	w.Header()["Content-Type"] = valueJSON
	if batch == nil {
		h.writeBody(w, events[0].line)
		return
	}
	body := []byte{'['}
	for i, e := range inRequestOrder(events, batch) {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, e.line...)
	}
	h.writeBody(w, append(body, ']'))
}

// maxSmallReply is how many bytes of a reply net/http keeps until the handler returns or flushes.
const maxSmallReply = 2048

// writeBody writes the body of a JSON reply. If it is longer than maxSmallReply, a client that takes
// nothing of it for StallAfter is cut off.
func (h *Handler) writeBody(w http.ResponseWriter, body []byte) {
	if len(body) > maxSmallReply { // net/http counts what is shorter itself
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if len(body) <= maxSmallReply { // it is written after all is done here, or at once by inlineAnswerer
		_, _ = w.Write(body)
		return
	}
	// An error: the client has gone, and nobody is left to tell.
	_, _ = sse.NewWriter(w, h.opts.StallAfter).Write(body)
}
