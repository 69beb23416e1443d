package listen

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func isOptionError(err error) bool {
	var o *OptionError
	return errors.As(err, &o)
}

// TestPublic proves A9: what other machines can reach needs authentication.
func TestPublic(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		fails(t, Options{Addrs: []string{"127.0.0.1:0", addr}}, true, "nobody is authenticated", "--oidc-issuer", "--insecure")
		mustOpen(t, Options{Addrs: []string{addr}, Insecure: true})
		j, log := newJournal()
		mustOpen(t, Options{Addrs: []string{addr}, Authenticated: true, Logger: log})
		if !strings.Contains(j.String(), "unencrypted") {
			t.Errorf("%s: no warning: %q", addr, j)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0", "127.0.0.2:0"} {
		if runtime.GOOS != "linux" && addr == "127.0.0.2:0" {
			continue
		}
		j, log := newJournal()
		ls := mustOpen(t, Options{Addrs: []string{addr}, Logger: log})
		if ls[0].IsUnix() || !strings.HasPrefix(ls[0].URL(), "http://") || j.String() != "" {
			t.Errorf("%s: URL %s, log %q", addr, ls[0].URL(), j)
		}
	}
}

// TestFamily: an address of IPv4 is none of IPv6.
func TestFamily(t *testing.T) {
	for _, host := range []string{"0.0.0.0", "127.0.0.1"} {
		if url := mustOpen(t, Options{Addrs: []string{host + ":0"}, Insecure: true})[0].URL(); !strings.HasPrefix(url, "http://"+host+":") {
			t.Errorf("%s: listens at %s", host, url)
		}
	}
}

// exhausted is a listener of a process without file descriptors.
type exhausted struct{ net.Listener }

func (exhausted) Accept() (net.Conn, error) { return nil, syscall.EMFILE }

// TestAcceptIsLogged: the log says why nobody gets in, once a minute.
func TestAcceptIsLogged(t *testing.T) {
	j, log := newJournal()
	l := mustOpen(t, Options{Addrs: []string{"127.0.0.1:0"}, Logger: log})[0]
	l.Listener = exhausted{l.Listener}
	for range 3 {
		if _, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("Accept: %v", err)
		}
	}
	text := j.String()
	if strings.Count(text, "no connection can be accepted") != 1 || !strings.Contains(text, syscall.EMFILE.Error()) || !strings.Contains(text, l.URL()) {
		t.Errorf("the log has %q", text)
	}
	if l.shouldLogAcceptErr(time.Now()) || !l.shouldLogAcceptErr(time.Now().Add(acceptErrLogInterval)) {
		t.Error("not told again after a minute, or before")
	}
}

func TestDefault(t *testing.T) {
	if ls := mustOpen(t, Options{}); len(ls) != 0 || ls.Reload() != nil {
		t.Errorf("opened %v", ls)
	}
	if ls := mustOpen(t, Options{DefaultAddr: "127.0.0.1:0"}); len(ls) != 1 {
		t.Errorf("%d listeners, want the default", len(ls))
	}
	path := socketPath(t)
	if ls := mustOpen(t, Options{DefaultAddr: "127.0.0.1:0", Addrs: []string{"unix:" + path}}); len(ls) != 1 || ls[0].URL() != "unix:"+path {
		t.Errorf("%d listeners, want one that is not the default", len(ls))
	}
}

func TestNotOpened(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bridgetest.Must(t, err)
	defer l.Close()
	taken := l.Addr().String()
	fails(t, Options{Addrs: []string{taken}}, false, taken, "address already in use", "stop the other program")
	fails(t, Options{Addrs: []string{"192.0.2.1:0"}, Insecure: true}, false, "no such address")
	for _, addr := range []string{"", "8080", "localhost", "::1:8080", "/run/x.sock", "http://localhost:1"} {
		fails(t, Options{Addrs: []string{addr}}, true, "HOST:PORT")
	}
	fails(t, Options{Addrs: []string{"127.0.0.1:x"}}, false, "127.0.0.1:x")

	// One that fails takes the others with it.
	path := socketPath(t)
	fails(t, Options{Addrs: []string{"unix:" + path, taken}}, false)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket has stayed: %v", err)
	}
	addr := bridgetest.FreeAddr(t)
	fails(t, Options{Addrs: []string{addr, taken}}, false)
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the first address is still open: %v", err)
	}
}

func TestCloseTwice(t *testing.T) {
	ls := mustOpen(t, Options{Addrs: []string{"127.0.0.1:0", "unix:" + socketPath(t)}})
	for range 2 {
		if err := ls.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := ls[0].Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}

func TestParseSocketMode(t *testing.T) {
	for text, want := range map[string]os.FileMode{"0600": 0o600, "600": 0o600, "0660": 0o660, "0666": 0o666, "0777": 0o777} {
		if got, err := ParseSocketMode(text); err != nil || got != want {
			t.Errorf("%s: %o, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "0444", "1600", "0o600", "-600", "rw", "0800"} {
		if got, err := ParseSocketMode(text); err == nil || !isOptionError(err) {
			t.Errorf("%q: %o, %v", text, got, err)
		}
	}
}
