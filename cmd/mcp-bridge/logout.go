package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// logoutFlags are the flags of logout.
type logoutFlags struct {
	credential   credentialFlags // the flags that say whose credential is meant
	all          bool            // --all: sign out of all servers
	forgetClient bool            // --forget-client: delete the client's registration too, so that the next sign-in registers it anew
}

// flagSet returns the set of all flags of logout; parsing it sets the fields of f, which have their defaults until then.
func (f *logoutFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("logout", pflag.ContinueOnError)
	f.credential.register(fs)
	fs.BoolVar(&f.all, "all", false, "")
	fs.BoolVar(&f.forgetClient, "forget-client", false, "")
	return fs
}

// parse parses the arguments of logout. server is the URL of the server or, with --config, its name; "": all servers are meant.
func (f *logoutFlags) parse(args []string, env environment) (server string, err error) {
	positional, argv, err := f.credential.parse(f.flagSet(), args, env)
	switch {
	case err != nil:
		return "", err
	case len(argv) > 0 || f.all == (len(positional) == 1) || len(positional) > 1:
		return "", usagef("logout takes the URL of one server, or --config FILE and a server's name, or --all")
	case f.all && f.credential.config != "":
		return "", usagef("logout --config FILE takes the name of one server in the file; --all is about all servers, and takes no file")
	}
	flags := &f.credential.auth // these have no effect, so that nothing is missing where only one of them is given
	flags.mode, flags.idp, flags.assertionFile = signin.ModeAuto, signin.IDP{}, ""
	return strings.Join(positional, ""), nil
}

// logout is the command logout: it revokes and deletes the stored credentials of one server, or of all, and cancels sign-ins there that are
// under way.
func logout(ctx context.Context, args []string, env environment) error {
	var f logoutFlags
	server, err := f.parse(args, env)
	if err != nil {
		return err
	}
	store, entries, s, err := f.credential.listStored(ctx, server, env)
	if err != nil {
		return err
	}
	logins, err := store.PendingLogins()
	if err != nil {
		return err
	}
	var done lines
	for _, p := range logins {
		if (f.all || sameServer(p.Login.Server, s.Server)) && (s.Profile == "" || p.Login.Profile == s.Profile) {
			if err := store.CancelLogin(p.Key); err != nil {
				done.write(env.stdout)
				return err
			}
			done.add("The sign-in to " + nameSignIn(p.Login.Server, p.Login.Profile, "") + " was cancelled")
		}
	}
	var problems []error
	var told, untold lines
	var signedOut []tokenstore.Credential
	for _, l := range entries {
		name, revoked, err := f.signOut(ctx, store, l, s)
		if problems = append(problems, err); name == "" {
			continue
		}
		done.add("Signed out of " + name)
		stored := l.Entry.Credential
		signedOut = append(signedOut, stored)
		switch {
		case auth.Is(revoked, auth.Unsupported):
			told.add("The authorization server " + stored.Issuer + " cannot be told; what was issued ends by itself")
		case revoked != nil:
			untold.add("mcp-bridge: the authorization server was not told, and what was issued ends by itself: " + oneLine(revoked))
			if auth.Is(revoked, auth.InvalidClient) && s.Client.ID == "" {
				untold.add("mcp-bridge: the client has a secret or a key: logout can revoke only with --client-id " + printable.ShellCommand(stored.ClientID) + " and what else the sign-in was given")
			}
		}
	}
	if !slices.ContainsFunc(entries, func(l tokenstore.ListEntry) bool { return !isUnused(l) }) {
		done.add("Nobody is signed in" + map[bool]string{false: " to " + s.Server, true: " to any server"}[f.all])
	}
	if f.forgetClient {
		problems = append(problems, f.forgetRegistrations(ctx, store, s, signedOut, &done))
	}
	done.write(env.stdout)
	told.write(env.stdout)
	untold.write(env.stderr)
	return errors.Join(problems...)
}

// lines are lines for people, each of which is there once.
type lines []string

// add adds a line, made fit for a terminal, unless it is there already.
func (l *lines) add(line string) {
	if line = printable.Text(line); !slices.Contains(*l, line) {
		*l = append(*l, line)
	}
}

// write writes the lines to w, each with a line break.
func (l *lines) write(w io.Writer) {
	for _, line := range *l {
		_, _ = fmt.Fprintln(w, line)
	}
}

// nameSignIn returns the name of a sign-in for people: the server's URL, and behind it the profile and the resource where they are not the usual ones.
func nameSignIn(server, profile, resource string) string {
	var more []string
	if profile != "" {
		more = append(more, "profile "+profile)
	}
	if resource != "" && resource != server {
		more = append(more, "resource "+resource)
	}
	if more == nil {
		return server
	}
	return server + " (" + strings.Join(more, ", ") + ")"
}

// signOut deletes l, an entry of the store, and has its tokens revoked. name is what a person calls the sign-in that is gone; "": there was
// none that can be named, or err says why nothing is gone. revoked says why the authorization server has not revoked the tokens; nil: it has.
func (f *logoutFlags) signOut(ctx context.Context, store *tokenstore.Store, l tokenstore.ListEntry, s signin.Settings) (name string, revoked, err error) {
	stored := l.Entry.Credential
	if l.Err != nil || stored.Server == "" { // it cannot be read, but it can be deleted
		return "", nil, store.Delete(ctx, l.Key)
	}
	c, done, err := f.credential.openCredential(ctx, l, s, nil)
	if err != nil {
		return "", nil, err
	}
	defer done()
	if revoked, err = c.SignOut(ctx); err != nil {
		return "", nil, err
	}
	return nameSignIn(stored.Server, stored.Profile, stored.Resource), revoked, nil
}

// forgetRegistrations deletes the registrations of the sign-ins that have ended and of the one that s says, which may have ended before; with
// --all and no --profile it deletes all registrations. A registration has no name of a server, but the redirect URI of a sign-in; the registrations that
// other sign-ins use stay.
func (f *logoutFlags) forgetRegistrations(ctx context.Context, store *tokenstore.Store, s signin.Settings, signedOut []tokenstore.Credential, done *lines) error {
	o, err := s.Options(ctx)
	if err != nil {
		return err
	}
	defer o.HTTPClient.CloseIdleConnections()
	c, err := client.New(o)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	inUse, err := store.List()
	if err != nil {
		return err
	}
	issuers, err := store.IssuersWithRegistrations()
	problems := []error{err}
	forgets := func(issuer string, r tokenstore.Registration) bool {
		isIt := func(c tokenstore.Credential) bool { return c.Issuer == issuer && c.ClientID == r.ClientID }
		if f.all && s.Profile == "" || slices.ContainsFunc(signedOut, isIt) {
			return true
		}
		isRedirect := func(uri string) bool { return slices.Contains(c.RedirectURIs(), uri) }
		return slices.ContainsFunc(r.RedirectURIs, isRedirect) &&
			!slices.ContainsFunc(inUse, func(l tokenstore.ListEntry) bool { return isIt(l.Entry.Credential) })
	}
	for _, issuer := range issuers {
		forgotten := false
		err := store.UpdateRegistrations(ctx, issuer, func(all []tokenstore.Registration) ([]tokenstore.Registration, error) {
			kept := slices.DeleteFunc(slices.Clone(all), func(r tokenstore.Registration) bool { return forgets(issuer, r) })
			forgotten = len(kept) < len(all)
			return kept, nil
		})
		if problems = append(problems, err); err == nil && forgotten {
			done.add("Forgot the registration of the bridge at " + issuer)
		}
	}
	return errors.Join(problems...)
}
