package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// loginFlags are the flags of login.
type loginFlags struct {
	credential    credentialFlags // the flags that say whose credential is meant
	useDeviceCode bool            // --device-code: sign in with a code on another device
	registerAnew  bool            // --fresh: register the client anew first, even if a registration is stored; no effect on a client whose id needs no registration by us
	cancel        bool            // --cancel: end the sign-in to this server that is under way in another process
	detached      bool            // --detached (not in the help): this process does the sign-in of a bridge that has started it
	callback      string          // --callback: where the browser has ended, for the sign-in of another process; "-": read it from stdin; "": not given
}

// flagSet returns the set of all flags of login; parsing it sets the fields of f, which have their defaults until then.
func (f *loginFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("login", pflag.ContinueOnError)
	f.credential.register(fs)
	fs.BoolVar(&f.useDeviceCode, "device-code", false, "")
	fs.BoolVar(&f.registerAnew, "fresh", false, "")
	fs.BoolVar(&f.cancel, "cancel", false, "")
	fs.BoolVar(&f.detached, "detached", false, "")
	fs.StringVar(&f.callback, "callback", "", "")
	return fs
}

// login is the command login: it signs a person in to a remote server.
func login(ctx context.Context, args []string, env environment) error {
	var f loginFlags
	fs := f.flagSet()
	positional, argv, err := parseFlags(fs, args)
	if err != nil {
		return err
	}
	if f.credential.config != "" || f.credential.auth.mode == signin.ModeAuto { // any other mode is refused below, for itself
		f.credential.warnUnused(fs, env.stderr)
	}
	switch {
	case f.detached:
		return signin.RunDetachedSignIn(ctx, env.stdin, env.stdout, env.lookup)
	case len(positional) != 1 || len(argv) > 0:
		return usagef("login takes the URL of one server, or --config FILE and a server's name")
	case f.credential.auth.prompt == signin.PromptError:
		return usagef("--auth-prompt error is for connect and serve; login --no-browser shows the address, and opens no browser")
	}
	s, err := f.credential.settings(positional[0], env)
	switch s.Mode { // whatever else it may need, such as a client id
	case signin.ModeNone:
		return usagef("--auth none uses no credential: there is nothing to sign in for")
	case signin.ModeClientCredentials, signin.ModeJWTBearer, signin.ModeEnterprise:
		return usagef("--auth %s needs nobody to sign in: connect and serve get a token by themselves; doctor with the same flags tries whether they can", s.Mode)
	}
	if err != nil {
		return err
	}
	ctx, cancel := cancelOnHangup(ctx, env.hangup)
	defer cancel()
	if f.cancel || f.callback != "" {
		return f.finishPending(ctx, s, env)
	}
	options, err := s.Options(ctx)
	if err != nil {
		return err
	}
	defer options.HTTPClient.CloseIdleConnections()
	options.OnError = func(err error) { fmt.Fprintf(env.stderr, "mcp-bridge: %s\n", printable.Text(err.Error())) }
	c, err := client.New(options)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	status := requestChallenge(ctx, c, options.HTTPClient)
	err = f.signIn(ctx, c, s, options.Store, env)
	if e, ok := errors.AsType[*auth.Error](err); ok && status != 0 && e.Operation == auth.OperationRegister && e.Code == "" {
		plain := *e
		plain.Advice = "" // nobody needs a client where nobody needs to sign in
		return fmt.Errorf("%s answers a request without a sign-in, with status %d, and may need none; what the sign-in ended with: %w", c.Server(), status, &plain)
	}
	return err
}

// requestChallenge sends the server a request, so that its challenge says where its metadata is and what scopes
// it wants. status is that of the answer if the request had no token and was not refused for that; 0: anything else.
func requestChallenge(ctx context.Context, c *client.Credential, plain *http.Client) (status int) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	resp, err := pingServer(ctx, c, plain)
	if err != nil {
		return 0
	}
	if refused := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden; refused || resp.Request.Header.Get("Authorization") != "" {
		return 0
	}
	return resp.StatusCode
}

// pingServer sends the server of a credential a request with that credential, and returns the answer without its body.
func pingServer(ctx context.Context, c *client.Credential, plain *http.Client) (*http.Response, error) {
	addr := c.Server()
	if rest, ws := strings.CutPrefix(addr, "ws"); ws {
		addr = "http" + rest
	}
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, addr, bytes.NewReader([]byte(ping)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := (&client.Transport{Base: plain.Transport, Credential: c}).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return resp, err
}

// signIn signs the person in, or joins the sign-in of another process.
func (f *loginFlags) signIn(ctx context.Context, c *client.Credential, s signin.Settings, store *tokenstore.Store, env environment) error {
	browser, why := signin.FindBrowser(s.NoBrowser, env.lookup)
	flow, err := c.BeginSignIn(ctx, client.SignInOptions{Browser: browser, UseDeviceCode: f.useDeviceCode, RegisterAnew: f.registerAnew})
	switch {
	case errors.Is(err, tokenstore.ErrBusy):
		return f.joinLogin(ctx, c, store, browser == nil, env)
	case err != nil:
		return loginError(ctx, c, err)
	}
	need := flow.Instructions()
	switch {
	case need.UserCode != "":
		printEscaped(env, "Open this address on any device:\n  %s\nand enter the code: %s\n", need.URL, need.UserCode)
	case browser != nil:
		printEscaped(env, "Sign in in your browser. If none has opened, open this address:\n  %s\n", need.URL)
	default:
		printEscaped(env, "Open this address in a browser (none was opened: %s):\n  %s\n%s", why, need.URL, f.otherMachineHint(c, need.URL, env.stdin))
	}
	if need.UserCode == "" {
		go deliverLines(env.stdin, flow.AcceptCallbackURL, env.stderr)
	}
	if err := flow.Wait(ctx); err != nil {
		return loginError(ctx, c, err)
	}
	printEscaped(env, "Signed in to %s\n", c.Server())
	e, err := store.Load(ctx, c.Key())
	if err != nil || e.Credential.GrantedScopes == nil { // nil: nobody said that they are others than those that were asked for
		return err
	}
	for _, scope := range s.Scopes {
		if !slices.Contains(e.Credential.GrantedScopes, scope) {
			printEscaped(env, "The provider has not given the scope %s\n", scope)
		}
	}
	return nil
}

// loginError returns err, with which a sign-in has ended; if the user has interrupted it, an error that says so.
func loginError(ctx context.Context, c *client.Credential, err error) error {
	if ctx.Err() == nil || !errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("interrupted: nobody has signed in to %s, and the address that was shown is of no use any more", c.Server())
}

// otherMachineHint returns the text that says what to do if the browser that opens addr is on another machine. "": addr does not lead back
// to a port of this machine. If stdin is no terminal, nobody can paste anything into it, and the text names a second command for that.
func (f *loginFlags) otherMachineHint(c *client.Credential, addr string, stdin *os.File) string {
	u, err := url.Parse(addr)
	if err != nil {
		return ""
	}
	back, err := url.Parse(u.Query().Get("redirect_uri"))
	if err != nil || back.Port() == "" {
		return ""
	}
	port := back.Port()
	hint := "If that browser is on another machine, run there, before you open the address:\n" +
		"  ssh -N -L " + port + ":127.0.0.1:" + port + " THIS-HOST\n"
	if isTerminal(stdin) {
		return hint + "or paste here the address at which your browser ends (a page that cannot be shown).\n"
	}
	return hint + "or run here, in a terminal, while this command waits:\n" +
		"  " + f.callbackCommand(c) + "\n" +
		"and paste there the address at which your browser ends (a page that cannot be shown).\n"
}

// callbackCommand returns the command that takes the address at which the browser of this sign-in ends.
func (f *loginFlags) callbackCommand(c *client.Credential) string {
	words := append([]string{"mcp-bridge login --callback -"}, c.LoginFlags()...)
	if dir := f.credential.auth.dir; dir != "" {
		words = append(words, "--auth-dir", printable.ShellCommand(dir))
	}
	if store := f.credential.auth.store; store != "file" { // without it the announcement of the sign-in cannot be read
		words = append(words, "--token-store", store)
	}
	return strings.Join(append(words, printable.ShellCommand(c.Server())), " ")
}

// deliverLines calls deliver with each line of stdin, which should be the address that the browser ended at, and writes its errors to
// stderr. It ends with the input, or with the process: nothing else ends such a wait.
func deliverLines(stdin io.Reader, deliver func(string) error, stderr io.Writer) {
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			if err := deliver(line); err != nil {
				fmt.Fprintf(stderr, "mcp-bridge: %s\n", printable.Text(err.Error()))
			}
		}
	}
}

// joinLogin waits for the sign-in of another process, and gives it the address that a person pastes here. noBrowser: there is no
// browser on this machine.
func (f *loginFlags) joinLogin(ctx context.Context, c *client.Credential, store *tokenstore.Store, noBrowser bool, env environment) error {
	printEscaped(env, "Another process is signing in to this server already.\n")
	return awaitLogin(ctx, c.Key(), c.Server(), c, store, func(login tokenstore.LoginAnnouncement) {
		hint := ""
		if noBrowser && login.UserCode == "" {
			hint = f.otherMachineHint(c, login.SignInURL, env.stdin)
		}
		printEscaped(env, "It waits for you. Open this address:\n  %s\n%s", login.SignInURL, hint)
		if login.UserCode != "" {
			printEscaped(env, "and enter the code: %s\n", login.UserCode)
			return
		}
		go deliverLines(env.stdin, func(addr string) error { return signin.DeliverCallback(ctx, store, c.Key(), addr) }, env.stderr)
	}, env)
}

// awaitLogin waits until the sign-in of another process, under key, has ended. It prints that the person has signed in, or returns why
// not. onPending, if it is not nil, is called once with where the person goes, as soon as that is known.
func awaitLogin(ctx context.Context, key tokenstore.Key, server string, c *client.Credential, store *tokenstore.Store, onPending func(tokenstore.LoginAnnouncement), env environment) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		login, pending, err := store.PendingLogin(key)
		if err != nil {
			return err
		}
		if onPending != nil && pending && login.SignInURL != "" {
			onPending(login)
			onPending = nil
		}
		if !pending {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.New("the sign-in is still under way; mcp-bridge login --cancel ends it")
		}
	}
	if last := c.LastFailedSignIn(ctx); last.Problem != "" {
		return errors.New("the sign-in brought nothing: " + last.Problem)
	}
	entry, err := store.Load(ctx, key)
	if err != nil {
		return err
	}
	if entry.Credential.AccessToken.IsZero() {
		return errors.New("the sign-in brought nothing")
	}
	printEscaped(env, "Signed in to %s\n", server)
	return nil
}

// finishPending ends a sign-in that another process has begun: cancels it, or gives it the browser's answer.
func (f *loginFlags) finishPending(ctx context.Context, s signin.Settings, env environment) error {
	if f.cancel && f.callback != "" {
		return usagef("--cancel and --callback do not go together")
	}
	options, err := s.Options(ctx)
	if err != nil {
		return err
	}
	defer options.HTTPClient.CloseIdleConnections()
	pending, err := findPending(options.Store, s)
	if err != nil {
		return err
	}
	options.Key = pending.Key
	c, err := client.New(options)
	if err != nil {
		return err
	}
	defer c.Close(context.Background())
	if f.cancel {
		if err := options.Store.CancelLogin(pending.Key); err != nil {
			return err
		}
		printEscaped(env, "The sign-in to %s was cancelled\n", s.Server)
		return nil
	}
	addr := f.callback
	if addr == "-" {
		if isTerminal(env.stdin) {
			_, _ = io.WriteString(env.stderr, "Paste the address at which your browser has ended, and press Enter:\n")
		}
		line, err := bufio.NewReader(io.LimitReader(env.stdin, 64<<10)).ReadString('\n')
		if err != nil && line == "" {
			return usagef("--callback -: there is no address on stdin")
		}
		addr = line
	}
	if err := signin.DeliverCallback(ctx, options.Store, pending.Key, addr); err != nil {
		return err
	}
	return awaitLogin(ctx, pending.Key, s.Server, c, options.Store, nil, env)
}

// findPending returns the sign-in that is under way at the server of s, whoever has begun it, with whatever client. It is an error if
// there is none, or more than one.
func findPending(store *tokenstore.Store, s signin.Settings) (tokenstore.PendingLoginEntry, error) {
	all, err := store.PendingLogins()
	if err != nil {
		return tokenstore.PendingLoginEntry{}, err
	}
	var found []tokenstore.PendingLoginEntry
	for _, p := range all {
		if sameServer(p.Login.Server, s.Server) && (s.Profile == "" || p.Login.Profile == s.Profile) {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return tokenstore.PendingLoginEntry{}, errors.New("no sign-in to this server is under way")
	case 1:
		return found[0], nil
	}
	return tokenstore.PendingLoginEntry{}, usagef("several sign-ins to this server are under way; say which with --profile")
}

// sameServer reports whether two URLs are of the same server: they are equal in their canonical form.
func sameServer(a, b string) bool {
	a, errA := tokenstore.CanonicalURL(a)
	b, errB := tokenstore.CanonicalURL(b)
	return errA == nil && errB == nil && a == b
}

// printEscaped writes a text for people to stdout. What could harm a terminal in args, which may be foreign text, is escaped.
func printEscaped(env environment, format string, args ...any) {
	for i, a := range args {
		if text, ok := a.(string); ok {
			lines := strings.Split(text, "\n")
			for j := range lines {
				lines[j] = printable.Text(lines[j])
			}
			args[i] = strings.Join(lines, "\n")
		}
	}
	_, _ = fmt.Fprintf(env.stdout, format, args...)
}
