package sockstate

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// pair returns both ends of a connection.
func pair(t *testing.T, network, address string) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	bridgetest.Must(t, err)
	defer l.Close()
	if near, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// What is small is taken whole by a connection that is said to be empty, and one
// that can take no more is not said to be. What was read is no longer counted.
func TestDrained(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			near, far := pair(t, network, address)
			taken := OutputDrainedFunc(near)
			if taken == nil || !taken() {
				t.Fatal("a connection on which nothing was said is empty")
			}
			sent := 0
			for taken() {
				_ = near.SetWriteDeadline(time.Now().Add(5 * time.Second))
				n, err := near.Write(bytes.Repeat([]byte{'x'}, MaxInlineBytes))
				if err != nil || n != MaxInlineBytes {
					t.Fatalf("after %d bytes the connection takes %d of a small write: %v", sent, n, err)
				}
				sent += n
				if sent > 256<<20 {
					t.Fatal("it is never full")
				}
			}
			for err := error(nil); err == nil; { // until it is full
				_ = near.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) // of each write: all of them may take longer
				var n int
				n, err = near.Write(make([]byte, 64<<10))
				sent += n
			}
			if taken() {
				t.Error("a full connection is not empty")
			}
			for buf := make([]byte, 1<<20); sent > 0; {
				n, err := far.Read(buf)
				bridgetest.Must(t, err)
				sent -= n
			}
			_, _ = far.Write([]byte{'y'}) // takes the last acknowledgement along
			if _, err := near.Read(make([]byte, 1)); err != nil || !taken() {
				t.Errorf("all was read, and it is not empty: %v", err)
			}
			_ = near.Close()
			if taken() {
				t.Error("a closed connection takes nothing")
			}
		})
	}
}

// wrapped is a connection that says what it stands before.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// Behind what says so, the connection is found; of others nothing is said.
func TestDrainedWrapped(t *testing.T) {
	near, _ := pair(t, "tcp", "127.0.0.1:0")
	for name, c := range map[string]net.Conn{"wrapped": wrapped{near}, "TLS": tls.Client(wrapped{near}, &tls.Config{})} {
		if taken := OutputDrainedFunc(c); taken == nil || !taken() {
			t.Errorf("%s: not found", name)
		}
	}
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	for name, c := range map[string]net.Conn{"a pipe": one, "nothing": nil, "hidden": struct{ net.Conn }{near}} {
		if OutputDrainedFunc(c) != nil {
			t.Errorf("%s: nothing is known of it", name)
		}
	}
}

// The end of a peer is known while what it has sent lies there unread.
func TestPeerClosed(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			near, far := pair(t, network, address)
			peerClosed := PeerClosedFunc(near)
			expect := func(when string, want error) {
				t.Helper()
				deadline := time.After(10 * time.Second)
				for peerClosed() != want { // over TCP it takes a moment
					select {
					case <-deadline:
						t.Fatalf("%s: %v, want %v", when, peerClosed(), want)
					default:
						runtime.Gosched()
					}
				}
			}
			expect("at first", nil)
			if _, err := far.Write([]byte("unread")); err != nil {
				t.Fatal(err)
			}
			expect("with something to read", nil)
			_ = far.(interface{ CloseWrite() error }).CloseWrite()
			expect("when the peer sends nothing more", io.EOF)
			_ = far.Close()
			if network == "unix" {
				expect("when the peer is gone", net.ErrClosed)
			}
			_ = near.Close()
			expect("when it is closed", net.ErrClosed)
		})
	}
	if PeerClosedFunc(nil) != nil {
		t.Error("of no connection something is known")
	}
}
