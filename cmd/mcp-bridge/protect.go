package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/resource"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// protectFlags say whose access tokens serve accepts.
type protectFlags struct {
	publicURL            string   // --public-url: the address that clients use, without /mcp; "": not said
	issuers              []string // --oidc-issuer: the identity providers whose signed access tokens are accepted
	jwksURL              string   // --jwks-url: where the keys of the one --oidc-issuer are; "": where its metadata says
	audiences            []string // --audience: what access tokens must have in "aud"; none: the address of the endpoint
	introspectURL        string   // --introspect: the endpoint that is asked about tokens that no --oidc-issuer has signed; "": none
	introspectClientID   string   // --introspect-client-id: the bridge's client id at the endpoint of --introspect
	introspectSecretFile string   // --introspect-secret-file: the file of the bridge's secret at the endpoint of --introspect
	requiredScopes       []string // --require-scope: scopes that every access token must have
	scopeMapFile         string   // --scope-map: the file that says which scopes messages need; "": none
	dpop                 string   // --client-dpop: what to do with tokens that are bound to a key; a key of dpopModes

	set *pflag.FlagSet // has these flags, and the other flags of serve
}

// accessTokenFlags are the flags that need --oidc-issuer or --introspect: without these, no access tokens are accepted.
var accessTokenFlags = []string{
	"public-url", "jwks-url", "audience", "introspect-client-id", "introspect-secret-file", "require-scope", "scope-map", "client-dpop",
}

// register adds the flags of protectFlags to fs, and gives the fields their defaults.
func (f *protectFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.publicURL, "public-url", "", "")
	fs.StringArrayVar(&f.issuers, "oidc-issuer", nil, "")
	fs.StringVar(&f.jwksURL, "jwks-url", "", "")
	fs.StringArrayVar(&f.audiences, "audience", nil, "")
	fs.StringVar(&f.introspectURL, "introspect", "", "")
	fs.StringVar(&f.introspectClientID, "introspect-client-id", "", "")
	fs.StringVar(&f.introspectSecretFile, "introspect-secret-file", "", "")
	fs.StringArrayVar(&f.requiredScopes, "require-scope", nil, "")
	fs.StringVar(&f.scopeMapFile, "scope-map", "", "")
	fs.StringVar(&f.dpop, "client-dpop", "auto", "")
	f.set = fs
}

// isEnabled reports whether access tokens are accepted.
func (f *protectFlags) isEnabled() bool { return len(f.issuers) > 0 || f.introspectURL != "" }

// dpopModes are the values of --client-dpop, each with the mode that it stands for.
var dpopModes = map[string]resource.DPoPMode{"auto": resource.DPoPAuto, "require": resource.DPoPRequire, "off": resource.DPoPOff}

// check returns the first mistake in these flags that can be found without a look at files or the network; nil: there is none. prefix is
// --path-prefix.
func (f *protectFlags) check(prefix string) error {
	if !f.isEnabled() {
		for _, name := range accessTokenFlags {
			if f.set.Changed(name) {
				return usagef("--%s is about access tokens: it needs --oidc-issuer or --introspect", name)
			}
		}
		return nil
	}
	_, known := dpopModes[f.dpop]
	switch {
	case !known:
		return usagef("--client-dpop %q: use auto, require or off", f.dpop)
	case f.jwksURL != "" && len(f.issuers) != 1:
		return usagef("--jwks-url has the keys of one --oidc-issuer; there are %d", len(f.issuers))
	case f.introspectURL != "" && (f.introspectClientID == "" || f.introspectSecretFile == ""):
		return usagef("--introspect needs --introspect-client-id and --introspect-secret-file: who the bridge is there")
	case f.introspectURL == "" && (f.introspectClientID != "" || f.introspectSecretFile != ""):
		return usagef("--introspect-client-id and --introspect-secret-file need --introspect URL")
	case f.publicURL == "" && len(f.audiences) == 0:
		return usagef("access tokens must be for this server: give --public-url, the address that clients use (without /mcp), or --audience, what their \"aud\" is")
	}
	for _, addr := range f.issuerURLs() {
		switch u, err := url.Parse(addr.value); {
		case f.isAllowedURL(addr.value):
		case err == nil && !strings.Contains(addr.value, "://") || err != nil && u == nil:
			return usagef("--%s %q: write the whole address, with https:// in front", addr.flag, addr.value)
		default:
			return usagef("--%s %q: write an https:// address; it is not https, and its host is not this machine", addr.flag, addr.value)
		}
	}
	for _, issuer := range f.issuers {
		if strings.ContainsAny(issuer, "?#") {
			return usagef("--oidc-issuer %q: an issuer has neither a query nor a fragment", issuer)
		}
		if at, _, found := strings.Cut(issuer, "/.well-known/"); found {
			return usagef("--oidc-issuer %s is the address of metadata; write the issuer that is in it, perhaps --oidc-issuer %s", issuer, at)
		}
	}
	return f.checkPublic(prefix)
}

// checkPublic returns what is wrong with the path of --public-url; nil: nothing. If there is a --path-prefix (prefix), the path must be the
// same.
func (f *protectFlags) checkPublic(prefix string) error {
	path := f.publicPath()
	switch {
	case path != "" && !access.IsCleanPath(path):
		return usagef("--public-url %s: its path must be one such as /tools", f.publicURL)
	case prefix == "" && path[strings.LastIndexByte(path, '/')+1:] == "mcp":
		return usagef("--public-url %s: leave %s out; it is what stands before the paths that serve answers at", f.publicURL, "/mcp")
	case f.publicURL != "" && prefix != "" && path != prefix:
		return usagef("--public-url %s and --path-prefix %s disagree: the public URL ends with the prefix, as in https://mcp.example.com%s", f.publicURL, prefix, prefix)
	}
	return nil
}

// isAllowedURL reports whether an address may be asked for keys and about tokens: one of https or, on this machine or with
// --allow-private-auth, of http.
func (f *protectFlags) isAllowedURL(addr string) bool {
	u, err := url.Parse(addr)
	private, _ := f.set.GetBool("allow-private-auth")
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" || u.Scheme == "http" && (private || access.IsLoopbackAddr(u.Host)))
}

// A flagURL is the value of a flag that is a URL.
type flagURL struct {
	flag  string // the name of the flag, without "--"
	value string // the URL
}

// issuerURLs returns the URLs from which the keys that verify tokens come, and those at which tokens are introspected, each with its
// flag: --oidc-issuer, --jwks-url and --introspect.
func (f *protectFlags) issuerURLs() (all []flagURL) {
	for _, i := range f.issuers {
		all = append(all, flagURL{"oidc-issuer", i})
	}
	for _, a := range []flagURL{{"jwks-url", f.jwksURL}, {"introspect", f.introspectURL}} {
		if a.value != "" {
			all = append(all, a)
		}
	}
	return all
}

// publicPath returns the path of --public-url without a slash at the end; clients find the servers' paths below it. "": it has none, there is
// no --public-url, or it is not valid.
func (f *protectFlags) publicPath() string {
	u, err := url.Parse(f.publicURL)
	if err != nil {
		return ""
	}
	return strings.TrimRight(u.Path, "/")
}

// A protection verifies the access tokens of clients. nil: no access tokens are accepted.
type protection struct {
	*resource.Protector                        // verifies the tokens
	flags               *protectFlags          // what the user has said of access tokens
	introspectionSecret func() (string, error) // reads the bridge's secret at the introspection endpoint; nil: there is no such endpoint
	policy              *resource.Policy       // which scopes messages need now; guarded by the daemon's reloadMu
	httpClients         []*http.Client         // make the requests to issuers and to the introspection endpoint
}

// noServerResources are the resource.Options.Resources while there is no server. No endpoint has the path in it, so no token is
// for it. An empty list would not do: it stands for the public URL itself, with all paths.
var noServerResources = []resource.Resource{{Paths: []string{"/servers"}}}

// newProtection returns what verifies access tokens; nil if the flags accept none. staticTokens are those of --token-file; caFile
// is --ca-file, for the requests to issuers. traced is told the secrets, so that no trace shows them.
func (f *protectFlags) newProtection(staticTokens *access.Tokens, caFile string, traced *tracing, log hclog.Logger) (made *protection, err error) {
	if !f.isEnabled() {
		return nil, nil
	}
	trust, err := httpdial.LoadTLSConfig(caFile, "", "")
	if err != nil {
		return nil, usagef("--ca-file: %v", err)
	}
	allowPrivate, _ := f.set.GetBool("allow-private-auth") // of remote servers, which may not be there
	p := &protection{flags: f}
	defer func() {
		if err != nil {
			p.closeIdle()
		}
	}()
	o := resource.Options{
		StaticKeys: staticTokens, PublicURL: strings.TrimRight(f.publicURL, "/"), Resources: noServerResources, RequiredScopes: f.requiredScopes, DPoP: dpopModes[f.dpop],
		OnDenied: (&denialLogger{log: log}).report,
		HTTPClientFor: func(named string) (*http.Client, error) {
			c, err := httpdial.NewGuardedClient(httpdial.GuardedClientOptions{ConfiguredURL: named, AllowPrivate: allowPrivate, TLS: trust})
			if err == nil {
				p.httpClients = append(p.httpClients, c)
			}
			return c, err
		},
	}
	for _, i := range f.issuers {
		o.Issuers = append(o.Issuers, resource.Issuer{URL: i, Audiences: f.audiences, JWKSURL: f.jwksURL})
	}
	if f.introspectURL != "" {
		read := resource.SecretFromFile(f.introspectSecretFile)
		p.introspectionSecret = func() (string, error) {
			secret, err := read()
			if err == nil {
				traced.addSecrets("--introspect-secret-file", []string{secret})
			}
			return secret, err
		}
		if _, err := p.introspectionSecret(); err != nil {
			return nil, usagef("--introspect-secret-file: %v", err)
		}
		o.Introspection = &resource.Introspection{Endpoint: f.introspectURL, ClientID: f.introspectClientID, ClientSecret: p.introspectionSecret, Audiences: f.audiences}
	}
	if p.Protector, err = resource.New(o); err != nil {
		return nil, usagef("%v", err)
	}
	switch u, err := url.Parse(f.publicURL); {
	case f.publicURL == "":
		log.Warn("without --public-url, clients are not told where to get a token, and tokens that are bound to a key (DPoP) are refused")
	case err == nil && u.Scheme == "http" && !access.IsLoopbackAddr(u.Host):
		log.Warn("tokens cross the network unencrypted: --public-url is http://, and its host is not this machine; clients may refuse it, too", "url", f.publicURL)
	}
	return p, nil
}

// issuerCheckTimeout is how long the start waits for issuers that do not answer.
const issuerCheckTimeout = 3 * time.Second

// checkIssuers asks the issuers for what requests need, and says what is wrong. A provider that cannot be reached, or that answers what it
// should not, may just be starting: that is a warning. One that calls itself by another name is an error.
func (p *protection) checkIssuers(ctx context.Context, log hclog.Logger) error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, issuerCheckTimeout)
	defer cancel()
	for _, f := range p.Check(ctx) {
		if f.IsFinal {
			return usagef("%s", issuerMismatchText(f))
		}
		log.Warn("the identity provider cannot be asked now: until it can, clients with tokens that are not known yet are answered 503", "url", f.URL, "error", f.Err)
	}
	return nil
}

// issuerMismatchText says that the metadata of an issuer calls it by another name, and what to write.
func issuerMismatchText(f resource.CheckFault) string {
	e, ok := errors.AsType[*auth.Error](f.Err)
	if !ok || e.AnnouncedIssuer == "" {
		return fmt.Sprintf("--oidc-issuer %s is not what the provider calls itself: %v", f.URL, f.Err)
	}
	announced := printable.Text(e.AnnouncedIssuer)
	if strings.TrimRight(e.AnnouncedIssuer, "/") == strings.TrimRight(f.URL, "/") {
		return fmt.Sprintf("--oidc-issuer %s is not what the provider calls itself: the slash at the end counts; write --oidc-issuer %s", f.URL, announced)
	}
	return fmt.Sprintf("--oidc-issuer %s is not what the provider calls itself: its metadata names %s; if that is the provider you mean, write --oidc-issuer %s", f.URL, announced, announced)
}

// Close ends the protection. It is called once all that is protected has ended.
func (p *protection) Close() {
	if p == nil {
		return
	}
	_ = p.Protector.Close()
	p.closeIdle()
}

// closeIdle closes the idle connections to issuers and to the introspection endpoint.
func (p *protection) closeIdle() {
	for _, c := range p.httpClients {
		c.CloseIdleConnections()
	}
}

// addTo returns policy with the Protector as the one that authenticates clients: it takes access tokens, and the tokens of
// --token-file too. A nil protection returns policy as it is.
func (p *protection) addTo(policy access.Policy) access.Policy {
	if p != nil {
		policy.Authenticator, policy.Tokens = p.Protector, nil
	}
	return policy
}

// beginChange has these servers protected, beside the old ones, and makes scopeLines and --scope-map together the policy.
// When the servers have been exchanged, finish(true) ends the protection of the old ones; finish(false) restores what was
// before.
func (p *protection) beginChange(servers []hub.Spec, singleServer bool, scopeLines []string) (finish func(committed bool), err error) {
	if p == nil {
		if len(scopeLines) > 0 {
			return nil, usagef(`"scopes" in the configuration file needs access tokens: --oidc-issuer or --introspect`)
		}
		return func(bool) {}, nil
	}
	policy, err := p.readPolicy(scopeLines)
	if err != nil {
		return nil, err
	}
	next := noServerResources
	if len(servers) > 0 {
		next = nil
	}
	for _, s := range servers {
		next = append(next, resource.Resource{Paths: hub.EndpointPaths(s.Name, singleServer), IsOnly: singleServer})
	}
	changed, err := p.ChangeResources(next)
	if err != nil {
		return nil, err
	}
	was := p.policy
	p.setPolicy(policy)
	return func(committed bool) {
		if !committed {
			p.setPolicy(was)
		}
		changed(committed)
	}, nil
}

// setPolicy makes policy, which says what scopes messages need, the one in force.
func (p *protection) setPolicy(policy *resource.Policy) {
	p.policy = policy
	p.SetPolicy(policy)
}

// reload makes what the file of --scope-map says now the policy, where there is no configuration file. After an error the old policy stays.
func (p *protection) reload() error {
	policy, err := p.readPolicy(nil)
	if err != nil {
		return err
	}
	p.setPolicy(policy)
	return nil
}

// maxScopeMap bounds the file of --scope-map, in bytes.
const maxScopeMap = 1 << 20

// readScopeMap returns the content of the file of --scope-map. An empty file is an error (errEmptyScopeMap): somebody is just writing it,
// and without lines every token may do everything. What is no regular file is an error, too: a pipe would be empty when it is read again.
func readScopeMap(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxScopeMap {
		return nil, errors.New("it must be a file of at most 1 MiB")
	}
	data, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(data)) == "" {
		err = errEmptyScopeMap
	}
	return data, err
}

// errEmptyScopeMap is the error of readScopeMap for a file without any text.
var errEmptyScopeMap = errors.New("it is empty; leave the flag out, or write a comment (#), if no message needs a scope")

// isUnsettled reports whether the file of --scope-map is gone or empty, as it is for a moment while some programs
// write it.
func (p *protection) isUnsettled() bool {
	if p == nil || p.flags.scopeMapFile == "" {
		return false
	}
	_, err := readScopeMap(p.flags.scopeMapFile)
	return err == errEmptyScopeMap || errors.Is(err, fs.ErrNotExist)
}

// readPolicy returns what scopeLines, those of a configuration file, and the lines of --scope-map say together.
func (p *protection) readPolicy(scopeLines []string) (*resource.Policy, error) {
	text := strings.Join(scopeLines, "\n")
	if file := p.flags.scopeMapFile; file != "" {
		data, err := readScopeMap(file)
		if err == nil {
			_, err = resource.ParsePolicy(string(data)) // so that the number of the line is that of the file
		}
		if wrong, ok := errors.AsType[*resource.PolicyLineError](err); ok {
			return nil, usagef("--scope-map %s:%d: %v", file, wrong.LineNumber, wrong.Err)
		}
		if err != nil {
			return nil, usagef("--scope-map %s: %v", file, err)
		}
		text = string(data) + "\n" + text
	}
	return resource.ParsePolicy(text)
}

// taskIDSecret returns the key with which ids of tasks are bound to their principals. It is the same after a
// restart, so that the ids stay valid; nil: there is none. It is made of what no client knows: the introspection secret,
// or else keyFile, the private key of TLS ("": none). The tokens of --token-file would not do, as each is known to its owner.
func (p *protection) taskIDSecret(keyFile string) []byte {
	derive := func(secret string) []byte {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("mcp-bridge: ids of tasks"))
		return mac.Sum(nil)
	}
	if p.introspectionSecret != nil {
		if secret, err := p.introspectionSecret(); err == nil {
			return derive(secret)
		}
	}
	if keyFile != "" {
		if key, err := os.ReadFile(keyFile); err == nil {
			return derive(string(key))
		}
	}
	return nil
}

// denialLogger tells the log why requests are refused. No token is in what it is told.
type denialLogger struct {
	log      hclog.Logger          // gets the lines
	warnings access.WarningLimiter // bounds how often it is warned that no token can be verified
}

// report logs that a request is refused, and why: at the level debug, and as a warning instead if tokens cannot be verified now, as
// then the operator has to do something. Such a refusal, too, is logged at the level debug as long as there were too many warnings
// (access.WarningLimiter).
func (d *denialLogger) report(_ *http.Request, cause string, err error) {
	if e, ok := errors.AsType[*auth.Error](err); ok && e.Kind != auth.InvalidToken && d.warnings.Allow() {
		d.log.Warn("access tokens cannot be verified now: clients are answered 503", "error", err)
		return
	}
	d.log.Debug("a request is refused", "cause", cause, "reason", err)
}

// checkScopes returns what is wrong with one entry of "scopes" in a configuration file, which is one line of a policy
// (resource.ParsePolicy); nil: nothing.
func checkScopes(line string) error {
	if strings.ContainsAny(line, "\r\n") {
		return errors.New("a line break: write one entry for each line")
	}
	_, err := resource.ParsePolicy(line)
	if wrong, ok := errors.AsType[*resource.PolicyLineError](err); ok {
		return wrong.Err // there is one line
	}
	return err
}
