package tokenstore

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore/secretservice"
)

// getSystemSecret returns the secret of a user of a service in the system's keyring. found is false if there
// is none.
func getSystemSecret(ctx context.Context, service, user string) (secret string, found bool, err error) {
	return secretservice.Get(ctx, service, user)
}

// setSystemSecret stores the secret of a user of a service in the system's keyring, in the place of an older
// one.
func setSystemSecret(ctx context.Context, service, user, secret string) error {
	return secretservice.Set(ctx, service, user, secret)
}
