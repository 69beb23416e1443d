package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// Claims is what an access token says (RFC 9068, 2.2; RFC 7662, 2.2).
type Claims struct {
	Issuer        string    // "iss"; "": the introspection endpoint does not say
	Subject       string    // "sub": the user, or the client where no user is involved; "": it does not say
	ClientID      string    // "client_id", or "azp" where that is missing; "": it has neither
	Audience      []string  // "aud": whom the token is for; in the token it may be a string; nil: it does not say
	Scopes        []string  // the scopes of "scope" and "scp" together, each a string or an array
	Expires       time.Time // "exp"; zero: it does not say
	NotBefore     time.Time // "nbf": not valid before; zero: from the beginning
	JKT           string    // thumbprint of the DPoP key that the token is bound to (RFC 9449, 6); "": none. The request needs a proof with that key
	X5T           string    // x5t#S256 of the certificate that the token is bound to (RFC 8705, 3.1); "": none. The request needs that certificate
	KeyThumbprint string    // thumbprint of the key that signed it, for KeySet.Has; "" of an introspected token
}

// DescribeWrongAudience returns words for the log: the audience that a valid token has, and which ones would
// be accepted.
func DescribeWrongAudience(token, accepted []string) string {
	return fmt.Sprintf("another audience, %.200q; accepted is %.200q", token, accepted)
}

// IsFor reports whether a token is for one of these audiences, byte for byte.
func (c Claims) IsFor(audiences []string) bool {
	return slices.ContainsFunc(c.Audience, func(a string) bool { return a != "" && slices.Contains(audiences, a) })
}

// readClaims reads the claims of a token, or of the answer of introspection, whose origin is already certain.
// It checks their types only.
func readClaims(f strictjson.Fields) (Claims, error) {
	r := strictjson.NewReader(f)
	c := Claims{
		Issuer: r.Text("iss"), Subject: r.Text("sub"), ClientID: r.Text("client_id"),
		Audience: r.TextOrArray("aud"), Expires: r.NumericDate("exp"), NotBefore: r.NumericDate("nbf"),
	}
	r.Text("jti")
	r.NumericDate("iat") // nobody needs these two, but a token in which they have another type is none of RFC 9068
	if azp := r.Text("azp"); c.ClientID == "" {
		c.ClientID = azp
	}
	for _, name := range []string{"scope", "scp"} {
		for _, s := range r.TextOrArray(name) {
			c.Scopes = UnionScope(c.Scopes, SplitScope(s))
		}
	}
	if r.Err != nil {
		return Claims{}, r.Err
	}
	if f.Has("cnf") {
		if err := c.readBinding(f["cnf"]); err != nil {
			return Claims{}, err
		}
	}
	return c, nil
}

// ErrUnsupportedBinding is the error for a token whose "cnf" binds it to something else than a DPoP key or a
// certificate, or does not say to what.
var ErrUnsupportedBinding = errors.New("what the token is bound to is not supported")

// readBinding reads which key or certificate a token is bound to ("cnf") into JKT and X5T. Any other member of "cnf", or
// none, is ErrUnsupportedBinding: the bridge could not demand that key, and a stolen token would be accepted.
func (c *Claims) readBinding(cnf json.RawMessage) error {
	f, err := strictjson.ParseObject(cnf)
	if err != nil {
		return fmt.Errorf(`"cnf": %w`, err)
	}
	r := strictjson.NewReader(f)
	for name := range f {
		switch name {
		case "jkt":
			c.JKT = r.Text(name)
		case "x5t#S256":
			c.X5T = r.Text(name)
		default:
			return fmt.Errorf("%w: %.40q", ErrUnsupportedBinding, name)
		}
	}
	if r.Err == nil && c.JKT == "" && c.X5T == "" {
		return fmt.Errorf(`%w: "cnf" does not say to which key`, ErrUnsupportedBinding)
	}
	return r.Err
}
