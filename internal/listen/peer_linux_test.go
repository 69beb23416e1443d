package listen

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Who connects to a Unix socket is told by the user it runs as, also behind what
// stands before the connection.
func TestPeerUser(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if got, want := PeerUser(&peekedConn{Conn: far}), fmt.Sprintf("user %d", os.Getuid()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	one, two := net.Pipe()
	defer one.Close()
	defer two.Close()
	if got := PeerUser(one); got != "" {
		t.Errorf("of a pipe: %q", got)
	}
}
