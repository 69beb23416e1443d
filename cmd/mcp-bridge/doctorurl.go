package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// doctorAuthFlags are those of authFlags that say which stored credential is meant, and how it is renewed, or got
// without a person.
var doctorAuthFlags = []string{"auth", "profile", "client-id", "client-issuer", "client-secret-file", "auth-key", "auth-key-id", "auth-key-alg",
	"client-metadata-url", "resource", "authorize-param", "issuer-alias", "assertion-file", "idp-issuer", "idp-token-url", "idp-client-id",
	"idp-client-secret-file", "id-token-file", "auth-dir", "token-store", "allow-private-auth"}

// registerForDoctor registers the flags of doctorAuthFlags. The fields of the other flags have their defaults.
func (f *authFlags) registerForDoctor(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("auth", pflag.ContinueOnError)
	f.register(all)
	for _, name := range doctorAuthFlags {
		fs.AddFlag(all.Lookup(name))
	}
}

// examineURL examines the remote server at address, and puts into report what it finds. arguments are those for the tool of --call; nil: none
// are given. s is the server if it is one of a configuration file; zero: it is not. An error says why the server was not examined.
func (f *doctorFlags) examineURL(ctx context.Context, address string, arguments []byte, env environment, s configServer, report *doctor.Report) error {
	o := remote.Options{RunSlowChecks: f.slow, ToolToCall: f.toolToCall, Arguments: arguments, Header: s.Header}
	var err error
	flags, loginLine := &f.auth, f.loginCommand()
	if s.Name == "" {
		o.Header, err = readHeaders(f.target.header, f.target.headerFile, f.target.headerEnv, env.lookup)
	} else {
		loginLine = loginCommandOf(s.Auth)
		flags, err = f.auth.forServer(fileAuthOf(s.Server))
	}
	if err != nil {
		return err
	}
	if o.TLS, err = f.target.tls(); err != nil {
		return err
	}
	began := time.Now()
	cleanup, err := f.useStoredCredential(ctx, address, flags, env, &o)
	if err != nil {
		return err
	}
	defer cleanup()
	o.LoginCommand, o.TimeSpent = loginLine, min(time.Since(began), storeTimeout)
	for name := range o.Header {
		doctor.RecordingOf(ctx).HideHeader(name)
	}
	return remote.Diagnose(ctx, address, o, report)
}

// Waits of doctor for the stored credential. doctor has 20 seconds for all.
const (
	storeTimeout   = 5 * time.Second  // how long doctor waits for the stored credential before it goes on without one
	renewalTimeout = 19 * time.Second // how long a renewal of the stored credential may go on, once doctor waits for it no longer, before it is given up
)

// loginCommand returns the command that signs in with the flags that say which sign-in is meant, as a shell takes it, but for
// the server's URL at its end (remote.Options.LoginCommand).
func (f *doctorFlags) loginCommand() string {
	words := []string{"mcp-bridge", "login"}
	f.set.Visit(func(flag *pflag.Flag) {
		if flag.Name == "auth" || flag.Value.String() == flag.DefValue || !slices.Contains(doctorAuthFlags, flag.Name) && !slices.Contains([]string{"ca-file", "client-cert", "client-key"}, flag.Name) {
			return
		}
		values := []string{flag.Value.String()}
		if all, ok := flag.Value.(pflag.SliceValue); ok {
			values = all.GetSlice()
		}
		for _, value := range values {
			if flag.Value.Type() == "bool" {
				words = append(words, "--"+flag.Name)
				continue
			}
			words = append(words, "--"+flag.Name, printable.ShellCommand(value))
		}
	})
	return strings.Join(words, " ")
}

// loginCommandOf returns the command that signs in to a server of a configuration file, as a shell takes it, but for the server's URL at its
// end. fileAuth is what the file says of signing in to it: values by the name of their flag, as config.Server.Auth has them.
func loginCommandOf(fileAuth map[string][]string) string {
	words := []string{"mcp-bridge", "login"}
	for _, name := range doctorAuthFlags {
		for _, value := range fileAuth[name] {
			switch name {
			case "auth":
			case "allow-private-auth": // a flag without a value: a word behind it would be the URL
				words = append(words, "--"+name+"="+value)
			default:
				words = append(words, "--"+name, value)
			}
		}
	}
	return printable.ShellCommand(words...)
}

// useStoredCredential gives the requests the stored credential that connect would use, renewed if it is due. It has nobody sign in; a client
// that needs no person gets its first token. It takes no longer than storeTimeout. If there is no credential that can be used,
// o.NoCredentialReason says why. cleanup waits for a renewal that takes longer; it is not nil unless there is an error.
func (f *doctorFlags) useStoredCredential(ctx context.Context, address string, flags *authFlags, env environment, o *remote.Options) (cleanup func(), err error) {
	cleanup = func() {}
	spec := upstream.Spec{URL: address}
	spec.Remote.Header = o.Header
	if hasAuthorization(spec) || !mayHaveCredential(address) {
		return cleanup, nil
	}
	trust := signin.TLS{CAFile: f.target.caFile, CertFile: f.target.clientCert, KeyFile: f.target.clientKey}
	s, err := flags.settings(address, trust, env.lookup)
	if err != nil || !s.IsUsed() {
		return cleanup, err
	}
	o.NeedsNoPerson = !s.IsPersonal()
	storeCtx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	options, err := s.Options(storeCtx)
	if err != nil && !isDefaultSignIn(s) && storeCtx.Err() == nil {
		return nil, usagef("%v", err) // what the flags name is not there
	}
	var token auth.Token
	if err == nil {
		token, cleanup, err = storedToken(ctx, storeCtx, options)
	}
	switch {
	case storeCtx.Err() != nil && token.AccessToken == "":
		o.NoCredentialReason = fmt.Sprintf("the stored sign-in could not be read or renewed within %v", storeTimeout)
	case err != nil:
		o.NoCredentialReason = err.Error()
	case token.AccessToken == "":
		o.NoCredentialReason = "no sign-in is stored for it"
	case token.Type != auth.SchemeBearer:
		o.NoCredentialReason, o.IsCredentialBound = "somebody has signed in, and the token is bound to a key (DPoP), which doctor does not use", true
	default:
		if o.Header == nil {
			o.Header = http.Header{}
		}
		o.Header.Set("Authorization", "Bearer "+token.AccessToken)
		o.UsesStoredCredential, o.CredentialResource = true, storedResource(storeCtx, options)
	}
	return cleanup, nil
}

// storedResource returns the resource (RFC 8707) that the stored token is for; "": none is known.
func storedResource(ctx context.Context, options client.Options) string {
	c, err := client.New(options)
	if err != nil {
		return ""
	}
	defer c.Close(ctx)
	e, err := options.Store.Load(ctx, c.Key())
	if err != nil {
		return ""
	}
	return e.Credential.Resource
}

// storedToken returns the stored access token, renewed if it is due, or the first one of a client that needs no person; an empty one: there
// is none. cleanup waits for a renewal that is still under way when storeCtx is done: what it brings may replace what is stored, so it must
// not be lost.
func storedToken(ctx, storeCtx context.Context, options client.Options) (token auth.Token, cleanup func(), err error) {
	var notice atomic.Pointer[error] // why the store cannot be read, for one
	options.OnError = func(err error) { notice.Store(&err) }
	c, err := client.New(options)
	if err != nil {
		options.HTTPClient.CloseIdleConnections()
		return auth.Token{}, func() {}, err
	}
	done := make(chan struct{})
	cleanup = func() { <-done }
	if token, err = c.Token(storeCtx); err == nil && token.AccessToken == "" && options.Machine != nil {
		if _, err = pingServer(storeCtx, c, options.HTTPClient); err == nil {
			token, err = c.Token(storeCtx)
		}
	}
	go func() {
		defer close(done)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewalTimeout)
		defer cancel()
		c.Close(ending)
		options.HTTPClient.CloseIdleConnections()
	}()
	select {
	case <-done:
	case <-storeCtx.Done():
		return token, cleanup, err
	}
	if err == nil {
		token, err = c.Token(storeCtx) // what that renewal has given: the server may not take the old one any more
	}
	if noted := notice.Load(); err == nil && token.AccessToken == "" && noted != nil {
		err = *noted
	}
	if required, ok := errors.AsType[*client.SignInRequired](err); ok {
		return auth.Token{}, cleanup, errors.New(required.Reason)
	}
	return token, cleanup, err
}
