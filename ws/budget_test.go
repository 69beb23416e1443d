package ws

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// begun is a client that has sent initialize, which the session has got.
func (s *site) begun(t *testing.T) (*raw, *session) {
	t.Helper()
	c := s.dialRaw(t, nil)
	session := <-s.sessions
	c.write(frame(fin|opText, []byte(initializeText)))
	wantText(t, recv(t, session), initializeText)
	return c, session
}

// part sends a part of a message, and returns when the server has read it.
func (c *raw) part(op byte, payload []byte) {
	c.t.Helper()
	c.write(append(frame(op, payload), frame(fin|opPing, nil)...))
	if first, _, err := c.next(); first != fin|opPong {
		c.t.Errorf("a ping after %d bytes was answered with %x, %v", len(payload), first, err)
	}
}

// J9: a client that is closed for the length of a message is told how long one
// may be, and which flag changes that, if one does.
func TestTooLongSaysTheLimit(t *testing.T) {
	const limit = 2 << 20
	s := newSite(t, HandlerOptions{MaxMessageSize: limit})
	stranger := s.dialRaw(t, nil)
	<-s.sessions
	known, _ := s.begun(t)
	for c, want := range map[*raw]string{
		stranger: "a message longer than 1048576 bytes, which is the limit until there was a valid one",
		known:    "a message longer than 2097152 bytes, which is the limit (--max-message-size)",
	} {
		go c.conn.Write(frame(fin|opText, bytes.Repeat([]byte(" "), limit+1))) // which may not be taken to its end
		if got := c.wantClose(1009); got != want {
			t.Errorf("the reason is %q, want %q", got, want)
		}
		<-s.over
		c.conn.Close()
	}
}

const bigStart, bigEnd = `{"jsonrpc":"2.0","method":"big","params":{"s":"`, `"}}`

// J9: what all clients together make the server hold is bounded, and small
// messages of others pass all the while.
func TestManyUnfinished(t *testing.T) {
	const total = 4 << 20
	var log bytes.Buffer
	memory := budget.New(total)
	s := newSite(t, HandlerOptions{Budget: memory, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	other, otherSession := s.begun(t)
	flood := append(frame(opText, []byte(bigStart)), header(opContinuation, 40<<20, 0x80)...)
	flood = append(flood, make([]byte, 4+40<<20)...)
	var clients []*raw
	for range 12 {
		c, _ := s.begun(t)
		clients = append(clients, c)
		go c.conn.Write(flood) // which is not taken to its end
	}
	other.write(frame(fin|opText, []byte(initializedText)))
	wantText(t, recv(t, otherSession), initializedText)
	for _, c := range clients {
		if reason := c.wantClose(1013); reason != errBudgetExhausted.Error() {
			t.Errorf("the reason is %q", reason)
		}
		c.conn.Close()
		<-s.over
	}
	other.write(frame(fin|opText, []byte(initializedText)))
	wantText(t, recv(t, otherSession), initializedText)
	s.h.Close()
	if n := memory.Taken(); n != 0 {
		t.Errorf("%d bytes are still taken", n)
	}
	if n := strings.Count(log.String(), "too much is being received"); n == 0 || n > 10 {
		t.Errorf("%d warnings", n)
	}
}

// The memory is given back when the message has been passed on.
func TestBudgetIsGivenBack(t *testing.T) {
	memory := budget.New(16 << 20)
	s := newSite(t, HandlerOptions{Budget: memory})
	fill := bytes.Repeat([]byte("x"), 3<<20)
	holder, holding := s.begun(t)
	holder.part(opText, []byte(bigStart))
	holder.part(opContinuation, fill)
	about3MiB := func(n int64) bool { return n > 3<<20-2*budget.SmallShare && n < 3<<20+2*budget.SmallShare }
	if n := memory.Taken(); !about3MiB(n) {
		t.Errorf("%d bytes are taken for 3 MiB", n)
	}
	second, _ := s.begun(t)
	go second.conn.Write(append(append(frame(opText, []byte(bigStart)), frame(opContinuation, fill)...), frame(opContinuation, fill)...))
	second.wantClose(1013)
	second.conn.Close()
	<-s.over

	holder.write(frame(fin|opContinuation, []byte(bigEnd)))
	for holding.in.waiting() == 0 { // nobody has taken it yet
		runtime.Gosched()
	}
	if n := memory.Taken(); !about3MiB(n) {
		t.Errorf("%d bytes are taken while 3 MiB wait", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = holding.Receive(ctx, bridgetest.SinkFunc(func(_ context.Context, m jsonrpc.Message) error {
		wantText(t, m, bigStart+string(fill)+bigEnd)
		if n := memory.Taken(); !about3MiB(n) {
			t.Errorf("%d bytes are taken while 3 MiB are being passed on", n)
		}
		cancel()
		return nil
	}))
	if n := memory.Taken(); n != 0 {
		t.Errorf("%d bytes are taken after the message", n)
	}
	third, taking := s.begun(t)
	go third.conn.Write(frame(fin|opText, []byte(bigStart+string(fill)+bigEnd)))
	wantText(t, recv(t, taking), bigStart+string(fill)+bigEnd)
}

// Before there is a session's first message, nobody needs much.
func TestFirstMessage(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	big := frame(fin|opText, []byte(bigStart+strings.Repeat("x", 2<<20)+bigEnd))
	c := s.dialRaw(t, nil)
	<-s.sessions
	go c.conn.Write(append(frame(fin|opText, []byte("{}")), big...)) // what is no message changes nothing
	c.wantClose(1009)
	c, session := s.begun(t)
	go c.conn.Write(big)
	if n := len(new(recv(t, session)).Bytes()); n < 2<<20 {
		t.Errorf("%d bytes came", n)
	}
}

// Who begins a message and does not go on holds memory for nothing.
func TestDribble(t *testing.T) {
	s := newSite(t, HandlerOptions{ChunkTimeout: 200 * time.Millisecond})
	c, _ := s.begun(t)
	c.write(frame(opText, []byte(bigStart+strings.Repeat("x", 100<<10))))
	c.wantClose(1008)
	c.conn.Close()
	<-s.over
}

// waiting returns how many messages no Sink has taken yet.
func (in *inbound) waiting() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.deliveredCount - in.takenCount
}
