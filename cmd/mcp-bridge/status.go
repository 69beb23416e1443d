package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/signin"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// credentialFlags say which server's credential login, logout and status are about.
type credentialFlags struct {
	auth   authFlags   // which sign-in is meant, and where it is stored
	target targetFlags // only its TLS files are used
	config string      // --config: the configuration file that has the server; "": the arguments have its URL
}

// register adds the flags of credentialFlags to fs, and gives the fields their defaults.
func (f *credentialFlags) register(fs *pflag.FlagSet) {
	f.auth.register(fs)
	fs.StringVar(&f.target.caFile, "ca-file", "", "")
	fs.StringVar(&f.target.clientCert, "client-cert", "", "")
	fs.StringVar(&f.target.clientKey, "client-key", "", "")
	fs.StringVar(&f.config, "config", "", "")
}

// parse parses the arguments of a command with these flags, as parseFlags does, and says which flags have no effect (warnUnused). fs is
// the set of all flags of the command.
func (f *credentialFlags) parse(fs *pflag.FlagSet, args []string, env environment) (positional, argv []string, err error) {
	if positional, argv, err = parseFlags(fs, args); err == nil {
		f.warnUnused(fs, env.stderr)
	}
	return positional, argv, err
}

// warnUnused says on stderr which flags the user has given that have no effect on the command or, with --config, on a server of a
// configuration file. fs is the set of all flags of the command, which were parsed.
func (f *credentialFlags) warnUnused(fs *pflag.FlagSet, stderr io.Writer) {
	fs.Visit(func(flag *pflag.Flag) {
		kind := ""
		switch {
		case flag.Value.String() == flag.DefValue:
		case slices.Contains(flagsWithoutEffect[fs.Name()], flag.Name):
			kind = fs.Name()
		case f.config != "" && slices.Contains(authFlagNames, flag.Name) && !slices.Contains(authFlagsWithConfig, flag.Name):
			kind = "--config: write it into the file"
		}
		if kind != "" {
			fmt.Fprintf(stderr, "mcp-bridge: --%s has no effect with %s\n", flag.Name, kind)
		}
	})
}

// settings returns how to sign in to a server, as the flags, the environment and the configuration file say it. server is its URL
// or, with --config, its name.
func (f *credentialFlags) settings(server string, env environment) (signin.Settings, error) {
	flags := &f.auth
	if f.config != "" {
		log, err := (&logFlags{level: "warn", format: "text"}).logger(env.stderr)
		if err != nil {
			return signin.Settings{}, err
		}
		c, err := loadConfig(f.config, config.Options{Lookup: env.lookup, OnlyServer: server}, log)
		if err != nil {
			return signin.Settings{}, err
		}
		s, err := c.Server(server)
		if err != nil {
			return signin.Settings{}, usagef("%v", err)
		}
		if s.URL == "" {
			return signin.Settings{}, usagef("the server %s is a command, which nobody signs in to", server)
		}
		server = s.URL
		if flags, err = f.auth.forServer(fileAuthOf(s)); err != nil {
			return signin.Settings{}, err
		}
	}
	server, err := serverURL(server)
	if err != nil {
		return signin.Settings{}, err
	}
	trust := signin.TLS{CAFile: f.target.caFile, CertFile: f.target.clientCert, KeyFile: f.target.clientKey}
	return flags.settings(server, trust, env.lookup)
}

// listStored returns the entries of the store of credentials that are for server, or for all servers if it is "", and for the profile if
// --profile or the file of --config names one, whatever client has signed in there; also the store itself, and what settings returns.
func (f *credentialFlags) listStored(ctx context.Context, server string, env environment) (*tokenstore.Store, []tokenstore.ListEntry, signin.Settings, error) {
	const none = "https://localhost/" // only the store of these settings is used
	s, err := f.settings(cmp.Or(server, none), env)
	if err != nil {
		return nil, nil, s, err
	}
	store, err := s.OpenStore(ctx)
	if err != nil {
		return nil, nil, s, err
	}
	all, err := store.List()
	if err != nil {
		return nil, nil, s, err
	}
	all = slices.DeleteFunc(all, func(l tokenstore.ListEntry) bool {
		c := l.Entry.Credential
		return server != "" && !sameServer(c.Server, s.Server) || s.Profile != "" && c.Profile != s.Profile
	})
	return store, all, s, nil
}

// statusFlags are the flags of status.
type statusFlags struct {
	credential   credentialFlags // the flags that say whose credential is meant
	json         bool            // --json: write the report as JSON
	checkRenewal bool            // --check: renew tokens that are about to expire
}

// flagSet returns the set of all flags of status; parsing it sets the fields of f, which have their defaults until then.
func (f *statusFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("status", pflag.ContinueOnError)
	f.credential.register(fs)
	fs.BoolVar(&f.json, "json", false, "")
	fs.BoolVar(&f.checkRenewal, "check", false, "")
	return fs
}

// errSignInNeeded is the error of status if a server that it shows is not Usable: mostly, a person has to sign in. It makes the exit
// status 3, and nothing more is printed: the report says it.
var errSignInNeeded = errors.New("a sign-in is needed")

// errNotRenewed is the error of status --check if a token could not be renewed, unless a sign-in is needed (errSignInNeeded). It
// makes the exit status 1, and nothing more is printed: the report says why.
var errNotRenewed = &loggedError{errors.New("a token was not renewed")}

// credentialStatus is what status says of one server. Its JSON is what --json writes; it has no secret.
type credentialStatus struct {
	Server      string        `json:"server"`                // the URL of the server; "unknown": the credential cannot be read
	Profile     string        `json:"profile,omitempty"`     // which of several accounts at the server; "": the usual one
	Usable      bool          `json:"usable"`                // what is stored can be used as it is, or renewed without a person; false also where nothing is stored
	Account     string        `json:"account,omitempty"`     // who has signed in, if the provider has said so
	Issuer      string        `json:"issuer,omitempty"`      // the authorization server
	Resource    string        `json:"resource,omitempty"`    // what the token is for; "": the address of the server
	ClientID    string        `json:"clientId,omitempty"`    // the id of the OAuth client that has signed in
	Scopes      []string      `json:"scopes,omitempty"`      // the scopes that the provider has granted
	Type        string        `json:"tokenType,omitempty"`   // the type of the access token: Bearer or DPoP
	Expires     time.Time     `json:"expires,omitzero"`      // when the access token expires; zero: not said
	Renewable   bool          `json:"renewable"`             // a new access token can be had without a person
	Machine     bool          `json:"machine,omitempty"`     // no person has signed in: a client has credentials of its own
	RefusedAt   time.Time     `json:"refusedAt,omitzero"`    // when the server has refused the stored token; zero: it has not, or it has accepted that token since
	Problem     string        `json:"problem,omitempty"`     // why the credential cannot be read, used or renewed; "": nothing is wrong
	SignIn      *pendingLogin `json:"signIn,omitempty"`      // a sign-in to this server that is under way; nil: none is
	BrokenFiles []string      `json:"brokenFiles,omitempty"` // the paths of files of this credential that could not be read and were set aside
}

// unknownServer is the Server of a credentialStatus whose server is not known.
const unknownServer = "unknown"

// pendingLogin is a sign-in under way.
type pendingLogin struct {
	URL      string    `json:"url"`                // the address that the person opens
	UserCode string    `json:"userCode,omitempty"` // the code that the person enters at URL; "": none is needed
	Expires  time.Time `json:"expires,omitzero"`   // when the sign-in is given up
	PID      int       `json:"pid"`                // the process that does the sign-in
}

// status is the command status: it reports which sign-ins to remote servers are stored, under way, and usable.
func status(ctx context.Context, args []string, env environment) error {
	var f statusFlags
	positional, argv, err := f.credential.parse(f.flagSet(), args, env)
	switch {
	case err != nil:
		return err
	case len(positional) > 1 || len(argv) > 0:
		return usagef("status takes the URL of one server, or --config FILE and a server's name, or nothing")
	case len(positional) == 0 && f.credential.config != "":
		return usagef("status --config FILE takes the name of one server in the file")
	}
	server := strings.Join(positional, "")
	store, entries, s, err := f.credential.listStored(ctx, server, env)
	if err != nil {
		return err
	}
	logins, err := store.PendingLogins()
	if err != nil {
		return err
	}
	var all []credentialStatus
	var failed error
	for _, l := range slices.DeleteFunc(entries, isUnused) {
		problem := ""
		if f.checkRenewal {
			if err := f.renew(ctx, l, s, env); err != nil {
				problem, failed = "not renewed: "+oneLine(err), errNotRenewed
			}
			if e, err := store.Load(ctx, l.Key); err == nil {
				l.Entry = e
			}
		}
		all = append(all, newCredentialStatus(l, time.Now()))
		all[len(all)-1].Problem = cmp.Or(all[len(all)-1].Problem, problem)
		if r, refused := client.LastTokenRefusal(ctx, store, l.Entry); refused {
			all[len(all)-1].markRefused(r)
		}
		if i := slices.IndexFunc(logins, func(p tokenstore.PendingLoginEntry) bool { return p.Key == l.Key }); i >= 0 {
			all[len(all)-1].SignIn = newPendingLogin(logins[i].Login)
			logins = slices.Delete(logins, i, i+1)
		}
	}
	for _, p := range logins {
		if (server == "" || sameServer(p.Login.Server, s.Server)) && (s.Profile == "" || p.Login.Profile == s.Profile) {
			all = append(all, credentialStatus{Server: p.Login.Server, Profile: p.Login.Profile, SignIn: newPendingLogin(p.Login)})
		}
	}
	if len(all) == 0 && server != "" {
		all = []credentialStatus{{Server: s.Server, Profile: s.Profile, Machine: !s.IsPersonal()}}
	}
	if err := f.print(env.stdout, all); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(c credentialStatus) bool { return !c.Usable }) {
		return errSignInNeeded
	}
	return failed
}

// isUnused reports whether an entry of the store has never held a credential. There is such an entry where the bridge counts its
// token requests, all of which were refused.
func isUnused(l tokenstore.ListEntry) bool {
	return l.Err == nil && l.Entry.Generation == 0 && len(l.BrokenFiles) == 0
}

// newPendingLogin returns what status says of a sign-in that a process has announced.
func newPendingLogin(l tokenstore.LoginAnnouncement) *pendingLogin {
	return &pendingLogin{URL: l.SignInURL, UserCode: l.UserCode, Expires: l.Expires, PID: l.PID}
}

// newCredentialStatus returns what status says of an entry of the store at the time now, from the entry alone.
func newCredentialStatus(l tokenstore.ListEntry, now time.Time) credentialStatus {
	c := l.Entry.Credential
	out := credentialStatus{
		Server: cmp.Or(c.Server, unknownServer), Profile: c.Profile, Account: c.Account, Issuer: c.Issuer, ClientID: c.ClientID, Scopes: c.GrantedScopes,
		Type: c.TokenType, Expires: c.ExpiresAt, Renewable: !c.RefreshToken.IsZero() || c.IsMachine, Machine: c.IsMachine, Problem: c.LastProblem, BrokenFiles: l.BrokenFiles,
	}
	if c.Resource != c.Server {
		out.Resource = c.Resource
	}
	valid := !c.AccessToken.IsZero() && (c.ExpiresAt.IsZero() || now.Before(c.ExpiresAt))
	switch {
	case l.Err != nil:
		out.Problem = l.Err.Error()
	case !l.Entry.RateLimitedAt.IsZero():
		out.Problem = tokenstore.ErrRateLimit.Error()
		out.Usable = valid
	default:
		out.Usable = valid || out.Renewable
	}
	return out
}

// markRefused notes in the status that the server has refused the stored credential: it is not usable.
func (c *credentialStatus) markRefused(r client.TokenRefusal) {
	c.Usable, c.RefusedAt = false, r.RefusedAt
	c.Problem = cmp.Or(c.Problem, r.Reason)
}

// renew renews what is due, and returns why that has failed; nil also where it does not try, which it says on stderr.
func (f *statusFlags) renew(ctx context.Context, l tokenstore.ListEntry, s signin.Settings, env environment) error {
	if err := f.checkRenewable(ctx, l, s); err != nil {
		fmt.Fprintf(env.stderr, "mcp-bridge: %s: %s\n", printable.Text(l.Entry.Credential.Server), printable.Text(err.Error()))
		return nil
	}
	var mu sync.Mutex
	var faults []error // of a renewal that Token did not wait for, too, and of one after which the old token is as good as none
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		faults = append(faults, err)
	}
	c, closeCredential, err := f.credential.openCredential(ctx, l, s, note)
	if err != nil {
		return err
	}
	if _, err := c.Token(ctx); err != nil && ctx.Err() == nil {
		note(err)
	}
	closeCredential()
	return errors.Join(faults...)
}

// checkRenewable refuses to renew the credential of a client that somebody has registered by hand and whose id the flags do
// not say: without its secret the authorization server would refuse it, and the sign-in would be taken for lost.
func (f *statusFlags) checkRenewable(ctx context.Context, l tokenstore.ListEntry, s signin.Settings) error {
	stored := l.Entry.Credential
	if stored.ClientID == "" || stored.ClientID == s.Client.ID || stored.ClientID == s.Client.MetadataURL {
		return nil
	}
	store, err := s.OpenStore(ctx)
	if err != nil {
		return err
	}
	all, err := store.Registrations(ctx, stored.Issuer)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(r tokenstore.Registration) bool { return r.ClientID == stored.ClientID }) {
		return fmt.Errorf("not renewed: give --client-id %s, and what else the sign-in was given", printable.Text(stored.ClientID))
	}
	return nil
}

// openCredential returns the Credential of an entry of the store. closeCredential closes it, and waits for a token request that is under way.
// onError is told of faults that no call returns (client.Options.OnError); nil: nobody is.
func (f *credentialFlags) openCredential(ctx context.Context, l tokenstore.ListEntry, s signin.Settings, onError func(error)) (c *client.Credential, closeCredential func(), err error) {
	s.Server, s.Profile = l.Entry.Credential.Server, l.Entry.Credential.Profile
	o, err := s.Options(ctx)
	if err != nil {
		return nil, nil, err
	}
	o.Key, o.OnError = l.Key, onError
	if c, err = client.New(o); err != nil {
		o.HTTPClient.CloseIdleConnections()
		return nil, nil, err
	}
	return c, func() {
		// A renewal under way may replace what is stored: its answer must not be lost because somebody interrupts the command.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), credentialCloseTimeout)
		defer cancel()
		c.Close(ending)
		o.HTTPClient.CloseIdleConnections()
	}, nil
}

// credentialCloseTimeout bounds the wait for a token request that is under way when a command ends.
const credentialCloseTimeout = 10 * time.Second

// print writes the report of status: as JSON with --json, else as text.
func (f *statusFlags) print(w io.Writer, all []credentialStatus) error {
	if f.json {
		if all == nil {
			all = []credentialStatus{}
		}
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	if len(all) == 0 {
		_, err := io.WriteString(w, "Nobody is signed in to any server.\n")
		return err
	}
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-10s %s\n", name, printable.Text(value))
		}
	}
	for _, c := range all {
		b.WriteString(printable.Text(c.Server) + "\n")
		line("profile", c.Profile)
		line("state", c.state())
		line("account", c.Account)
		line("issuer", c.Issuer)
		line("resource", c.Resource)
		line("client", c.ClientID)
		line("scopes", strings.Join(c.Scopes, " "))
		line("problem", c.Problem)
		if c.SignIn != nil {
			line("sign-in", fmt.Sprintf("under way until %s, process %d", c.SignIn.Expires.Local().Format(time.TimeOnly), c.SignIn.PID))
			line("open", c.SignIn.URL)
			line("code", c.SignIn.UserCode)
		}
		for _, file := range c.BrokenFiles {
			line("broken", file)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// state says in words whether the credential can be used.
func (c credentialStatus) state() string {
	until := ""
	if !c.Expires.IsZero() {
		until = ", token until " + c.Expires.Local().Format(time.DateTime)
		if !time.Now().Before(c.Expires) {
			until = ", token ended at " + c.Expires.Local().Format(time.DateTime)
		}
	}
	switch {
	case !c.RefusedAt.IsZero():
		return "refused: the server does not take what is stored, last at " + c.RefusedAt.Local().Format(time.DateTime)
	case c.Usable && c.Machine:
		return "signed in as a client without a person" + until + "; the next call gets a new one when it needs it"
	case c.Machine:
		return "not usable: mcp-bridge gets a token when it connects, and no login helps"
	case c.Usable && c.Renewable:
		return "signed in" + until + ", renewed without you"
	case c.Usable:
		return "signed in" + until
	}
	login := "mcp-bridge login "
	if c.Profile != "" {
		login += "--profile " + printable.ShellCommand(c.Profile) + " "
	}
	if c.Server == unknownServer {
		return "not usable: run " + login + "URL, with the URL of the server that this sign-in was for"
	}
	return "not signed in: run " + login + printable.ShellCommand(c.Server)
}

// oneLine returns the text of an error in one line: what were several lines are separated by semicolons, each of them once.
func oneLine(err error) string {
	var all []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line = printable.Text(line); !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return strings.Join(all, "; ")
}
