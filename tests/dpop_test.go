package tests

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// A bearerOfKey sends requests with a token that is bound to its key.
type bearerOfKey struct {
	t      testing.TB
	prover *auth.Prover
	token  string
}

func newBearerOfKey(t testing.TB, i *issuer) *bearerOfKey {
	t.Helper()
	prover, err := auth.NewProver(authtest.NewKey(t), time.Now)
	bridgetest.Must(t, err)
	return &bearerOfKey{t, prover, i.token("bob", map[string]any{"cnf": map[string]any{"jkt": prover.Thumbprint()}})}
}

// proof returns one for a request.
func (b *bearerOfKey) proof(method, path string) string {
	b.t.Helper()
	proof, err := b.prover.Proof(method, publicURL+path, b.token)
	bridgetest.Must(b.t, err)
	return proof
}

// send sends a request with this proof, and returns the status, and the error of the challenge. Nobody waits for the end of a stream.
func (b *bearerOfKey) send(s *server, method, path, proof string) (status int, challenge string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), harness.Patience)
	defer cancel()
	header := http.Header{"Authorization": {"DPoP " + b.token}, "Dpop": {proof}}
	if path == "/ws" {
		for _, pair := range [][2]string{{"Connection", "Upgrade"}, {"Upgrade", "websocket"}, {"Sec-Websocket-Version", "13"}, {"Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}} {
			header[pair[0]] = []string{pair[1]}
		}
	}
	body := ""
	if method == http.MethodPost {
		body = initialize("2025-06-18")
	}
	resp, err := s.site().request(ctx, method, path, body, header)
	bridgetest.Must(b.t, err)
	defer resp.Body.Close()
	b.prover.LearnNonce(publicURL+path, resp.Header)
	_, challenge, _ = strings.Cut(resp.Header.Get("WWW-Authenticate"), `error="`)
	challenge, _, _ = strings.Cut(challenge, `"`)
	return resp.StatusCode, challenge
}

// TestServeDPoP: a proof is good once and for the request that it was made for, on each transport; not for a second one at the same
// time, nor after a restart.
func TestServeDPoP(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	s := protected(t, i, "--client-dpop", "require")
	b := newBearerOfKey(t, i)
	b.send(s, "POST", "/mcp", b.proof("POST", "/mcp")) // the nonce may be new
	routes := [][2]string{{"POST", "/mcp"}, {"GET", "/mcp"}, {"DELETE", "/mcp"}, {"GET", "/sse"}, {"POST", "/message"}, {"GET", "/ws"}}
	for n, r := range routes {
		proof := b.proof(r[0], r[1])
		if status, _ := b.send(s, r[0], r[1], proof); status == http.StatusUnauthorized {
			t.Errorf("%s %s with a good proof: status %d", r[0], r[1], status)
		}
		for again, other := range routes {
			if status, challenge := b.send(s, other[0], other[1], proof); status != http.StatusUnauthorized || challenge != "invalid_dpop_proof" {
				t.Errorf("%s %s with the proof of %s %s (%t): status %d, %s", other[0], other[1], r[0], r[1], n == again, status, challenge)
			}
		}
	}
	proof := b.proof("POST", "/mcp")
	var wg sync.WaitGroup
	good := make(chan int, 20)
	for range cap(good) {
		wg.Go(func() {
			if status, _ := b.send(s, "POST", "/mcp", proof); status != http.StatusUnauthorized {
				good <- status
			}
		})
	}
	wg.Wait()
	if len(good) != 1 {
		t.Errorf("of %d requests with one proof at the same time, %d were accepted", cap(good), len(good))
	}
	restarted := protected(t, i, "--client-dpop", "require")
	for _, used := range []string{proof, b.proof("POST", "/mcp")} { // one that the process before has seen, and one that it may have seen
		if status, challenge := b.send(restarted, "POST", "/mcp", used); status != http.StatusUnauthorized || challenge != "use_dpop_nonce" {
			t.Errorf("after a restart: status %d, %s", status, challenge)
		}
	}
	if status, challenge := b.send(restarted, "POST", "/mcp", b.proof("POST", "/mcp")); status != http.StatusOK {
		t.Errorf("with the nonce of the new process: status %d, %s", status, challenge)
	}
}
