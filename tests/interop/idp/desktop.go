package idp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// openerVariable has the address of the Desktop for which this program opens an address.
const openerVariable = "MCP_BRIDGE_TEST_DESKTOP"

// Main is peers.Main for tests that have a Desktop: started as its browser, the program
// hands the address on and ends.
func Main(m *testing.M) {
	if to := os.Getenv(openerVariable); to != "" {
		resp, err := http.Post(to, "text/plain", strings.NewReader(os.Args[len(os.Args)-1]))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		resp.Body.Close()
		os.Exit(0)
	}
	peers.Main(m)
}

// A Desktop is where a person sits: programs that are started with Env open addresses in
// its browser. It may be used concurrently.
type Desktop struct {
	// Env is for the programs: BROWSER, and a PATH that begins with a folder where the usual
	// openers of addresses are.
	Env []string

	opened chan string // gets each address that is opened, as long as there is room: 100 that nobody has taken yet
	mu     sync.Mutex  // guards all
	all    []string    // all addresses that were opened, in order
}

// NewDesktop returns a Desktop that works until the test ends. Each address that is opened comes out of Opened, or is what Approve visits.
func NewDesktop(t testing.TB) *Desktop {
	t.Helper()
	d := &Desktop{opened: make(chan string, 100)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: d}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { _ = server.Close(); serving.Wait() })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\n%s=http://%s exec '%s' \"$@\"\n", openerVariable, l.Addr(), self)
	for _, name := range []string{"browser", "xdg-open", "x-www-browser", "www-browser", "wslview"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	d.Env = []string{"BROWSER=" + filepath.Join(dir, "browser"), "DISPLAY=:0", "SSH_CONNECTION=",
		"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	return d
}

// ServeHTTP takes an address that is opened: it is the body of a request that this program, started as the browser, makes (Main).
func (d *Desktop) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	addr, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return
	}
	d.mu.Lock()
	d.all = append(d.all, string(addr))
	d.mu.Unlock()
	select {
	case d.opened <- string(addr):
	default:
	}
}

// Opened waits for the next address that is opened, as long as ctx lasts.
func (d *Desktop) Opened(ctx context.Context) (addr string, err error) {
	select {
	case addr = <-d.opened:
		return addr, nil
	case <-ctx.Done():
		return "", fmt.Errorf("no browser was opened: %w", ctx.Err())
	}
}

// Count returns how many addresses were opened.
func (d *Desktop) Count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all)
}

// Approve lets a person sign in wherever an address is opened, until the test ends.
func (d *Desktop) Approve(t testing.TB, login string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var person sync.WaitGroup
	person.Go(func() {
		for {
			select {
			case addr := <-d.opened:
				if _, err := NewBrowser(login).Visit(ctx, addr, ""); err != nil && ctx.Err() == nil {
					t.Errorf("signing in with the browser: %v", err)
				}
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); person.Wait() })
}
