package stdio

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc/burst"
)

// unread returns how many bytes wait to be read from f.
func unread(t *testing.T, f interface{ Fd() uintptr }) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	bridgetest.Must(t, err)
	return n
}

// connect returns both ends of a Unix connection.
func connect(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	bridgetest.Must(t, err)
	defer l.Close()
	near, err = net.Dial("unix", l.Addr().String())
	bridgetest.Must(t, err)
	far, err = l.Accept()
	bridgetest.Must(t, err)
	t.Cleanup(func() { far.Close() })
	return near, far
}

// asLine returns the line that m becomes.
func asLine(m jsonrpc.Message) string { return string(m.Line()) + "\n" }

// readOnce makes one read from r, and fails the test if that is not want.
func readOnce(t *testing.T, r io.Reader, want ...jsonrpc.Message) {
	t.Helper()
	var text strings.Builder
	for _, m := range want {
		text.WriteString(asLine(m))
	}
	buf := make([]byte, 64<<10)
	n, err := r.Read(buf)
	if err != nil || string(buf[:n]) != text.String() {
		t.Errorf("one read was\n%.300s, %v; want\n%.300s", buf[:n], err, text.String())
	}
}

// trySend fails the test if TrySend does not take m.
func trySend(t *testing.T, c bridge.Sink, m jsonrpc.Message) {
	t.Helper()
	if !c.TrySend(m) {
		t.Errorf("a message of %d bytes was not taken", m.Size())
	}
}

// The lines of a Burst go out in one write, at its end.
func TestKeptUntilEnd(t *testing.T) {
	conn, r := toPipe(t)
	var b burst.Burst
	for range 2 {
		b.Begin()
		for n := range 3 {
			trySend(t, conn, noteOf(t, n, 100).WithBurst(&b))
		}
		if n := unread(t, r); n > 0 {
			t.Errorf("%d bytes were written before the end of the Burst", n)
		}
		b.End()
		readOnce(t, r, noteOf(t, 0, 100), noteOf(t, 1, 100), noteOf(t, 2, 100))
	}
	trySend(t, conn, noteOf(t, 3, 100).WithBurst(&b))
	readOnce(t, r, noteOf(t, 3, 100)) // the Burst is over
}

// The same to a socket.
func TestKeptForSocket(t *testing.T) {
	near, far := connect(t)
	conn := newSocketConn(near, Options{Peer: Client})
	conn.closeWait = 0
	defer conn.Close(nil)
	var b burst.Burst
	b.Begin()
	trySend(t, conn, noteOf(t, 1, 100).WithBurst(&b))
	trySend(t, conn, noteOf(t, 2, 100).WithBurst(&b))
	_ = far.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := far.Read(make([]byte, 100)); n > 0 || !os.IsTimeout(err) {
		t.Errorf("before the end of the Burst %d bytes were written: %v", n, err)
	}
	b.End()
	_ = far.SetReadDeadline(time.Now().Add(30 * time.Second))
	readOnce(t, far, noteOf(t, 1, 100), noteOf(t, 2, 100))

	trySend(t, conn, noteOf(t, 3, 100))
	b.Begin()
	if conn.TrySend(noteOf(t, 4, 100).WithBurst(&b)) {
		t.Error("a message was kept back although the peer has not read the one before")
	}
	b.End()
	readOnce(t, far, noteOf(t, 3, 100))
}

// What is kept back goes out before anything that is sent after it, and before the end.
func TestKeptGoesFirst(t *testing.T) {
	for name, after := range map[string]func(t *testing.T, c *Conn){
		"TrySend to the end":  func(t *testing.T, c *Conn) { trySend(t, c, noteOf(t, 2, 100)) },
		"Send to the end":     func(t *testing.T, c *Conn) { bridgetest.Must(t, c.Send(t.Context(), noteOf(t, 2, 100))) },
		"TrySend of too much": func(t *testing.T, c *Conn) { _ = c.TrySend(noteOf(t, 2, chunkSize)) },
		"Close":               func(t *testing.T, c *Conn) { _ = c.Close(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			conn, r := toPipe(t)
			var b burst.Burst
			b.Begin()
			trySend(t, conn, noteOf(t, 1, 100).WithBurst(&b))
			after(t, conn)
			want := 101
			if strings.HasSuffix(name, "end") {
				want *= 2
			}
			got := make([]byte, want)
			_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.ReadFull(r, got); err != nil || !strings.HasPrefix(string(got), asLine(noteOf(t, 1, 100))) {
				t.Errorf("%q was written, %v", got, err)
			}
			b.End()
			if n := unread(t, r); n > 0 {
				t.Errorf("%d bytes more were written", n)
			}
		})
	}
}

// What a Burst keeps back is written at the end of another one, where somebody else has written at its own.
func TestKeptForTwoBursts(t *testing.T) {
	conn, r := toPipe(t)
	var first, second burst.Burst
	first.Begin()
	second.Begin()
	trySend(t, conn, noteOf(t, 1, 100).WithBurst(&first))
	trySend(t, conn, noteOf(t, 2, 100).WithBurst(&second))
	conn.out.writeTurn <- struct{}{} // as TrySend does while it keeps a message of the second Burst back
	first.End()
	<-conn.out.writeTurn
	second.End()
	readOnce(t, r, noteOf(t, 1, 100), noteOf(t, 2, 100))
}

// What is kept back while another goroutine ends the Burst is written all the same.
func TestKeptWhileBurstEnds(t *testing.T) {
	var b burst.Burst
	end := func() bool {
		ended := make(chan struct{})
		go func() { b.End(); close(ended) }()
		<-ended
		return true
	}
	conn, r := toPipe(t)
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
	conn.out.try.hasRoom = end // TrySend asks that before it keeps a message back
	b.Begin()
	trySend(t, conn, noteOf(t, 1, 100).WithBurst(&b))
	readOnce(t, r, noteOf(t, 1, 100))

	conn.out.try.hasRoom = func() bool { return true }
	b.Begin()
	m := noteOf(t, 2, 100).WithBurst(&b)
	conn.out.writeTurn <- struct{}{} // what TrySend does, with the end in the middle
	kept := conn.keepBack(&m)
	end()
	<-conn.out.writeTurn
	conn.announceKept(&m)
	if !kept {
		t.Error("a message was not kept back")
	}
	readOnce(t, r, noteOf(t, 2, 100))
}

// A Conn whose Sink is at work is closed: the reader then waits for the closer, and keeps nothing back meanwhile.
func TestKeptWhileSourceCloses(t *testing.T) {
	near, far := connect(t)
	source := newSocketConn(near, Options{})
	source.closeWait = time.Hour
	conn, r := toPipe(t)
	_, err := io.WriteString(far, ping+"\n"+pong+"\n")
	bridgetest.Must(t, err)
	closed := make(chan error)
	received := make(chan error)
	go func() {
		received <- source.Receive(t.Context(), trySinkFunc(func(m jsonrpc.Message) bool {
			taken := conn.TrySend(m)
			go func() { closed <- source.Close(nil) }()
			for source.in.mu.TryLock() { // until the closer has it
				source.in.mu.Unlock()
				runtime.Gosched()
			}
			return taken
		}))
	}()
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second))
	readOnce(t, r, parse(t, ping))
	_ = far.Close() // ends the closer's wait
	<-closed
	<-received
}

// trySinkFunc is a function as the TrySend of a Sink.
type trySinkFunc func(m jsonrpc.Message) bool

func (f trySinkFunc) TrySend(m jsonrpc.Message) bool                  { return f(m) }
func (trySinkFunc) Send(ctx context.Context, _ jsonrpc.Message) error { return errors.New("not now") }

// Close waits for who is just keeping something back.
func TestKeptWhileConnCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, r := toPipe(t)
		var b burst.Burst
		b.Begin()
		trySend(t, conn, noteOf(t, 1, 100).WithBurst(&b))
		conn.out.writeTurn <- struct{}{} // as TrySend does
		closed := make(chan error)
		go func() { closed <- conn.Close(nil) }()
		synctest.Wait()
		<-conn.out.writeTurn
		<-closed
		readOnce(t, r, noteOf(t, 1, 100))
	})
}

// A pipe that nobody reads takes nothing, and nor does one that is not empty: a small one may have no room.
func TestNotKeptWithoutRoom(t *testing.T) {
	conn, r := toPipe(t)
	trySend(t, conn, noteOf(t, 1, 100))
	if conn.out.try.hasRoom() {
		t.Error("a pipe with something in it has room")
	}
	readOnce(t, r, noteOf(t, 1, 100))
	if !conn.out.try.hasRoom() {
		t.Error("an empty pipe has no room")
	}
	_ = r.Close()
	if conn.out.try.hasRoom() {
		t.Error("a pipe that nobody reads has room")
	}
}

// After Close has written what was kept back, nothing more is: nobody would write it.
func TestKeptNoMoreAfterClose(t *testing.T) {
	conn, _ := toPipe(t)
	var b burst.Burst
	b.Begin()
	conn.closeKept() // what Close does first
	if m := noteOf(t, 1, 100).WithBurst(&b); conn.TrySend(m) {
		t.Error("a message is taken")
	}
}

// If what is kept back cannot be written, the Conn fails: those who have sent it wait for answers.
func TestKeptCannotBeWritten(t *testing.T) {
	for _, test := range []struct {
		err   error // of the write
		n     int   // how many bytes were written
		after time.Duration
	}{
		{syscall.ENOMEM, 0, 0},
		{syscall.EAGAIN, 0, 0},
		{syscall.EPIPE, 0, goneGrace}, // most often the peer has ended, and Receive finds out how
		{nil, 50, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			reads, input := io.Pipe()
			defer input.Close()
			_, w := osPipe(t)
			conn := NewConn(reads, w, closeAll(reads, w), Options{})
			defer conn.Close(nil)
			began := time.Now()
			received := make(chan error)
			go func() { received <- conn.Receive(t.Context(), trySinkFunc(nil)) }()
			var b burst.Burst
			b.Begin()
			trySend(t, conn, noteOf(t, 1, 3000).WithBurst(&b))
			conn.out.try.write = func([]byte) (int, error) { return test.n, test.err }
			if conn.TrySend(noteOf(t, 2, 3000).WithBurst(&b)) { // there is no room: the first is written now
				t.Error("something is taken although nothing can be written any more")
			}
			if err := conn.Send(t.Context(), noteOf(t, 3, 100)); err == nil {
				t.Error("something is sent although nothing can be written any more")
			}
			err := <-received
			if test.err != nil && !errors.Is(err, test.err) || test.err == nil && err != ErrCutOff || time.Since(began) != test.after {
				t.Errorf("%v: Receive returned %v after %v", test.err, err, time.Since(began))
			}
		})
	}
}

// The end of the ctx of an earlier Send does not keep what is kept back from being written.
func TestKeptAfterSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, r := toPipe(t)
		ctx, cancel := context.WithCancel(t.Context())
		bridgetest.Must(t, conn.Send(ctx, noteOf(t, 0, 100)))
		readOnce(t, r, noteOf(t, 0, 100))
		var b burst.Burst
		b.Begin()
		trySend(t, conn, noteOf(t, 1, 100).WithBurst(&b))
		cancel()
		synctest.Wait()
		b.End()
		readOnce(t, r, noteOf(t, 1, 100))
	})
}

// Others may write to our stdout: whether it has room is not known.
func TestNotKeptForStdout(t *testing.T) {
	r, w := osPipe(t)
	defer r.Close()
	conn := NewConn(strings.NewReader(""), w, w.Close, Options{Peer: Client})
	defer conn.Close(nil)
	var b burst.Burst
	b.Begin()
	trySend(t, conn, noteOf(t, 1, 100).WithBurst(&b))
	readOnce(t, r, noteOf(t, 1, 100))
	b.End()
}

// A version that was negotiated counts also where the answer was kept back (ST5).
func TestKeptIsNoted(t *testing.T) {
	near, far := connect(t)
	conn := newSocketConn(near, Options{Peer: Client})
	conn.closeWait = 0
	defer conn.Close(nil)
	var b burst.Burst
	b.Begin()
	trySend(t, conn, parse(t, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-03-26","capabilities":{}}}`).WithBurst(&b))
	b.End()
	_, err := io.WriteString(far, "["+ping+"]\n")
	bridgetest.Must(t, err)
	wantRecv(t, conn, ping)
}

// No more is kept back than a pipe takes as a whole.
func TestKeptAtMost(t *testing.T) {
	conn, r := toPipe(t)
	var b burst.Burst
	b.Begin()
	trySend(t, conn, noteOf(t, 1, 2000).WithBurst(&b))
	trySend(t, conn, noteOf(t, 2, 2094).WithBurst(&b)) // 4,096 bytes with both line feeds
	if n := unread(t, r); n > 0 {
		t.Errorf("%d bytes were written before the end of the Burst", n)
	}
	trySend(t, conn, noteOf(t, 3, 100).WithBurst(&b)) // it is written at once: the pipe is not empty any more
	readOnce(t, r, noteOf(t, 1, 2000), noteOf(t, 2, 2094), noteOf(t, 3, 100))
	trySend(t, conn, noteOf(t, 3, 100).WithBurst(&b))
	if conn.TrySend(noteOf(t, 4, 4096).WithBurst(&b)) {
		t.Error("4,097 bytes were written behind what was kept back")
	}
	readOnce(t, r, noteOf(t, 3, 100))
	trySend(t, conn, noteOf(t, 5, 4096).WithBurst(&b))
	readOnce(t, r, noteOf(t, 5, 4096)) // it is not kept back
	b.End()
}

// Nothing is kept back that the peer may not take.
func TestKeptNeedsRoom(t *testing.T) {
	conn, r := toPipe(t)
	resizePipe(t, r, 4096)
	in := bufio.NewReader(r)
	sent, read := 0, 0
	var b burst.Burst
	for round := range 50 {
		b.Begin()
		for size := 100 + 37*round; conn.TrySend(noteOf(t, sent, size).WithBurst(&b)); {
			sent++
		}
		b.End()
		if sent == read {
			t.Fatal("nothing was taken")
		}
		for ; read < sent; read++ {
			line, err := in.ReadString('\n')
			if err != nil || !strings.Contains(line, fmt.Sprintf(`"n":%4d,`, read)) || !strings.HasSuffix(line, "\"}}\n") {
				t.Fatalf("%d: %q, %v", read, line, err)
			}
		}
	}
}

// Bursts of several goroutines, and messages of none: each arrives once, those of one goroutine in order.
func TestKeptConcurrently(t *testing.T) {
	const senders, messages = 4, 2000
	conn, r := toPipe(t)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			var b burst.Burst
			defer b.End()
			for i := range messages {
				if i%5 == 0 && s > 0 { // the first sender has no Bursts
					b.Begin()
				}
				m := noteOf(t, i, 100+s)
				if !conn.TrySend(m.WithBurst(&b)) {
					b.End()
					bridgetest.Must(t, conn.Send(t.Context(), m))
				}
				if i%5 == s {
					b.End()
				}
			}
		})
	}
	in := bufio.NewReader(r)
	var next [senders]int
	for range senders * messages {
		line, err := in.ReadString('\n')
		if s := len(line) - 101; err != nil || s < 0 || s >= senders || line != asLine(noteOf(t, next[s], 100+s)) {
			t.Fatalf("%q, %v; the next ones are %v", line, err, next)
		} else {
			next[s]++
		}
	}
	wg.Wait()
	if n := unread(t, r); n > 0 {
		t.Errorf("%d bytes more were written", n)
	}
}

// A peer that is gone does not make the Conn fail with ErrCutOff: Receive tells how the peer has ended.
func TestKeptForNobody(t *testing.T) {
	conn, r := toPipe(t)
	var b burst.Burst
	b.Begin()
	trySend(t, conn, noteOf(t, 1, 100).WithBurst(&b))
	_ = r.Close()
	b.End()
	if err := conn.end.endError(t.Context()); err != nil {
		t.Errorf("the Conn has ended: %v", err)
	}
	if err := conn.Send(t.Context(), noteOf(t, 2, 100)); err == nil {
		t.Error("something was sent to nobody")
	}
}

// Requests that a client writes at once reach the server in one write, and so do the answers on their way back.
func TestPipelined(t *testing.T) {
	toServerR, toServerW := osPipe(t)
	fromServer, serverOut := osPipe(t)
	defer closeAll(toServerR, serverOut)()
	near, far := connect(t)
	client := newSocketConn(near, Options{Peer: Client})
	client.closeWait = 0
	server := NewConn(fromServer, toServerW, closeAll(fromServer, toServerW), Options{})
	pumped := make(chan error)
	go func() { pumped <- bridge.Pump(t.Context(), client, server, bridge.PumpOptions{}) }()
	for round := range 3 {
		var requests, answers []jsonrpc.Message
		var asked, answered strings.Builder
		for i := range 5 {
			requests = append(requests, parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`, 10*round+i)))
			answers = append(answers, parse(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, 10*round+i)))
			fmt.Fprintf(&asked, "%s\n", requests[i].Bytes())
			fmt.Fprintf(&answered, "%s\n", answers[i].Bytes())
		}
		_, err := io.WriteString(far, asked.String())
		bridgetest.Must(t, err)
		readOnce(t, toServerR, requests...)
		_, err = io.WriteString(serverOut, answered.String())
		bridgetest.Must(t, err)
		readOnce(t, far, answers...)
	}
	_ = client.Close(nil)
	_ = server.Close(nil)
	<-pumped
}
