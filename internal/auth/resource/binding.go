package resource

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// checkBinding returns why a request may not use the token: it does not show the certificate (RFC 8705, 3) or the key
// (RFC 9449, 7) that the token is bound to, or DPoP demands otherwise. nil: it may. scheme is the one that the token
// came with.
func (p *Protector) checkBinding(r *http.Request, v *verifiedToken, scheme, token string) *denial {
	if v.x5t != "" && !hasCertificate(r, v.x5t) {
		return &denial{reason: wrongBinding, err: errors.New("the token is bound to another certificate")}
	}
	dpop := scheme == auth.SchemeDPoP
	switch {
	case p.options.DPoP == DPoPOff && (dpop || v.jkt != ""):
		return &denial{reason: wrongBinding, err: errors.New("the token is bound to a key, and DPoP is off")}
	case p.options.DPoP == DPoPRequire && v.jkt == "":
		return &denial{reason: invalidToken, asksForDPoP: true, err: errors.New("the token is not bound to a key, as it must be")}
	case dpop && v.jkt == "":
		return &denial{reason: invalidToken, err: errors.New("the token is sent with DPoP, and is not bound to a key")}
	case !dpop && v.jkt != "":
		return &denial{reason: wrongBinding, asksForDPoP: true, err: errors.New("the token is bound to a key, and is sent without a proof")}
	case !dpop:
		return nil
	}
	proof, err := p.proofVerifier.Verify(r.Header["Dpop"], auth.ExpectedProof{Method: r.Method, URL: p.requestURL(r), AccessToken: token, JKT: v.jkt})
	switch {
	case auth.Is(err, auth.InvalidToken):
		return &denial{reason: invalidProof, asksForDPoP: true, err: err}
	case err != nil:
		return &denial{reason: unavailable, asksForDPoP: true, err: err}
	// A process before this one may have taken a proof, of which nothing is known here.
	case (p.options.RequiresNonces || proof.MayPrecede(p.startedAt)) && !p.nonceMaker.isValid(proof.Nonce, p.options.Now()):
		return &denial{reason: nonceNeeded, asksForDPoP: true, err: errors.New("the DPoP proof has no nonce of ours, or an old one")}
	}
	return nil
}

// requestURL returns the address that the client has used: the public URL with the path of r, in which a proxy may have
// left the path of the public URL or not.
func (p *Protector) requestURL(r *http.Request) string {
	path, prefix := r.URL.EscapedPath(), p.routes.Load().publicPath
	if prefix != "" && strings.HasPrefix(path, prefix+"/") {
		return strings.TrimSuffix(p.options.PublicURL, prefix) + path
	}
	return p.options.PublicURL + path
}

// hasCertificate reports whether a request came with the client certificate that has this SHA-256 sum in base64url
// (x5t#S256; RFC 8705, 3.1).
func hasCertificate(r *http.Request, sum string) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	have := sha256.Sum256(r.TLS.PeerCertificates[0].Raw)
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(have[:])), []byte(sum)) == 1
}

// certificateGrant returns the Grant of a client certificate that the listener has verified; nil: there is none, or
// certificates are not accepted.
func (p *Protector) certificateGrant(r *http.Request) *Grant {
	if !p.options.AcceptsCertificates || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return nil
	}
	name := access.CertificateName(r.TLS.VerifiedChains[0][0])
	return (&Grant{Principal: name, HasAllScopes: true}).fillContextValues(access.Sender{Name: name})
}

// A nonceMaker makes nonces for DPoP proofs (RFC 9449, 9) that need not be remembered: a time, and a sum of it with a
// key of this process.
type nonceMaker struct {
	key [32]byte // the random key of the HMAC sums in nonces
}

const nonceLifetime = 5 * time.Minute // how long a nonce is the current one; it is accepted for as long again

// newNonceMaker returns a nonceMaker with a new key.
func newNonceMaker() *nonceMaker {
	n := new(nonceMaker)
	_, _ = rand.Read(n.key[:]) // it never fails
	return n
}

// nonceOfPeriod returns the nonce of a period, a time of nonceLifetime; periods are numbered from the beginning of Unix
// time.
func (n *nonceMaker) nonceOfPeriod(period int64) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(period))
	mac := hmac.New(sha256.New, n.key[:])
	mac.Write(text)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(text)[:24])
}

// currentNonce returns the nonce that clients are given now.
func (n *nonceMaker) currentNonce(now time.Time) string {
	return n.nonceOfPeriod(now.Unix() / int64(nonceLifetime/time.Second))
}

// isValid reports whether a nonce is that of the current period, or of the one before.
func (n *nonceMaker) isValid(nonce string, now time.Time) bool {
	period := now.Unix() / int64(nonceLifetime/time.Second)
	is := func(p int64) int { return subtle.ConstantTimeCompare([]byte(nonce), []byte(n.nonceOfPeriod(p))) }
	return is(period)|is(period-1) == 1
}
