package httpserver

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Why Share.Read has not read a body, beside what the connection itself says.
var (
	ErrTooLarge = errors.New("body too large")
	ErrTooMuch  = errors.New("too much is being received; try again later")
)

// Bodies reads the bodies of requests, in bounded memory. Its fields are set
// before it is used; then any number of goroutines may use it. It must not be
// copied.
type Bodies struct {
	Max   int // bytes in a body; more is answered 413
	Total int // bytes of all bodies that have a Share; beyond, 503. Negative: no limit

	taken atomic.Int64 // of Total
}

// Refuse answers a request of which the body could not be read; err is
// ErrTooLarge or another error of Share.Read.
func (b *Bodies) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, code, text := http.StatusBadRequest, jsonrpc.CodeParseError, "the body could not be read"
	switch {
	case errors.Is(err, ErrTooMuch):
		LastRequest(w, r) // the rest is not worth reading
		Busy(w, r, jsonrpc.ID{}, ErrTooMuch.Error())
		return
	case errors.Is(err, ErrTooLarge):
		status, code = http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest
		text = "the message is larger than " + strconv.Itoa(b.Max) + " bytes (--max-message-size)"
	case errors.Is(err, os.ErrDeadlineExceeded):
		LastRequest(w, r)
		status, code = http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest
		text = "the body did not arrive in time"
	}
	WriteError(w, r, status, code, jsonrpc.ID{}, text)
}

// Share returns what one body takes of Total: nothing yet.
func (b *Bodies) Share() *Share { return &Share{of: b} }

// Taken returns how much of Total is taken.
func (b *Bodies) Taken() int64 { return b.taken.Load() }

// Share is what one body takes of the memory for all of them. It belongs to
// one goroutine, which owes it a Free.
type Share struct {
	of    *Bodies
	taken int64
}

func (s *Share) take(n int64) bool {
	if s.of.Total < 0 {
		return true
	}
	s.taken += n
	return s.of.taken.Add(n) <= int64(s.of.Total)
}

// Free gives everything back. It may be called more than once, and on nil.
func (s *Share) Free() {
	if s != nil && s.taken > 0 {
		s.of.taken.Add(-s.taken)
		s.taken = 0
	}
}

// Read returns the body of r, if it is no longer than max bytes. The error is
// ErrTooLarge, ErrTooMuch, or what the connection says. It waits
// for the body as long as the connection does: see Deadlines.
func (s *Share) Read(r *http.Request, max int) ([]byte, error) {
	return s.readAll(r.Body, r.ContentLength, int64(max))
}

// readAll reads r, which is said to have size bytes (-1: unknown), but not
// more than max, in one buffer of the right size where that is known.
func (s *Share) readAll(r io.Reader, size, max int64) ([]byte, error) {
	const trusted = 1 << 20
	if size >= 0 && size <= min(trusted, max) {
		if !s.take(size) {
			return nil, ErrTooMuch
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
		return nil, ErrTooMuch
	}
	body := make([]byte, 0, room)
	for {
		if len(body) == cap(body) {
			room := min(4*int64(cap(body)), size+1)
			if !s.take(room - int64(cap(body))) {
				return nil, ErrTooMuch
			}
			grown := make([]byte, len(body), room)
			copy(grown, body)
			body = grown
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > size:
			return nil, ErrTooLarge
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
