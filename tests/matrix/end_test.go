package matrix

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A frame is one message as it crossed a wire, byte for byte.
type frame struct {
	text string
	// on is where it came: the id, as spelled, of the request whose stream
	// carried it; "" where it came in the course of no request, or the wire
	// has but one channel.
	on string
	// message is what the text says, once it was delivered.
	message envelope
}

// anywhere is for whoever does not mind where a frame comes.
const anywhere = "*"

// envelope is what the test itself reads of a message.
type envelope struct {
	JSONRPC string
	ID      json.RawMessage
	Method  string
	Params  json.RawMessage
	Result  json.RawMessage
	Error   json.RawMessage
}

// open reads a message. The large object of stepBig is left out: to read that
// with the race detector takes longer than all the rest, and it is compared anyway.
func open(text string) (e envelope, err error) {
	if len(text) >= len(mebibyte) {
		text = strings.Replace(text, mebibyte, "{}", 1)
	}
	err = json.Unmarshal([]byte(text), &e)
	return e, err
}

func (e envelope) isRequest() bool  { return e.Method != "" && e.ID != nil }
func (e envelope) isResponse() bool { return e.Result != nil || e.Error != nil }

// elements returns the messages in a text, of a batch or of one, as spelled.
func elements(text string) []string {
	if !strings.HasPrefix(text, "[") {
		return []string{text}
	}
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return []string{text}
	}
	var out []string
	for _, r := range raw {
		out = append(out, string(r))
	}
	return out
}

// An end is one end of a conversation: it keeps what is heard there until the
// script asks for it, and the books on who owes whom an answer. A wire
// delivers; what must never happen is a fault, and fails whatever step runs.
type end struct {
	who string // for the reader
	// sink takes what is heard, and gone is told of the end, where it is a
	// program that listens and not the script; set before anything comes.
	sink func(frame)
	gone func()

	mu      sync.Mutex // guards all below
	changed chan struct{}
	inbox   []frame
	faults  []string
	asked   map[string]bool // by id as spelled: requests said here; true: no answer may come any more
	met     map[string]bool // ids of the requests heard here
	over    string          // how the other side has ended it; "": it has not
	pardon  bool            // nothing is a fault any more
}

func newEnd(who string) *end {
	return &end{who: who, changed: make(chan struct{}), asked: map[string]bool{}, met: map[string]bool{}}
}

// update changes the books and wakes whoever waits.
func (e *end) update(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
	close(e.changed)
	e.changed = make(chan struct{})
}

// fault notes what must never happen.
func (e *end) fault(format string, args ...any) {
	e.update(func() {
		if !e.pardon {
			e.faults = append(e.faults, e.who+": "+fmt.Sprintf(format, args...))
		}
	})
}

// ended notes that nothing more will come.
func (e *end) ended(how string) {
	e.update(func() {
		if e.over == "" {
			e.over = how
		}
	})
	if e.gone != nil {
		e.gone()
	}
}

// said enters what is about to be sent into the books.
func (e *end) said(text string) {
	for _, one := range elements(text) {
		if m, err := open(one); err == nil && m.isRequest() {
			e.update(func() { e.asked[string(m.ID)] = false })
		}
	}
}

// giveUp says that nothing may come any more about a request that was said here.
func (e *end) giveUp(id string) {
	e.update(func() { e.asked[id] = true })
}

// deliver takes a message from the wire.
func (e *end) deliver(f frame) {
	m, err := open(f.text)
	switch {
	case err != nil || !strings.HasPrefix(f.text, "{"):
		e.fault("no message came, but %s (%v)", clip(f.text), err)
		return
	case !utf8.ValidString(f.text) || strings.Contains(f.text, "\r") || strings.Contains(f.text, "\n") || m.JSONRPC != "2.0":
		e.fault("an invalid message came: %s", clip(f.text))
		return
	}
	var wrong string
	e.update(func() {
		id := string(m.ID)
		switch {
		case m.isResponse():
			if gaveUp, asked := e.asked[id]; !asked {
				wrong = "an answer to no request in progress"
			} else if gaveUp {
				wrong = "an answer to a cancelled request"
			}
			delete(e.asked, id)
		case m.isRequest():
			if e.met[id] {
				wrong = "a request a second time, or an id a second time"
			}
			e.met[id] = true
		case m.Method == "":
			wrong = "neither request nor notification nor response"
		}
		f.message = m
		if wrong == "" && e.sink == nil {
			e.inbox = append(e.inbox, f)
		}
	})
	switch {
	case wrong != "":
		e.fault("%s came: %s", wrong, clip(f.text))
	case e.sink != nil:
		e.sink(f)
	}
}

// waitFor waits until ok, which runs under the lock, says so.
func (e *end) waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	timeout := time.After(harness.Patience)
	for {
		e.mu.Lock()
		done, changed, faults, over := ok(), e.changed, e.faults, e.over
		heard := list(e.inbox)
		e.mu.Unlock()
		switch {
		case len(faults) > 0:
			t.Fatalf("waiting for %s, %s", what, strings.Join(faults, "\n"))
		case done:
			return
		case over != "":
			t.Fatalf("%s: %s did not come before the end (%s); what came is %s", e.who, what, over, heard)
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%s: %s did not come; what came is %s", e.who, what, heard)
		}
	}
}

// take waits for the first frame on a stream, or with anywhere the first that
// is wanted, and removes it.
func (e *end) take(t testing.TB, what, on string, wanted func(text string) bool) frame {
	t.Helper()
	return e.pick(t, what, on, func(f frame) bool { return wanted(f.text) })
}

// find is take for who looks at what a message says.
func (e *end) find(t testing.TB, what, on string, wanted func(m envelope) bool) frame {
	t.Helper()
	return e.pick(t, what, on, func(f frame) bool { return wanted(f.message) })
}

func (e *end) pick(t testing.TB, what, on string, wanted func(frame) bool) frame {
	t.Helper()
	var got frame
	e.waitFor(t, what, func() bool {
		for i, f := range e.inbox {
			if on != anywhere && f.on != on || on == anywhere && !wanted(f) {
				continue
			}
			got = f
			e.inbox = append(e.inbox[:i:i], e.inbox[i+1:]...)
			return true
		}
		return false
	})
	if !wanted(got) {
		t.Fatalf("%s, on stream %q: what came is\n%s, not\n%s", e.who, on, clip(got.text), what)
	}
	return got
}

// hear wants the next message on a stream to be this one, to the byte.
func (e *end) hear(t testing.TB, on, want string) frame {
	t.Helper()
	return e.take(t, clip(want), on, func(text string) bool { return text == want })
}

// hearError wants an error response with one of these codes, and returns it.
func (e *end) hearError(t testing.TB, on, id string, codes ...int) string {
	t.Helper()
	return e.take(t, fmt.Sprintf("an error %v with id %s", codes, id), on, func(text string) bool {
		return isError(text, id, codes...)
	}).text
}

// rejected wants an error with no id, or one of ids, after something is said.
func (e *end) rejected(t testing.TB, code int, ids []string, say func()) {
	t.Helper()
	ids = append([]string{"null"}, ids...)
	e.update(func() {
		for _, id := range ids {
			e.asked[id] = false
		}
	})
	say()
	e.take(t, fmt.Sprintf("an error %d with an id of %s", code, ids), "", func(text string) bool {
		m, err := open(text)
		return err == nil && slices.Contains(ids, string(m.ID)) && isError(text, string(m.ID), code)
	})
	e.update(func() {
		for _, id := range ids {
			delete(e.asked, id)
		}
	})
}

// noID reports whether an id is missing, null, or one of ids.
func noID(id json.RawMessage, ids []string) bool {
	return id == nil || string(id) == "null" || slices.Contains(ids, string(id))
}

func isError(text, id string, codes ...int) bool {
	m, err := open(text)
	var body struct{ Code int }
	if err != nil || m.Error == nil || string(m.ID) != id || json.Unmarshal(m.Error, &body) != nil {
		return false
	}
	for _, c := range codes {
		if body.Code == c {
			return true
		}
	}
	return false
}

// waitOver waits for the other side to end the conversation, and returns how.
// Frames that come before count as unexpected.
func (e *end) waitOver(t testing.TB) string {
	t.Helper()
	timeout := time.After(harness.Patience)
	for {
		e.mu.Lock()
		over, changed := e.over, e.changed
		e.mu.Unlock()
		if over != "" {
			e.silent(t)
			return over
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%s: the conversation did not end", e.who)
		}
	}
}

// endsWith waits for the end, before which nothing may come but what is allowed.
func (e *end) endsWith(t testing.TB, allowed func(envelope) bool) {
	t.Helper()
	e.waitFor(t, "the end", func() bool {
		e.inbox = slices.DeleteFunc(e.inbox, func(f frame) bool { return allowed(f.message) })
		return e.over != ""
	})
}

// silent wants nothing to wait here, and no fault.
func (e *end) silent(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.faults) > 0 {
		t.Fatal(strings.Join(e.faults, "\n"))
	}
	if len(e.inbox) > 0 {
		t.Fatalf("%s: nobody expected %s", e.who, list(e.inbox))
	}
}

// peek returns what waits here and how it ended.
func (e *end) peek() (frames []frame, over string, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]frame(nil), e.inbox...), e.over, e.changed
}

func list(frames []frame) string {
	if len(frames) == 0 {
		return "nothing"
	}
	var b strings.Builder
	for i, f := range frames {
		if i == 10 {
			fmt.Fprintf(&b, "\n  and %d more", len(frames)-i)
			break
		}
		fmt.Fprintf(&b, "\n  [%s] %s", f.on, clip(f.text))
	}
	return b.String()
}

// clip shortens a text for the reader.
func clip(s string) string {
	const most = 600
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s ... (%d bytes) ... %s", s[:most/2], len(s), s[len(s)-most/3:])
}

// Messages as a client of no special taste writes them.
func request(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
}

func response(id, result string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func failure(id, body string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, id, body)
}

func note(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params)
}
