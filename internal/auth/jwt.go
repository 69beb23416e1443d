package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// Bounds of a signed token.
const (
	maxJWTBytes  = 16 << 10         // how long a signed token may be
	maxClockSkew = 30 * time.Second // by how much the clock of whoever made a token or a proof may differ from ours
)

// signatureAlgorithms are those with which tokens, proofs and client assertions may be signed. None of them
// is symmetric, so that a public key is never taken for a secret.
var signatureAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// SignatureAlgorithms returns the names of the algorithms with which tokens and proofs may be signed (RFC
// 7518, 3.1; RFC 8037, 3.1): metadata and challenges announce them.
func SignatureAlgorithms() []string {
	names := make([]string, len(signatureAlgorithms))
	for i, a := range signatureAlgorithms {
		names[i] = string(a)
	}
	return names
}

// A JWTVerifier verifies access tokens of one issuer that are JWTs (RFC 9068, 4; RFC 7519, 7.2; RFC
// 8725). It may be used concurrently.
type JWTVerifier struct {
	Issuer    string           // what "iss" must be, byte for byte
	Audiences []string         // "aud" must have one of these, byte for byte; without any no token is valid
	Keys      *KeySet          // the public keys of the issuer
	Now       func() time.Time // the clock; nil: time.Now
}

// Verify returns what a token says, once all of this holds: a signature by one of the issuer's keys; "typ" is at+jwt,
// JWT or missing; issuer and audience; "exp" there and not past, "nbf" not ahead, with 30 seconds for clocks that
// differ; "sub" or "client_id"; no "at_hash" or "c_hash", which id tokens have. What the header says of keys (jwk, jku,
// x5u, x5c) is ignored. A binding (Claims.JKT, X5T) is for the caller to demand.
//
// InvalidToken: the token is not valid. Unavailable: that cannot be told now, see KeySet.
func (v *JWTVerifier) Verify(ctx context.Context, t UnverifiedJWT) (Claims, error) {
	h := t.header
	switch strings.TrimPrefix(strings.ToLower(h.typ), "application/") {
	case "", "jwt", "at+jwt":
	default:
		return Claims{}, invalidToken(CauseNotAccessToken, "it is not an access token by its typ")
	}
	jws, err := jose.ParseSignedCompact(t.text, signatureAlgorithms)
	if err != nil {
		return Claims{}, invalidToken(CauseMalformed, "it is not a signed token that can be read")
	}
	keys, err := v.Keys.keysFor(ctx, h.kid, h.alg)
	if err != nil {
		return Claims{}, err
	}
	for _, k := range keys {
		payload, err := jws.Verify(&k.jwk)
		if err != nil {
			continue
		}
		if !bytes.Equal(payload, t.payload) { // cannot be: both are of the same text
			break
		}
		c, err := v.checkClaims(t.claims)
		c.KeyThumbprint = k.thumbprint
		return c, err
	}
	return Claims{}, invalidToken(CauseSignature, "its signature is not valid")
}

// checkClaims checks the claims of a token whose signature is valid (issuer, audience, times, who it is of),
// and returns them.
func (v *JWTVerifier) checkClaims(f strictjson.Fields) (Claims, error) {
	c, err := readClaims(f)
	if err != nil {
		cause := CauseMalformed
		if errors.Is(err, ErrUnsupportedBinding) {
			cause = CauseBinding
		}
		return Claims{}, invalidToken(cause, "its claims cannot be used: "+err.Error())
	}
	now := time.Now()
	if v.Now != nil {
		now = v.Now()
	}
	cause, what := "", ""
	switch {
	case c.Issuer != v.Issuer || v.Issuer == "":
		cause, what = CauseIssuer, "it is of another issuer"
	case !c.IsFor(v.Audiences):
		cause, what = CauseAudience, "it is for "+DescribeWrongAudience(c.Audience, v.Audiences)
	case f.Has("at_hash") || f.Has("c_hash"):
		cause, what = CauseNotAccessToken, "it is an id token"
	case c.Expires.IsZero():
		cause, what = CauseMalformed, "it does not say when it expires"
	case !now.Before(c.Expires.Add(maxClockSkew)):
		cause, what = CauseExpired, "it has expired"
	case now.Add(maxClockSkew).Before(c.NotBefore):
		cause, what = CauseNotYetValid, "it is not valid yet"
	case c.Subject == "" && c.ClientID == "":
		cause, what = CauseMalformed, "it names neither a subject nor a client"
	}
	if what != "" {
		return Claims{}, invalidToken(cause, what)
	}
	return c, nil
}

// invalidToken returns an Error of Kind InvalidToken. cause is one of the Cause constants, what the Problem,
// which must not have any text of the token.
func invalidToken(cause, what string) *Error {
	return &Error{Kind: InvalidToken, Operation: "access token", Cause: cause, Problem: what}
}

// UnverifiedJWT is a token that ReadJWT has read, and of which nothing is known to be true. Its text is not
// printed.
type UnverifiedJWT struct {
	text    string            // the whole token
	header  jwtHeader         // what was read of the first part
	payload []byte            // the decoded second part
	claims  strictjson.Fields // the object in payload
}

// ReadJWT reads a signed JWT, of three parts, without verifying it. InvalidToken: it cannot be read; it has more than
// 16 KiB, "crit", or a name twice in any object; or its algorithm is none of RS, PS, ES (256 to 512) and EdDSA.
func ReadJWT(token string) (UnverifiedJWT, error) {
	h, err := readJWTHeader(token)
	if err != nil {
		return UnverifiedJWT{}, invalidToken(CauseMalformed, err.Error())
	}
	claims, payload, err := decodeJWTSegment(strings.Split(token, ".")[1])
	if err != nil {
		return UnverifiedJWT{}, invalidToken(CauseMalformed, "its claims cannot be read: "+err.Error())
	}
	return UnverifiedJWT{text: token, header: h, payload: payload, claims: claims}, nil
}

// Issuer returns the issuer that the token claims to be of (RFC 7519, 4.1.1): only to choose the JWTVerifier that is to verify it.
// InvalidToken: it names none.
func (t UnverifiedJWT) Issuer() (string, error) {
	if iss := strictjson.NewReader(t.claims).Text("iss"); iss != "" {
		return iss, nil
	}
	return "", invalidToken(CauseIssuer, "it does not say who issued it")
}

// String returns text that does not show the token.
func (t UnverifiedJWT) String() string { return "[token]" }

// GoString returns what String does.
func (t UnverifiedJWT) GoString() string { return t.String() }

// A jwtHeader is what is read of a token's header before its signature is known to be valid.
type jwtHeader struct {
	alg    string            // the signature algorithm: one of signatureAlgorithms
	kid    string            // the name of the key; "": it names none
	typ    string            // the media type; "": it names none
	fields strictjson.Fields // the whole header
}

// readJWTHeader reads the header of a signed JWT. It refuses more than 16 KiB, critical extensions, and
// algorithms that are not allowed. Its errors do not repeat the token.
func readJWTHeader(token string) (jwtHeader, error) {
	if len(token) > maxJWTBytes {
		return jwtHeader{}, errors.New("it is longer than 16 KiB")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return jwtHeader{}, errors.New("it does not have three parts")
	}
	f, _, err := decodeJWTSegment(parts[0])
	if err != nil {
		return jwtHeader{}, errors.New("its header cannot be read")
	}
	r := strictjson.NewReader(f)
	h := jwtHeader{alg: r.Text("alg"), kid: r.Text("kid"), typ: r.Text("typ"), fields: f}
	if r.Err != nil {
		return jwtHeader{}, errors.New("its header cannot be used")
	}
	if _, there := f["crit"]; there { // none of the extensions is known here
		return jwtHeader{}, errors.New("its header has critical extensions")
	}
	for _, a := range signatureAlgorithms {
		if h.alg == string(a) {
			return h, nil
		}
	}
	return jwtHeader{}, errors.New("its algorithm is not allowed")
}

// decodeJWTSegment decodes one part of a JWT: text is its JSON, f the object in it.
func decodeJWTSegment(part string) (f strictjson.Fields, text []byte, err error) {
	text, err = base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil || strings.ContainsAny(part, "\r\n") { // which the decoder skips
		return nil, nil, errors.New("it is not base64url")
	}
	f, err = strictjson.ParseObject(text)
	return f, text, err
}
