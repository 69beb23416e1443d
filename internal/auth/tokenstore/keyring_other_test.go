//go:build !linux

package tokenstore

import (
	"errors"
	"testing"

	"github.com/zalando/go-keyring"
)

// TestSystemKeyring: the library's own stand-in for a keyring.
func TestSystemKeyring(t *testing.T) { // not parallel: what stands in does so for all
	keyring.MockInit()
	dir := t.TempDir() + "/auth"
	save(t, openSealed(t, dir, SystemKeyring()), named("a"))
	wantAccount(t, openSealed(t, dir, SystemKeyring()), "a")
	keyring.MockInitWithError(errors.New("locked"))
	_, err := Open(within(t), Options{Dir: dir, Keyring: SystemKeyring()})
	wantKind(t, err, ErrNoKeyring)
}
