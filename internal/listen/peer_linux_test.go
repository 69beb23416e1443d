package listen

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// PeerUser returns the user of the client, also for a connection that is wrapped.
func TestPeerUser(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	bridgetest.Must(t, err)
	defer l.Close()
	near, err := net.Dial("unix", l.Addr().String())
	bridgetest.Must(t, err)
	defer near.Close()
	far, err := l.Accept()
	bridgetest.Must(t, err)
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
