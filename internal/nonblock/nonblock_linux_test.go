package nonblock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(clientVar) != "" {
		clientMain()
		return
	}
	bridgetest.CheckLeaks(m)
}

// networks are the networks whose connections Conn wraps.
var networks = []string{"tcp", "unix"}

// connect returns both ends of a connection; those of Conn are accepted by Listener. stop closes both.
func connect(network, dir string) (accepted, dialed net.Conn, stop func(), err error) {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(dir, "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, nil, nil, err
	}
	defer l.Close()
	if dialed, err = net.Dial(network, l.Addr().String()); err != nil {
		return nil, nil, nil, err
	}
	if accepted, err = Listener(l).Accept(); err != nil {
		return nil, nil, nil, err
	}
	return accepted, dialed, func() { _, _ = accepted.Close(), dialed.Close() }, nil
}

// pair returns both ends of a connection, of which Listener has accepted the first.
func pair(t *testing.T, network string) (accepted, dialed net.Conn) {
	t.Helper()
	accepted, dialed, stop, err := connect(network, t.TempDir())
	bridgetest.Must(t, err)
	t.Cleanup(stop)
	return accepted, dialed
}

// A Conn does what is asked of every net.Conn: its deadlines, its end, and calls from several goroutines.
func TestConnIsANetConn(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			nettest.TestConn(t, func() (accepted, dialed net.Conn, stop func(), err error) {
				accepted, dialed, stop, err = connect(network, t.TempDir())
				return accepted, Conn(dialed), stop, err
			})
		})
	}
}

// However long the Reads are, nothing is lost or comes twice, and the end comes last.
func TestReads(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			conn, peer := pair(t, network)
			sent := make([]byte, 12<<10)
			for i := range sent {
				sent[i] = byte(i * 7 / 5)
			}
			bridgetest.Must(t, writeAll(peer, sent))
			bridgetest.Must(t, peer.Close())
			var got []byte
			for size := 0; ; size = (size + 1) % 12 {
				p := make([]byte, 1<<size)
				n, err := conn.Read(p)
				got = append(got, p[:n]...)
				if err == io.EOF {
					break
				}
				bridgetest.Must(t, err)
			}
			if !bytes.Equal(got, sent) {
				t.Errorf("%d bytes arrived of %d, or others", len(got), len(sent))
			}
		})
	}
}

// writeAll writes p.
func writeAll(w io.Writer, p []byte) error {
	n, err := w.Write(p)
	if err == nil && n != len(p) {
		err = io.ErrShortWrite
	}
	return err
}

// What is longer than a system call may be arrives unchanged, in both directions.
func TestLongReadsAndWrites(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			conn, peer := pair(t, network)
			long := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz"), 10*maxSize/36)
			for _, ends := range [][2]net.Conn{{conn, peer}, {peer, conn}} {
				written := make(chan error, 1)
				go func() { written <- writeAll(ends[0], long) }()
				got := make([]byte, len(long))
				for n := 0; n < len(got); { // not io.ReadFull alone: some Reads may be made with much room, some with little
					m, err := ends[1].Read(got[n:min(len(got), n+2*maxSize)])
					bridgetest.Must(t, err)
					n += m
				}
				bridgetest.Must(t, <-written)
				if !bytes.Equal(got, long) {
					t.Error("other bytes arrived")
				}
			}
		})
	}
}

// A write that its deadline ends says how many bytes were written.
func TestWriteUntilDeadline(t *testing.T) {
	conn, peer := pair(t, "tcp")
	_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	total, part := 0, make([]byte, maxSize)
	for err := error(nil); err == nil; {
		var n int
		n, err = conn.Write(part)
		if total += n; err != nil && (!errors.Is(err, os.ErrDeadlineExceeded) || n == len(part)) {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	_ = conn.Close()
	if n, err := io.Copy(io.Discard, peer); err != nil || n != int64(total) {
		t.Errorf("%d bytes arrived, %d were written: %v", n, total, err)
	}
}

// The errors are those of package net.
func TestErrors(t *testing.T) {
	errorsOf := func(conn, peer net.Conn) (texts [3]string) {
		bridgetest.Must(t, peer.(*net.TCPConn).SetLinger(0)) // Close resets the connection
		bridgetest.Must(t, peer.Close())
		withoutAddrs := func(err error) string {
			if err == nil {
				return ""
			}
			text := bytes.ReplaceAll([]byte(err.Error()), []byte(conn.LocalAddr().String()), []byte("HERE"))
			return string(bytes.ReplaceAll(text, []byte(conn.RemoteAddr().String()), []byte("THERE")))
		}
		_, err := conn.Read(make([]byte, 10))
		texts[0] = withoutAddrs(err)
		_, err = conn.Write(make([]byte, 10))
		texts[1] = withoutAddrs(err)
		_ = conn.Close()
		_, err = conn.Read(make([]byte, 10))
		texts[2] = withoutAddrs(err)
		return texts
	}
	conn, peer := pair(t, "tcp")
	plain, plainPeer := pair(t, "tcp")
	got, want := errorsOf(conn, peer), errorsOf(plain.(*wrappedConn).Conn, plainPeer)
	if got != want || got[0] == "" || got[1] == "" || got[2] == "" {
		t.Errorf("%q, want %q", got, want)
	}
}

// A connection that is neither TCP nor a Unix socket is left as it is.
func TestOtherConns(t *testing.T) {
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	if Conn(one) != one {
		t.Error("a net.Pipe is wrapped")
	}
}

// Reads and writes allocate nothing.
func TestAllocations(t *testing.T) {
	conn, peer := pair(t, "tcp")
	p := make([]byte, 100)
	n := testing.AllocsPerRun(100, func() {
		_, _ = peer.Write(p)
		_, _ = conn.Read(p)
		_, _ = conn.Write(p)
		_, _ = peer.Read(p)
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}
