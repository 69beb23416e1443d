package httpserve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Whatever the header says of its length, a body is read whole or refused for
// its size, within the memory for all of them.
func FuzzRead(f *testing.F) {
	for _, size := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 1<<20 + 1} {
		f.Add(size, int64(-1), size, 4<<20)
		f.Add(size, int64(size), size, -1)
		f.Add(size, int64(5<<20), 4<<20, size)
		f.Add(size, int64(-1), size-1, 4<<20)
	}
	f.Fuzz(func(t *testing.T, size int, claim int64, max, total int) {
		if size < 0 || size > 2<<20 || max < 0 || max > 8<<20 || claim < -1 || claim >= 0 && claim < int64(size) {
			return // net/http never gives more than was claimed
		}
		b := &BodyLimits{Budget: budget.New(int64(total))}
		sent := bytes.Repeat([]byte("0123456789abcdef-"), size/17+1)[:size]
		var r io.Reader = bytes.NewReader(sent)
		if claim > int64(size) {
			r = io.MultiReader(r, iotest.ErrReader(io.ErrUnexpectedEOF))
		}
		s := b.NewMemory()
		got, err := s.Read(&http.Request{Body: io.NopCloser(r), ContentLength: claim}, max)
		switch {
		case err == nil && !bytes.Equal(got, sent):
			t.Errorf("%d bytes came of %d", len(got), size)
		case err == nil && len(got) > max:
			t.Errorf("%d bytes came, although no more than %d may", len(got), max)
		case err == nil && total >= 0 && b.Budget.Taken() > int64(total)*5/8:
			t.Errorf("%d bytes are taken of %d", b.Budget.Taken(), total)
		case err == nil && total >= 0 && cap(got)-budget.UncountedBytes > int(b.Budget.Taken()):
			t.Errorf("a body in %d bytes counts as %d", cap(got), b.Budget.Taken())
		case err == ErrTooLarge && size <= max:
			t.Errorf("%d bytes are too large for %d", size, max)
		case err == errBudgetExhausted && total < 0:
			t.Error("there is no limit, and it was reached")
		case err != nil && err != errBudgetExhausted && size <= max && claim <= int64(size):
			t.Errorf("%d of %d bytes: %v", size, max, err)
		}
		s.Free()
		if s.Free(); b.Budget.Taken() != 0 {
			t.Errorf("%d bytes are taken by nobody", b.Budget.Taken())
		}
	})
}

// What is held counts for who has sent it, for as long as it is held, and no
// longer. What is short, or small while others have taken the most, is let pass.
func TestBudget(t *testing.T) {
	const size = 100_000
	b := &BodyLimits{MaxBytes: size, Budget: budget.New(8 * size), PartyOf: func(r *http.Request) string { return r.RemoteAddr }}
	read := func(party string, size int) (*BodyMemory, error) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", size)))
		r.RemoteAddr = party
		s := b.NewMemory()
		_, err := s.Read(r, b.MaxBytes)
		return s, err
	}
	var held []*BodyMemory
	for {
		s, err := read("a", size)
		if err != nil {
			s.Free()
			break
		}
		held = append(held, s)
	}
	if n := len(held); n < 3 || n > 4 {
		t.Errorf("alone a party may have %d of 8", n)
	}
	other, err := read("b", size)
	if err != nil {
		t.Errorf("another party: %v", err)
	}
	short, err := read("a", 1000)
	if err != nil {
		t.Errorf("a short body of who has much: %v", err)
	}
	for _, s := range held {
		s.Free()
	}
	again, err := read("a", size)
	if err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	for _, s := range append(held, other, short, again, nil) {
		s.Free()
	}
	large, err := read("a", size+1)
	if err != ErrTooLarge {
		t.Errorf("a body that is too large: %v", err)
	}
	large.Free()
	if n := b.Budget.Taken(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// What is promised takes nothing: only what has come does.
func TestPromises(t *testing.T) {
	b := &BodyLimits{MaxBytes: 1 << 20, Budget: budget.New(1 << 20)}
	for _, sent := range []int{0, 1, 15 << 10} {
		s := b.NewMemory()
		body := io.MultiReader(strings.NewReader(strings.Repeat("x", sent)), iotest.ErrReader(os.ErrDeadlineExceeded))
		_, err := s.Read(&http.Request{Body: io.NopCloser(body), ContentLength: 1 << 20}, b.MaxBytes)
		if n := b.Budget.Taken(); n != 0 || err != os.ErrDeadlineExceeded {
			t.Errorf("after %d of a megabyte %d bytes are counted: %v", sent, n, err)
		}
	}
}

// J9: why a body could not be read decides the status, and whether the
// connection goes on.
func TestRefuse(t *testing.T) {
	b := &BodyLimits{MaxBytes: 1234}
	for _, c := range []struct {
		err               error
		status, code      int
		text              string
		lasts, retryAfter bool
	}{
		{ErrTooLarge, 413, jsonrpc.CodeInvalidRequest, "larger than 1234 bytes (--max-message-size)", true, false},
		{errBudgetExhausted, 503, jsonrpc.CodeInternalError, "try again later", false, true},
		{os.ErrDeadlineExceeded, 408, jsonrpc.CodeInvalidRequest, "did not arrive in time", false, false},
		{errors.New("secret"), 400, jsonrpc.CodeParseError, "could not be read", true, false},
	} {
		for _, major := range []int{1, 2} {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.ProtoMajor = major
			w := httptest.NewRecorder()
			b.Refuse(w, r, c.err)
			e, err := jsonrpc.Parse(w.Body.Bytes())
			if err != nil || w.Code != c.status || !e.IsError() || e.ID() != jsonrpc.NullID ||
				!strings.Contains(w.Body.String(), c.text) || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%v: %d %s", c.err, w.Code, w.Body)
			}
			if lasts := w.Header().Get("Connection") == ""; lasts != (c.lasts || major == 2) {
				t.Errorf("%v, HTTP/%d: the connection goes on: %v", c.err, major, lasts)
			}
			if (w.Header().Get("Retry-After") != "") != c.retryAfter {
				t.Errorf("%v: %v", c.err, w.Header())
			}
		}
	}
}

// J4: an id that is not known is null, and since 2025-11-25 left out.
func TestUnknownID(t *testing.T) {
	for version, want := range map[string]bool{"": true, "2025-06-18": true, "2025-11-25": false} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Mcp-Protocol-Version", version)
		w := httptest.NewRecorder()
		RefuseBusy(w, r, jsonrpc.ID{}, "no", errBudgetExhausted)
		if got := strings.Contains(w.Body.String(), `"id":null`); got != want {
			t.Errorf("%s: %s", version, w.Body)
		}
	}
}
