package streamhttp

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file reads the bodies of POSTs, in bounded memory.

// maxOutside is how large a body may be that belongs to no session: an
// initialize request, or what has to be refused once its id is known.
const maxOutside = 1 << 20

// maxBody returns how many bytes r may send, and whether that is less than
// usual because r belongs to no session.
func (h *Handler) maxBody(r *http.Request) (max int, outside bool) {
	max = h.opts.MaxMessageSize
	if max <= maxOutside || h.opts.Stateless || h.named(r) != nil {
		return max, false
	}
	return maxOutside, true
}

// badBody answers a request of which the body could not be read.
func (h *Handler) badBody(w http.ResponseWriter, r *http.Request, err error, outside bool) {
	switch {
	case errors.Is(err, errBodyTooLarge):
		h.tooLarge(w, r, outside)
	case errors.Is(err, errBodies):
		lastOne(w, r) // the rest is not worth reading
		busy(w, r, jsonrpc.ID{}, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		lastOne(w, r)
		refuse(w, r, http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest, "the body did not arrive within "+h.opts.BodyTimeout.String())
	default:
		refuse(w, r, http.StatusBadRequest, jsonrpc.CodeParseError, "the body could not be read")
	}
}

// lastOne makes r the last request of its connection. Over HTTP/2 it ends
// alone: the header would end what other requests have on the connection.
func lastOne(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = valueClose
	}
}

// tooLarge refuses a body for its size, or if it is large only for one outside
// a session, for the session that its request names in vain.
func (h *Handler) tooLarge(w http.ResponseWriter, r *http.Request, outside bool) {
	text := "the message is larger than " + strconv.Itoa(h.opts.MaxMessageSize) + " bytes (--max-message-size)"
	if outside && r.ContentLength <= int64(h.opts.MaxMessageSize) {
		lastOne(w, r) // at once: the rest is not worth reading
		if r.Header.Get(headerSession) != "" {
			refuse(w, r, http.StatusNotFound, jsonrpc.CodeInvalidRequest, noSuchSession)
			return
		}
		text = "a message without an Mcp-Session-Id must not be larger than " + strconv.Itoa(maxOutside) + " bytes; begin with an initialize request"
	}
	refuse(w, r, http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, text)
}

var (
	errBodyTooLarge = errors.New("body too large")
	errBodies       = errors.New("too much is being received; try again later")
)

// share is what one body takes of the memory for all of them
// (HandlerOptions.MaxBodies). It belongs to one goroutine.
type share struct {
	budget *atomic.Int64 // taken by all
	max    int64         // of budget; below 0: no limit
	taken  int64
}

func (s *share) take(n int64) bool {
	if s.max < 0 {
		return true
	}
	s.taken += n
	return s.budget.Add(n) <= s.max
}

// free gives everything back. It may be called more than once, and on nil.
func (s *share) free() {
	if s != nil && s.taken > 0 {
		s.budget.Add(-s.taken)
		s.taken = 0
	}
}

// readAll reads r, which is said to have size bytes (-1: unknown), but not
// more than max, in one buffer of the right size where that is known.
func (s *share) readAll(r io.Reader, size, max int64) ([]byte, error) {
	const trusted = 1 << 20
	if size >= 0 && size <= min(trusted, max) {
		if !s.take(size) {
			return nil, errBodies
		}
		body := make([]byte, size)
		_, err := io.ReadFull(r, body)
		return body, err
	}
	// A length is only a claim: memory is taken as the bytes arrive. One byte
	// of room is left at the end, to see the end.
	if size < 0 || size > max {
		size = max
	}
	room := min(64<<10, size+1)
	if !s.take(room) {
		return nil, errBodies
	}
	body := make([]byte, 0, room)
	for {
		if len(body) == cap(body) {
			room := min(4*int64(cap(body)), size+1)
			if !s.take(room - int64(cap(body))) {
				return nil, errBodies
			}
			grown := make([]byte, len(body), room)
			copy(grown, body)
			body = grown
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > size:
			return nil, errBodyTooLarge
		case err == io.EOF:
			if cap(body)-len(body) > len(body)/4 {
				body = append(make([]byte, 0, len(body)), body...)
			}
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}
