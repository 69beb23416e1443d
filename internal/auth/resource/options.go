package resource

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// A DPoPMode says what a Protector demands of tokens that are bound to a key (RFC 9449).
type DPoPMode int

// The values of a DPoPMode. Static keys and certificates are no tokens, so they need no proof.
const (
	DPoPAuto    DPoPMode = iota // a token that is bound to a key needs a proof, others do not; without a public URL the same as DPoPOff
	DPoPRequire                 // each token must be bound to a key, and needs a proof
	DPoPOff                     // a token that is bound to a key is refused
)

// An Issuer is an authorization server whose signed tokens are accepted.
type Issuer struct {
	URL       string   // its issuer identifier: what "iss" must be, byte for byte
	Audiences []string // a token must be for one of these; nil: for the resource that the request is for
	JWKSURL   string   // address of its keys; "": its metadata says that
}

// Introspection is an endpoint that is asked about tokens that none of the Issuers has signed
// (RFC 7662).
type Introspection struct {
	Endpoint     string                 // address of the introspection endpoint
	Issuer       string                 // the issuer of the tokens: clients are told of it, and a token with "iss" must name it; "": not known
	ClientID     string                 // our client id at the endpoint
	ClientSecret func() (string, error) // returns the secret of ClientID; called for each question, as it may change (SecretFromFile)
	Audiences    []string               // a token must be for one of these; nil: for the resource that the request is for
}

// A Resource is one MCP server, which may have several endpoints: a token for one of them is for all.
type Resource struct {
	Paths []string // the paths of its endpoints, below the public URL. With IsOnly, the metadata at the root is that of the first one

	// IsOnly says that there is never another Resource: its tokens are good for paths that are no endpoint too,
	// and its metadata is at the root. A Resource that is merely the last one left must not set it: its tokens
	// would open paths that belonged to others before, or will.
	IsOnly bool
}

// Options say which credentials a Protector accepts, and what they allow.
type Options struct {
	Issuers             []Issuer       // their signed tokens are accepted
	Introspection       *Introspection // how tokens that none of the Issuers has signed are introspected; nil: such tokens are refused
	StaticKeys          *access.Tokens // fixed keys that are accepted; nil: none are
	AcceptsCertificates bool           // a client certificate that the listener has verified is enough

	// PublicURL is what stands before the paths of the Resources in the addresses that clients use,
	// "https://mcp.example.com". Nothing is taken from the Host of a request. Without it there is
	// no metadata and no DPoP, and the Issuers need Audiences.
	PublicURL string
	Resources []Resource // the servers that are protected; nil: one, the public URL itself, with IsOnly

	RequiredScopes []string // the scopes that every token must have; nil: none
	Policy         *Policy  // the scopes that messages need besides; nil: none
	DPoP           DPoPMode // what is demanded of tokens that are bound to a key
	// RequiresNonces says that all DPoP proofs need a nonce of ours, at most 10 minutes old. Without it only those proofs
	// need one that may have been made before New was called: another process may have taken them.
	RequiresNonces bool

	Caller *auth.EndpointCaller // makes the requests to issuers and to the introspection endpoint, with Now as its clock; nil: the zero value
	// HTTPClientFor returns the HTTP client for requests to named, an address in these Options, and to the addresses that
	// the metadata found there names. So each address in the Options can have its own rule about which addresses may be
	// asked. New calls it. nil: the HTTP client of Caller makes all requests.
	HTTPClientFor       func(named string) (*http.Client, error)
	Now                 func() time.Time // the wall clock, which counts the time that the machine sleeps; nil: the system's
	MaxRememberedTokens int              // how many valid tokens are remembered, and as many that introspection calls not valid; 0 or less: 10,000

	// OnDenied is told why a request is refused, in more words than its client: cause is one of a fixed set of texts, with
	// no part of a token, and err says more. It may be called concurrently. nil: nobody is told.
	OnDenied func(r *http.Request, cause string, err error)
}

// defaultMaxRememberedTokens is how many tokens are remembered, unless Options.MaxRememberedTokens says otherwise.
const defaultMaxRememberedTokens = 10_000

// New returns a Protector, or what is wrong with the Options. It makes no request.
func New(o Options) (*Protector, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Now == nil {
		o.Now = wallClock
	}
	if o.MaxRememberedTokens <= 0 {
		o.MaxRememberedTokens = defaultMaxRememberedTokens
	}
	caller := auth.EndpointCaller{}
	if o.Caller != nil {
		caller = *o.Caller
	}
	caller.Now = o.Now
	if o.DPoP == DPoPAuto && o.PublicURL == "" {
		o.DPoP = DPoPOff
	}
	p := &Protector{
		options: o, issuers: make(map[string]*issuer, len(o.Issuers)),
		verifiedTokens: newTokenCache(o.MaxRememberedTokens),
		proofVerifier:  auth.ProofVerifier{Now: o.Now}, nonceMaker: newNonceMaker(), startedAt: o.Now(), tokenExpiries: tokenExpiries{now: o.Now},
	}
	for _, i := range o.Issuers {
		caller, err := o.callerFor(caller, cmp.Or(i.JWKSURL, i.URL))
		if err != nil {
			return nil, fmt.Errorf("issuer %.200q: %w", i.URL, err)
		}
		p.issuers[i.URL] = newIssuer(i, caller)
	}
	if o.Introspection != nil {
		caller, err := o.callerFor(caller, o.Introspection.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("introspection: %w", err)
		}
		p.introspector = newIntrospector(o.Introspection, caller, o.MaxRememberedTokens)
	}
	p.SetPolicy(o.Policy)
	t, err := p.newRouteTable(o.Resources)
	if err != nil {
		return nil, err
	}
	p.routes.Store(t)
	return p, nil
}

// callerFor returns caller with the HTTP client for named, an address of the Options.
func (o *Options) callerFor(caller auth.EndpointCaller, named string) (*auth.EndpointCaller, error) {
	if o.HTTPClientFor == nil {
		return &caller, nil
	}
	var err error
	caller.HTTP, err = o.HTTPClientFor(named)
	return &caller, err
}

// check returns an error if the Options cannot work.
func (o *Options) check() error {
	if len(o.Issuers) == 0 && o.Introspection == nil && o.StaticKeys == nil && !o.AcceptsCertificates {
		return errors.New("nobody could be let in: there is no issuer, no introspection endpoint, no key and no certificate")
	}
	if o.PublicURL != "" {
		if err := checkPublicURL(o.PublicURL); err != nil {
			return fmt.Errorf("public URL %.200q: %w", o.PublicURL, err)
		}
	} else if o.DPoP == DPoPRequire {
		return errors.New("DPoP needs the public URL, which proofs are made for")
	}
	seen := map[string]bool{}
	for _, i := range o.Issuers {
		switch {
		case i.URL == "":
			return errors.New("an issuer has no name")
		case seen[i.URL]:
			return fmt.Errorf("issuer %.200q: it is there twice", i.URL)
		}
		seen[i.URL] = true
		if err := checkAudiences(i.Audiences, o.PublicURL); err != nil {
			return fmt.Errorf("issuer %.200q: %w", i.URL, err)
		}
	}
	if in := o.Introspection; in != nil {
		if in.Endpoint == "" || in.ClientID == "" || in.ClientSecret == nil {
			return errors.New("introspection needs an endpoint, a client id and a secret")
		}
		if seen[in.Issuer] {
			return fmt.Errorf("issuer %.200q: its tokens are verified by its keys, so they cannot be introspected too", in.Issuer)
		}
		if err := checkAudiences(in.Audiences, o.PublicURL); err != nil {
			return fmt.Errorf("introspection: %w", err)
		}
	}
	for _, s := range o.RequiredScopes {
		if !isScope(s) {
			return fmt.Errorf("scope %.200q: it has a character that no scope has", s)
		}
	}
	return nil
}

// checkAudiences returns an error if an audience is empty, or there is neither an audience nor a public URL.
func checkAudiences(audiences []string, public string) error {
	if len(audiences) == 0 && public == "" {
		return errors.New("it must be known for which audience its tokens are: name one, or the public URL")
	}
	for _, a := range audiences {
		if a == "" {
			return errors.New("an audience is empty")
		}
	}
	return nil
}

// checkPublicURL returns what is wrong with a public URL: it must be http or https, without user name, query, fragment,
// characters of the path that are written with %, and a slash at its end.
func checkPublicURL(addr string) error {
	u, err := url.Parse(addr)
	switch {
	case err != nil:
		return errors.New("it cannot be read")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return errors.New("write https://HOST, with the path that stands before those of the servers, if there is one")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(addr, "#"):
		return errors.New("it must have no user name, query and fragment")
	case u.EscapedPath() != u.Path:
		return errors.New("its path must have no characters that are written with %")
	case strings.HasSuffix(addr, "/"):
		return errors.New("leave out the slash at its end")
	}
	return nil
}

// wallClock returns the system's time without the monotonic reading, which stands still while the machine sleeps.
func wallClock() time.Time { return time.Now().Round(0) }

// maxSecretBytes is how long a file with a secret may be.
const maxSecretBytes = 64 << 10

// SecretFromFile returns a function that reads a secret from a file at each call, without the white space around it. A
// file that is empty, has more than 64 KiB, or (not on Windows) may be read by every user of this machine, is an error.
func SecretFromFile(file string) func() (string, error) {
	return func() (string, error) {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		info, err := f.Stat()
		switch {
		case err != nil:
			return "", err
		case info.IsDir() || info.Size() > maxSecretBytes:
			return "", fmt.Errorf("%s is no file with a secret", file)
		case runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0:
			return "", fmt.Errorf("every user of this machine may read %s: chmod o-r it", file)
		}
		text := make([]byte, maxSecretBytes)
		n := 0
		for n < len(text) {
			more, err := f.Read(text[n:])
			if n += more; err != nil {
				break
			}
		}
		secret := strings.TrimSpace(string(text[:n]))
		if secret == "" {
			return "", fmt.Errorf("%s is empty", file)
		}
		return secret, nil
	}
}

// ChangeResources says anew which Resources there are, while requests may come in. Until finish is called, the old
// and the new ones are there, because the servers behind them change meanwhile. A request may still reach an old one,
// or a new one already, and needs a token for the one that it reaches. finish(true) takes the old ones out,
// finish(false) takes the new ones out. finish must be called once, before the next ChangeResources. After an error
// nothing has changed.
func (p *Protector) ChangeResources(resources []Resource) (finish func(done bool), err error) {
	next, err := p.newRouteTable(resources)
	if err != nil {
		return nil, err
	}
	was := p.routes.Load()
	both, err := p.newRouteTable(unionResources(was.resources, next.resources))
	if err != nil {
		return nil, err
	}
	p.routes.Store(both)
	return func(done bool) {
		if done {
			p.routes.Store(next)
		} else {
			p.routes.Store(was)
		}
	}, nil
}

// unionResources returns the Resources of both lists, each once. If they are several, none has IsOnly.
func unionResources(old, more []Resource) []Resource {
	all := slices.Clone(old)
	for _, r := range more {
		if !slices.ContainsFunc(old, func(o Resource) bool { return o.IsOnly == r.IsOnly && slices.Equal(o.Paths, r.Paths) }) {
			all = append(all, r)
		}
	}
	for i := range all {
		all[i].IsOnly = all[i].IsOnly && len(all) == 1
	}
	return all
}

// SetPolicy replaces the policy, which says which scopes messages need, while requests may come in. nil: they need
// none.
func (p *Protector) SetPolicy(policy *Policy) { p.policy.Store(policy) }

// A Protector lets requests through whose sender it knows, and whose token has the scopes. It may be used concurrently.
// New makes one.
type Protector struct {
	options        Options                    // the Options, as New has completed them
	issuers        map[string]*issuer         // the issuers by Issuer.URL
	introspector   *introspector              // asks the introspection endpoint; nil: tokens are not introspected
	verifiedTokens *tokenCache                // what was found out about valid tokens
	proofVerifier  auth.ProofVerifier         // verifies DPoP proofs, and remembers them
	nonceMaker     *nonceMaker                // makes the nonces for DPoP proofs
	startedAt      time.Time                  // when New was called: since then proofs are remembered
	tokenExpiries  tokenExpiries              // makes the contexts that end with tokens
	routes         atomic.Pointer[routeTable] // the endpoints, as ChangeResources has set them
	policy         atomic.Pointer[Policy]     // replaced by SetPolicy; nil: messages need no scopes
}

// Close stops the timer that ends the contexts of tokens. It does not end these contexts. It also ends the requests in progress
// for metadata and keys of the issuers, and waits for them. It returns nil.
func (p *Protector) Close() error {
	p.tokenExpiries.close()
	for _, i := range p.issuers {
		i.close()
	}
	return nil
}
