package streamhttp

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/sse"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// serveGET opens a standalone stream, or resumes any stream (LI17 to LI19).
func (h *Handler) serveGET(w http.ResponseWriter, r *http.Request) {
	if !httpserve.Accepts(r.Header, wire.TypeSSE) {
		refuse(w, r, "LI4", http.StatusNotAcceptable, "the Accept header must admit text/event-stream")
		return
	}
	s := h.findSession(w, r, jsonrpc.ID{})
	if s == nil {
		return
	}
	s.beginExchange()
	defer s.endExchange()
	var st *stream
	var rd *reader
	var err error
	if last := r.Header.Get(wire.HeaderLastEventID); last == "" {
		st, rd, err = s.openStandalone()
	} else if key, seq, ok := parseEventID(last); ok {
		st, rd, err = s.resume(key, seq)
	}
	switch {
	case err != nil:
		refuse(w, r, "LI21", http.StatusNotFound, sessionGoneText)
		return
	case st == nil:
		refuse(w, r, "LI18", http.StatusBadRequest, "the stream of this Last-Event-ID cannot be resumed: it is unknown, complete, cancelled, or no longer kept")
		return
	}
	defer s.detach(st, rd)
	h.serveSSE(w, r, s, st, rd, &serverOutbox{})
}

// appendEventID appends the id of an event: the stream's key and the event's number in the stream (LI15).
func appendEventID(dst []byte, key, seq uint64) []byte {
	dst = strconv.AppendUint(dst, key, 10)
	dst = append(dst, '_')
	return strconv.AppendUint(dst, seq, 10)
}

// parseEventID returns the stream's key and the event's number in an event id; ok is false if the id
// is none of appendEventID.
func parseEventID(id string) (key, seq uint64, ok bool) {
	a, b, ok := strings.Cut(id, "_")
	if !ok {
		return 0, 0, false
	}
	key, err1 := strconv.ParseUint(a, 10, 64)
	seq, err2 := strconv.ParseUint(b, 10, 64)
	return key, seq, err1 == nil && err2 == nil
}

// serveSSE writes a stream until it is finished, the client has gone,
// another connection takes the stream over, or the token of the request ends it (mayOutliveToken).
// Meanwhile the server gets what waits in toServer.
func (h *Handler) serveSSE(w http.ResponseWriter, r *http.Request, s *session, st *stream, rd *reader, toServer *serverOutbox) {
	seen := s.origin.Session()
	if seen == nil {
		h.writeSSE(w, r, s, st, rd, toServer)
		return
	}
	observeOpened(seen, r, st)
	why := h.writeSSE(w, r, s, st, rd, toServer)
	seen.Stream(observe.Stream{Hop: observe.Downstream, Name: st.name(), Action: "closed", Reason: why})
}

// observeOpened tells the Observer that the request r reads a stream from now on: a new one, or one
// that it resumes.
func observeOpened(seen *observe.Session, r *http.Request, st *stream) {
	e := observe.Stream{Hop: observe.Downstream, Name: st.name(), Action: "opened"}
	if r.Method == http.MethodGet {
		if e.FromEventID = r.Header.Get(wire.HeaderLastEventID); e.FromEventID != "" {
			e.Action = "resumed"
		}
	}
	seen.Stream(e)
}

// writeSSE does the work of serveSSE, and returns why it has ended, in words. What it does beside
// waiting is in other functions, because a goroutine that waits here should need little stack.
func (h *Handler) writeSSE(w http.ResponseWriter, r *http.Request, s *session, st *stream, rd *reader, toServer *serverOutbox) (why string) {
	out := sse.NewWriter(w, h.opts.StallAfter)
	s.beginSSE(out, st, rd)
	tokenDone := access.TokenContext(r).Done()
	var events []event
	events, ended := s.take(st, rd, events)
	interval := h.opts.KeepAlive
	if interval < 0 {
		interval = math.MaxInt64
	}
	keepAlive := time.NewTimer(interval)
	defer keepAlive.Stop()
	for {
		s.writeEvents(out, st, events)
		if out.Flush() != nil {
			return "the client does not take it"
		}
		if ended {
			return "it is complete"
		}
		if isDone(tokenDone) { // also while there is always something to write
			if !mayOutliveToken(r) {
				return tokenEndReason(r)
			}
			tokenDone = nil
		}
		taken := toServer.passReady()
		if len(events) == 0 {
			select {
			case <-taken:
				continue
			case <-rd.wake:
			case <-rd.superseded:
				return "another connection has taken it over"
			case <-r.Context().Done():
				return "the client has gone"
			case <-tokenDone:
				continue
			case <-keepAlive.C:
				out.Comment("keep-alive")
			}
			keepAlive.Reset(interval)
		}
		clear(events)
		events, ended = s.take(st, rd, events[:0])
	}
}

// isDone reports whether a channel is closed.
func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// tokenEndReason says, in words, why a stream ends because the token of its request is not valid any
// more: it has expired, or was revoked. (The session goes on: it belongs to a principal, not to a token.)
func tokenEndReason(r *http.Request) (why string) {
	if context.Cause(access.TokenContext(r)) == access.ErrExpired {
		return access.ErrExpired.Error()
	}
	return "its token was revoked"
}

// mayOutliveToken reports whether the stream of a request whose token is not valid any more goes on to the answer:
// it does if the request is a POST, and the token has only expired, and was not revoked.
func mayOutliveToken(r *http.Request) bool {
	return r.Method == http.MethodPost && context.Cause(access.TokenContext(r)) == access.ErrExpired
}

// beginSSE writes what a stream begins with: status, headers, and from 2025-11-25 on an event that
// has only an id, to resume from, unless the session is stateless or rd does not read st any more.
func (s *session) beginSSE(out *sse.Writer, st *stream, rd *reader) {
	out.Begin()
	if v := s.revision(); isKnownVersion(v) && v >= version2025_11_25 && !s.stateless {
		// A client that loses the connection before the first real event
		// must still have an id to come back with (LI14, LI17).
		if seq, ours := s.lastWrittenSeq(st, rd); ours {
			var room [41]byte
			out.Event(sse.Event{ID: string(appendEventID(room[:0], st.key, seq))})
		}
	}
}

// writeEvents writes events of st to out, with their ids, which a stateless session does not have.
func (s *session) writeEvents(out *sse.Writer, st *stream, events []event) {
	for _, e := range events {
		var room [41]byte
		id := room[:0]
		if !s.stateless { // nothing of it could be resumed
			id = appendEventID(id, st.key, e.seq)
		}
		out.Line(sse.Event{ID: string(id)}, e.line)
	}
}
