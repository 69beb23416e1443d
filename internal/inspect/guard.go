package inspect

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
)

// Right is what somebody may do over the API. Each right includes the smaller ones.
type Right uint8

const (
	RightNone Right = iota // the right to nothing
	RightView              // the right to see everything
	RightAct               // the right to act: end sessions and processes, cancel calls, restart servers, change the level of the log, take profiles
)

// String returns "none", "view" or "act".
func (r Right) String() string { return [...]string{"none", "view", "act"}[r] }

// Tokens are the tokens that requests of the API may have, and say who bears each of them and what they may do. They may be used concurrently.
type Tokens struct {
	all []token // the hashes of the tokens, each with who bears it
}

// token is one of the Tokens, with which a request may use the API: its hash (its text is not kept), who bears it, and what they may do.
type token struct {
	hash [sha256.Size]byte // the SHA-256 of the token
	caller
}

// minTokenBytes is how many bytes each token in a file of tokens must have at least.
const minTokenBytes = 16

// NewToken returns Tokens with one new, random token of 256 bits, which has the right to everything. text is the token.
func NewToken() (t *Tokens, text string) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	text = base64.RawURLEncoding.EncodeToString(random[:])
	return &Tokens{[]token{{sha256.Sum256([]byte(text)), caller{"the token of the URL", RightAct}}}}, text
}

// LoadTokens reads a file of tokens: "view TOKEN" or "act TOKEN" a line, a name for the log
// behind it if wanted. Lines that are blank or begin with # do not count.
func LoadTokens(file string) (*Tokens, error) {
	text, err := access.ReadSecret(file)
	if err != nil {
		return nil, err
	}
	t := &Tokens{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		right, known := map[string]Right{"view": RightView, "act": RightAct}[words[0]]
		switch {
		case !known || len(words) < 2 || len(words) > 3:
			return nil, fmt.Errorf("%s, line %d: write \"view TOKEN\" or \"act TOKEN\", and a name behind it if wanted", file, n)
		case len(words[1]) < minTokenBytes:
			return nil, fmt.Errorf("%s, line %d: a token has at least %d characters", file, n, minTokenBytes)
		}
		name := fmt.Sprintf("line %d of the token file", n)
		if len(words) == 3 {
			name = words[2]
		}
		t.all = append(t.all, token{sha256.Sum256([]byte(words[1])), caller{name, right}})
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(t.all) == 0 {
		return nil, fmt.Errorf("%s has no token in it", file)
	}
	return t, nil
}

// callerOf returns who bears the token text; the zero value, without any right, if it is not one of t.
func (t *Tokens) callerOf(text string) (by caller) {
	hash := sha256.Sum256([]byte(text))
	for _, k := range t.all {
		if subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1 {
			by = k.caller
		}
	}
	return by
}

// guard decides which requests of one listener are answered.
type guard struct {
	tokens       *Tokens // the tokens that requests need; nil: whoever can connect may do everything
	loopbackOnly bool    // the listener is bound to this machine: requests whose Host is another are refused
}

// refusal is the answer to a request that is refused.
type refusal struct {
	status int    // the HTTP status
	text   string // why it is refused
}

// check returns a refusal for a request that a web page of another origin has sent, whether or not it has a token; nil: the request may pass. Such a
// page must not even learn that we are here, nor may one whose host name has come to mean this machine (DNS rebinding): with loopbackOnly, a
// request whose Host is not this machine is refused, too. On the control socket, which no page can reach, every request passes.
func (g *guard) check(r *http.Request) *refusal {
	if g.tokens == nil {
		return nil // a socket that no page can reach
	}
	if g.loopbackOnly && !access.IsLoopbackAddr(r.Host) {
		return &refusal{http.StatusForbidden, "this host name is not served here"}
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != ownOrigin(r) {
		return &refusal{http.StatusForbidden, "not for pages of other origins"}
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); {
	case site == "" || site == "same-origin":
	case site == "none" && r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/api/"): // typed, or a bookmark
	default:
		return &refusal{http.StatusForbidden, "not for pages of other origins"}
	}
	return nil
}

// caller is who has sent a request to the API.
type caller struct {
	name  string // what the log calls them
	right Right  // what they may do
}

// authorize returns who has sent a request to the API, if they have the right that it needs. Otherwise refused says why not.
func (g *guard) authorize(r *http.Request, needed Right) (by caller, refused *refusal) {
	if g.tokens == nil {
		return caller{"the control socket", RightAct}, nil
	}
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") || strings.TrimSpace(text) == "" {
		return caller{}, &refusal{http.StatusUnauthorized, "the token is missing"}
	}
	by = g.tokens.callerOf(strings.TrimSpace(text))
	switch {
	case by.right == RightNone:
		return caller{}, &refusal{http.StatusUnauthorized, "the token is not known"}
	case by.right < needed:
		return caller{}, &refusal{http.StatusForbidden, "the token may only view"}
	}
	return by, nil
}

// write answers a request with the refusal.
func (no *refusal) write(w http.ResponseWriter) {
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="mcp-bridge inspect"`)
	}
	http.Error(w, no.text, no.status)
}

// ownOrigin returns the origin that our own page has at the host that the request names.
func ownOrigin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}
