package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/mcp-bridge/mcp-bridge/internal/strictjson"
)

// Bounds of DPoP proofs.
const (
	maxProof    = 8 << 10
	maxProofID  = 256
	proofWindow = 60 * time.Second // how old a proof may be; it may be ahead by the skew
	maxProofs   = 1 << 18          // that are remembered, twice
)

// Proofs verifies the DPoP proofs of requests (RFC 9449, 4.3), each once. The zero value works. It
// may be used concurrently, and must not be copied.
type Proofs struct {
	Now func() time.Time // nil: time.Now
	Max int              // proofs that are remembered in 90 seconds; 0: 262,144

	mu      sync.Mutex
	current map[[16]byte]struct{} // since "since"
	last    map[[16]byte]struct{} // in the window before
	since   time.Time
}

// A ProofRequest is the request that a proof must be for.
type ProofRequest struct {
	Method string // "htm"
	URL    string // "htu", as clients know it; without regard to its query and fragment
	Access string // the access token, for "ath"; "": the request has none
	JKT    string // thumbprint of the key that the token is bound to; "": any, for the caller to compare
}

// Verify checks the values of a request's DPoP header (header.Values), of which there must be one,
// and returns the thumbprint of its key. InvalidToken: the proof is missing or not valid, or was
// there before. Unavailable: there are too many proofs to remember another one, so that a replay
// could not be told. To be called when the access token is already known to be valid: only its
// owners can fill the memory then.
func (p *Proofs) Verify(values []string, want ProofRequest) (jkt string, err error) {
	invalid := func(what string) (string, error) {
		return "", &Error{Kind: InvalidToken, Doing: "DPoP proof", What: what}
	}
	if len(values) != 1 || len(values[0]) > maxProof {
		return invalid("the request needs exactly one DPoP header of at most 8 KiB")
	}
	h, err := readHeader(values[0])
	if err != nil {
		return invalid(err.Error())
	}
	if h.typ != "dpop+jwt" {
		return invalid("its typ is not dpop+jwt")
	}
	key, err := parseKey(h.fields["jwk"])
	if err != nil {
		return invalid("its header has no public key that can be used")
	}
	jws, err := jose.ParseSignedCompact(values[0], []jose.SignatureAlgorithm{jose.SignatureAlgorithm(h.alg)})
	if err != nil || !slices.Contains(key.algs, h.alg) {
		return invalid("its algorithm does not fit its key")
	}
	payload, err := jws.Verify(&key.jwk)
	if err != nil {
		return invalid("its signature is not valid")
	}
	f, err := strictjson.Object(payload)
	if err != nil {
		return invalid("its claims cannot be read")
	}
	r := strictjson.Read(f)
	now := time.Now()
	if p.Now != nil {
		now = p.Now()
	}
	id, issued, method, target, hash := r.Text("jti"), r.Instant("iat"), r.Text("htm"), r.Text("htu"), r.Text("ath")
	switch {
	case r.Err != nil:
		return invalid("its claims cannot be used")
	case id == "" || len(id) > maxProofID:
		return invalid("its jti is missing or too long")
	case method != want.Method:
		return invalid("it is for another method")
	case !sameTarget(target, want.URL):
		return invalid("it is for another address")
	case now.Sub(issued) > proofWindow || issued.Sub(now) > skew:
		return invalid("it is too old, or from a clock that is ahead")
	case want.Access != "" && subtle.ConstantTimeCompare([]byte(hash), []byte(tokenHash(want.Access))) != 1:
		return invalid("it is for another access token")
	case want.JKT != "" && key.id != want.JKT:
		return invalid("the token is bound to another key")
	}
	if err := p.remember(key.id, id, now); err != nil {
		return "", err
	}
	return key.id, nil
}

// remember notes a proof, which must be new. What is noted stays for one to two times as long as a
// proof can be valid.
func (p *Proofs) remember(key, id string, now time.Time) error {
	sum := sha256.Sum256([]byte(key + " " + id)) // a thumbprint has no space
	short := [16]byte(sum[:16])
	most := p.Max
	if most <= 0 {
		most = maxProofs
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A clock that was set back makes what is noted useless: those proofs are from a clock that is ahead.
	if d := now.Sub(p.since); p.current == nil || d > proofWindow+skew || d < -(proofWindow+skew) {
		p.last, p.current, p.since = p.current, map[[16]byte]struct{}{}, now
	}
	_, here := p.current[short]
	if _, before := p.last[short]; here || before {
		return &Error{Kind: InvalidToken, Doing: "DPoP proof", What: "it was used before"}
	}
	if len(p.current) >= most {
		return &Error{Kind: Unavailable, Doing: "DPoP proof", What: "there are more proofs than can be remembered", RetryAfter: proofWindow}
	}
	p.current[short] = struct{}{}
	return nil
}

// sameTarget compares "htu" with the address of a request: scheme, host and port as URLs are
// compared, the path as it is written (RFC 9449, 4.3).
func sameTarget(htu, addr string) bool {
	a, err := url.Parse(htu)
	b, err2 := url.Parse(addr)
	if err != nil || err2 != nil || a.Host == "" || a.User != nil || !sameOrigin(a, b) {
		return false
	}
	path := func(u *url.URL) string {
		if p := u.EscapedPath(); p != "" {
			return p
		}
		return "/"
	}
	return path(a) == path(b)
}
