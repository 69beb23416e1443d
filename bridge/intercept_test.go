package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// passAll are hooks that change nothing, each of which takes the way that it opens.
var passAll = bridge.Hooks{
	Send:    func(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) { return m, reply, nil },
	Sending: func(jsonrpc.Message) {},
	Sent:    func(jsonrpc.Message) {},
	Receive: func(*jsonrpc.Message) (reply *jsonrpc.Message) { return nil },
	Ended:   func(err error) error { return err },
	Closed:  func(err error) error { return err },
}

func TestInterceptContract(t *testing.T) {
	bridgetest.TestConn(t, func(t *testing.T) (a, b bridge.Conn, stop func()) {
		a, b = bridge.Pipe()
		return bridge.Intercept(a, passAll), bridge.Intercept(b, bridge.Hooks{}), nil
	}, bridgetest.Options{InBubble: true})
}

// listening is a Sink that notes what it takes: not what refuse has a word about, and
// in TrySend only what starts with "quick".
type listening struct {
	got    []string
	tried  []string
	refuse map[string]error
}

func (l *listening) TrySend(m jsonrpc.Message) bool {
	l.tried = append(l.tried, m.Method())
	if !strings.HasPrefix(m.Method(), "quick") {
		return false
	}
	l.got = append(l.got, m.Method())
	return true
}

func (l *listening) Send(_ context.Context, m jsonrpc.Message) error {
	if err := l.refuse[m.Method()]; err != nil {
		return err
	}
	l.got = append(l.got, m.Method())
	return nil
}

func word(name string) jsonrpc.Message { return jsonrpc.NewNotification(name, nil) }

// busy is a Conn whose TrySend is false, and which lists what it is given to send.
type busy struct {
	bridge.Conn
	note func(string)
}

func (b *busy) TrySend(jsonrpc.Message) bool { return false }

func (b *busy) Send(_ context.Context, m jsonrpc.Message) error {
	b.note("given " + m.Method())
	return nil
}

// Sending is told of what is about to be sent, each time that it is tried, and of nothing that the hook Send keeps back.
func TestInterceptSending(t *testing.T) {
	var told []string
	note := func(what string) { told = append(told, what) }
	ours, _ := bridge.Pipe()
	defer ours.Close(nil)
	c := bridge.Intercept(&busy{ours, note}, bridge.Hooks{
		Send: func(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
			if m.Method() == "swallowed" {
				return out, reply, nil
			}
			return word(m.Method() + " out"), reply, nil
		},
		Sending: func(out jsonrpc.Message) { note("sending " + out.Method()) },
		Sent:    func(out jsonrpc.Message) { note("sent " + out.Method()) },
	})
	for _, name := range []string{"swallowed", "a"} {
		if !c.TrySend(word(name)) {
			must(t, c.Send(t.Context(), word(name)))
		}
	}
	if want := []string{"sending a out", "sending a out", "given a out", "sent a out"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// A message that the receiver does not take at once, or not at all, is not shown again.
func TestInterceptReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, peer := bridge.Pipe()
		var seen []string
		over := 0
		c := bridge.Intercept(ours, bridge.Hooks{
			Receive: func(m *jsonrpc.Message) (reply *jsonrpc.Message) {
				seen = append(seen, m.Method())
				answer := word("answer")
				switch m.Method() {
				case "swallowed":
					*m = jsonrpc.Message{}
				case "answered":
					*m, reply = jsonrpc.Message{}, &answer
				case "both":
					*m, reply = word("quick both"), &answer
				default:
					*m = word(m.Method() + " in")
				}
				return reply
			},
			Ended: func(err error) error {
				over++
				return fmt.Errorf("after all: %w", err)
			},
		})
		defer c.Close(nil)
		for _, name := range []string{"quick", "slow", "swallowed", "refused", "answered", "both", "last"} {
			must(t, peer.Send(t.Context(), word(name)))
		}
		no := errors.New("no")
		l := &listening{refuse: map[string]error{"refused in": no}}
		if err := c.Receive(t.Context(), l); err != no {
			t.Errorf("Receive = %v", err)
		}
		if m, err := bridge.First(t.Context(), c); err != nil || m.Method() != "refused in" {
			t.Errorf("the first is %s, %v", m.Bytes(), err)
		}
		l.refuse = nil
		ended := make(chan error, 1)
		go func() { ended <- c.Receive(t.Context(), l) }()
		synctest.Wait()
		answers := new(listening)
		go peer.Receive(t.Context(), answers)
		synctest.Wait()
		if want := []string{"answer", "answer"}; !slices.Equal(answers.got, want) {
			t.Errorf("the peer has received %q", answers.got)
		}
		must(t, peer.Close(nil))
		for range 2 {
			if err := <-ended; !errors.Is(err, io.EOF) || err.Error() != "after all: EOF" {
				t.Errorf("Receive = %v", err)
			}
			go func() { ended <- c.Receive(t.Context(), l) }()
		}
		<-ended
		want := []string{"quick in", "slow in", "refused in", "quick both", "last in"}
		if !slices.Equal(l.got, want) || over != 1 {
			t.Errorf("received %q, want %q; the end was seen %d times", l.got, want, over)
		}
		if want := []string{"quick", "slow", "swallowed", "refused", "answered", "both", "last"}; !slices.Equal(seen, want) {
			t.Errorf("the hook has seen %q, want %q", seen, want)
		}
	})
}

// What a hook says in the peer's place comes in order with the rest, whether somebody
// receives just then or not.
func TestInterceptReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, peer := bridge.Pipe()
		var sent []string
		no := errors.New("not this")
		c := bridge.Intercept(ours, bridge.Hooks{
			Send: func(m jsonrpc.Message) (out, reply jsonrpc.Message, refused error) {
				switch {
				case m.Method() == "bad":
					return out, reply, no
				case m.Method() == "swallowed":
				case strings.HasPrefix(m.Method(), "ask"):
					reply = word(strings.TrimPrefix(m.Method(), "ask "))
				default:
					out = word(m.Method() + " out")
				}
				return out, reply, nil
			},
			Sent: func(m jsonrpc.Message) { sent = append(sent, m.Method()) },
		})
		defer peer.Close(nil)
		if c.TrySend(word("ask early")) {
			t.Error("a reply was taken at once, although nobody receives")
		}
		if err := c.Send(t.Context(), word("bad")); err != no {
			t.Errorf("Send = %v", err)
		}
		for _, name := range []string{"ask 1", "ask 2", "said", "swallowed"} {
			must(t, c.Send(t.Context(), word(name)))
		}
		if !c.TrySend(word("said at once")) || !c.TrySend(word("swallowed")) || c.TrySend(word("bad")) {
			t.Error("TrySend")
		}
		must(t, peer.Send(t.Context(), word("from the peer")))
		refusal := errors.New("refusal")
		l := &listening{refuse: map[string]error{"unwanted": refusal}}
		ended := make(chan error, 1)
		go func() { ended <- c.Receive(t.Context(), l) }()
		synctest.Wait()
		if !c.TrySend(word("ask quick")) || c.TrySend(word("ask slow")) {
			t.Error("TrySend of what is answered")
		}
		must(t, c.Send(t.Context(), word("ask slow")))
		must(t, c.Send(t.Context(), word("ask unwanted"))) // it waits for the next Receive
		if err := <-ended; err != refusal {
			t.Errorf("Receive = %v", err)
		}
		if m, err := bridge.First(t.Context(), c); err != nil || m.Method() != "unwanted" {
			t.Errorf("the first is %s, %v", m.Bytes(), err)
		}
		l.refuse = nil
		go func() { ended <- c.Receive(t.Context(), l) }()
		synctest.Wait()
		if want := []string{"1", "2", "from the peer", "quick", "slow", "unwanted"}; !slices.Equal(l.got, want) {
			t.Errorf("received %q, want %q", l.got, want)
		}
		if want := []string{"said out", "said at once out"}; !slices.Equal(sent, want) {
			t.Errorf("sent %q, want %q", sent, want)
		}
		must(t, c.Close(nil))
		<-ended
		if err := c.Send(t.Context(), word("ask late")); err == nil {
			t.Error("a reply after Close was taken")
		}
	})
}

// stuck is a Sink that takes nothing.
type stuck struct{}

func (stuck) TrySend(jsonrpc.Message) bool { return false }
func (stuck) Send(ctx context.Context, _ jsonrpc.Message) error {
	<-ctx.Done()
	return ctx.Err()
}

// A receiver that takes no reply keeps nobody longer than it keeps the peer.
func TestInterceptReplyStuck(t *testing.T) {
	for name, end := range map[string]func(c bridge.Conn, stop func()){
		"Close":          func(c bridge.Conn, _ func()) { _ = c.Close(nil) },
		"Receive's ctx":  func(_ bridge.Conn, stop func()) { stop() },
		"nobody is left": func(c bridge.Conn, stop func()) { stop(); _ = c.Close(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, peer := bridge.Pipe()
				c := bridge.Intercept(ours, bridge.Hooks{Send: func(m jsonrpc.Message) (out, reply jsonrpc.Message, _ error) { return out, m, nil }})
				ctx, cancel := context.WithCancel(t.Context())
				ended, sent := make(chan error, 1), make(chan error, 20)
				go func() { ended <- c.Receive(ctx, stuck{}) }()
				synctest.Wait()
				for range 20 {
					go func() { sent <- c.Send(t.Context(), word("x")) }()
				}
				synctest.Wait()
				must(t, peer.Send(t.Context(), word("y")))
				synctest.Wait()
				end(c, cancel)
				if err := <-ended; err == nil {
					t.Error("Receive = nil")
				}
				_ = c.Close(nil)
				for range 20 {
					<-sent
				}
				cancel()
				_ = peer.Close(nil)
			})
		})
	}
}

// Closed is called once, when the Conn is closed.
func TestInterceptClosed(t *testing.T) {
	ours, peer := bridge.Pipe()
	why, calls := errors.New("why"), 0
	c := bridge.Intercept(ours, bridge.Hooks{Closed: func(err error) error { calls++; return errors.Join(err, why) }})
	for range 2 {
		if err := c.Close(nil); !errors.Is(err, why) {
			t.Errorf("Close = %v", err)
		}
	}
	if err := peer.Receive(t.Context(), stuck{}); err != io.EOF || calls != 1 {
		t.Errorf("the peer's Receive = %v; %d calls", err, calls)
	}
}

// The wrapper costs what its hooks cost, and no change of goroutine.
func BenchmarkIntercept(b *testing.B) {
	for name, wrap := range map[string]func(bridge.Conn) bridge.Conn{
		"none":   func(c bridge.Conn) bridge.Conn { return c },
		"passes": func(c bridge.Conn) bridge.Conn { return bridge.Intercept(c, passAll) },
	} {
		b.Run(name, func(b *testing.B) {
			client, ours := bridge.Pipe()
			theirs, server := bridge.Pipe()
			go echo(server, []byte(`{}`))
			done := make(chan error, 1)
			go func() { done <- bridge.Pump(b.Context(), ours, wrap(theirs), bridge.PumpOptions{}) }()
			m := jsonrpc.NewRequest(jsonrpc.IntID(1), "tools/call", []byte(`{"name":"x"}`))
			c := client
			for b.Loop() {
				_ = c.Send(b.Context(), m)
				if _, err := bridgetest.Recv(b.Context(), c); err != nil {
					b.Fatal(err)
				}
			}
			_ = client.Close(nil)
			<-done
			_ = server.Close(nil)
		})
	}
}
