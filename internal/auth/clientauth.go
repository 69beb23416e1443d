package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The methods by which a client authenticates at an endpoint (RFC 8414, 2; RFC 6749, 2.3; RFC 7523, 2.2).
const (
	ClientSecretBasic = "client_secret_basic" // a secret, in the header Authorization
	ClientSecretPost  = "client_secret_post"  // a secret, in the form
	ClientAuthNone    = "none"                // only the client id: a public client
	PrivateKeyJWT     = "private_key_jwt"     // an assertion that the client signs with its key
)

// A Client is who we are to an authorization server (RFC 6749, 2). It belongs to the issuer that
// knows it, except if its ID is the address of its metadata document.
type Client struct {
	ID         string           // its client_id
	Secret     string           // the client's secret; "": a public client, or one with a key
	Key        *AssertionSigner // signs for PrivateKeyJWT; nil: there is no key
	AuthMethod string           // how it authenticates at the token endpoint: ClientSecretBasic, ClientSecretPost, ClientAuthNone or PrivateKeyJWT; "": chosen by what the client has, and the server's metadata lists
}

// chooseAuthMethod returns the method by which the client authenticates at a server: AuthMethod, or else one
// that fits what the client has (a key before a secret) and what the server lists. A server that lists
// nothing takes ClientSecretBasic (RFC 8414, 2), and a key if the client has one. A client with neither gets
// ClientAuthNone, whatever the server lists. The error says why there is no method.
func (c Client) chooseAuthMethod(server ServerMetadata) (string, error) {
	listed := func(m string) bool { return slices.Contains(server.AuthMethods, m) }
	switch {
	case c.AuthMethod == PrivateKeyJWT && c.Key == nil:
		return "", errors.New("the client is to authenticate with a key, and has none")
	case (c.AuthMethod == ClientSecretBasic || c.AuthMethod == ClientSecretPost) && c.Secret == "":
		return "", errors.New("the client is to authenticate with a secret, and has none")
	case slices.Contains([]string{PrivateKeyJWT, ClientSecretBasic, ClientSecretPost, ClientAuthNone}, c.AuthMethod):
		return c.AuthMethod, nil
	case c.AuthMethod != "":
		return "", fmt.Errorf("the authentication method %.40q is not supported here", c.AuthMethod)
	case c.Key != nil && (len(server.AuthMethods) == 0 || listed(PrivateKeyJWT)):
		return PrivateKeyJWT, nil
	case c.Key != nil:
		return "", fmt.Errorf("the client has a key, and the server takes only %.200q", server.AuthMethods)
	case c.Secret == "":
		return ClientAuthNone, nil
	case len(server.AuthMethods) == 0 || listed(ClientSecretBasic):
		return ClientSecretBasic, nil
	case listed(ClientSecretPost):
		return ClientSecretPost, nil
	}
	return "", fmt.Errorf("the client has a secret, and the server takes only %.200q", server.AuthMethods)
}

// authenticate adds what proves who the client is to a request: to its header or to its form. now is when an
// assertion is issued.
func (c Client) authenticate(server ServerMetadata, now time.Time, header http.Header, form url.Values) error {
	if c.ID == "" {
		return errors.New("the client has no id")
	}
	method, err := c.chooseAuthMethod(server)
	if err != nil {
		return err
	}
	switch method {
	case ClientSecretBasic: // RFC 6749, 2.3.1: both parts are encoded as in a form first
		pair := url.QueryEscape(c.ID) + ":" + url.QueryEscape(c.Secret)
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(pair)))
		return nil
	case ClientSecretPost:
		form.Set("client_secret", c.Secret)
	case PrivateKeyJWT:
		assertion, err := c.Key.signAssertion(c.ID, server.Issuer, now)
		if err != nil {
			return err
		}
		form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		form.Set("client_assertion", assertion)
	}
	form.Set("client_id", c.ID)
	return nil
}

// An AssertionSigner signs client assertions (RFC 7523, 3). It may be used concurrently.
type AssertionSigner struct {
	signer jose.Signer // has the client's private key
}

// ParsePrivateKey reads a private key in PEM (RFC 7468, 10): PKCS #8, PKCS #1 or SEC 1, without a
// password. No error repeats what it has read.
func ParsePrivateKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("the private key is protected by a password")
		default:
			continue
		}
		if s, ok := key.(crypto.Signer); ok && err == nil {
			return s, nil
		}
		return nil, fmt.Errorf("the PEM block %q is not a private key that can be used", block.Type)
	}
	return nil, errors.New("there is no private key in PEM")
}

// NewAssertionSigner returns an AssertionSigner with an RSA (2048 to 8192 bits), P-256, P-384, P-521 or
// Ed25519 key. alg is an algorithm of RFC 7518, 3.1, that fits the key; "": one is chosen. kid is the key's
// name in the client's key set; "": it has none.
func NewAssertionSigner(key crypto.Signer, alg, kid string) (*AssertionSigner, error) {
	fit := signatureAlgorithmsFor(key.Public())
	if len(fit) == 0 {
		return nil, errors.New("a key of this kind or size cannot sign client assertions")
	}
	if alg == "" {
		alg = fit[0]
	}
	if !slices.Contains(fit, alg) {
		return nil, fmt.Errorf("the key cannot sign with %.20q; it can with %s", alg, strings.Join(fit, ", "))
	}
	opts := (&jose.SignerOptions{}).WithType("JWT")
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(alg), Key: jose.JSONWebKey{Key: key, KeyID: kid}}, opts)
	if err != nil {
		return nil, err
	}
	return &AssertionSigner{s}, nil
}

// signatureAlgorithmsFor returns the algorithms of signatures that a public key verifies, the preferred one first; nil: it
// is too weak, too large, or of a kind that is not supported.
func signatureAlgorithmsFor(key crypto.PublicKey) []string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n >= minRSABits && n <= maxRSABits {
			return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
		}
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []string{"ES256"}
		case elliptic.P384():
			return []string{"ES384"}
		case elliptic.P521():
			return []string{"ES512"}
		}
	case ed25519.PublicKey:
		return []string{"EdDSA"}
	}
	return nil
}

// Bits of an RSA key: fewer are too weak, and more take too long to verify with.
const (
	minRSABits = 2048 // an RSA key with fewer bits is too weak
	maxRSABits = 8192 // an RSA key with more bits takes too long to verify with
)

// assertionLifetime is how long a client assertion is valid: long enough for clocks that differ a little.
const assertionLifetime = 2 * time.Minute

// signAssertion returns a client assertion: its audience is the issuer, and each has its own jti.
func (s *AssertionSigner) signAssertion(client, issuer string, now time.Time) (string, error) {
	if issuer == "" {
		return "", errors.New("the issuer is not known, which a client assertion must name")
	}
	return signClaims(s.signer, map[string]any{
		"iss": client, "sub": client, "aud": issuer, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(assertionLifetime).Unix(),
	})
}

// signClaims returns claims as a signed JWT.
func signClaims(s jose.Signer, claims map[string]any) (string, error) {
	text, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := s.Sign(text)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
