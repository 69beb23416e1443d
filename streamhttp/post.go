package streamhttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// servePOST takes the messages of one POST and answers them.
func (h *Handler) servePOST(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength > int64(h.opts.MaxMessageSize) {
		h.tooLarge(w, r)
		return
	}
	if !accepts(r.Header, typeJSON, typeSSE) {
		refuse(w, r, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must admit both application/json and text/event-stream")
		return
	}
	if !isJSON(r.Header) {
		refuse(w, r, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the Content-Type must be application/json")
		return
	}
	body, err := h.readBody(w, r)
	switch {
	case errors.Is(err, errBodyTooLarge):
		h.tooLarge(w, r)
		return
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		refuse(w, r, http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest, "the body did not arrive within "+h.opts.BodyTimeout.String())
		return
	case err != nil:
		refuse(w, r, http.StatusBadRequest, jsonrpc.CodeParseError, "the body could not be read")
		return
	}
	if jsonrpc.IsBatch(body) {
		h.serveBatch(w, r, body)
		return
	}
	m, err := jsonrpc.Parse(body)
	if err != nil {
		e := asError(err)
		writeError(w, r, http.StatusBadRequest, e.Code, e.ID, e.Message)
		return
	}
	if m.Kind() == jsonrpc.Request && m.Method() == "initialize" {
		h.serveInitialize(w, r, m)
		return
	}
	s := h.find(w, r, requestID(m))
	if s == nil {
		return
	}
	s.begin()
	defer s.finish()
	if m.Kind() == jsonrpc.Request {
		h.serveRequests(w, r, s, []jsonrpc.Message{m}, nil, false)
		return
	}
	h.serveOneWay(w, r, s, []jsonrpc.Message{m})
}

func (h *Handler) tooLarge(w http.ResponseWriter, r *http.Request) {
	refuse(w, r, http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest,
		"the message is larger than "+strconv.Itoa(h.opts.MaxMessageSize)+" bytes (--max-message-size)")
}

// requestID returns the id that an error about m has to carry: only requests
// are answered.
func requestID(m jsonrpc.Message) jsonrpc.ID {
	if m.Kind() == jsonrpc.Request {
		return m.ID()
	}
	return jsonrpc.ID{}
}

func asError(err error) *jsonrpc.Error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return e
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the body is no JSON-RPC message"}
}

var errBodyTooLarge = errors.New("body too large")

// readBody reads the whole body, in one buffer of the right size where the
// client says how long it is.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if h.opts.BodyTimeout > 0 {
		rc := http.NewResponseController(w)
		if rc.SetReadDeadline(time.Now().Add(h.opts.BodyTimeout)) == nil {
			// The connection is read on while the request is served, to
			// notice that the client hangs up; that has no deadline.
			defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
		}
	}
	if n := r.ContentLength; n >= 0 && n <= 1<<20 {
		body := make([]byte, n)
		_, err := io.ReadFull(r.Body, body)
		return body, err
	}
	// A length is only a claim: memory is taken as the bytes arrive.
	body := make([]byte, 0, 64<<10)
	limit := h.opts.MaxMessageSize
	for {
		if len(body) == cap(body) {
			grown := make([]byte, len(body), 4*cap(body))
			copy(grown, body)
			body = grown
		}
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if len(body) > limit {
			return nil, errBodyTooLarge
		}
		if err == io.EOF {
			if cap(body)-len(body) > len(body)/4 {
				body = append(make([]byte, 0, len(body)), body...)
			}
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// serveOneWay takes notifications and responses: accepted, and no more to
// say (LI6).
func (h *Handler) serveOneWay(w http.ResponseWriter, r *http.Request, s *session, messages []jsonrpc.Message) {
	for _, m := range messages {
		if !h.hand(w, r, s, m) {
			return
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

// hand gives the server a message that needs no answer.
func (h *Handler) hand(w http.ResponseWriter, r *http.Request, s *session, m jsonrpc.Message) bool {
	cancels := m.Kind() == jsonrpc.Notification && m.Method() == "notifications/cancelled"
	if err := s.accept(r.Context(), m); err != nil {
		refuse(w, r, http.StatusNotFound, jsonrpc.CodeInvalidRequest, "the session has ended; begin anew with an initialize request")
		return false
	}
	switch {
	case cancels:
		s.cancel(m.RequestID())
	case m.Kind() == jsonrpc.Response:
		s.responded(m.ID())
	case m.Method() == "notifications/initialized":
		s.initialized()
	}
	return true
}

// serveInitialize opens a session (LI20, LI22).
func (h *Handler) serveInitialize(w http.ResponseWriter, r *http.Request, m jsonrpc.Message) {
	if r.Header.Get(headerSession) != "" {
		if s := h.find(w, r, m.ID()); s != nil {
			refuseID(w, r, http.StatusBadRequest, m.ID(), "the session is already initialized")
		}
		return
	}
	s, err := h.start(r, m)
	if err != nil {
		h.opts.Logger.Warn("session refused", "reason", err)
		w.Header().Set("Retry-After", "5")
		writeError(w, r, http.StatusServiceUnavailable, jsonrpc.CodeInternalError, m.ID(), err.Error())
		return
	}
	s.begin()
	defer s.finish()
	h.serveRequests(w, r, s, []jsonrpc.Message{m}, nil, false)
	s.mu.Lock()
	open := s.answered || s.calls[s.opening] != nil && s.calls[s.opening].stream.committed
	s.mu.Unlock()
	if !open {
		s.end("initialize failed")
	}
}

// serveRequests passes the messages of one POST to the server and answers the
// requests among them. failed are the answers that the bridge gives itself.
func (h *Handler) serveRequests(w http.ResponseWriter, r *http.Request, s *session, messages, failed []jsonrpc.Message, batch bool) {
	requests := messages
	if batch {
		requests = onlyRequests(messages)
	}
	st, rd, used, err := s.open(requests)
	switch {
	case err != nil:
		refuseID(w, r, http.StatusNotFound, requests[0].ID(), "the session has ended; begin anew with an initialize request")
		return
	case st == nil:
		refuseID(w, r, http.StatusBadRequest, used, "a request with this id is already in progress")
		return
	}
	defer s.detach(st, rd)
	s.prepend(st, failed)
	for _, m := range messages {
		if m.Kind() != jsonrpc.Request {
			if !h.hand(w, r, s, m) {
				return
			}
			continue
		}
		if err := s.accept(r.Context(), m); err != nil {
			if r.Context().Err() != nil {
				s.withdraw(m.ID())
				return
			}
			break // the session has ended, and that has answered every request
		}
	}
	h.answer(w, r, s, st, rd, requests, batch)
}

// answer waits for what comes first: the whole answer, which becomes JSON, or
// anything else, which makes it an SSE stream (LI7).
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, s *session, st *stream, rd *reader, requests []jsonrpc.Message, batch bool) {
	wait := h.opts.CommitAfter
	opening := requests[0].ID() == s.opening
	if opening {
		wait = initializeCommit
	}
	commit := time.NewTimer(wait)
	defer commit.Stop()
	for {
		timeUp := false
		select {
		case <-rd.wake:
		case <-commit.C:
			timeUp = true
		case <-r.Context().Done():
			return
		}
		if events, ok := s.reply(st); ok {
			if opening {
				s.mu.Lock()
				if s.answered {
					w.Header().Set(headerSession, s.id)
				}
				s.mu.Unlock()
			}
			h.writeJSON(w, events, requests, batch)
			return
		}
		if timeUp || s.waiting(st) {
			if opening {
				w.Header().Set(headerSession, s.id)
			}
			s.commit(st)
			h.serveSSE(w, r, s, st, rd)
			return
		}
	}
}

// writeJSON answers a POST with one response, or a batch with an array of
// them in the order of the requests (LI10).
func (h *Handler) writeJSON(w http.ResponseWriter, events []event, requests []jsonrpc.Message, batch bool) {
	w.Header()["Content-Type"] = valueJSON
	if !batch {
		h.writeBody(w, events[0].line)
		return
	}
	body := []byte{'['}
	for i, e := range inOrder(events, requests) {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, e.line...)
	}
	h.writeBody(w, append(body, ']'))
}

func (h *Handler) writeBody(w http.ResponseWriter, body []byte) {
	if len(body) > 2048 { // net/http counts what is shorter itself
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	if len(body) <= largeEvent {
		_, _ = w.Write(body) // an error: the client has gone, and nobody is left to tell
		return
	}
	out := &replyWriter{w: w, rc: http.NewResponseController(w), stall: h.opts.StallAfter}
	defer out.close()
	out.write(body)
}
