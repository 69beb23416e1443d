package client

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// TestWaitIsBounded: whatever takes long before a person can sign in, a request waits no longer for all of it than it is told to, and
// says what it was.
func TestWaitIsBounded(t *testing.T) {
	const prm = "/.well-known/oauth-protected-resource"
	for name, one := range map[string]struct {
		slow  string // what does not answer
		first func(w *world, c *Credential)
		words string
	}{
		"metadata of the server":   {slow: prm, words: "mcp.test"},
		"metadata of the provider": {slow: "/.well-known/oauth-authorization-server", words: "as.test"},
		"another request": {slow: prm, words: "another request", first: func(w *world, c *Credential) {
			release, _ := c.responder.awaitTurn(context.Background())
			time.AfterFunc(time.Hour, release)
		}},
		"a person": {words: "sign-in needed"},
	} {
		inner := func(t *testing.T, w *world) {
			o := w.options()
			o.SignInWait = 20 * time.Second
			o.SignIn = func(ctx context.Context, _ *Credential, need SignInRequired) error {
				<-ctx.Done()
				if context.Cause(ctx) != ErrSignInTimeout {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				return &need
			}
			c := w.credential(t, o)
			if one.slow != "" {
				w.then(one.slow, func(rw http.ResponseWriter, r *http.Request) bool { return hang(rw, r) })
			}
			if one.first != nil {
				one.first(w, c)
			}
			began := time.Now()
			_, _, err := w.post(t, c)
			if took := time.Since(began); took != o.SignInWait {
				t.Errorf("it took %v", took)
			}
			if err == nil || !strings.Contains(err.Error(), one.words) {
				t.Fatalf("the error is %v", err)
			}
			if one.slow != "" && (!auth.Is(err, auth.Unavailable) || !strings.Contains(err.Error(), "than a request waits for a sign-in, 20s") || !strings.Contains(err.Error(), "--auth-wait")) {
				t.Errorf("the error is %v", err)
			}
			time.Sleep(2 * time.Hour)
		}
		t.Run(name, func(t *testing.T) { inBubble(t, inner) })
	}
}
