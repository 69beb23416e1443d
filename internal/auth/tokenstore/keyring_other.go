//go:build !linux

package tokenstore

import (
	"context"
	"errors"

	"github.com/zalando/go-keyring"
)

func getSystemSecret(_ context.Context, service, user string) (secret string, found bool, err error) {
	secret, err = keyring.Get(service, user)
	if errors.Is(err, keyring.ErrNotFound) {
		return "", false, nil
	}
	return secret, err == nil, err
}

func setSystemSecret(_ context.Context, service, user, secret string) error {
	return keyring.Set(service, user, secret)
}
