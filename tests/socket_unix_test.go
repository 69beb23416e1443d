//go:build unix

package tests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// unixSite is the site behind a Unix socket.
func unixSite(t testing.TB, path string) *site {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &site{base: "http://localhost", client: newClient(t, &http.Transport{DialContext: dial})}
}

// TestServeUnixSocket: one socket has every transport over HTTP and messages
// in lines, for many clients at once, beside a TCP address.
func TestServeUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	p, urls := startServe(t, nil, 2, "--listen", "unix:"+path, "--listen", "127.0.0.1:0", "--", childBin)
	if urls[0] != "unix:"+path || !strings.HasPrefix(urls[1], "http://127.0.0.1:") {
		t.Errorf("serve says that it listens at %q", urls)
	}
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			checkUnbuffered(t, unixSite(t, path), transport)
			checkUnbuffered(t, newSite(t, strings.TrimSuffix(urls[1], "/mcp")), transport)
		})
	}
	t.Run("lines", func(t *testing.T) {
		t.Parallel()
		one, two := mustLines(t, path), mustLines(t, path)
		pids := map[string]bool{}
		for i, c := range []*lineTalker{one, two, one, two} {
			want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, i, tricky)
			if got := mustAnswer(t, c, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"echo","params":%s}`, i, tricky)); got != want {
				t.Errorf("the answer is\n%s, want\n%s", got, want)
			}
			pids[mustAnswer(t, c, `{"jsonrpc":"2.0","id":"pid","method":"pid"}`)] = true
		}
		if len(pids) != 2 {
			t.Errorf("two connections have the processes %v, want one each", pids)
		}
		var heard []string
		answer, err := one.exchange(t.Context(), progressCall("5", "progress", 1000), func(m string) { heard = append(heard, m) })
		bridgetest.Must(t, err)
		checkProgress(t, append(heard, answer), "5", 1000)
		params := big(1 << 20)
		if got, want := mustAnswer(t, one, `{"jsonrpc":"2.0","id":1,"method":"echo","params":`+params+`}`), `{"jsonrpc":"2.0","id":1,"result":`+params+`}`; got != want {
			t.Errorf("a message of %d bytes came back as another one of %d", len(want), len(got))
		}
		if id, code, _ := errorOf(t, mustAnswer(t, one, `{"jsonrpc":"2.0","id":1,"method":`)); id != "1" || code != -32700 {
			t.Errorf("a line that is no JSON is answered with id %s and code %d", id, code)
		}
		mustAnswer(t, one, `{"jsonrpc":"2.0","id":"still","method":"ping"}`)
		// The end of the client's side is the end of input: what is owed still comes.
		hang, err := openLines(t.Context(), path)
		bridgetest.Must(t, err)
		defer hang.close()
		if _, err := io.WriteString(hang.conn, initialize("2025-06-18")+"\n"+`{"jsonrpc":"2.0","id":"last","method":"ping"}`+"\n"); err != nil {
			t.Fatal(err)
		}
		bridgetest.Must(t, hang.conn.(*net.UnixConn).CloseWrite())
		rest, err := io.ReadAll(hang.conn)
		if want := `{"jsonrpc":"2.0","id":"last","result":{}}` + "\n"; err != nil || strings.Count(string(rest), "\n") != 2 || !strings.HasSuffix(string(rest), want) {
			t.Errorf("after the end of input came %q (%v), want two answers", rest, err)
		}
	})
	t.Cleanup(func() {
		p.signal(syscall.SIGTERM)
		if code := p.wait(); code != 0 {
			t.Errorf("exit status %d, want 0", code)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket's file is left behind (%v)", err)
		}
	})
}

// TestServeUnixSocketFile: the file has the mode that was asked for from the
// beginning, takes the place of one that a dead process has left, and never
// that of a living one or of what is no socket.
func TestServeUnixSocketFile(t *testing.T) {
	t.Parallel()
	for want, flags := range map[fs.FileMode][]string{0o600: nil, 0o660: {"--unix-mode", "0660"}, 0o666: {"--unix-mode", "666"}} {
		t.Run(want.String(), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(socketDir(t), "s")
			p, _ := startServe(t, nil, 1, append(flags, "--listen", "unix:"+path, "--", childBin)...)
			checkMode(t, path, want)
			mustLines(t, path)
			p.signal(os.Kill)
			p.wait()
			checkMode(t, path, want) // the dead leave it
			startServe(t, nil, 1, "--listen", "unix:"+path, "--", childBin)
			checkMode(t, path, 0o600)
			first := mustLines(t, path)
			second := start(t, nil, bridgeBin, "serve", "--listen", "unix:"+path, "--", childBin)
			if code := second.wait(); code <= 0 || !strings.Contains(second.Log(), path) {
				t.Errorf("a second bridge at the same socket: exit status %d, want a positive one, and the path on stderr", code)
			}
			mustAnswer(t, first, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			mustLines(t, path)
		})
	}
	path := filepath.Join(socketDir(t), "s")
	writeFile(t, path, "precious")
	p := start(t, nil, bridgeBin, "serve", "--listen", "unix:"+path, "--", childBin)
	if code := p.wait(); code <= 0 || harness.ReadFile(t, path) != "precious" {
		t.Errorf("a file in the way: exit status %d, want a positive one; the file is now %q", code, harness.ReadFile(t, path))
	}
}

func checkMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	bridgetest.Must(t, err)
	if info.Mode() != want|fs.ModeSocket {
		t.Errorf("%s is %v, want %v", path, info.Mode(), want|fs.ModeSocket)
	}
}

// TestServeUnixSocketEnd: a client in lines that hangs up ends its server
// process, and a server process that ends hangs up.
func TestServeUnixSocketEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "s")
	pids := filepath.Join(t.TempDir(), "pids")
	startServe(t, nil, 1, "--listen", "unix:"+path, "--", childBin, "-pids", pids)
	gone := func(c *lineTalker) func() bool {
		var n int
		if _, err := fmt.Sscanf(mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"pid"}`), `{"jsonrpc":"2.0","id":1,"result":{"pid":%d}}`, &n); err != nil {
			t.Fatal(err)
		}
		return func() bool { return errors.Is(syscall.Kill(n, 0), syscall.ESRCH) }
	}
	c := mustLines(t, path)
	isGone := gone(c)
	c.close()
	harness.WaitUntil(t, "the server of a client that hung up to end", isGone)
	c = mustLines(t, path)
	isGone = gone(c)
	_, code, text := errorOf(t, mustAnswer(t, c, `{"jsonrpc":"2.0","id":1,"method":"exit","params":{"code":3}}`))
	if code >= 0 || !strings.Contains(text, "3") {
		t.Errorf("a server that exits: %s", text)
	}
	if rest, err := io.ReadAll(c.in); err != nil || len(rest) > 0 {
		t.Errorf("after the server's end came %q (%v), want the end", rest, err)
	}
	harness.WaitUntil(t, "the server that has ended to be reaped", isGone)
}

// TestServeUnixSocketMany: lines do not say which of many servers is meant, and
// have no place for a token: both is said, and HTTP goes on working.
func TestServeUnixSocketMany(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, config, `{"mcpServers":{"one":{"command":`+quote(childBin)+`}}}`)
	tokens := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, tokens, "ann "+annToken)
	for name, c := range map[string]struct {
		args []string
		want string
		site string
	}{
		"config": {[]string{"--config", config}, "/servers/NAME/mcp", "/servers/one"},
		"tokens": {[]string{"--token-file", tokens, "--", childBin}, "token", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(socketDir(t), "s")
			startServe(t, nil, 1, append([]string{"--listen", "unix:" + path}, c.args...)...)
			lines, err := openLines(t.Context(), path)
			bridgetest.Must(t, err)
			defer lines.close()
			if id, _, text := errorOf(t, mustAnswer(t, lines, initialize("2025-06-18"))); id != `"init"` || !strings.Contains(text, c.want) {
				t.Errorf("initialize in a line is answered with id %s, %s, want an error that says %q", id, text, c.want)
			}
			for _, transport := range transports {
				s := unixSite(t, path).at(c.site).as("X-API-Key", annToken)
				mustAnswer(t, s.mustOpen(t, transport), `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			}
		})
	}
}
