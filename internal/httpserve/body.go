package httpserve

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Why BodyMemory.Read has not read a body, beside what the connection itself says.
var (
	ErrTooLarge        = errors.New("body too large")                              // BodyMemory.Read: the body is longer than it may be
	errBudgetExhausted = errors.New("too much is being received; try again later") // BodyMemory.Read: there is no room in BodyLimits.Budget
)

// BodyLimits bound the bodies of requests, and the memory for all of them. Their fields are set
// before they are used; then any number of goroutines may use them. They must not be
// copied.
type BodyLimits struct {
	MaxBytes int                        // how many bytes a body may have; a longer one is answered 413
	Budget   *budget.Budget             // the memory for all bodies that have a BodyMemory; beyond, 503. nil: no limit
	PartyOf  func(*http.Request) string // returns the party to which a request counts in Budget; nil: all are one
}

// Refuse answers a request of which the body could not be read; err is
// ErrTooLarge or another error of BodyMemory.Read.
func (b *BodyLimits) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	rule, status, code, text := "J4", http.StatusBadRequest, jsonrpc.CodeParseError, "the body could not be read"
	switch {
	case errors.Is(err, errBudgetExhausted):
		CloseAfterReply(w, r) // the rest is not worth reading
		RefuseBusy(w, r, jsonrpc.ID{}, errBudgetExhausted.Error(), errBudgetExhausted)
		return
	case errors.Is(err, ErrTooLarge):
		rule, status, code = "J9", http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest
		text = "the message is larger than " + strconv.Itoa(b.MaxBytes) + " bytes (--max-message-size)"
	case errors.Is(err, os.ErrDeadlineExceeded):
		CloseAfterReply(w, r)
		rule, status, code = "LI32", http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest
		text = "the body did not arrive in time"
	}
	WriteError(w, r, rule, status, code, jsonrpc.ID{}, text)
}

// NewMemory returns a BodyMemory for one body, which holds nothing of Budget yet. The caller must call
// its Free in the end.
func (b *BodyLimits) NewMemory() *BodyMemory { return &BodyMemory{limits: b} }

// BodyMemory is what the body of one request holds of the memory for all bodies
// (BodyLimits.Budget). It belongs to one goroutine, which must call Free in the end.
type BodyMemory struct {
	limits *BodyLimits   // the limits whose Budget the body takes from
	held   *budget.Share // what the body holds of the Budget; nil: nothing that counts, because it was not read yet, is short, or was detached
}

// Free gives back all that the body holds of the Budget. It may be called more than once, and on nil.
func (s *BodyMemory) Free() { s.Detach().ReleaseAll() }

// ShrinkTo gives back all but n bytes of what the body holds of the Budget.
func (s *BodyMemory) ShrinkTo(n int) {
	if s.HoldsBudget() {
		s.held.Release(max(0, s.held.Held()-n))
	}
}

// HoldsBudget reports whether the body holds something of the Budget. It may be called on nil.
func (s *BodyMemory) HoldsBudget() bool { return s != nil && s.held != nil }

// Detach returns what the body holds of the Budget, which the caller has to free from now on; nil:
// nothing that counts. It may be called on nil.
func (s *BodyMemory) Detach() (held *budget.Share) {
	if s != nil {
		held, s.held = s.held, nil
	}
	return held
}

// Reattach takes back what Detach has returned.
func (s *BodyMemory) Reattach(held *budget.Share) {
	if held != nil {
		s.held = held
	}
}

// Read returns the body of r, if it is no longer than max bytes. The error is
// ErrTooLarge, errBudgetExhausted, or what the connection says. It waits
// for the body as long as the connection does: see Deadlines.
func (s *BodyMemory) Read(r *http.Request, max int) ([]byte, error) {
	size := r.ContentLength
	if size >= 0 && size <= int64(min(budget.UncountedBytes, max)) {
		body := make([]byte, size)
		_, err := io.ReadFull(r.Body, body)
		return body, err
	}
	party := ""
	if s.limits.PartyOf != nil {
		party = s.limits.PartyOf(r)
	}
	s.held = s.limits.Budget.Share(party)
	return s.readAll(r.Body, size, int64(max))
}

// readAll returns all of r, which is said to have size bytes (-1: unknown), or ErrTooLarge if there are
// more than max. A length is only a claim: memory is taken from the Budget as the bytes arrive. Who
// says how much comes gets more room at a time, for less is copied then.
func (s *BodyMemory) readAll(r io.Reader, size, max int64) ([]byte, error) {
	growth := int64(8)
	if size < 0 || size > max {
		size, growth = max, 4
	}
	// One byte of room is left at the end, to see the end.
	body, err := s.growBody(nil, min(budget.UncountedBytes, size+1))
	for err == nil {
		if len(body) == cap(body) {
			if body, err = s.growBody(body, min(growth*int64(cap(body)), size+1)); err != nil {
				return nil, err
			}
		}
		var n int
		n, err = r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if int64(len(body)) > size {
			return nil, ErrTooLarge
		}
	}
	if err != io.EOF {
		return nil, err
	}
	if cap(body)-len(body) > len(body)/4 {
		return s.growBody(body, int64(len(body)))
	}
	return body, nil
}

// growBody returns a copy of body with a capacity of room bytes, which it takes from the Budget, and
// gives back what body had. The error is errBudgetExhausted.
func (s *BodyMemory) growBody(body []byte, room int64) ([]byte, error) {
	if !s.held.Take(int(room)) {
		return nil, errBudgetExhausted
	}
	grown := make([]byte, len(body), room)
	copy(grown, body)
	s.held.Release(cap(body))
	return grown, nil
}
