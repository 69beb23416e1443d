package listen

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// A client that dies without a word is noticed within about a minute, whether
// or not something was on its way to it. One that reads slowly is not taken for
// dead: what it has no room for is not kept by the kernel, which would let a
// write wait until much of it was taken.
func TestDeadPeersAreNoticed(t *testing.T) {
	ls, err := Open(Options{Addrs: []string{"127.0.0.1:0"}})
	bridgetest.Must(t, err)
	defer ls.Close()
	client, err := net.Dial("tcp", ls[0].Addr().String())
	bridgetest.Must(t, err)
	defer client.Close()
	conn, err := ls[0].Accept()
	bridgetest.Must(t, err)
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	bridgetest.Must(t, err)
	optionOrError := func(level, name int) (n int, err error) {
		bridgetest.Must(t, raw.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), level, name) }))
		return n, err
	}
	option := func(level, name int) int {
		n, err := optionOrError(level, name)
		bridgetest.Must(t, err)
		return n
	}
	if ms := option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); ms != 60_000 {
		t.Errorf("what is not acknowledged is given up after %d ms", ms)
	}
	t.Run("slow", func(t *testing.T) {
		kept, err := optionOrError(unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
		if errors.Is(err, unix.ENOPROTOOPT) {
			t.Skip("this kernel, or what stands for one in a sandbox, does not know TCP_NOTSENT_LOWAT")
		}
		bridgetest.Must(t, err)
		if kept <= 0 || kept > 256<<10 {
			t.Errorf("the kernel keeps %d bytes that the client has no room for", kept)
		}
	})
	if on := option(unix.SOL_SOCKET, unix.SO_KEEPALIVE); on != 1 {
		t.Error("idle connections are not probed")
	}
	idle, every, count := option(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), option(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), option(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
	if total := idle + every*count; total > 60 {
		t.Errorf("an idle connection is given up after %d s", total)
	}
}
