package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// NewDPoPKey returns a new key for DPoP proofs with ES256 (RFC 9449, 4.2).
func NewDPoPKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// A Prover makes DPoP proofs with ES256 (RFC 9449, 4), and remembers the nonces of the servers.
// It may be used concurrently.
type Prover struct {
	signer     jose.Signer      // signs the DPoP proofs with the key, and puts the public key into each of them
	thumbprint string           // the thumbprint of the key: "jkt" of tokens that are bound to it
	now        func() time.Time // the clock of proofs

	mu     sync.Mutex        // guards nonces
	nonces map[string]string // the last nonce of each server, by its origin (originOf), of at most maxNonces
}

// maxNonces is how many origins' nonces a Prover keeps.
const maxNonces = 64

// NewProver returns a Prover for a P-256 key. now is the clock; nil: time.Now.
func NewProver(key *ecdsa.PrivateKey, now func() time.Time) (*Prover, error) {
	if key == nil || key.Curve != elliptic.P256() {
		return nil, errors.New("a DPoP key must be of P-256")
	}
	opts := (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, opts)
	if err != nil {
		return nil, err
	}
	thumbprint, err := thumbprintOf(&jose.JSONWebKey{Key: key.Public()})
	if err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	return &Prover{signer: signer, thumbprint: thumbprint, now: now, nonces: map[string]string{}}, nil
}

// thumbprintOf returns the SHA-256 thumbprint of a key (RFC 7638) in base64url, as "jkt" has it.
func thumbprintOf(key *jose.JSONWebKey) (string, error) {
	sum, err := key.Thumbprint(crypto.SHA256)
	return base64.RawURLEncoding.EncodeToString(sum), err
}

// Thumbprint returns the key's thumbprint: the "jkt" of tokens that are bound to it (RFC 9449, 6.1).
func (p *Prover) Thumbprint() string { return p.thumbprint }

// Proof returns a new proof for one attempt of one request (RFC 9449, 4.2) to addr, with the nonce that its
// origin has given last. access is the access token that goes with it; "": none.
func (p *Prover) Proof(method, addr, access string) (string, error) {
	proof, _, err := p.proofWithNonce(method, addr, access)
	return proof, err
}

// proofWithNonce returns what Proof returns, and the nonce in the proof; "": it has none.
func (p *Prover) proofWithNonce(method, addr, access string) (proof, nonce string, err error) {
	target, _, _ := strings.Cut(addr, "#")
	target, _, _ = strings.Cut(target, "?")
	claims := map[string]any{"jti": rand.Text(), "htm": method, "htu": target, "iat": p.now().Unix()}
	if access != "" {
		claims["ath"] = tokenHash(access)
	}
	if nonce = p.nonce(addr); nonce != "" {
		claims["nonce"] = nonce
	}
	proof, err = signClaims(p.signer, claims)
	return proof, nonce, err
}

// tokenHash returns the hash of an access token that a proof has as "ath" (RFC 9449, 4.2).
func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// LearnNonce takes the nonce of an answer from addr, if it has one that may be used (RFC 9449, 8 and 9):
// the next proof for that origin has it. It reports whether the nonce is new: a request that was refused
// with use_dpop_nonce is worth one more attempt then.
func (p *Prover) LearnNonce(addr string, answer http.Header) bool {
	values := answer.Values("DPoP-Nonce")
	if len(values) != 1 || values[0] == "" || len(values[0]) > 1024 || strings.ContainsFunc(values[0], func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	origin := originOf(addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nonces[origin] == values[0] {
		return false
	}
	if _, known := p.nonces[origin]; !known && len(p.nonces) >= maxNonces {
		for other := range p.nonces { // any: whoever it was gives a new one when asked without
			delete(p.nonces, other)
			break
		}
	}
	p.nonces[origin] = values[0]
	return true
}

// nonce returns the nonce that the origin of addr has given last; "": none.
func (p *Prover) nonce(addr string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nonces[originOf(addr)]
}

// originOf returns scheme, host and port of an address as one text, the key of Prover.nonces; addr itself if
// it is no URL.
func originOf(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return addr
	}
	return strings.ToLower(u.Scheme+"://"+u.Hostname()) + ":" + portOf(u)
}
