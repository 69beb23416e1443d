package remote

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// resourceMetadata is the part of a protected resource's metadata (RFC 9728) that matters here.
type resourceMetadata struct {
	Resource string   `json:"resource"`              // URL of the server that the metadata are about
	Servers  []string `json:"authorization_servers"` // URLs (issuers) of its authorization servers
}

// serverMetadata is the part of an authorization server's metadata (RFC 8414) that matters here.
type serverMetadata struct {
	Issuer               string   `json:"issuer"`                           // URL that identifies the authorization server
	CodeChallengeMethods []string `json:"code_challenge_methods_supported"` // methods of PKCE that it takes: "S256"
}

// checkAuthorization adds H18 for the step of authorization that fails, and notes the fact "authorization". r is the reply with
// 401 or 403.
func (p authorization) checkAuthorization(ctx context.Context, r *probe.Reply) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	challenge := r.Header.Get("WWW-Authenticate")
	p.addCredentialFinding(ctx, r, challenge)
	if r.Status == http.StatusUnauthorized {
		p.checkDiscovery(ctx, challenge)
	}
	p.setFact("authorization", "%d %s", r.Status, http.StatusText(r.Status))
}

// addCredentialFinding adds H18: what is wrong with the credentials that were sent, or that none were. challenge is the
// WWW-Authenticate of the reply r.
func (p authorization) addCredentialFinding(ctx context.Context, r *probe.Reply, challenge string) {
	const means = "The server does not serve clients without valid credentials; what lies behind was not checked."
	sent := p.Header.Get("Authorization")
	switch {
	case sent == "" && r.Status == http.StatusUnauthorized:
		seen := r.Summary() + describeScheme(challenge)
		if p.options.NoCredentialReason != "" {
			seen += "; " + p.options.NoCredentialReason
		}
		do := `If the server has OAuth, sign in with "` + p.loginCommand() + `" and run doctor again: it uses the stored credential, as connect does. Else give it --header "Authorization: Bearer ..." (or the header that the server wants).`
		switch {
		case p.options.IsCredentialBound:
			do = "connect uses the stored sign-in: try it there. To see what lies behind, give doctor a token that is not bound, with --header \"Authorization: Bearer ...\", if the server takes such."
		case p.options.NeedsNoPerson:
			do = "Nobody signs in for this client, which gets its tokens by itself: check its id, and its secret, key or assertion, with whoever runs the provider."
		}
		p.addFinding("H18", doctor.Note, "The server wants credentials", seen, means, do)
		return
	case sent == "":
		p.addFinding("H18", doctor.Error, "Access is denied", r.Summary()+describeScheme(challenge), means, "Check with which header or from which network the server admits clients.")
		return
	case strings.Contains(challenge, "insufficient_scope"):
		p.addFinding("H18", doctor.Error, "The token lacks a scope", r.Summary()+"; scope wanted: "+challengeParam(challenge, "scope"), "Clients with this token are refused.",
			"Get a token with this scope."+p.signInAgainAdvice("connect asks for it when a call needs it; "))
		return
	}
	if fault := p.tokenFault(sent); fault != "" {
		p.addFinding("H18", doctor.Error, "The token is not valid", r.Summary()+"; "+fault, means, "Get a new token for this server."+p.signInAgainAdvice(""))
		return
	}
	seen := r.Summary()
	without := p.initialize(ctx, func(q *probe.Request) { q.Header["Authorization"] = "" })
	if without.Err == nil && without.Status == r.Status && without.Header.Get("WWW-Authenticate") == challenge && without.BodyExcerpt() == r.BodyExcerpt() {
		seen += "; the answer is the same without the Authorization header"
	}
	p.addFinding("H18", doctor.Error, "The credentials are refused", seen, means,
		"Check that the token is one for this server and not revoked. If the answer is the same without it, see whether a proxy takes the Authorization header away."+p.signInAgainAdvice(""))
}

// signInAgainAdvice returns a sentence that says how to sign in anew, if the stored credential was used; "": it was not. first
// stands before the command in it.
func (p authorization) signInAgainAdvice(first string) string {
	if !p.options.UsesStoredCredential {
		return ""
	}
	if p.options.NeedsNoPerson {
		return ` The credential is the stored one of a client that needs no person: after "mcp-bridge logout" with this URL, the next request gets a new one.`
	}
	return " The credential is the stored one: " + first + `"` + p.loginCommand() + `" signs in anew.`
}

// loginCommand returns the command line that signs in to the server, to be shown. The query of its URL, which may have a
// secret, is not in it.
func (p authorization) loginCommand() string {
	command := cmp.Or(p.options.LoginCommand, "mcp-bridge login")
	if p.URL.RawQuery != "" {
		return command + " URL, with the URL that doctor was given"
	}
	return command + " " + probe.DisplayURL(p.URL)
}

// describeScheme returns the authentication scheme of challenge, a WWW-Authenticate, as the end of a sentence that begins with
// "; ".
func describeScheme(challenge string) string {
	name, _, _ := strings.Cut(challenge, " ")
	if name == "" {
		return "; no WWW-Authenticate"
	}
	return fmt.Sprintf("; WWW-Authenticate: %.20s ...", name)
}

// challengeParam returns the parameter name of challenge, a WWW-Authenticate, without quotes; "": there is none.
func challengeParam(challenge, name string) string {
	m := regexp.MustCompile(`(?i)[\s,]` + name + `\s*=\s*(?:"([^"]*)"|([^\s,"]+))`).FindStringSubmatch(" " + challenge)
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

// tokenFault decodes the token in the value of an Authorization header, if it is a JWT, and returns what is wrong with it
// (time, audience); "": nothing that can be seen. The text has no more of the token than times and the audience.
func (p authorization) tokenFault(header string) string {
	_, token, _ := strings.Cut(header, " ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp, Nbf float64
		Aud      json.RawMessage
	}
	if err != nil || json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	now := time.Now()
	if at := time.Unix(int64(claims.Exp), 0); claims.Exp != 0 && at.Before(now) {
		return "it expired at " + formatTime(at)
	}
	if at := time.Unix(int64(claims.Nbf), 0); claims.Nbf != 0 && at.After(now.Add(time.Minute)) {
		return "it is valid from " + formatTime(at) + " on, and here it is " + formatTime(now)
	}
	var audience []string
	var one string
	if json.Unmarshal(claims.Aud, &one) == nil {
		audience = []string{one}
	} else {
		_ = json.Unmarshal(claims.Aud, &audience)
	}
	// Only audiences that are URLs can be compared with the server's.
	isURL := func(a string) bool { return strings.HasPrefix(a, "https://") || strings.HasPrefix(a, "http://") }
	if len(audience) > 0 && !slices.ContainsFunc(audience, func(a string) bool { return !isURL(a) || p.covers(a) }) {
		return fmt.Sprintf("it is for another audience, %q", audience[0])
	}
	return ""
}

// covers reports whether resource, a URL, is that of the server, or that of a folder above it.
func (p authorization) covers(resource string) bool {
	u, err := url.Parse(resource)
	if err != nil || !httpdial.SameOrigin(u, p.URL) {
		return false
	}
	parent := strings.TrimSuffix(u.Path, "/")
	return p.URL.Path == u.Path || strings.TrimSuffix(p.URL.Path, "/") == parent || strings.HasPrefix(p.URL.Path, parent+"/")
}

// wellKnownURL returns the URL, at the site of u, of the metadata called name about path: "/.well-known/NAME/PATH".
func wellKnownURL(u *url.URL, name string, path string) *url.URL {
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/.well-known/" + name + strings.TrimSuffix(path, "/")}
}

// fetchJSON gets a JSON document, without credentials, and decodes it into into; false: it cannot be had. A private address
// that a public server names is not asked: then the Reply has an Err.
func (p authorization) fetchJSON(ctx context.Context, u *url.URL, into any) (*probe.Reply, bool) {
	if p.isPrivateOfPublic(u) {
		return &probe.Reply{Method: "GET", Err: fmt.Errorf("a private address is not asked")}, false
	}
	r := p.doAndCheck(ctx, probe.Request{Method: http.MethodGet, URL: u, IsForOtherServer: true, Header: map[string]string{"Accept": typeJSON}})
	return r, r.Err == nil && r.Status == http.StatusOK && json.Unmarshal(r.Text, into) == nil
}

// isPrivateOfPublic reports whether the host of u is a private address or this machine, while the server's is not.
func (p authorization) isPrivateOfPublic(u *url.URL) bool {
	private := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "localhost" || err == nil && (ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified())
	}
	return private(u.Hostname()) && !private(p.URL.Hostname())
}

// publishedResource returns the URL of the MCP server that the metadata of the site name (RFC 9728); "": they name none of this
// origin, or only the site itself.
func (p authorization) publishedResource(ctx context.Context) string {
	var m resourceMetadata
	if _, ok := p.fetchJSON(ctx, wellKnownURL(p.URL, "oauth-protected-resource", ""), &m); !ok {
		return ""
	}
	u, err := url.Parse(m.Resource)
	if err != nil || !httpdial.SameOrigin(u, p.URL) || u.Path == "" || u.Path == "/" {
		return ""
	}
	return probe.DisplayURL(u)
}

// checkDiscovery looks for the metadata that tell where to get a token, as clients do, and adds H18 if it cannot find them or
// they are wrong. challenge is the WWW-Authenticate of the reply.
func (p authorization) checkDiscovery(ctx context.Context, challenge string) {
	const means = "Clients that know OAuth cannot find out where to get a token."
	var m resourceMetadata
	var r *probe.Reply
	ok := false
	if named := challengeParam(challenge, "resource_metadata"); named != "" {
		u, err := p.URL.Parse(named)
		if err != nil || u.Host == "" {
			p.addFinding("H18", doctor.Error, "WWW-Authenticate names no valid URL of the metadata", "resource_metadata="+named, means, "Correct the URL in WWW-Authenticate.")
			return
		}
		if r, ok = p.fetchJSON(ctx, u, &m); !ok && r.Err == probe.ErrRequestLimit {
			return
		}
		if !ok {
			p.addFinding("H18", doctor.Error, "The metadata of the protected resource cannot be had", probe.DisplayURL(u)+": "+r.Summary(), means,
				"Serve the document of RFC 9728 at this URL, to everybody; behind a proxy, pass the path /.well-known/ on.")
			return
		}
	} else {
		for _, path := range []string{p.URL.Path, ""} {
			if r, ok = p.fetchJSON(ctx, wellKnownURL(p.URL, "oauth-protected-resource", path), &m); ok {
				break
			}
		}
	}
	switch {
	case ok:
		p.checkMetadata(ctx, m)
	case challenge == "" && !r.IsInconclusive():
		p.addFinding("H18", doctor.Warning, doctor.No401Challenge.Title, "no WWW-Authenticate, and no metadata at /.well-known/oauth-protected-resource: "+r.Summary(),
			means+" Others do not learn which credentials are wanted.", doctor.No401Challenge.Advice)
	}
}

// checkMetadata adds H18 for what is wrong with m, the metadata of the resource, or with those of its authorization server.
func (p authorization) checkMetadata(ctx context.Context, m resourceMetadata) {
	if !p.covers(m.Resource) {
		p.addFinding("H18", doctor.Error, "The metadata are of another resource", fmt.Sprintf("resource is %q, and the URL %s", m.Resource, probe.DisplayURL(p.URL)),
			"Clients refuse to ask for a token: it would be one for another server.",
			"Have the metadata name the URL that clients use as resource. Behind a proxy, tell the server its public URL.")
	}
	if len(m.Servers) == 0 {
		p.addFinding("H18", doctor.Warning, "The metadata name no authorization server", "authorization_servers is empty or missing",
			"Most clients cannot find out where to get a token.", "Name at least one in authorization_servers.")
		return
	}
	issuer, err := url.Parse(m.Servers[0])
	if err != nil || issuer.Host == "" {
		p.addFinding("H18", doctor.Error, "The metadata name no valid authorization server", fmt.Sprintf("authorization_servers[0] is %q", m.Servers[0]), "Clients cannot get a token.", "Correct the URL.")
		return
	}
	var s serverMetadata
	var r *probe.Reply
	ok := false
	appended := *issuer
	appended.Path = strings.TrimSuffix(issuer.Path, "/") + "/.well-known/openid-configuration"
	for _, u := range []*url.URL{wellKnownURL(issuer, "oauth-authorization-server", issuer.Path), wellKnownURL(issuer, "openid-configuration", issuer.Path), &appended} {
		if r, ok = p.fetchJSON(ctx, u, &s); ok || r.IsInconclusive() {
			break
		}
	}
	switch {
	case !ok && r.IsInconclusive():
	case !ok:
		p.addFinding("H18", doctor.Error, "The metadata of the authorization server cannot be had", probe.DisplayURL(issuer)+": "+r.Summary(), "Clients cannot get a token.",
			"Serve them at /.well-known/oauth-authorization-server or /.well-known/openid-configuration of the issuer.")
	case !slices.Contains(s.CodeChallengeMethods, "S256"):
		p.addFinding("H18", doctor.Error, "The authorization server does not say that it takes S256", fmt.Sprintf("code_challenge_methods_supported is %q", s.CodeChallengeMethods),
			"Clients must refuse an authorization server without PKCE.", "Have code_challenge_methods_supported list S256.")
	case s.Issuer != m.Servers[0]:
		severity := doctor.Warning
		if strings.TrimSuffix(s.Issuer, "/") == strings.TrimSuffix(m.Servers[0], "/") {
			severity = doctor.Note // most clients do not mind the slash
		}
		p.addFinding("H18", severity, "The authorization server has another issuer than the metadata name", fmt.Sprintf("issuer is %q, and authorization_servers[0] %q", s.Issuer, m.Servers[0]),
			"Clients of 2026-07-28 compare the two exactly, and refuse.", "Write the same in both, to the last slash.")
	}
}
