package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// Types of tokens in a token exchange (RFC 8693, 3).
const (
	TypeAccessToken = "urn:ietf:params:oauth:token-type:access_token" // an access token
	TypeIDToken     = "urn:ietf:params:oauth:token-type:id_token"     // an id token of OpenID Connect
	TypeIDJAG       = "urn:ietf:params:oauth:token-type:id-jag"       // an identity assertion authorization grant
)

// A Grant is the parameters of a token request that say why the token should be issued: a code, a refresh
// token, an assertion (RFC 6749, 1.3). The functions that make one leave out parameters that are "".
type Grant struct {
	form url.Values // the form of the token request, with grant_type
}

// newGrant makes a Grant with this grant_type. pairs are names and values of its parameters in turn; those
// with the value "" are left out.
func newGrant(kind string, pairs ...string) Grant {
	form := url.Values{"grant_type": {kind}}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			form.Set(pairs[i], pairs[i+1])
		}
	}
	return Grant{form}
}

// AuthorizationCodeGrant is the Grant that exchanges an authorization code (RFC 6749, 4.1.3) with its PKCE
// verifier (RFC 7636, 4.5) for a token of this resource (RFC 8707, 2.2). redirect is the redirect URI of the
// authorization request.
func AuthorizationCodeGrant(code, verifier, redirect, resource string) Grant {
	return newGrant("authorization_code", "code", code, "code_verifier", verifier, "redirect_uri", redirect, "resource", resource)
}

// RefreshTokenGrant is the Grant that exchanges a refresh token for a new token (RFC 6749, 6). Without scopes
// the new token has those of the old one.
func RefreshTokenGrant(refresh, resource string, scopes []string) Grant {
	return newGrant("refresh_token", "refresh_token", refresh, "resource", resource, "scope", JoinScope(scopes))
}

// ClientCredentialsGrant is the Grant by which the client itself gets a token, without a person (RFC 6749,
// 4.4.2).
func ClientCredentialsGrant(resource string, scopes []string) Grant {
	return newGrant("client_credentials", "resource", resource, "scope", JoinScope(scopes))
}

// DeviceCodeGrant is the Grant that asks for the token of a device code (RFC 8628, 3.4). As long as the
// person has not agreed, the request fails with AuthorizationPending.
func DeviceCodeGrant(code, resource string) Grant {
	return newGrant("urn:ietf:params:oauth:grant-type:device_code", "device_code", code, "resource", resource)
}

// JWTBearerGrant is the Grant that exchanges an assertion, which somebody else has signed, for a token (RFC
// 7523, 2.1).
func JWTBearerGrant(assertion, resource string, scopes []string) Grant {
	return newGrant("urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion", assertion, "resource", resource, "scope", JoinScope(scopes))
}

// A TokenExchangeRequest is what a token exchange (RFC 8693, 2.1) asks for. Only SubjectToken and SubjectTokenType are required.
type TokenExchangeRequest struct {
	SubjectToken       string   // the token that is given in exchange: a secret
	SubjectTokenType   string   // the type of SubjectToken: TypeIDToken ...
	RequestedTokenType string   // the type of token that is wanted; "": the server chooses
	Audience           string   // the name of the service that the new token is for; "": not sent
	Resource           string   // the address of the service that the new token is for; "": not sent
	Scopes             []string // the scopes that the new token is to have; nil or empty: no scope is sent
}

// TokenExchangeGrant is the Grant that exchanges one token for another (RFC 8693, 2.1).
func TokenExchangeGrant(x TokenExchangeRequest) Grant {
	return newGrant("urn:ietf:params:oauth:grant-type:token-exchange", "subject_token", x.SubjectToken, "subject_token_type", x.SubjectTokenType,
		"requested_token_type", x.RequestedTokenType, "audience", x.Audience, "resource", x.Resource, "scope", JoinScope(x.Scopes))
}

// A Token is the answer of a token endpoint (RFC 6749, 5.1).
type Token struct {
	AccessToken  string        // the token itself: a secret
	Type         string        // SchemeBearer or SchemeDPoP: the scheme to send it with; "N_A": a token exchange gave something that is no access token, whose type is IssuedType
	RefreshToken string        // the new refresh token; "": none came, so an older one goes on counting
	IDToken      string        // id token of OpenID Connect, not verified; "": none
	IssuedType   string        // the type of what a token exchange gave (RFC 8693, 2.2.1); "": it does not say
	Scopes       []string      // the scopes that the token has; nil: those that were asked for
	Lifetime     time.Duration // how long the token is valid; 0: the server does not say, or says nothing that makes sense
	Expires      time.Time     // when the token ends, by our clock: Lifetime after the answer came; zero where Lifetime is 0
}

// RequestToken asks a token endpoint for a token (RFC 6749, 3.2). With a Prover the token is bound to its
// key (RFC 9449, 5), and a request that lacked a nonce is sent once more with it; prover may be nil.
// The request is not redirected. Errors are *Error with any Kind of RFC 6749, 5.2, whatever status
// they come with. After Unavailable and Invalid, RequestSent says whether the server may have spent what
// was sent. With a Prover the Type of the Token may still be SchemeBearer: a caller that demands a bound
// token refuses that.
func (c *EndpointCaller) RequestToken(ctx context.Context, server ServerMetadata, client Client, g Grant, prover *Prover) (Token, error) {
	const doing = "token request"
	if server.TokenEndpoint == "" {
		return Token{}, &Error{Kind: Unsupported, Operation: doing, URL: redactURL(server.Issuer), Problem: "the authorization server has no token endpoint"}
	}
	f, err := c.postForm(ctx, formRequest{operation: doing, addr: server.TokenEndpoint, server: server, client: client, form: g.form, prover: prover})
	if err != nil {
		return Token{}, err
	}
	t, err := c.parseToken(f, prover != nil)
	if err != nil {
		return Token{}, &Error{Kind: Invalid, Operation: doing, URL: redactURL(server.TokenEndpoint), Status: http.StatusOK, Problem: "the answer cannot be used", Err: err, RequestSent: true, Advice: adviceTellOperator}
	}
	return t, nil
}

// maxTokenBytes is how long an access token, a refresh token or an id token may be that a server issues.
const maxTokenBytes = 64 << 10

// parseToken reads the successful answer of a token endpoint. dpop: the request had a proof, so a DPoP token
// may come. Bearer tokens always may, which an absent type counts as, and so may "N_A" of a token exchange that gave
// no access token; any other type is an error. A lifetime that makes no sense counts as 0, since the answer may
// have a refresh token that replaces another.
func (c *EndpointCaller) parseToken(f strictjson.Fields, dpop bool) (Token, error) {
	r := strictjson.NewReader(f)
	t := Token{
		AccessToken: r.Text("access_token"), Type: r.Text("token_type"), RefreshToken: r.Text("refresh_token"),
		IDToken: r.Text("id_token"), IssuedType: r.Text("issued_token_type"), Lifetime: f.Seconds("expires_in"),
	}
	for _, s := range r.TextOrArray("scope") { // an array at some
		t.Scopes = UnionScope(t.Scopes, SplitScope(s))
	}
	if r.Err != nil {
		return Token{}, r.Err
	}
	if t.AccessToken == "" {
		return Token{}, errors.New(`"access_token" is missing`)
	}
	for name, v := range map[string]string{"access_token": t.AccessToken, "refresh_token": t.RefreshToken, "id_token": t.IDToken} {
		least := '!' // of what stands in a header
		if name == "refresh_token" {
			least = ' ' // VSCHAR (RFC 6749, appendix A)
		}
		if len(v) > maxTokenBytes || strings.ContainsFunc(v, func(r rune) bool { return r < least || r > '~' }) {
			return Token{}, fmt.Errorf("%q has characters that no token has, or is too long", name)
		}
	}
	switch {
	case t.Type == "", strings.EqualFold(t.Type, SchemeBearer): // some leave it out
		t.Type = SchemeBearer
	case strings.EqualFold(t.Type, SchemeDPoP) && dpop:
		t.Type = SchemeDPoP
	case strings.EqualFold(t.Type, "N_A") && t.IssuedType != "" && t.IssuedType != TypeAccessToken:
		t.Type = "N_A"
	default:
		return Token{}, fmt.Errorf("a token of the type %.40q cannot be used", t.Type)
	}
	if t.Lifetime > 0 {
		t.Expires = c.now().Add(t.Lifetime)
	}
	return t, nil
}

// A formRequest is one POST of a form to an endpoint of an authorization server.
type formRequest struct {
	operation           string         // what Error.Operation becomes, such as "token request"
	addr                string         // the address of the endpoint
	server              ServerMetadata // the server whose endpoint it is; says how clients authenticate
	client              Client         // the client that sends it, and authenticates
	form                url.Values     // the form, without what authenticates the client
	prover              *Prover        // adds a DPoP proof; nil: none
	allowsEmptyResponse bool           // a successful answer needs no body
}

// postForm sends a form with what authenticates the client, and returns the JSON object of a successful
// answer (nil: there is none, and allowsEmptyResponse). With a prover, a request that lacked a nonce is sent
// once more.
func (c *EndpointCaller) postForm(ctx context.Context, k formRequest) (strictjson.Fields, error) {
	for try := 1; ; try++ {
		form, header := url.Values{}, http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
		for name, v := range k.form {
			form[name] = v
		}
		if err := k.client.authenticate(k.server, c.now(), header, form); err != nil {
			return nil, &Error{Kind: Unsupported, Operation: k.operation, URL: redactURL(k.addr), Problem: "the client cannot authenticate", Err: err}
		}
		sentNonce := ""
		if k.prover != nil {
			proof, nonce, err := k.prover.proofWithNonce(http.MethodPost, k.addr, "")
			if err != nil {
				return nil, &Error{Kind: Invalid, Operation: k.operation, URL: redactURL(k.addr), Problem: "no proof can be made", Err: err}
			}
			header.Set("DPoP", proof)
			sentNonce = nonce
		}
		a, err := c.post(ctx, k.operation, k.addr, header, form.Encode())
		if k.prover != nil {
			k.prover.LearnNonce(k.addr, a.header)
		}
		if err != nil {
			return nil, err
		}
		f, err := c.parseResponse(k.operation, k.addr, a, k.allowsEmptyResponse, formSecrets(form, k.client.Secret))
		if try == 1 && k.prover != nil && Is(err, UseDPoPNonce) && k.prover.nonce(k.addr) != sentNonce {
			continue
		}
		if e, ok := errors.AsType[*Error](err); ok && e.Advice == "" {
			e.Advice = adviceByGrantType[k.form.Get("grant_type")][e.Kind]
		}
		return f, err
	}
}

// secretParams are the parameters of forms whose values must not be repeated in an error.
var secretParams = []string{"code", "code_verifier", "refresh_token", "client_secret", "client_assertion", "assertion", "subject_token", "device_code", "token"}

// formSecrets returns the values of a form that must not be repeated in an error, and more with them.
func formSecrets(form url.Values, more ...string) []string {
	for _, name := range secretParams {
		more = append(more, form.Get(name))
	}
	return more
}

// parseResponse returns the JSON object of the answer a of the endpoint at addr, if it is successful. doing is the
// Operation of its errors. An object with "error" is an error, whatever
// the status is (RFC 6749, 5.2); so is any status but 200 and 201. With allowsEmpty, a successful answer
// without an object gives nil and no error. secrets are not repeated in an error.
func (c *EndpointCaller) parseResponse(doing, addr string, a response, allowsEmpty bool, secrets []string) (strictjson.Fields, error) {
	f, err := strictjson.ParseObject(a.body)
	success := a.status == http.StatusOK || a.status == http.StatusCreated
	if success && err == nil && !f.Has("error") {
		return f, nil
	}
	e := &Error{Kind: Refused, Operation: doing, URL: redactURL(addr), Status: a.status, RetryAfter: c.retryAfter(a.header), RequestSent: true,
		Problem: "the server answered with status " + strconv.Itoa(a.status)}
	if success && err != nil {
		if allowsEmpty {
			return nil, nil
		}
		e.Kind, e.Err, e.Advice = Invalid, errors.New("the answer cannot be read: "+withoutSecrets(err.Error(), secrets)), adviceTellOperator
		return nil, e
	}
	r := strictjson.NewReader(f)
	e.Code, e.Description = withoutSecrets(r.Text("error"), secrets), withoutSecrets(r.Text("error_description"), secrets)
	if kind, ok := kindOfCode[e.Code]; ok {
		e.Kind = kind
	}
	later := a.status >= 500 || a.status == http.StatusTooManyRequests || a.status == http.StatusRequestTimeout
	if e.Kind == Refused && later {
		e.Kind = Unavailable
	}
	return nil, e
}

// maxErrorText is how many bytes of a server's words an error repeats.
const maxErrorText = 300

// withoutSecrets returns a server's words, at most maxErrorText bytes of them; if they repeat one of the
// secrets (of 6 bytes or more), it returns a text that says so in their place.
func withoutSecrets(words string, secrets []string) string {
	for _, s := range secrets {
		if len(s) >= 6 && strings.Contains(words, s) {
			return "withheld: it repeats a secret"
		}
	}
	if len(words) > maxErrorText {
		words = strings.ToValidUTF8(words[:maxErrorText], "") + "..."
	}
	return words
}
