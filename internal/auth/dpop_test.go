package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const testTarget = "https://h/mcp"

func TestProofAndItsVerification(t *testing.T) {
	t.Parallel()
	clock := &testClock{}
	prover, err := NewProver(newKey(t, elliptic.P256()), clock.now)
	if err != nil {
		t.Fatal(err)
	}
	proofs := &ProofVerifier{Now: clock.now}
	proof, err := prover.Proof("POST", testTarget+"?q=1#f", "t1")
	if err != nil {
		t.Fatal(err)
	}
	want := ExpectedProof{Method: "POST", URL: "https://H:443/mcp?other", AccessToken: "t1", JKT: prover.Thumbprint()}
	if got, err := proofs.Verify([]string{proof}, want); err != nil || got.JKT != prover.Thumbprint() {
		t.Fatalf("%+v, %v", got, err)
	}
	_, err = proofs.Verify([]string{proof}, want)
	wantKind(t, err, InvalidToken) // a second time
	if second, err := prover.Proof("POST", testTarget, "t1"); err != nil || second == proof {
		t.Errorf("the second proof is the first: %v", err)
	}
	if _, err := NewProver(newKey(t, elliptic.P384()), nil); err == nil {
		t.Error("a P-384 key is taken")
	}
}

// badProof returns a proof with other header fields and claims than a good one has.
func badProof(t *testing.T, key *ecdsa.PrivateKey, header, change map[string]any) string {
	t.Helper()
	public, err := json.Marshal(jose.JSONWebKey{Key: key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	h := map[string]any{"alg": "ES256", "typ": "dpop+jwt", "jwk": json.RawMessage(public)}
	c := map[string]any{"jti": "j1", "htm": "POST", "htu": testTarget, "iat": start.Unix(), "ath": tokenHash("t1")}
	maps.Copy(h, header)
	maps.Copy(c, change)
	for _, m := range []map[string]any{h, c} {
		maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	}
	a, _ := json.Marshal(h)
	b, _ := json.Marshal(c)
	return signES256(t, key, string(a), string(b))
}

func TestBadProofs(t *testing.T) {
	t.Parallel()
	key, other := newKey(t, elliptic.P256()), newKey(t, elliptic.P256())
	private := json.RawMessage(keyJSON(t, key))
	jkt, err := thumbprintOf(&jose.JSONWebKey{Key: key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	verify := func(jkt string, proofs ...string) error {
		_, err := (&ProofVerifier{Now: func() time.Time { return start }}).Verify(proofs, ExpectedProof{Method: "POST", URL: testTarget, AccessToken: "t1", JKT: jkt})
		return err
	}
	good := badProof(t, key, nil, nil)
	if err := verify(jkt, good); err != nil {
		t.Fatalf("the good one: %v", err)
	}
	type m = map[string]any
	for name, test := range map[string]struct{ header, change m }{
		"typ":             {m{"typ": "JWT"}, nil},
		"no typ":          {m{"typ": nil}, nil},
		"none":            {m{"alg": "none"}, nil},
		"symmetric":       {m{"alg": "HS256"}, nil},
		"other algorithm": {m{"alg": "ES384"}, nil},
		"no key":          {m{"jwk": nil}, nil},
		"private key":     {m{"jwk": private}, nil},
		"other key":       {m{"jwk": json.RawMessage(keyJSON(t, other.Public()))}, nil},
		"crit":            {m{"crit": []string{"x"}}, nil},
		"method":          {nil, m{"htm": "GET"}},
		"method's case":   {nil, m{"htm": "post"}},
		"host":            {nil, m{"htu": "https://evil/mcp"}},
		"path":            {nil, m{"htu": "https://h/mcp/"}},
		"scheme":          {nil, m{"htu": "http://h/mcp"}},
		"no address":      {nil, m{"htu": nil}},
		"too old":         {nil, m{"iat": start.Unix() - 61}},
		"ahead":           {nil, m{"iat": start.Unix() + 31}},
		"no time":         {nil, m{"iat": nil}},
		"time as text":    {nil, m{"iat": "now"}},
		"no id":           {nil, m{"jti": nil}},
		"long id":         {nil, m{"jti": strings.Repeat("x", 257)}},
		"other token":     {nil, m{"ath": tokenHash("t2")}},
		"no token":        {nil, m{"ath": nil}},
		"too long":        {nil, m{"x": strings.Repeat("x", 9<<10)}},
	} {
		if err := verify(jkt, badProof(t, key, test.header, test.change)); !Is(err, InvalidToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, proofs := range map[string][]string{"none": nil, "two": {good, good}, "empty": {""}, "changed": {good[:len(good)-3] + "AAA"}} {
		if err := verify(jkt, proofs...); !Is(err, InvalidToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := verify("another", good); !Is(err, InvalidToken) {
		t.Errorf("bound to another key: %v", err)
	}
	if err := verify("", good); err != nil {
		t.Errorf("any key: %v", err)
	}
}

func TestReplayWindow(t *testing.T) {
	t.Parallel()
	key, clock := newKey(t, elliptic.P256()), &testClock{}
	proofs := &ProofVerifier{Now: clock.now, MaxRememberedProofs: 3}
	use := func(id string, at time.Time) error {
		proof := badProof(t, key, nil, map[string]any{"jti": id, "iat": at.Unix(), "ath": nil})
		_, err := proofs.Verify([]string{proof}, ExpectedProof{Method: "POST", URL: testTarget})
		return err
	}
	ahead := start.Add(maxClockSkew) // the one that stays valid for longest
	if err := use("j0", ahead); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		clock.add(45 * time.Second)
		wantKind(t, use("j0", ahead), InvalidToken)
	}
	late := clock.now().Add(maxClockSkew)
	if err := use("j9", late); err != nil { // at the end of the window of j0
		t.Fatal(err)
	}
	for range 2 {
		clock.add(45 * time.Second)
		wantKind(t, use("j9", late), InvalidToken)
	}
	clock.add(91 * time.Second) // nobody takes them any more, and they need not be known
	for i := range 3 {
		if err := use(fmt.Sprint("j", i+1), clock.now()); err != nil {
			t.Errorf("proof %d: %v", i, err)
		}
	}
	wantKind(t, use("j4", clock.now()), Unavailable)
	wantKind(t, use("j1", clock.now()), InvalidToken)
	clock.add(91 * time.Second)
	if err := use("j4", clock.now()); err != nil {
		t.Errorf("after the window: %v", err)
	}
	clock.add(-24 * time.Hour)
	for i := range 3 { // what is remembered of a day ahead takes no room
		if err := use(fmt.Sprint("j", i+5), clock.now()); err != nil {
			t.Errorf("after the clock was set back: %v", err)
		}
	}
}

func TestNoncesByOrigin(t *testing.T) {
	t.Parallel()
	p, err := NewProver(newKey(t, elliptic.P256()), nil)
	if err != nil {
		t.Fatal(err)
	}
	says := func(values ...string) http.Header { return http.Header{"Dpop-Nonce": values} }
	nonce := func(addr string) any {
		proof, err := p.Proof("GET", addr, "")
		if err != nil {
			t.Fatal(err)
		}
		return claimsOf(t, proof)["nonce"]
	}
	if !p.LearnNonce("https://as/token", says("n1")) || p.LearnNonce("https://AS:443/other", says("n1")) || !p.LearnNonce("https://h", says("n2")) {
		t.Error("what is new is not told")
	}
	for _, bad := range []http.Header{nil, says(""), says("a", "b"), says("a b"), says("a\n"), says(strings.Repeat("x", 2000))} {
		if p.LearnNonce("https://as", bad) {
			t.Errorf("%v is taken", bad)
		}
	}
	if nonce("https://as/x") != "n1" || nonce("https://h/mcp") != "n2" || nonce("https://h:8443/") != nil || nonce("http://as/") != nil {
		t.Error("a nonce is sent to another origin, or not to its own")
	}
	for i := range 1000 {
		p.LearnNonce(fmt.Sprintf("https://h%d/", i), says("n"))
	}
	if len(p.nonces) > maxNonces {
		t.Errorf("%d nonces are kept", len(p.nonces))
	}
}

func FuzzProof(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiIsInR5cCI6ImRwb3Arand0In0.e30.AAAA", testTarget)
	f.Fuzz(func(t *testing.T, proof, target string) {
		p := &ProofVerifier{Now: func() time.Time { return start }}
		got, err := p.Verify([]string{proof}, ExpectedProof{Method: "POST", URL: testTarget, AccessToken: "t1"})
		if (err == nil) != (got.JKT != "") {
			t.Fatalf("%q: %+v, %v", proof, got, err)
		}
		if isSameTargetURL(target, testTarget) && !strings.Contains(strings.ToLower(target), "h") {
			t.Fatalf("%q is taken for %q", target, testTarget)
		}
	})
}
