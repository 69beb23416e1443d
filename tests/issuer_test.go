package tests

import (
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// publicURL is what the clients of a protected bridge are told to call it.
const publicURL = "https://mcp.example.com"

// An issuer is an identity provider, whose access tokens for publicURL the test makes.
type issuer struct{ *authtest.Issuer }

func newIssuer(t testing.TB) *issuer { return &issuer{authtest.NewIssuer(t)} }

// claims returns those of a valid token of a person, with these changes. A nil value takes one out.
func (i *issuer) claims(sub string, change map[string]any) map[string]any {
	return i.Claims(publicURL+"/mcp", sub, time.Now().Add(time.Hour), change)
}

// token signs such claims.
func (i *issuer) token(sub string, change map[string]any) string {
	return i.Sign(authtest.AccessTokenHeader, i.claims(sub, change))
}
