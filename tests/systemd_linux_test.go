package tests

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A manager is what a service manager is to a service: sockets that it has
// opened, and one on which it is told how things are.
type manager struct {
	t     testing.TB
	env   []string
	files []*os.File
	conn  *net.UnixConn // on which it listens
}

func newManager(t testing.TB) *manager {
	t.Helper()
	path := filepath.Join(socketDir(t), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	bridgetest.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return &manager{t: t, env: []string{"NOTIFY_SOCKET=" + path}, conn: conn}
}

// pass adds a socket to those that the service gets.
func (m *manager) pass(l net.Listener, err error) net.Listener {
	m.t.Helper()
	bridgetest.Must(m.t, err)
	f, err := l.(interface{ File() (*os.File, error) }).File()
	bridgetest.Must(m.t, err)
	m.files = append(m.files, f)
	m.t.Cleanup(func() { f.Close() })
	return l
}

// start runs a service. The shell knows the process id that the service will
// have, which is its own.
func (m *manager) start(argv ...string) *proc {
	m.t.Helper()
	script := `WATCHDOG_PID=$$; export WATCHDOG_PID; exec "$@"`
	if len(m.files) > 0 {
		script = `LISTEN_PID=$$; export LISTEN_PID; ` + script
		m.env = append(m.env, fmt.Sprintf("LISTEN_FDS=%d", len(m.files)))
	}
	p := startWith(m.t, harness.Options{Env: m.env, Files: m.files}, append([]string{"/bin/sh", "-c", script, "sh"}, argv...)...)
	for _, f := range m.files {
		f.Close()
	}
	return p
}

// hear returns the next message of the service, without those of its watchdog.
func (m *manager) hear() []string {
	m.t.Helper()
	for end := time.Now().Add(harness.Patience); ; { // not anew with each message: the watchdog's never end
		if got := m.hearAny(end); !slices.Equal(got, []string{"WATCHDOG=1"}) {
			return got
		}
	}
}

// hearAny returns the next message that comes before end.
func (m *manager) hearAny(end time.Time) []string {
	m.t.Helper()
	buf := make([]byte, 4096)
	m.conn.SetReadDeadline(end)
	n, err := m.conn.Read(buf)
	if err != nil {
		m.t.Fatalf("the service says nothing: %v", err)
	}
	return strings.Split(string(buf[:n]), "\n")
}

// expect waits for a message that begins so.
func (m *manager) expect(first string) []string {
	m.t.Helper()
	got := m.hear()
	if got[0] != first {
		m.t.Fatalf("the service says %q, want %s", got, first)
	}
	return got
}

// A service whose command cannot be started is never ready, and fails.
func TestSystemdHearsOfNoStart(t *testing.T) {
	t.Parallel()
	command := filepath.Join(t.TempDir(), "command")
	bridgetest.Must(t, os.WriteFile(command, []byte("#!/no/such/interpreter\n"), 0o755))
	m := newManager(t)
	p := m.start(bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", command)
	m.expect("STOPPING=1")
	if code := p.wait(); code != 1 {
		t.Errorf("exit status %d, want 1", code)
	}
}

// TestSystemdSockets: the sockets that systemd has opened are served, with no
// other beside them, and HTTP and lines on the Unix one. They outlive the
// service: the next one takes over the clients that are waiting.
func TestSystemdSockets(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	m := newManager(t)
	tcp := m.pass(net.Listen("tcp", "127.0.0.1:0"))
	defer tcp.Close()
	lines, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	bridgetest.Must(t, err)
	lines.SetUnlinkOnClose(false)
	defer lines.Close()
	m.pass(lines, nil)
	m.env = append(m.env, "LISTEN_FDNAMES=web:lines")
	p := m.start(bridgeBin, "serve", "--", childBin)
	m.expect("READY=1")
	if got, want := p.addresses(2), []string{"http://" + tcp.Addr().String() + "/mcp", "unix:" + path}; !slices.Equal(got, want) {
		t.Errorf("serve listens at %q, want %q", got, want)
	}
	web := newSite(t, "http://"+tcp.Addr().String())
	for _, transport := range transports {
		checkUnbuffered(t, web, transport)
		checkUnbuffered(t, unixSite(t, path), transport)
	}
	// The server inherits neither sockets nor variables.
	c := mustLines(t, path)
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		if got := mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"env","params":{"text":"`+name+`"}}`); !strings.Contains(got, `"set":false`) {
			t.Errorf("in the server's environment %s is %s", name, got)
		}
	}
	var pid int
	if _, err := fmt.Sscanf(mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"pid"}`), `{"jsonrpc":"2.0","id":1,"result":{"pid":%d}}`, &pid); err != nil {
		t.Fatal(err)
	}
	if n := sockets(t, pid); n > 0 {
		t.Errorf("the server has %d sockets, want none", n)
	}
	p.signal(syscall.SIGTERM)
	m.expect("STOPPING=1")
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket is systemd's, and is gone: %v", err)
	}

	// One who calls in between waits.
	web.client.CloseIdleConnections()
	answered := make(chan int, 1)
	go func() {
		resp, err := web.request(t.Context(), http.MethodPost, "/mcp", initialize("2025-06-18"), nil)
		if err != nil {
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	next := newManager(t)
	next.pass(tcp, nil)
	next.start(bridgeBin, "serve", "--", childBin)
	next.expect("READY=1")
	if status := recv(t, answered); status != http.StatusOK {
		t.Errorf("a client that came while nobody served: status %d, want 200 from the next service", status)
	}
}

// TestSystemdListenToo: --listen adds to what systemd has opened. Public
// sockets are held to the same rule (A9).
func TestSystemdListenToo(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	tcp := m.pass(net.Listen("tcp", "127.0.0.1:0"))
	defer tcp.Close()
	p := m.start(bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", childBin)
	for _, url := range p.addresses(2) {
		mustAnswer(t, newSite(t, strings.TrimSuffix(url, "/mcp")).mustOpen(t, "mcp"), ping)
	}
	public := newManager(t)
	everywhere := public.pass(net.Listen("tcp", "0.0.0.0:0"))
	defer everywhere.Close()
	p = public.start(bridgeBin, "serve", "--", childBin)
	if code := p.wait(); code != 2 || !strings.Contains(p.Log(), "--insecure") {
		t.Errorf("a public socket: exit status %d, want 2, and stderr should name --insecure", code)
	}
}

// TestSystemdForeignSockets: sockets that were passed to another process, of
// which only the variables are left, are not taken.
func TestSystemdForeignSockets(t *testing.T) {
	t.Parallel()
	p, urls := startServe(t, []string{"LISTEN_PID=1", "LISTEN_FDS=1"}, 1, "--listen", "127.0.0.1:0", "--", childBin)
	c := newSite(t, strings.TrimSuffix(urls[0], "/mcp")).mustOpen(t, "mcp")
	mustAnswer(t, c, ping)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestSystemdNotify: the service manager hears when the bridge is ready, loads
// its files, and stops, and all the time that it is alive.
func TestSystemdNotify(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "servers.json")
	write := func(name string) {
		replaceFile(t, config, `{"mcpServers":{"`+name+`":{"command":`+quote(childBin)+`}}}`)
	}
	write("one")
	m := newManager(t)
	m.env = append(m.env, "WATCHDOG_USEC=200000")
	p := m.start(bridgeBin, "serve", "--listen", "127.0.0.1:0", "--config", config)
	m.expect("READY=1")
	// When it says so, it does serve: no second try.
	front := newSite(t, strings.TrimSuffix(p.addresses(1)[0], "/servers"))
	mustAnswer(t, front.at("/servers/one").mustOpen(t, "mcp"), ping)
	for end, beats := time.Now().Add(harness.Patience), 0; beats < 3; {
		if slices.Contains(m.hearAny(end), "WATCHDOG=1") {
			beats++
		}
	}

	p.signal(syscall.SIGHUP)
	got := m.expect("RELOADING=1")
	if len(got) != 2 || !strings.HasPrefix(got[1], "MONOTONIC_USEC=") {
		t.Errorf("the service says %q, want RELOADING=1 and the time", got)
	}
	m.expect("READY=1")
	write("two") // is enough without a signal
	m.expect("RELOADING=1")
	m.expect("READY=1")
	mustAnswer(t, front.at("/servers/two").mustOpen(t, "mcp"), ping)
	writeFile(t, config, "{")
	m.expect("RELOADING=1")
	m.expect("READY=1") // with what was there before
	mustAnswer(t, front.at("/servers/two").mustOpen(t, "mcp"), ping)

	p.signal(syscall.SIGTERM)
	m.expect("STOPPING=1")
	if code := p.wait(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// TestSystemdNeverReady: what cannot start never says that it is ready.
func TestSystemdNeverReady(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	p := m.start(bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", "no-such-command-anywhere")
	if code := p.wait(); code <= 0 {
		t.Errorf("exit status %d, want a positive one", code)
	}
	m.conn.SetReadDeadline(time.Now())
	buf := make([]byte, 100)
	if n, err := m.conn.Read(buf); err == nil {
		t.Errorf("the service said %q", buf[:n])
	}
}
