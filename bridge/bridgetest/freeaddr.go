package bridgetest

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

// givenAddrs counts the calls of FreeAddr on Linux; the count makes the host of the address.
var givenAddrs atomic.Uint32

// FreeAddr returns an address, HOST:PORT, on which nobody listens until the caller does. On Linux
// each has a host of its own: from there nobody connects, and who asks the system for any
// port gets one of another host. Elsewhere somebody may get the port meanwhile.
func FreeAddr(t testing.TB) string {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		n := int(givenAddrs.Add(1))
		host = fmt.Sprintf("127.%d.%d.%d", 1+os.Getpid()%254, n/254%254, 1+n%254)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	Must(t, err)
	defer l.Close()
	return l.Addr().String()
}
