package streamhttp

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/sse"
)

// serveGET opens a standalone stream, or resumes any stream (LI17 to LI19).
func (h *Handler) serveGET(w http.ResponseWriter, r *http.Request) {
	if !accepts(r.Header, typeSSE) {
		refuse(w, r, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must admit text/event-stream")
		return
	}
	s := h.find(w, r, jsonrpc.ID{})
	if s == nil {
		return
	}
	s.begin()
	defer s.finish()
	var st *stream
	var rd *reader
	var err error
	if last := r.Header.Get(headerLastEventID); last == "" {
		st, rd, err = s.listen()
	} else if key, seq, ok := parseEventID(last); ok {
		st, rd, err = s.resume(key, seq)
	}
	switch {
	case err != nil:
		refuse(w, r, http.StatusNotFound, jsonrpc.CodeInvalidRequest, sessionGone)
		return
	case st == nil:
		refuse(w, r, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "the stream of this Last-Event-ID cannot be resumed: it is unknown, complete, cancelled, or no longer kept")
		return
	}
	defer s.detach(st, rd)
	h.serveSSE(w, r, s, st, rd, &outbox{})
}

// An event id is the stream's key and the event's number in it (LI15).
func appendEventID(dst []byte, key, seq uint64) []byte {
	dst = strconv.AppendUint(dst, key, 10)
	dst = append(dst, '_')
	return strconv.AppendUint(dst, seq, 10)
}

func parseEventID(id string) (key, seq uint64, ok bool) {
	a, b, ok := strings.Cut(id, "_")
	if !ok {
		return 0, 0, false
	}
	key, err1 := strconv.ParseUint(a, 10, 64)
	seq, err2 := strconv.ParseUint(b, 10, 64)
	return key, seq, err1 == nil && err2 == nil
}

// largeEvent is the size from which an event is written as it is instead of
// being copied into a buffer together with others.
const largeEvent = 16 << 10

// serveSSE writes a stream until it is finished, the client has gone, or
// another connection takes the stream over. Meanwhile the server gets todo.
func (h *Handler) serveSSE(w http.ResponseWriter, r *http.Request, s *session, st *stream, rd *reader, todo *outbox) {
	header := w.Header()
	header["Content-Type"] = valueSSE
	header["Cache-Control"] = valueNoCache
	header["X-Accel-Buffering"] = valueNoBuffer
	w.WriteHeader(http.StatusOK)
	out := &replyWriter{w: w, rc: http.NewResponseController(w), stall: h.opts.StallAfter, dirty: true}

	if v := s.revision(); knownVersion(v) && v >= version2025_11_25 {
		// A client that loses the connection before the first real event
		// must still have an id to come back with (LI14, LI17).
		if seq, ours := s.cursor(st, rd); ours {
			out.prime(st.key, seq)
		}
	}
	var events []event
	events, over := s.take(st, rd, events)
	every := h.opts.KeepAlive
	if every < 0 {
		every = math.MaxInt64
	}
	keepAlive := time.NewTimer(every)
	defer keepAlive.Stop()
	for {
		for _, e := range events {
			out.event(st.key, e)
		}
		if out.flush() != nil || over {
			return
		}
		in, next := todo.next()
		if len(events) > 0 && in != nil {
			select {
			case in <- next:
				todo.passed()
			default:
			}
		}
		if len(events) == 0 {
			select {
			case in <- next:
				todo.passed()
				continue
			case <-rd.wake:
			case <-rd.gone:
				return
			case <-r.Context().Done():
				return
			case <-keepAlive.C:
				out.buf = sse.AppendComment(out.buf, "keep-alive")
			}
			keepAlive.Reset(every)
		}
		clear(events)
		events, over = s.take(st, rd, events[:0])
	}
}

// replyWriter writes to one HTTP reply. The first error stays.
type replyWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	until time.Time // the write deadline that is set
	buf   []byte
	dirty bool
	err   error
}

// prime writes an event without data, whose id is where the stream stands.
func (o *replyWriter) prime(key, seq uint64) {
	var id [41]byte
	o.buf = sse.AppendEvent(o.buf, sse.Event{ID: string(appendEventID(id[:0], key, seq))})
}

func (o *replyWriter) event(key uint64, e event) {
	var room [41]byte
	id := string(appendEventID(room[:0], key, e.seq))
	if len(e.line) < largeEvent {
		o.buf = sse.AppendEvent(o.buf, sse.Event{ID: id, Data: e.line})
	} else {
		o.buf = sse.AppendHead(o.buf, sse.Event{ID: id})
		o.write(o.buf)
		o.write(e.line)
		o.buf = append(o.buf[:0], sse.Tail...)
	}
	if len(o.buf) >= largeEvent {
		o.write(o.buf)
		o.buf = o.buf[:0]
	}
}

func (o *replyWriter) write(p []byte) {
	if o.err != nil || len(p) == 0 {
		return
	}
	o.dirty = true
	for len(p) > 0 && o.err == nil {
		if now := time.Now(); o.stall > 0 && o.until.Sub(now) < o.stall/2 {
			o.until = now.Add(o.stall)
			_ = o.rc.SetWriteDeadline(o.until) // not every ResponseWriter can
		}
		n := min(len(p), writeChunk)
		_, o.err = o.w.Write(p[:n])
		p = p[n:]
	}
}

// writeChunk is written under one deadline, so that a slow reader of a large
// message is told from one that reads nothing.
const writeChunk = 256 << 10

// flush sends everything on its way.
func (o *replyWriter) flush() error {
	o.write(o.buf)
	if o.buf = o.buf[:0]; cap(o.buf) > 4*largeEvent {
		o.buf = nil
	}
	if o.err == nil && o.dirty {
		o.err = o.rc.Flush()
		o.dirty = false
	}
	return o.err
}
