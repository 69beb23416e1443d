package idp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// A home is where bridges run: one user's store of credentials, and an environment. What all bridges
// there write is searched for the provider's secrets when the test ends.
type home struct {
	t        *testing.T
	provider *Provider
	server   *Server
	env      []string
	dir      string // of credentials
	traces   string // folder
	// command is how a bridge runs there, and also another one beside it; nil: as a process of this machine.
	command func(beside bool, args ...string) []string

	mu      sync.Mutex
	written []*record
}

// newHome returns a home. desktop nil: nobody sits there, as in a container or at the other end of ssh.
func newHome(t *testing.T, p *Provider, s *Server, desktop *Desktop) *home {
	t.Helper()
	dir := t.TempDir()
	h := &home{t: t, provider: p, server: s, dir: filepath.Join(dir, "auth"), traces: dir}
	h.env = []string{"BROWSER=", "DISPLAY=", "WAYLAND_DISPLAY=", "SSH_CONNECTION=192.0.2.1 50000 192.0.2.2 22"}
	if desktop != nil {
		h.env = desktop.Env
	}
	h.env = append(h.env, "MCP_BRIDGE_AUTH_DIR="+h.dir, "HOME="+dir, "XDG_RUNTIME_DIR="+dir)
	t.Cleanup(func() { h.empty(); h.search() })
	return h
}

// bridge returns a bridge that is started in this home; beside: while another one runs.
func (h *home) bridge(ctx context.Context, beside bool, args ...string) *exec.Cmd {
	h.t.Helper()
	if h.command != nil {
		argv := h.command(beside, args...)
		return exec.CommandContext(ctx, argv[0], argv[1:]...)
	}
	cmd := exec.CommandContext(ctx, peers.Bridge(h.t), args...)
	cmd.Env = append(os.Environ(), h.env...)
	return cmd
}

// signIn has a person sign in, as with "mcp-bridge login".
func (h *home) signIn() {
	h.t.Helper()
	store, err := tokenstore.Open(h.t.Context(), tokenstore.Options{Dir: h.dir})
	if err != nil {
		h.t.Fatal(err)
	}
	u := newUser(h.t, h.server, client.Options{Store: store, SignIn: signsIn(NewBrowser("alice"), false)})
	u.connect()
	u.call("read")
}

// empty fails the test if a process of this home is left (Linux). Those that have nothing to do any more have
// some seconds to end.
func (h *home) empty() {
	begin := time.Now()
	end := begin.Add(patience / 6) // for a machine that is busy
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		left := h.left()
		if left == nil {
			h.t.Logf("nothing is left running %v after the last client has gone", time.Since(begin).Round(time.Millisecond))
			return
		}
		if time.Now().After(end) {
			h.t.Errorf("left running: %q", left)
			return
		}
		<-tick.C
	}
}

// left returns the command lines of the processes of this home.
func (h *home) left() (all []string) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		env, err := os.ReadFile(filepath.Join(folder, "environ"))
		if err != nil || !bytes.Contains(env, []byte("MCP_BRIDGE_AUTH_DIR="+h.dir+"\x00")) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		all = append(all, strings.ReplaceAll(string(line), "\x00", " "))
	}
	return all
}

// search fails the test for each secret of the provider that a bridge has written anywhere but
// into the store.
func (h *home) search() {
	texts := map[string]string{}
	h.mu.Lock()
	for i, r := range h.written {
		texts[fmt.Sprintf("%s of %d", r.what, i)] = r.String()
	}
	h.mu.Unlock()
	traces, _ := filepath.Glob(filepath.Join(h.traces, "*.jsonl"))
	for _, file := range traces {
		data, err := os.ReadFile(file)
		if err != nil {
			h.t.Error(err)
		}
		texts[filepath.Base(file)] = string(data)
	}
	secrets := h.provider.Secrets()
	if len(secrets) == 0 && !h.t.Skipped() {
		h.t.Error("the provider has seen no secret: nothing was searched for")
	}
	for what, text := range texts {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				h.t.Errorf("%s has a secret: ...%.200s[%d bytes]", what, text[max(0, i-200):i], len(secret))
			}
		}
	}
}

// A record is all that was written to a stream. It may be used concurrently.
type record struct {
	what string
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{} // of size 1: something was written
}

func (h *home) record(what string) *record {
	r := &record{what: what, more: make(chan struct{}, 1)}
	h.mu.Lock()
	h.written = append(h.written, r)
	h.mu.Unlock()
	return r
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
	return r.buf.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// waitFor waits until find finds something in the text, and returns it; "" after a while, which fails the test.
func (r *record) waitFor(t *testing.T, find func(text string) string) string {
	t.Helper()
	timeout := time.After(patience)
	for {
		if found := find(r.String()); found != "" {
			return found
		}
		select {
		case <-r.more:
		case <-timeout:
			t.Errorf("%s is without what was waited for:\n%s", r.what, r.String())
			return ""
		}
	}
}

// shownURL returns the first address of the provider with this path in a log.
func shownURL(p *Provider, text, path string) string {
	_, rest, ok := strings.Cut(text, p.URL+path)
	end := strings.IndexAny(rest, " \"\n")
	if !ok || end < 0 {
		return ""
	}
	return p.URL + path + strings.TrimRight(rest[:end], ",.;:")
}

// An instance is a client with its `mcp-bridge connect`.
type instance struct {
	h        *home
	cmd      *exec.Cmd
	out, err *record
	session  *mcp.ClientSession
	stdin    io.Closer
	pipe     mcp.Transport
	ended    chan struct{}
}

// start starts a bridge.
func (h *home) start(flags ...string) *instance {
	h.t.Helper()
	i := &instance{h: h, out: h.record("stdout of connect"), err: h.record("stderr of connect"), ended: make(chan struct{})}
	h.mu.Lock()
	trace := filepath.Join(h.traces, fmt.Sprintf("trace%d.jsonl", len(h.written)))
	h.mu.Unlock()
	args := slices.Concat([]string{"connect", "--log-level", "trace", "--trace", trace}, flags, []string{h.server.URL})
	i.cmd = h.bridge(context.Background(), false, args...)
	i.cmd.Stderr = i.err
	stdin, err := i.cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	fromBridge, toUs, err := os.Pipe()
	if err != nil {
		h.t.Fatal(err)
	}
	i.cmd.Stdout = toUs
	err = i.cmd.Start()
	toUs.Close()
	if err != nil {
		fromBridge.Close()
		h.t.Fatal(err)
	}
	go func() { defer close(i.ended); _ = i.cmd.Wait() }()
	i.stdin, i.pipe = stdin, &mcp.IOTransport{Reader: readCloser{io.TeeReader(fromBridge, i.out), fromBridge}, Writer: stdin}
	h.t.Cleanup(i.stop)
	return i
}

type readCloser struct {
	io.Reader
	io.Closer
}

// connect begins a session.
func (i *instance) connect() error {
	ctx, cancel := context.WithTimeout(i.h.t.Context(), patience)
	defer cancel()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "client", Version: "1"}, nil).Connect(ctx, i.pipe, nil)
	i.session = session
	return err
}

// call calls a tool.
func (i *instance) call(tool string) error {
	ctx, cancel := context.WithTimeout(i.h.t.Context(), patience)
	defer cancel()
	result, err := i.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"text": "hello"}})
	if err == nil && result.IsError {
		err = fmt.Errorf("%s failed", tool)
	}
	return err
}

// mustCall calls tools.
func (i *instance) mustCall(tools ...string) {
	i.h.t.Helper()
	for _, tool := range tools {
		if err := i.call(tool); err != nil {
			i.h.t.Fatalf("%s: %v\n%s", tool, err, i.tail())
		}
	}
}

// begin starts a bridge, with a session.
func (h *home) begin(flags ...string) *instance {
	h.t.Helper()
	i := h.start(flags...)
	if err := i.connect(); err != nil {
		h.t.Fatalf("%v\n%s", err, i.tail())
	}
	return i
}

// tail returns the last of the log.
func (i *instance) tail() string {
	text := i.err.String()
	return text[max(0, len(text)-4<<10):]
}

// stop ends the client, and waits for the bridge. All that it has written to stdout must be messages.
func (i *instance) stop() {
	if i.session != nil {
		_ = i.session.Close()
	}
	_ = i.stdin.Close()
	select {
	case <-i.ended:
	case <-time.After(patience):
		i.h.t.Errorf("connect is still there after its stdin has ended\n%s", i.tail())
		_ = i.cmd.Process.Kill()
		<-i.ended
	}
	whole, _ := strings.CutSuffix(i.out.String(), "\n")
	if i.cmd.ProcessState.ExitCode() < 0 { // killed while it wrote
		whole = whole[:strings.LastIndex(whole, "\n")+1]
	}
	for in := bufio.NewScanner(strings.NewReader(whole)); in.Scan(); {
		var m struct{ JSONRPC string }
		if json.Unmarshal(in.Bytes(), &m) != nil || m.JSONRPC != "2.0" {
			i.h.t.Errorf("stdout of connect has %q", in.Text())
		}
	}
}
