package stdio

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// noteOf returns a notification of so many bytes.
func noteOf(t *testing.T, n, size int) jsonrpc.Message {
	t.Helper()
	text := fmt.Sprintf(`{"jsonrpc":"2.0","method":"vendor","params":{"n":%4d,"pad":""}}`, n)
	text = strings.Replace(text, `""`, `"`+strings.Repeat("x", size-len(text))+`"`, 1)
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil || len(text) != size {
		t.Fatal(err, len(text))
	}
	return m
}

// toPipe returns a Conn that writes to a pipe, and what reads that.
func toPipe(t *testing.T) (*Conn, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	bridgetest.Must(t, err)
	conn := NewConn(strings.NewReader(""), w, w.Close, Options{})
	t.Cleanup(func() {
		conn.Close(nil)
		r.Close()
	})
	return conn, r
}

// ST1: what a full pipe does not take at once it gets no part of, so that
// messages stay whole whoever sends them.
func TestTrySendIsWhole(t *testing.T) {
	conn, r := toPipe(t)
	in := bufio.NewReader(r)
	sent, read := 0, 0
	for _, size := range []int{4095, 100, 3001, 4095, 2048} {
		for conn.TrySend(noteOf(t, sent, size)) {
			sent++
		}
		if sent == read {
			t.Fatal("nothing was taken")
		}
		// Makes room for a part of the next one, but not for all of it.
		for room := 0; room < size && read < sent; read++ {
			line, err := in.ReadString('\n')
			if err != nil || !strings.Contains(line, fmt.Sprintf(`"n":%4d,`, read)) || !strings.HasSuffix(line, "\"}}\n") {
				t.Fatalf("%d: %q, %v", read, line, err)
			}
			room += len(line)
		}
	}
	if conn.TrySend(noteOf(t, 0, 4096)) {
		t.Error("a line of 4097 bytes may be cut in a pipe that is not empty")
	}
	_ = conn.Close(nil)
	for ; ; read++ {
		line, err := in.ReadString('\n')
		if err != nil {
			if line != "" {
				t.Errorf("the end is %q", line)
			}
			break
		}
		if !strings.Contains(line, fmt.Sprintf(`"n":%4d,`, read)) {
			t.Fatalf("%d: %q", read, line)
		}
	}
	if read != sent {
		t.Errorf("%d messages of %d", read, sent)
	}
	if conn.TrySend(noteOf(t, 0, 100)) {
		t.Error("sent after Close")
	}
}

// resizePipe makes a pipe hold size bytes.
func resizePipe(t *testing.T, f *os.File, size int) {
	t.Helper()
	raw, err := f.SyscallConn()
	bridgetest.Must(t, err)
	bridgetest.Must(t, raw.Control(func(fd uintptr) { _, err = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) }))
	bridgetest.Must(t, err)
}

// What is longer than a pipe takes as a whole goes to a server at once if its pipe is empty and large enough. To a client it does not:
// others may write to the bridge's stdout.
func TestTrySendIntoEmptyPipe(t *testing.T) {
	for size, taken := range map[int]bool{4096: true, 10_000: true, 65535: true, 65536: false} {
		conn, r := toPipe(t)
		resizePipe(t, r, 64<<10) // a user that has many pipes gets smaller ones
		if got := conn.TrySend(noteOf(t, 1, size)); got != taken {
			t.Errorf("a message of %d bytes: %v, and %v is right", size, got, taken)
		}
		if !taken {
			continue
		}
		if conn.TrySend(noteOf(t, 2, 10_000)) {
			t.Errorf("a pipe with %d bytes in it took 10,000 more", size)
		}
		line := make([]byte, size+1)
		if _, err := io.ReadFull(r, line); err != nil || !bytes.HasSuffix(line, []byte("\"}}\n")) {
			t.Errorf("%d bytes were sent, and the line is not whole: %v", size, err)
		}
		if !conn.TrySend(noteOf(t, 3, 10_000)) {
			t.Error("the pipe is empty again, and takes nothing")
		}
	}

	conn, r := toPipe(t)
	resizePipe(t, r, 8192)
	if conn.TrySend(noteOf(t, 1, 10_000)) || !conn.TrySend(noteOf(t, 1, 8000)) {
		t.Error("a pipe of 8 KiB took 10,000 bytes, or did not take 8,000")
	}

	unread, w, err := os.Pipe()
	bridgetest.Must(t, err)
	defer unread.Close()
	toClient := NewConn(strings.NewReader(""), w, w.Close, Options{Peer: Client})
	defer toClient.Close(nil)
	if toClient.TrySend(noteOf(t, 1, 4096)) || !toClient.TrySend(noteOf(t, 1, 4095)) {
		t.Error("to a client more than 4 KiB was sent at once, or 4 KiB was not")
	}
}

// A child gets a message of 10 KB at once, and whole.
func TestTrySendToChild(t *testing.T) {
	c, m := dial(t, "echo"), noteOf(t, 1, 10_000)
	if !c.TrySend(m) {
		t.Fatal("a child that has got nothing yet does not take 10 KB at once")
	}
	wantText(t, c, string(m.Bytes()))
}

// Only where it is sure that nothing is cut off.
func TestTrySendNeedsAPipe(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	bridgetest.Must(t, err)
	defer file.Close()
	blocking := func() *os.File {
		fds := make([]int, 2)
		bridgetest.Must(t, syscall.Pipe(fds))
		t.Cleanup(func() { _ = syscall.Close(fds[0]) })
		return os.NewFile(uintptr(fds[1]), "blocking")
	}()
	defer blocking.Close()
	for name, conn := range map[string]*Conn{
		"a file":             NewConn(strings.NewReader(""), file, nil, Options{}),
		"no file":            NewConn(strings.NewReader(""), new(strings.Builder), nil, Options{}),
		"one that may block": NewConn(strings.NewReader(""), blocking, nil, Options{}),
	} {
		if conn.TrySend(noteOf(t, 1, 100)) {
			t.Errorf("%s: taken for a pipe", name)
		}
		_ = conn.Close(nil)
	}
}

// The end of the ctx of an earlier Send is none of a later message.
func TestTrySendAfterSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, _ := toPipe(t)
		ctx, cancel := context.WithCancel(t.Context())
		bridgetest.Must(t, conn.Send(ctx, noteOf(t, 0, 100)))
		cancel()
		synctest.Wait()
		if !conn.TrySend(noteOf(t, 1, 100)) {
			t.Error("an empty pipe did not take a message")
		}
	})
}
