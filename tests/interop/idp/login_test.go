package idp

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/resource"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/tests/interop/peers"
)

// run runs a command of the bridge to its end, and returns what it has written, and its status.
func (h *home) run(stdin string, args ...string) (stdout string, status int) {
	h.t.Helper()
	peers.Bridge(h.t) // is built, which takes a while
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	cmd := h.bridge(ctx, true, args...)
	out, errs := h.record("stdout of "+args[0]), h.record("stderr of "+args[0])
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), out, errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		h.t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() != 0 {
		h.t.Logf("%q: status %d\n%s", args, cmd.ProcessState.ExitCode(), errs)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// use uses the server with what is stored, which is enough.
func (h *home) use() {
	h.t.Helper()
	store, err := tokenstore.Open(h.t.Context(), tokenstore.Options{Dir: h.dir})
	if err != nil {
		h.t.Fatal(err)
	}
	u := newUser(h.t, h.server, client.Options{Store: store})
	u.connect()
	u.call("read")
}

// TestLogin: a person signs in with the browser of his desktop, sees it, and signs out.
func TestLogin(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	d := NewDesktop(t)
	d.Approve(t, "alice")
	h := newHome(t, p, s, d)
	if out, code := h.run("", "status", "--check", s.URL); code != 3 {
		t.Errorf("status before anything: %d, want 3\n%s", code, out)
	}
	if out, code := h.run("", "login", s.URL); code != 0 {
		t.Fatalf("login: %d\n%s", code, out)
	}
	h.use()
	p.Want(map[string]int{"registration 201": 1, "authorized": 1, "grant authorization_code": 1})
	if out, code := h.run("", "status", "--json", s.URL); code != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, p.URL) {
		t.Errorf("status: %d\n%s", code, out)
	}
	if out, code := h.run("", "logout", s.URL); code != 0 {
		t.Errorf("logout: %d\n%s", code, out)
	}
	p.Want(map[string]int{"revocation 200": 1, "error invalid_grant": 0})
	if out, code := h.run("", "status", "--check", s.URL); code != 3 {
		t.Errorf("status after logout: %d, want 3\n%s", code, out)
	}
	if n := d.Count(); n != 1 {
		t.Errorf("a browser was opened %d times", n)
	}
}

// login runs "mcp-bridge login" where there is no browser, to its end, while act does what a person does elsewhere,
// who reads what it writes.
func (h *home) login(act func(text *record) error) {
	h.t.Helper()
	peers.Bridge(h.t) // is built, which takes a while
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	cmd := h.bridge(ctx, false, "login", "--no-browser", h.server.URL)
	text := h.record("output of login")
	cmd.Stdout, cmd.Stderr = text, text
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	var person sync.WaitGroup
	person.Go(func() {
		if err := act(text); err != nil {
			h.t.Error(err)
		}
	})
	err := cmd.Wait()
	person.Wait()
	if err != nil {
		h.t.Fatalf("login: %v\n%s", err, text)
	}
}

var userCode = regexp.MustCompile(`\b[A-Z]{4}-[A-Z]{4}\b`)

// TestLoginDevice: the person types the code in on another machine.
func TestLoginDevice(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{})
	h := newHome(t, p, p.Serve(t, ServerOptions{DPoP: resource.DPoPOff}), nil)
	h.loginDevice()
	h.use()
	p.Want(map[string]int{"grant urn:ietf:params:oauth:grant-type:device_code": 1, "error invalid_grant": 0})
}

// loginDevice is a login with a person who types the code in elsewhere.
func (h *home) loginDevice() {
	h.t.Helper()
	p, t := h.provider, h.t
	h.login(func(text *record) error {
		addr := text.waitFor(t, func(text string) string { return shownURL(p, text, "/device") })
		_, err := NewBrowser("alice").Visit(context.Background(), addr, text.waitFor(t, userCode.FindString))
		return err
	})
}

// TestLoginByHand: nor has the provider device codes. The person opens the address on another machine, and
// brings back the one that the browser ended at.
func TestLoginByHand(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{Device: new(bool)})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	h := newHome(t, p, s, nil)
	h.login(h.deliver)
	h.use()
	p.Want(map[string]int{"grant authorization_code": 1, "error invalid_grant": 0})
}

// deliver is a person who opens the address that a bridge shows elsewhere, and brings back the one that the browser ended at.
func (h *home) deliver(text *record) error {
	away := NewBrowser("alice")
	away.Stays = true
	end, err := away.Visit(context.Background(), text.waitFor(h.t, func(text string) string { return shownURL(h.provider, text, "/auth?") }), "")
	if err != nil {
		return err
	}
	if out, code := h.run(end+"\n", "login", "--callback", "-", h.server.URL); code != 0 {
		h.t.Errorf("login --callback: %d\n%s", code, out)
	}
	return nil
}
