package listen

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// activatedVar makes this program one that systemd has started: activated.
const activatedVar = "LISTEN_TEST_ACTIVATED"

// report is what such a program says about itself.
type report struct {
	Error  string
	Option bool
	URLs   []string
	Names  []string
	Left   []string // variables that a child would get
}

// activated opens what it was passed, says so, and echoes one connection of
// each listener until stdin ends.
func activated() {
	var o Options
	_ = json.Unmarshal([]byte(os.Getenv(activatedVar)), &o)
	var r report
	ls, err := Open(o)
	if err != nil {
		r.Error, r.Option = err.Error(), isOptionError(err)
	}
	for _, l := range ls {
		r.URLs, r.Names = append(r.URLs, l.URL()), append(r.Names, l.systemdName)
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}
		}()
	}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); name == "LISTEN_PID" || name == "LISTEN_FDS" || name == "LISTEN_FDNAMES" {
			r.Left = append(r.Left, name)
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = ls.Close()
}

// activate starts this program as systemd would, with the sockets passed, and
// returns what it reports. It runs until the test ends.
func activate(t *testing.T, o Options, pid string, names string, sockets ...interface{ File() (*os.File, error) }) report {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("systemd is for Linux")
	}
	options, err := json.Marshal(o)
	bridgetest.Must(t, err)
	// The process id is known only once the process exists.
	cmd := exec.Command("/bin/sh", "-c", `LISTEN_PID=`+pid+` exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", activatedVar+"="+string(options),
		fmt.Sprintf("LISTEN_FDS=%d", len(sockets)), "LISTEN_FDNAMES="+names)
	for _, s := range sockets {
		f, err := s.File()
		bridgetest.Must(t, err)
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	bridgetest.Must(t, err)
	stdout, err := cmd.StdoutPipe()
	bridgetest.Must(t, err)
	bridgetest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	var r report
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	bridgetest.Must(t, err)
	bridgetest.Must(t, json.Unmarshal(line, &r))
	if len(r.Left) > 0 {
		t.Errorf("a child would get %v", r.Left)
	}
	return r
}

func tcpSocket(t *testing.T, addr string) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	bridgetest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

func TestActivation(t *testing.T) {
	tcp := tcpSocket(t, "127.0.0.1:0")
	path := socketPath(t)
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	bridgetest.Must(t, err)
	defer unix.Close()
	unix.SetUnlinkOnClose(false)
	r := activate(t, Options{DefaultAddr: "127.0.0.1:0"}, "$$", "web:local", tcp, unix)
	want := report{URLs: []string{"http://" + tcp.Addr().String(), "unix:" + path}, Names: []string{"web", "local"}}
	if fmt.Sprint(r) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", r, want)
	}
	for network, addr := range map[string]string{"tcp": tcp.Addr().String(), "unix": path} {
		conn, err := net.Dial(network, addr)
		bridgetest.Must(t, err)
		_, _ = io.WriteString(conn, "hello")
		got := make([]byte, 5)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
			t.Errorf("%s: %q, %v", network, got, err)
		}
		_ = conn.Close()
	}
}

// TestActivationKeepsTheFile: the file of systemd's socket is systemd's.
func TestActivationKeepsTheFile(t *testing.T) {
	path := socketPath(t)
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	bridgetest.Must(t, err)
	defer unix.Close()
	t.Run("", func(t *testing.T) { activate(t, Options{}, "$$", "", unix) })
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestActivationRefused(t *testing.T) {
	public := tcpSocket(t, "0.0.0.0:0")
	if r := activate(t, Options{}, "$$", "", public); !r.Option || !strings.Contains(r.Error, "nobody is authenticated") {
		t.Errorf("a public socket: %+v", r)
	}
	if r := activate(t, Options{Authenticated: true}, "$$", "", public); r.Error != "" {
		t.Errorf("a public socket, with authentication: %+v", r)
	}

	loopback := tcpSocket(t, "127.0.0.1:0")
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	bridgetest.Must(t, err)
	defer udp.Close()
	if r := activate(t, Options{}, "$$", "a:b", loopback, udp); !r.Option || !strings.Contains(r.Error, `socket 2 that systemd has passed, named "b"`) || !strings.Contains(r.Error, "ListenStream=") {
		t.Errorf("a datagram socket: %+v", r)
	}
	conn, err := net.DialTCP("tcp", nil, loopback.Addr().(*net.TCPAddr))
	bridgetest.Must(t, err)
	defer conn.Close()
	if r := activate(t, Options{}, "$$", "", conn); !r.Option || !strings.Contains(r.Error, "Accept=no") {
		t.Errorf("a connection: %+v", r)
	}
}

// TestActivationOfAnother: variables that were meant for another process.
func TestActivationOfAnother(t *testing.T) {
	r := activate(t, Options{DefaultAddr: "127.0.0.1:0"}, "1", "web", tcpSocket(t, "127.0.0.1:0"))
	if len(r.Names) != 1 || r.Names[0] != "" {
		t.Errorf("%+v, want the default address only", r)
	}
}
