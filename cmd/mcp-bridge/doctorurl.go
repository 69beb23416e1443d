package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/remote"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// doctorAuthFlags are those of authFlags that say which stored credential is meant, and how it is renewed.
var doctorAuthFlags = []string{"auth", "profile", "client-id", "client-issuer", "client-secret-file", "auth-key", "auth-key-id", "auth-key-alg",
	"client-metadata-url", "resource", "authorize-param", "issuer-alias", "auth-dir", "token-store", "allow-private-auth"}

// registerForDoctor registers doctorAuthFlags; the others have their defaults.
func (f *authFlags) registerForDoctor(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("auth", pflag.ContinueOnError)
	f.register(all)
	for _, name := range doctorAuthFlags {
		fs.AddFlag(all.Lookup(name))
	}
}

// examineURL examines a remote server.
func (f *doctorFlags) examineURL(ctx context.Context, address string, arguments []byte, env environment, report *doctor.Report) error {
	o := remote.Options{Slow: f.slow, Call: f.call, Arguments: arguments}
	var err error
	if o.Header, err = headers(f.target.header, f.target.headerFile, f.target.headerEnv, env.lookup); err != nil {
		return err
	}
	if o.TLS, err = f.target.tls(); err != nil {
		return err
	}
	if err := f.useStored(ctx, address, env, &o); err != nil {
		return err
	}
	for name := range o.Header {
		doctor.RecordingOf(ctx).HideHeader(name)
	}
	return remote.Diagnose(ctx, address, o, report)
}

// useStored gives the requests the stored credential that connect would use, renewed if it is due. It has nobody sign in.
func (f *doctorFlags) useStored(ctx context.Context, address string, env environment, o *remote.Options) error {
	spec := upstream.Spec{URL: address}
	spec.Remote.Header = o.Header
	if hasAuthorization(spec) || !mayHaveCredential(address) {
		return nil
	}
	trust := signin.TLS{CAFile: f.target.caFile, Cert: f.target.clientCert, Key: f.target.clientKey}
	s, err := f.auth.settings(address, trust, env.lookup)
	if err != nil || !s.IsUsed() {
		return err
	}
	options, err := s.Options(ctx)
	if err != nil && !isDefault(s) {
		return usagef("%v", err) // what the flags name is not there
	}
	var token auth.Token
	if err == nil {
		token, err = storedToken(ctx, options)
	}
	switch {
	case err != nil:
		o.NoStored = err.Error()
	case token.Access == "":
		o.NoStored = "no sign-in is stored for it"
	case token.Type != auth.SchemeBearer:
		o.NoStored = "the stored credential is bound to a key (DPoP), and doctor does not use such"
	default:
		if o.Header == nil {
			o.Header = http.Header{}
		}
		o.Header.Set("Authorization", "Bearer "+token.Access)
		o.Stored = true
	}
	return nil
}

// storedToken returns the token to use now; an empty one: none is stored.
func storedToken(ctx context.Context, options client.Options) (auth.Token, error) {
	defer options.HTTP.CloseIdleConnections()
	var notice atomic.Pointer[error] // why the store cannot be read, for one
	options.Notice = func(err error) { notice.Store(&err) }
	c, err := client.New(options)
	if err != nil {
		return auth.Token{}, err
	}
	token, err := c.Token(ctx)
	c.Close(context.WithoutCancel(ctx)) // a renewal under way may replace what is stored: its answer must not be lost
	if err == nil {
		token, err = c.Token(ctx) // what that renewal has given: the server may not take the old one any more
	}
	if noted := notice.Load(); err == nil && token.Access == "" && noted != nil {
		err = *noted
	}
	if required, ok := errors.AsType[*client.Required](err); ok {
		return auth.Token{}, errors.New(required.Reason)
	}
	return token, err
}
