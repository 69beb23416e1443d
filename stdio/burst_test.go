package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// burstSink is a Sink that keeps each message of a Burst back, and notes what it is called with.
type burstSink struct {
	calls   []string
	refused string          // TrySend returns false for this text
	taken   func(n int)     // called by TrySend after a message was taken, with how many that were; nil: nothing is
	sendErr error           // the error of Send
	written chan<- []string // gets calls when what is kept back is to be written; nil: nobody waits for that
}

func (s *burstSink) TrySend(m jsonrpc.Message) bool {
	if string(m.Bytes()) == s.refused {
		s.calls = append(s.calls, "refused")
		return false
	}
	if !m.Burst().Keep(s) {
		s.calls = append(s.calls, "TrySend without a Burst")
		return true
	}
	s.calls = append(s.calls, "kept "+string(m.Bytes()))
	if s.taken != nil {
		s.taken(len(s.calls))
	}
	return true
}

func (s *burstSink) Send(_ context.Context, m jsonrpc.Message) error {
	if m.Burst().Keep(s) {
		s.calls = append(s.calls, "Send in a Burst")
	}
	s.calls = append(s.calls, "sent "+string(m.Bytes()))
	return s.sendErr
}

func (s *burstSink) WriteKept() {
	s.calls = append(s.calls, "written")
	if s.written != nil {
		s.written <- s.calls
	}
}

// The messages of lines that lie together are handed on as a Burst, which ends before anything that may wait.
func TestReceiveBurst(t *testing.T) {
	for name, test := range map[string]struct {
		input string
		sink  burstSink
		want  []string
	}{
		"one line":       {ping + "\n", burstSink{}, []string{"sent " + ping}},
		"three lines":    {ping + "\n" + note + "\n" + pong + "\n", burstSink{}, []string{"kept " + ping, "kept " + note, "kept " + pong, "written"}},
		"a batch":        {"[" + ping + "," + pong + "]\n" + note + "\n", burstSink{}, []string{"kept " + ping, "kept " + pong, "kept " + note, "written"}},
		"a batch of one": {"[" + ping + "]\n" + note + "\n", burstSink{}, []string{"kept " + ping, "kept " + note, "written"}},
		"a batch alone":  {"[" + ping + "," + pong + "]\n", burstSink{}, []string{"kept " + ping, "kept " + pong, "written"}},
		"no end":         {ping + "\n" + pong, burstSink{}, []string{"sent " + ping, "sent " + pong}}, // the end of input is found by a read
		"one refused":    {ping + "\n" + note + "\n" + pong + "\n" + ping + "\n", burstSink{refused: note}, []string{"kept " + ping, "refused", "written", "sent " + note, "kept " + pong, "kept " + ping, "written"}},
		"first refused":  {ping + "\n" + note + "\n" + pong + "\n", burstSink{refused: ping}, []string{"refused", "sent " + ping, "kept " + note, "kept " + pong, "written"}},
		"last refused":   {ping + "\n" + pong + "\n", burstSink{refused: pong}, []string{"kept " + ping, "refused", "written", "sent " + pong}},
		"empty lines":    {ping + "\n\n\n", burstSink{}, []string{"kept " + ping, "written"}},
		"an error":       {ping + "\n" + pong + "\n", burstSink{refused: pong, sendErr: errors.New("no")}, []string{"kept " + ping, "refused", "written", "sent " + pong}},
	} {
		t.Run(name, func(t *testing.T) {
			c := reading(t, strings.NewReader(test.input), io.Discard, Options{})
			if err := c.Receive(t.Context(), &test.sink); err != io.EOF && err != test.sink.sendErr {
				t.Error(err)
			}
			if !slices.Equal(test.sink.calls, test.want) {
				t.Errorf("the Sink was called so:\n%q, want\n%q", test.sink.calls, test.want)
			}
		})
	}
}

// A Burst ends before the next read, which waits for the peer.
func TestBurstEndsBeforeRead(t *testing.T) {
	r, w := osPipe(t)
	defer w.Close()
	c := NewConn(r, io.Discard, r.Close, Options{})
	written := make(chan []string)
	received := make(chan error)
	go func() { received <- c.Receive(t.Context(), &burstSink{written: written}) }()
	for _, behind := range []string{"", "\n", `{"jsonrpc":`} {
		_, err := io.WriteString(w, ping+"\n"+pong+"\n"+behind)
		bridgetest.Must(t, err)
		if got, want := <-written, []string{"kept " + ping, "kept " + pong, "written"}; !slices.Equal(got[len(got)-3:], want) {
			t.Errorf("the Sink was called so:\n%q, want\n%q", got, want)
		}
	}
	_ = c.Close(nil)
	<-received
}

// A Burst ends with the Receive.
func TestBurstEndsWithReceive(t *testing.T) {
	c := reading(t, strings.NewReader(strings.Repeat(ping+"\n", 5)), io.Discard, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	sink := &burstSink{taken: func(n int) {
		if n == 2 {
			cancel()
		}
	}}
	if err := c.Receive(ctx, sink); err != context.Canceled {
		t.Error(err)
	}
	if want := []string{"kept " + ping, "kept " + ping, "written"}; !slices.Equal(sink.calls, want) {
		t.Errorf("the Sink was called so:\n%q, want\n%q", sink.calls, want)
	}
}

// A Burst ends before anybody is told of bad input: the log may be slow, and a client may not read its error.
func TestBurstEndsBeforeBadInput(t *testing.T) {
	for _, bad := range []string{"nonsense", `{"jsonrpc":"2.0","id":7,"method":3}`, `{"jsonrpc":"2.0","id":8,"method":"` + strings.Repeat("x", 5000) + `"}`} {
		sink := &burstSink{}
		out := writerFunc(func(p []byte) (int, error) {
			sink.calls = append(sink.calls, "answer")
			return len(p), nil
		})
		c := reading(t, strings.NewReader(ping+"\n"+ping+"\n"+bad+"\n"+pong+"\n"), out, Options{Peer: Client, MaxMessageSize: 1000, OnNoise: func(int, string) {
			sink.calls = append(sink.calls, "noise")
		}})
		if err := c.Receive(t.Context(), sink); err != io.EOF {
			t.Error(err)
		}
		if want := []string{"kept " + ping, "kept " + ping, "written", "noise", "answer", "sent " + pong}; !slices.Equal(sink.calls, want) {
			t.Errorf("%.50s: the Sink was called so:\n%q, want\n%q", bad, sink.calls, want)
		}
	}
}

// writerFunc is a function as an io.Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Where nothing can be written without waiting, no message is kept back, and none is lost.
func TestBurstToFile(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	bridgetest.Must(t, err)
	defer file.Close()
	out := reading(t, strings.NewReader(""), file, Options{})
	var input strings.Builder
	for i := range 100 {
		fmt.Fprintf(&input, "%s\n", strings.Replace(note, "{", fmt.Sprintf(`{"n":%d,`, i), 1))
	}
	c := reading(t, strings.NewReader(input.String()), io.Discard, Options{})
	if err := c.Receive(t.Context(), out); err != io.EOF {
		t.Error(err)
	}
	if got, err := os.ReadFile(file.Name()); err != nil || string(got) != input.String() {
		t.Errorf("%q was written, %v; want %q", got, err, input.String())
	}
}
