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

// checkBinding demands what a token is bound to: a certificate (RFC 8705, 3), a key (RFC 9449, 7).
func (p *Protector) checkBinding(r *http.Request, v *verifiedToken, scheme, token string) *denial {
	if v.x5t != "" && !hasCertificate(r, v.x5t) {
		return &denial{kind: wrongBinding, err: errors.New("the token is bound to another certificate")}
	}
	dpop := scheme == auth.SchemeDPoP
	switch {
	case p.opts.DPoP == DPoPOff && (dpop || v.jkt != ""):
		return &denial{kind: wrongBinding, err: errors.New("the token is bound to a key, and DPoP is off")}
	case p.opts.DPoP == DPoPRequire && v.jkt == "":
		return &denial{kind: invalidToken, dpop: true, err: errors.New("the token is not bound to a key, as it must be")}
	case dpop && v.jkt == "":
		return &denial{kind: invalidToken, err: errors.New("the token is sent with DPoP, and is not bound to a key")}
	case !dpop && v.jkt != "":
		return &denial{kind: wrongBinding, dpop: true, err: errors.New("the token is bound to a key, and is sent without a proof")}
	case !dpop:
		return nil
	}
	proof, err := p.proofs.Verify(r.Header["Dpop"], auth.ExpectedProof{Method: r.Method, URL: p.address(r), AccessToken: token, JKT: v.jkt})
	switch {
	case auth.Is(err, auth.InvalidToken):
		return &denial{kind: invalidProof, dpop: true, err: err}
	case err != nil:
		return &denial{kind: unavailable, dpop: true, err: err}
	// A process before this one may have taken a proof, of which nothing is known here.
	case (p.opts.Nonces || proof.MayPrecede(p.began)) && !p.nonces.valid(proof.Nonce, p.opts.Now()):
		return &denial{kind: nonceNeeded, dpop: true, err: errors.New("the DPoP proof has no nonce of ours, or an old one")}
	}
	return nil
}

// address returns the address that a client has used, as far as it is ours to say: a proxy may have
// taken the path of the public URL out.
func (p *Protector) address(r *http.Request) string {
	path, prefix := r.URL.EscapedPath(), p.table.Load().prefix
	if prefix != "" && strings.HasPrefix(path, prefix+"/") {
		return strings.TrimSuffix(p.opts.PublicURL, prefix) + path
	}
	return p.opts.PublicURL + path
}

// hasCertificate reports whether a request came with the certificate of this sum (RFC 8705, 3.1).
func hasCertificate(r *http.Request, sum string) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	have := sha256.Sum256(r.TLS.PeerCertificates[0].Raw)
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(have[:])), []byte(sum)) == 1
}

// byCertificate returns the Grant of a certificate that the listener has verified, nil if there is none.
func (p *Protector) byCertificate(r *http.Request) *Grant {
	if !p.opts.Certificates || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return nil
	}
	name := access.CertificateName(r.TLS.VerifiedChains[0][0])
	return (&Grant{Principal: name, Unlimited: true}).fillValues(access.Sender{Name: name})
}

// nonces makes nonces for DPoP proofs (RFC 9449, 9) that need not be remembered: a time, and a sum of
// it with a key of this process.
type nonces struct{ key [32]byte }

const nonceLife = 5 * time.Minute // then there is a new one, and the old one is good for as long again

func newNonces() *nonces {
	n := new(nonces)
	_, _ = rand.Read(n.key[:]) // it never fails
	return n
}

func (n *nonces) make(period int64) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(period))
	mac := hmac.New(sha256.New, n.key[:])
	mac.Write(text)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(text)[:24])
}

func (n *nonces) current(now time.Time) string {
	return n.make(now.Unix() / int64(nonceLife/time.Second))
}

func (n *nonces) valid(nonce string, now time.Time) bool {
	period := now.Unix() / int64(nonceLife/time.Second)
	is := func(p int64) int { return subtle.ConstantTimeCompare([]byte(nonce), []byte(n.make(p))) }
	return is(period)|is(period-1) == 1
}
