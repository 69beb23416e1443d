//go:build !linux

package tokenstore

import (
	"errors"

	"github.com/zalando/go-keyring"
)

func systemGet(service, user string) (secret string, found bool, err error) {
	secret, err = keyring.Get(service, user)
	if errors.Is(err, keyring.ErrNotFound) {
		return "", false, nil
	}
	return secret, err == nil, err
}

func systemSet(service, user, secret string) error { return keyring.Set(service, user, secret) }
