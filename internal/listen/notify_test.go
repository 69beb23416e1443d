package listen

import (
	"net"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// manager is a service manager's end of the notification socket.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("there are no datagram sockets with a path")
	}
	path := socketPath(t)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	bridgetest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	bridgetest.Must(t, err)
	return string(buf[:n])
}

func TestNotifier(t *testing.T) {
	conn := manager(t)
	n, err := NewNotifier()
	bridgetest.Must(t, err)
	if _, set := os.LookupEnv("NOTIFY_SOCKET"); set {
		t.Error("a child would get NOTIFY_SOCKET")
	}
	tests := []struct {
		send func() error
		want string // a regular expression
	}{
		{func() error { return n.Ready("") }, `READY=1`},
		{func() error { return n.Ready("3 servers") }, `READY=1\nSTATUS=3 servers`},
		{n.Reloading, `RELOADING=1\nMONOTONIC_USEC=[0-9]{4,}`},
		{func() error { return n.Stopping("draining") }, `STOPPING=1\nSTATUS=draining`},
		{func() error { return n.Stopping("a\nREADY=1\r\nb") }, "STOPPING=1\nSTATUS=a READY=1  b"},
	}
	for _, tt := range tests {
		bridgetest.Must(t, tt.send())
		if got := receive(t, conn); !regexp.MustCompile("^" + tt.want + "$").MatchString(got) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
	n.StartWatchdog(nil, nil)() // there is no watchdog
	_ = conn.Close()
	if err := n.Ready(""); err == nil {
		t.Error("no error although nobody is there")
	}
}

func TestNotifierAbsent(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	made, err := NewNotifier()
	bridgetest.Must(t, err)
	for _, n := range []*Notifier{nil, {}, made} {
		n.StartWatchdog(func() bool { t.Error("asked"); return true }, nil)()
		for _, err := range []error{n.Ready("x"), n.Reloading(), n.Stopping("")} {
			if err != nil {
				t.Error(err)
			}
		}
	}
}

func TestWatchdog(t *testing.T) {
	conn := manager(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "")
	n, err := NewNotifier()
	bridgetest.Must(t, err)
	for _, name := range []string{"WATCHDOG_USEC", "WATCHDOG_PID"} {
		if _, set := os.LookupEnv(name); set {
			t.Errorf("a child would get %s", name)
		}
	}
	alive := make(chan bool)
	stop := n.StartWatchdog(func() bool { return <-alive }, func(err error) { t.Error(err) })
	alive <- true
	alive <- true
	for range 2 {
		if got := receive(t, conn); got != "WATCHDOG=1" {
			t.Errorf("got %q", got)
		}
	}
	alive <- false // says nothing
	alive <- false
	bridgetest.Must(t, n.Stopping("next"))
	if got := receive(t, conn); got != "STOPPING=1\nSTATUS=next" {
		t.Errorf("got %q while not alive", got)
	}
	close(alive)
	stop()
	stop()

	t.Setenv("WATCHDOG_USEC", "x")
	t.Setenv("NOTIFY_SOCKET", "/nowhere")
	n, err = NewNotifier()
	if err == nil || n == nil {
		t.Errorf("a watchdog's time that is no number: %v, %v", n, err)
	}
	if err := n.Ready(""); err == nil || !strings.Contains(err.Error(), "service manager") {
		t.Errorf("Ready: %v", err)
	}
}
