//go:build unix

package stdio

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
)

const helloLine = `{"jsonrpc":"2.0","method":"hello"}`

// greeted is a client that has said something valid, and its server.
func (s *served) greeted(t *testing.T) *peer {
	t.Helper()
	p := s.connect(t)
	p.say(helloLine)
	wantText(t, <-s.servers, helloLine)
	return p
}

// told is what the client reads before the end.
func (p *peer) told() string {
	p.t.Helper()
	p.SetReadDeadline(time.Now().Add(30 * time.Second))
	text, _ := io.ReadAll(p.in) // the end may be a reset: not all was taken
	return string(text)
}

// What the lines of all clients hold is bounded, and shared out by where they come
// from: whose line has no room is told, and ended; others go on.
func TestLinesBudget(t *testing.T) {
	memory := budget.New(8 << 20)
	parties := make(chan string, 10)
	s := serve(t, ServerOptions{Budget: memory, Party: func(net.Conn) string { return <-parties }})
	parties <- "other"
	other := s.connect(t)
	other.say(helloLine)
	server := <-s.servers
	wantText(t, server, helloLine)
	for range 4 {
		parties <- "a"
		p := s.greeted(t)
		go func() {
			for range 100 {
				if _, err := io.WriteString(p, strings.Repeat("x", 1<<20)); err != nil {
					return
				}
			}
		}()
		if got := p.told(); got != "" && !strings.Contains(got, errBudgetExhausted.Error()) {
			t.Errorf("the client is told %q", got)
		}
		p.Close()
		<-s.ended
	}
	large := fmt.Sprintf(`{"jsonrpc":"2.0","method":"n","params":{"x":%q}}`, strings.Repeat("x", 1<<20))
	other.begin(large)
	wantText(t, server, large)
	other.Close()
	<-s.ended
	s.Close()
	if n := memory.Taken(); n != 0 {
		t.Errorf("%d bytes are taken by nobody", n)
	}
}

// Before there was a valid message nobody knows what a client is: a megabyte is
// enough.
func TestFirstLine(t *testing.T) {
	s := serve(t, ServerOptions{})
	large := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"n","params":{"x":%q}}`, strings.Repeat("x", 2<<20))
	p := s.connect(t)
	p.begin(large)
	if got := p.line(); !strings.Contains(got, `"id":7`) || !strings.Contains(got, "1048576 bytes, which is the limit until there was a valid one") {
		t.Errorf("the client is told %s", got)
	}
	p.say(helloLine)
	server := <-s.servers
	wantText(t, server, helloLine)
	p.begin(large)
	wantText(t, server, large)
}

// Who begins a line and does not go on is ended, and told why; who is silent
// between lines is not.
func TestSlowLine(t *testing.T) {
	s := serve(t, ServerOptions{ChunkTimeout: 300 * time.Millisecond})
	quiet := s.greeted(t)
	for _, begun := range []string{"{", `{"x":"` + strings.Repeat("x", 100<<10)} {
		p := s.greeted(t)
		if _, err := io.WriteString(p, begun); err != nil {
			t.Fatal(err)
		}
		if got := p.told(); got != "" && !strings.Contains(got, errTooSlow.Error()) {
			t.Errorf("the client is told %q", got)
		}
		if err := <-s.ended; err == nil || !strings.Contains(err.Error(), errTooSlow.Error()) {
			t.Errorf("the session ended with %v", err)
		}
	}
	quiet.say(helloLine)
	select {
	case err := <-s.ended:
		t.Errorf("a client that sends whole lines has ended: %v", err)
	default:
	}
}
