package legacysse

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

var (
	errBodyTooLarge = errors.New("body too large")
	errBodies       = errors.New("too much is being received; try again later")
)

// badBody answers a request of which the body could not be read.
func (h *Handler) badBody(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, errBodyTooLarge):
		h.tooLarge(w, r)
	case errors.Is(err, errBodies):
		w.Header().Set("Connection", "close") // the rest is not worth reading
		busy(w, r, err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		refuse(w, r, http.StatusRequestTimeout, jsonrpc.ID{}, "the body did not arrive within "+h.opts.BodyTimeout.String())
	default:
		writeError(w, r, http.StatusBadRequest, jsonrpc.CodeParseError, jsonrpc.ID{}, "the body could not be read")
	}
}

func (h *Handler) tooLarge(w http.ResponseWriter, r *http.Request) {
	refuse(w, r, http.StatusRequestEntityTooLarge, jsonrpc.ID{},
		"the message is larger than "+strconv.Itoa(h.opts.MaxMessageSize)+" bytes (--max-message-size)")
}

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

// free gives everything back.
func (s *share) free() {
	s.budget.Add(-s.taken)
	s.taken = 0
}

// readAll reads r, which is said to have size bytes (-1: unknown), but not
// more than max. A length is only a claim: memory is taken as the bytes
// arrive, and what is kept is about as large as they are.
func (s *share) readAll(r io.Reader, size, max int64) ([]byte, error) {
	if size < 0 || size > max {
		size = max
	}
	room := min(64<<10, size+1) // one byte more, to see the end
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
			body = append(make([]byte, 0, room), body...)
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
