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
	maxProofBytes              = 8 << 10          // how long a DPoP proof may be
	maxProofIDBytes            = 256              // how long the "jti" of a DPoP proof may be: a client's proof with a longer one is not valid
	maxProofAge                = 60 * time.Second // how old a DPoP proof may be; it may also be from a clock that is ahead by maxClockSkew
	defaultMaxRememberedProofs = 1 << 18          // how many DPoP proofs one window may have; those of two windows are remembered
)

// ProofVerifier verifies the DPoP proofs of requests (RFC 9449, 4.3), and accepts each only once. The zero
// value works. It may be used concurrently, and must not be copied.
type ProofVerifier struct {
	Now                 func() time.Time // the clock; nil: time.Now
	MaxRememberedProofs int              // how many proofs are taken in a window of 90 seconds; 0 or less: 262,144

	mu             sync.Mutex            // guards the fields below
	currentWindow  map[[16]byte]struct{} // hashes of the proofs since windowStart
	previousWindow map[[16]byte]struct{} // hashes of the proofs in the window before
	windowStart    time.Time             // when the current window began
}

// An ExpectedProof is the request that a proof must be for.
type ExpectedProof struct {
	Method      string // the HTTP method: what "htm" must be
	URL         string // the address, as clients know it: what "htu" must be; query and fragment of both are not compared
	AccessToken string // the access token, whose hash "ath" must be; "": the request has none
	JKT         string // thumbprint of the key that the token is bound to; "": any, for the caller to compare
}

// A Proof is what a verified DPoP proof says.
type Proof struct {
	JKT    string    // thumbprint of the key that has signed it
	Nonce  string    // our nonce that it repeats, not checked yet; "": it has none
	Issued time.Time // when the proof was made, by the clock of who made it
}

// MayPrecede reports whether the proof may have been made before t, because the clock of who made it may be ahead by 30 s. A
// ProofVerifier that remembers proofs since t cannot know whether such a proof was used.
func (p Proof) MayPrecede(t time.Time) bool { return !p.Issued.After(t.Add(maxClockSkew)) }

// Verify checks the values of a request's DPoP header (header.Values), of which there must be one. InvalidToken: the proof is missing or not valid, or was
// there before. Unavailable: there are too many proofs to remember another one, so that a replay
// could not be told. To be called when the access token is already known to be valid: only its
// owners can fill the memory then.
func (p *ProofVerifier) Verify(values []string, want ExpectedProof) (Proof, error) {
	invalid := func(what string) (Proof, error) {
		return Proof{}, &Error{Kind: InvalidToken, Operation: "DPoP proof", Problem: what}
	}
	if len(values) != 1 || len(values[0]) > maxProofBytes {
		return invalid("the request needs exactly one DPoP header of at most 8 KiB")
	}
	h, err := readJWTHeader(values[0])
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
	f, err := strictjson.ParseObject(payload)
	if err != nil {
		return invalid("its claims cannot be read")
	}
	r := strictjson.NewReader(f)
	now := time.Now()
	if p.Now != nil {
		now = p.Now()
	}
	id, issued, method, target, hash := r.Text("jti"), r.NumericDate("iat"), r.Text("htm"), r.Text("htu"), r.Text("ath")
	proof := Proof{JKT: key.thumbprint, Nonce: r.Text("nonce"), Issued: issued}
	switch {
	case r.Err != nil:
		return invalid("its claims cannot be used")
	case id == "" || len(id) > maxProofIDBytes:
		return invalid("its jti is missing or too long")
	case method != want.Method:
		return invalid("it is for another method")
	case !isSameTargetURL(target, want.URL):
		return invalid("it is for another address")
	case now.Sub(issued) > maxProofAge || issued.Sub(now) > maxClockSkew:
		return invalid("it is too old, or from a clock that is ahead")
	case want.AccessToken != "" && subtle.ConstantTimeCompare([]byte(hash), []byte(tokenHash(want.AccessToken))) != 1:
		return invalid("it is for another access token")
	case want.JKT != "" && key.thumbprint != want.JKT:
		return invalid("the token is bound to another key")
	}
	if err := p.rejectReplay(key.thumbprint, id, now); err != nil {
		return Proof{}, err
	}
	return proof, nil
}

// rejectReplay remembers the proof with this key and "jti", for 90 to 180 seconds. InvalidToken: it is
// remembered already. Unavailable: there are too many to remember another one.
func (p *ProofVerifier) rejectReplay(key, id string, now time.Time) error {
	sum := sha256.Sum256([]byte(key + " " + id)) // a thumbprint has no space
	hash := [16]byte(sum[:16])
	limit := p.MaxRememberedProofs
	if limit <= 0 {
		limit = defaultMaxRememberedProofs
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A clock that was set back makes what is noted useless: those proofs are from a clock that is ahead.
	if d := now.Sub(p.windowStart); p.currentWindow == nil || d > maxProofAge+maxClockSkew || d < -(maxProofAge+maxClockSkew) {
		p.previousWindow, p.currentWindow, p.windowStart = p.currentWindow, map[[16]byte]struct{}{}, now
	}
	_, here := p.currentWindow[hash]
	if _, before := p.previousWindow[hash]; here || before {
		return &Error{Kind: InvalidToken, Operation: "DPoP proof", Problem: "it was used before"}
	}
	if len(p.currentWindow) >= limit {
		return &Error{Kind: Unavailable, Operation: "DPoP proof", Problem: "there are more proofs than can be remembered", RetryAfter: maxProofAge}
	}
	p.currentWindow[hash] = struct{}{}
	return nil
}

// isSameTargetURL reports whether "htu" is the address of a request: scheme, host and port as URLs are
// compared, the path as it is written (RFC 9449, 4.3).
func isSameTargetURL(htu, addr string) bool {
	a, err := url.Parse(htu)
	b, err2 := url.Parse(addr)
	if err != nil || err2 != nil || a.Host == "" || a.User != nil || !isSameOrigin(a, b) {
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
