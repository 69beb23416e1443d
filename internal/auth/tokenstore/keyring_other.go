//go:build !linux

package tokenstore

import (
	"context"
	"errors"

	"github.com/zalando/go-keyring"
)

// getSystemSecret returns the secret of a user of a service in the system's keyring. found is false if there
// is none. No ctx can end it, on these systems.
func getSystemSecret(_ context.Context, service, user string) (secret string, found bool, err error) {
	secret, err = keyring.Get(service, user)
	if errors.Is(err, keyring.ErrNotFound) {
		return "", false, nil
	}
	return secret, err == nil, err
}

// setSystemSecret stores the secret of a user of a service in the system's keyring, in the place of an older
// one. No ctx can end it, on these systems.
func setSystemSecret(_ context.Context, service, user, secret string) error {
	return keyring.Set(service, user, secret)
}
