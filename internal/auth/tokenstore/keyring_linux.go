package tokenstore

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore/secretservice"
)

func getSystemSecret(ctx context.Context, service, user string) (secret string, found bool, err error) {
	return secretservice.Get(ctx, service, user)
}

func setSystemSecret(ctx context.Context, service, user, secret string) error {
	return secretservice.Set(ctx, service, user, secret)
}
