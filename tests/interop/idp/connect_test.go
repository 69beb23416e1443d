package idp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/resource"
)

// TestConnectSignIn: a person signs in with the browser of his desktop, once for all bridges, and for one
// scope more when a tool needs that; sees it, and signs out.
func TestConnectSignIn(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{})
	s := p.Serve(t, ServerOptions{Policy: "tools/call write -> mcp:write", DPoP: resource.DPoPOff})
	d := NewDesktop(t)
	d.Approve(t, "alice")
	h := newHome(t, p, s, d)
	port := fmt.Sprint(freePort(t)) // with another port a client registers anew
	first := h.begin("--redirect-port", port)
	first.mustCall("read")
	second := h.begin("--auth-prompt", "error", "--redirect-port", port)
	second.mustCall("read")
	p.Want(map[string]int{"registration 201": 1, "authorized": 1, "grant authorization_code": 1})
	first.mustCall("write")
	second.mustCall("write")
	p.Want(map[string]int{"registration 201": 1, "authorized": 2, "grant authorization_code": 2})
	if n := d.Count(); n != 2 {
		t.Errorf("a browser was opened %d times, want 2", n)
	}

	if out, code := h.run("", "logout", s.URL); code != 0 {
		t.Errorf("logout: %d\n%s", code, out)
	}
	p.Want(map[string]int{"revocation 200": 1, "error invalid_grant": 0})
	if out, code := h.run("", "status", "--check", s.URL); code != 3 {
		t.Errorf("status after logout: %d, want 3\n%s", code, out)
	}
	var err error // soon: what runs already learns of it by the file
	for end := time.Now().Add(patience / 2); err == nil && time.Now().Before(end); {
		err = second.call("read")
	}
	if err == nil || !strings.Contains(err.Error(), "mcp-bridge login") {
		t.Errorf("a call of one who has signed out: %v", err)
	}
	first.mustCall("read")
	second.mustCall("read")
	p.Want(map[string]int{"authorized": 3, "error invalid_grant": 0})
}

// TestConnectDevice: on a machine without a browser, the log says where to go and which code to type in there.
func TestConnectDevice(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	h := newHome(t, p, s, nil)
	i := h.start()
	var person sync.WaitGroup
	person.Go(func() {
		text := i.err.waitFor(t, func(text string) string { return shownURL(p, text, "/device") })
		code := i.err.waitFor(t, func(text string) string { return userCode.FindString(text) })
		if _, err := NewBrowser("alice").Visit(context.Background(), text, code); err != nil {
			t.Error(err)
		}
	})
	err := i.connect()
	person.Wait()
	if err != nil {
		t.Fatalf("%v\n%s", err, i.tail())
	}
	i.mustCall("read")
	p.Want(map[string]int{"grant urn:ietf:params:oauth:grant-type:device_code": 1, "error invalid_grant": 0})
}

// TestConnectByHand: nor has the provider device codes. The person opens the address on another machine, and
// brings back the one that the browser ended at.
func TestConnectByHand(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{Device: new(bool)})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	h := newHome(t, p, s, nil)
	i := h.start()
	var person sync.WaitGroup
	person.Go(func() {
		if err := h.deliver(i.err); err != nil {
			t.Error(err)
		}
	})
	err := i.connect()
	person.Wait()
	if err != nil {
		t.Fatalf("%v\n%s", err, i.tail())
	}
	i.mustCall("read")
	p.Want(map[string]int{"grant authorization_code": 1, "error invalid_grant": 0})
}

// TestConnectNobody: without a person, a job is told what to do, and nothing is opened.
func TestConnectNobody(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	d := NewDesktop(t)
	h := newHome(t, p, s, d)
	if err := h.start("--auth-prompt", "error").connect(); err == nil || !strings.Contains(err.Error(), "mcp-bridge login") {
		t.Errorf("the error is %v", err)
	}
	p.Want(map[string]int{"authorized": 0, "registration 201": 0})
	if d.Count() != 0 {
		t.Error("a browser was opened")
	}
	d.Approve(t, "alice")
	if out, code := h.run("", "login", s.URL); code != 0 {
		t.Errorf("login: %d\n%s", code, out)
	}
	h.begin("--auth-prompt", "error").mustCall("read")
	p.Want(map[string]int{"authorized": 1})
}

// TestConnectCold: five bridges are started at once, and the first is killed while the person is still asked. One
// browser is opened, for one request, which they all wait for. In the end nothing is left running.
func TestConnectCold(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	d := NewDesktop(t)
	h := newHome(t, p, s, d)
	var connecting sync.WaitGroup
	begin := func(i *instance) {
		connecting.Go(func() {
			if err := i.connect(); err != nil {
				t.Errorf("%v\n%s", err, i.tail())
				return
			}
			if err := i.call("read"); err != nil {
				t.Error(err)
			}
		})
	}
	first := h.start()
	go func() { _ = first.connect() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	addr, err := d.Opened(ctx)
	if err != nil {
		t.Fatalf("%v\n%s", err, first.tail())
	}
	for range 4 {
		begin(h.start())
	}
	_ = first.cmd.Process.Kill()
	<-first.ended
	begin(h.start())
	if _, err := NewBrowser("alice").Visit(t.Context(), addr, ""); err != nil {
		t.Error(err)
	}
	approved := time.Now()
	connecting.Wait()
	t.Logf("all have called %v after the approval", time.Since(approved))
	p.Want(map[string]int{"authorized": 1, "authorization 303": 1, "grant authorization_code": 1, "registration 201": 1})
	if n := d.Count(); n != 1 {
		t.Errorf("a browser was opened %d times", n)
	}
}

// TestConnectMachine: a job has a client id and a secret, and no person. Nor is a secret in what is written in a crash.
func TestConnectMachine(t *testing.T) {
	t.Parallel()
	const secret = "the secret of the job"
	p := Start(t, Options{Clients: []Client{MachineClient("job", secret)}})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPOff})
	h := newHome(t, p, s, nil)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := h.begin("--auth", "client-credentials", "--client-id", "job", "--client-secret-file", file)
	i.mustCall("read")
	p.Want(map[string]int{"grant client_credentials": 1, "authorized": 0})
	_ = i.cmd.Process.Signal(syscall.SIGQUIT)
	<-i.ended
	if !strings.Contains(i.err.String(), "goroutine ") {
		t.Error("the crash of the bridge has no output")
	}
}

// TestConnectProofs: the server takes only tokens that are bound to a key, and the provider gives them only for
// proofs with its nonces; they are renewed so.
func TestConnectProofs(t *testing.T) {
	t.Parallel()
	p := Start(t, Options{Nonces: true, Life: 2})
	s := p.Serve(t, ServerOptions{DPoP: resource.DPoPRequire})
	h := newHome(t, p, s, nil)
	h.signIn()
	i := h.begin()
	for n := 0; p.Counts()["grant refresh_token"] == 0; n++ {
		if n > 10_000 {
			t.Fatalf("the token was not renewed: %v", p.Counts())
		}
		i.mustCall("read")
	}
	p.Want(map[string]int{"authorized": 1, "error invalid_grant": 0, "family revoked": 0})
}
