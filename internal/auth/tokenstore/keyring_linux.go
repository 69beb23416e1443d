package tokenstore

import "github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore/secretservice"

func systemGet(service, user string) (secret string, found bool, err error) {
	return secretservice.Get(service, user)
}

func systemSet(service, user, secret string) error { return secretservice.Set(service, user, secret) }
