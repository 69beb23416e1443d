package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/outbound"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// credentials are those of the remote servers of one run: one for all servers with the same settings, which is kept to
// the end of the run, as the sessions of a server that a reload has removed go on for a while. Its methods may be
// called concurrently. The zero value works; close ends it.
type credentials struct {
	// publicAddr is an address of this bridge that other machines reach without any token or certificate (--insecure); "": there is none.
	// If there is one, attach warns that whoever reaches it uses the user's credential. It is set before attach is called.
	publicAddr string
	// mayAskClient says that the only client of this run may be asked to show where a person signs in, where this process opens no browser.
	// It is set before attach is called.
	mayAskClient bool

	mu          sync.Mutex                                 // guards the fields below
	authorizers map[[sha256.Size]byte]*outbound.Authorizer // for each settings, by fingerprintOf them, what adds the credential to requests
	elicitor    *outbound.SignInElicitor                   // asks the client to show where a person signs in; nil: no server that was attached needs that
}

// attach has requests to a remote server made with its credential, unless the user has given another one, or wants none. If the folder for
// credentials cannot be used, the server is used without one; that is an error if the settings ask for a particular credential
// (isDefaultSignIn is false).
func (c *credentials) attach(ctx context.Context, spec *upstream.Spec, s signin.Settings, log hclog.Logger) error {
	if !s.IsUsed() || hasAuthorization(*spec) || !mayHaveCredential(spec.URL) {
		return nil
	}
	log = log.With("server", spec.Name)
	c.mu.Lock()
	defer c.mu.Unlock()
	key, err := fingerprintOf(s)
	if err != nil {
		return err
	}
	a := c.authorizers[key]
	if a == nil {
		elicitor := c.elicitorFor(s)
		a, err = newAuthorizer(ctx, s, elicitor, log)
		if _, stored := errors.AsType[*tokenstore.Error](err); stored && isDefaultSignIn(s) {
			log.Warn("nobody can sign in to this server: there is no folder for credentials", "error", err)
			return nil
		}
		if err != nil {
			return usagef("%v", err)
		}
		if c.authorizers == nil {
			c.authorizers = map[[sha256.Size]byte]*outbound.Authorizer{}
		}
		c.authorizers[key] = a
		if elicitor != nil {
			c.elicitor = elicitor
		}
		if c.publicAddr != "" {
			log.Warn("whoever reaches the address uses this server with your credential, without having to show who he is (--insecure); --token-file asks clients for tokens", "address", c.publicAddr)
		}
	}
	spec.Remote.Authorize = a.Authorize
	if isPrompted(s) {
		spec.Remote.AuthorizeTimeout = cmp.Or(s.SignInWait, signin.DefaultSignInWait)
	}
	return nil
}

// isPrompted reports whether requests that need a sign-in have a person sign in, and wait for it.
func isPrompted(s signin.Settings) bool { return s.IsPersonal() && s.Prompt != signin.PromptError }

// elicitorFor returns what asks the client to show where a person signs in, for a server with these settings; nil: the client must not be
// asked, or a browser shows it, or no person signs in. mu is held.
func (c *credentials) elicitorFor(s signin.Settings) *outbound.SignInElicitor {
	if !c.mayAskClient || !isPrompted(s) {
		return nil
	}
	if browser, _ := signin.FindBrowser(s.NoBrowser, os.LookupEnv); browser != nil {
		return nil
	}
	return cmp.Or(c.elicitor, new(outbound.SignInElicitor))
}

// clientElicitor returns what asks the client to show where a person signs in; nil: no attached server needs that. It is called
// after the last attach.
func (c *credentials) clientElicitor() *outbound.SignInElicitor {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elicitor
}

// newAuthorizer opens the store of credentials, and returns what adds the stored credential to requests. It makes no request. elicitor
// asks the client to show where a person signs in; nil: nobody asks it.
func newAuthorizer(ctx context.Context, s signin.Settings, elicitor *outbound.SignInElicitor, log hclog.Logger) (*outbound.Authorizer, error) {
	o, err := s.Options(ctx)
	if err != nil {
		return nil, err
	}
	cleanup := o.HTTPClient.CloseIdleConnections
	if isPrompted(s) {
		prompter, err := newPrompter(s, o.Store, elicitor, log)
		if err != nil {
			return nil, err
		}
		o.SignIn = outbound.ReportSignInProgress(prompter.SignIn, o.Store, elicitor)
		cleanup = func() { prompter.Close(); o.HTTPClient.CloseIdleConnections() }
	}
	o.OnError = func(err error) { log.Debug("credential", "notice", err.Error()) }
	credential, err := client.New(o)
	if err != nil {
		cleanup()
		return nil, err
	}
	return outbound.New(outbound.Options{Credential: credential, Logger: log, OnClosed: cleanup}), nil
}

// isDefaultSignIn reports whether the user has asked for no particular credential: neither a folder, the keyring, a client id, nor a mode that
// needs no person.
func isDefaultSignIn(s signin.Settings) bool {
	return s.IsPersonal() && s.StoreDir == "" && s.StoreKind != "keyring" && s.Client.ID == "" && s.Client.MetadataURL == ""
}

// newPrompter returns what has a person sign in when a request needs it, by a process ("login --detached") that outlives this one. store
// is where that puts the credential; elicitor asks the client to show where the person signs in; nil: nobody asks it.
func newPrompter(s signin.Settings, store *tokenstore.Store, elicitor *outbound.SignInElicitor, log hclog.Logger) (*signin.Prompter, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program to sign in: %w", err)
	}
	return signin.NewPrompter(signin.PrompterOptions{
		Settings: s, Store: store, LookupEnv: os.LookupEnv, DetachedCommand: []string{self, "login", "--detached"},
		OnSignInURL: func(n client.SignInRequired) {
			where := []any{"address", n.URL}
			if n.UserCode != "" {
				where = append(where, "code", n.UserCode)
			}
			log.Warn("sign in: open this address", where...)
			elicitor.AskClient(s.Server, n)
		},
	}), nil
}

// close ends the use of all credentials, and waits for renewals that are under way. It is called once the connections to the servers
// have ended.
func (c *credentials) close() {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.authorizers))
	c.authorizers = nil
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, a := range all {
		wg.Go(a.Close)
	}
	wg.Wait()
}

// fingerprintOf returns a hash of settings and their secrets: it is equal for equal settings.
func fingerprintOf(s signin.Settings) (sum [sha256.Size]byte, err error) {
	text, err := json.Marshal(s)
	if err != nil {
		return sum, err
	}
	return sha256.Sum256(fmt.Appendf(text, "\x00%s\x00%s", s.Client.Secret.Reveal(), s.IDP.ClientSecret.Reveal())), nil
}

// mayHaveCredential reports whether requests to the server at addr have a place for a credential: over HTTP and WebSocket. The messages of a
// socket have none, nor have those of a command, whose addr is "".
func mayHaveCredential(addr string) bool {
	scheme, _, _ := strings.Cut(addr, "://")
	return slices.Contains([]string{"http", "https", "ws", "wss"}, strings.ToLower(scheme))
}

// hasAuthorization reports whether the user has given the server a credential: in a header, or in its URL. A URL that cannot be parsed counts
// as one with a credential.
func hasAuthorization(spec upstream.Spec) bool {
	if spec.Remote.Header.Get("Authorization") != "" {
		return true
	}
	u, err := url.Parse(spec.URL)
	return err != nil || u.User != nil
}

// forServer returns the flags for a server of a configuration file. fileAuth is what the file says of it. Flags that are not about one server
// (folder, browser, waits) have the values of f, unless the file says another one; the others have what the file says, or their defaults.
func (f *authFlags) forServer(fileAuth map[string][]string) (*authFlags, error) {
	serverFlags := &authFlags{fromConfigFile: true}
	fs := pflag.NewFlagSet("auth", pflag.ContinueOnError)
	serverFlags.register(fs)
	serverFlags.dir, serverFlags.store, serverFlags.allowPrivate, serverFlags.noBrowser, serverFlags.signInWait, serverFlags.prompt = f.dir, f.store, f.allowPrivate, f.noBrowser, f.signInWait, f.prompt
	for name, values := range fileAuth {
		for _, v := range values {
			switch name {
			case config.AuthSecret:
				serverFlags.client.Secret = tokenstore.NewSecret(v)
			case config.AuthIDPSecret:
				serverFlags.idp.ClientSecret = tokenstore.NewSecret(v)
			default:
				if fs.Set(name, v) != nil { // its text may repeat the value
					return nil, usagef(`"auth": the value for --%s is not valid`, name)
				}
			}
		}
	}
	return serverFlags, nil
}

// fileAuthOf returns what a configuration file says of signing in to a server; it is not nil.
func fileAuthOf(s config.Server) map[string][]string {
	if s.Auth == nil {
		return map[string][]string{}
	}
	return s.Auth
}

// secretsIn returns the secrets in what a configuration file says of signing in.
func secretsIn(fileAuth map[string][]string) []string {
	return slices.Concat(fileAuth[config.AuthSecret], fileAuth[config.AuthIDPSecret])
}
