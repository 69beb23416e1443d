package signin

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// An instance is what one process has of a server.
type instance struct {
	prompter   *Prompter
	client     *http.Client
	credential *client.Credential
	told       chan client.SignInRequired
	options    client.Options
}

// newInstance returns one. detached: a process of its own signs in.
func newInstance(t *testing.T, server *authtest.Server, dir string, detached bool, wait time.Duration) *instance {
	t.Helper()
	t.Setenv("BROWSER", os.Args[0]+" browse")
	s := Settings{Server: server.URL, StoreDir: filepath.Join(dir, "auth"), SignInWait: wait}
	o, err := s.Options(t.Context())
	bridgetest.Must(t, err)
	in := &instance{told: make(chan client.SignInRequired, 10)}
	po := PrompterOptions{Settings: s, Store: o.Store, LookupEnv: os.LookupEnv, OnSignInURL: func(need client.SignInRequired) { in.told <- need }}
	if detached {
		po.DetachedCommand = []string{os.Args[0], "sign-in"}
	}
	in.prompter = NewPrompter(po)
	o.SignIn = in.prompter.SignIn
	c, err := client.New(o)
	bridgetest.Must(t, err)
	in.options, in.credential = o, c
	in.client = &http.Client{Transport: &client.Transport{Base: o.HTTPClient.Transport, Credential: c}}
	t.Cleanup(func() {
		in.prompter.Close()
		c.Close(context.Background())
		o.HTTPClient.CloseIdleConnections()
	})
	return in
}

// doing returns what the sign-in that begins waits for.
func (in *instance) doing() string {
	in.prompter.mu.Lock()
	defer in.prompter.mu.Unlock()
	return in.prompter.currentStart.progress
}

func (in *instance) call(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return err
	}
	resp, err := in.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// Of five instances that start at the same time one signs in: in a process of its own, which lives on when
// the instance that has started it gives up.
func TestFiveInstancesSignInOnce(t *testing.T) {
	for name, detached := range map[string]bool{"detached": true, "in the instance": false} {
		t.Run(name, func(t *testing.T) {
			server, dir := authtest.New(t), t.TempDir()
			approve := server.HoldAuthorization()
			var all []*instance
			for range 5 {
				all = append(all, newInstance(t, server, dir, detached, time.Minute))
			}
			gone, cancel := context.WithCancel(t.Context())
			first := make(chan error, 1)
			go func() { first <- all[0].call(gone, server.URL) }()
			if need := <-all[0].told; need.URL == "" {
				t.Errorf("the person was told %+v", need)
			}
			var wg sync.WaitGroup
			for _, in := range all[1:] {
				wg.Go(func() {
					if err := in.call(t.Context(), server.URL); err != nil {
						t.Error(err)
					}
				})
			}
			for _, in := range all[1:] {
				<-in.told
			}
			cancel()
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Errorf("the first instance: %v", err)
			}
			approve()
			wg.Wait()
			if n := server.CountRequests("/authorize"); n != 1 {
				t.Errorf("%d authorization requests", n)
			}
			bridgetest.Must(t, all[0].call(t.Context(), server.URL))
		})
	}
}

// A request waits as long as it is told to, and says where the person goes; the next one works once the
// person has answered.
func TestWaitEnds(t *testing.T) {
	server := authtest.New(t)
	approve := server.HoldAuthorization()
	in := newInstance(t, server, t.TempDir(), false, time.Nanosecond)
	for range 2 {
		err := in.call(t.Context(), server.URL)
		need, ok := errors.AsType[*client.SignInRequired](err)
		if !ok || !strings.Contains(need.URL, "/authorize?") || need.Expires.IsZero() {
			t.Fatalf("the error is %v", err)
		}
	}
	if n := len(in.told); n != 1 {
		t.Errorf("the person was told %d times", n)
	}
	approve()
	in.prompter.options.Settings.SignInWait = time.Minute
	bridgetest.Must(t, in.call(t.Context(), server.URL))
}

// A request does not wait longer for the beginning of a sign-in than for the sign-in, and says what takes so long.
func TestBeginningIsBounded(t *testing.T) {
	for name, detached := range map[string]bool{"detached": true, "in the instance": false} {
		t.Run(name, func(t *testing.T) {
			server := authtest.New(t)
			registering, refuse := server.HoldRegistration()
			defer refuse()
			in := newInstance(t, server, t.TempDir(), detached, time.Minute)
			ctx, late := context.WithCancelCause(t.Context())
			failed := make(chan error, 1)
			go func() { failed <- in.prompter.SignIn(ctx, in.credential, client.SignInRequired{}) }()
			<-registering
			for in.doing() == "" || strings.Contains(in.doing(), "metadata") { // its report is on its way
				httpdial.Pause(t.Context(), nil, time.Millisecond)
			}
			late(client.ErrSignInTimeout)
			err := <-failed
			if need, ok := errors.AsType[*client.SignInRequired](err); !ok || !strings.Contains(need.Reason, "--auth-wait") || !strings.Contains(need.Reason, "waiting for a registration at ") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// After a person has said no, nothing is opened again for a while.
func TestRefusedIsNotAskedAgain(t *testing.T) {
	server := authtest.New(t)
	server.DenySignIn()
	in := newInstance(t, server, t.TempDir(), true, time.Minute)
	for range 3 {
		err := in.call(t.Context(), server.URL)
		if need, ok := errors.AsType[*client.SignInRequired](err); !ok || !strings.Contains(need.Reason, "denied") && !strings.Contains(need.Reason, "refused") {
			t.Errorf("the error is %v", err)
		}
	}
	if n := server.CountRequests("/authorize"); n != 1 {
		t.Errorf("%d authorization requests", n)
	}
}

// Whoever cancels the sign-in ends the process that waits.
func TestCancelled(t *testing.T) {
	server := authtest.New(t)
	defer server.HoldAuthorization()()
	in := newInstance(t, server, t.TempDir(), true, time.Minute)
	failed := make(chan error, 1)
	go func() { failed <- in.call(t.Context(), server.URL) }()
	<-in.told
	all, err := in.options.Store.PendingLogins()
	bridgetest.Must(t, err)
	if len(all) != 1 || all[0].Login.Server != server.URL {
		t.Fatalf("sign-ins under way: %+v", all)
	}
	bridgetest.Must(t, in.options.Store.CancelLogin(all[0].Key))
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "cancelled") {
		t.Errorf("the error is %v", err)
	}
}

// No browser is looked for where nobody would see it.
func TestFindBrowser(t *testing.T) {
	find := func(off bool, env map[string]string) (bool, string) {
		b, why := FindBrowser(off, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		return b != nil, why
	}
	if found, _ := find(false, map[string]string{"BROWSER": "x", "SSH_CONNECTION": "y"}); !found {
		t.Error("$BROWSER does not count")
	}
	for _, c := range []struct {
		off bool
		env map[string]string
	}{{true, map[string]string{"BROWSER": "x"}}, {false, map[string]string{"SSH_CONNECTION": "x", "DISPLAY": ":0"}}} {
		if found, why := find(c.off, c.env); found || why == "" {
			t.Errorf("%+v: a browser was found", c)
		}
	}
	if err := (browserCommand{"true"}).Open("file:///etc/passwd"); err == nil {
		t.Error("a file was opened")
	}
}
