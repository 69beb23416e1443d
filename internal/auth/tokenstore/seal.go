package tokenstore

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A Keyring keeps small secrets. Its methods may be called concurrently, and end with ctx as far as the system allows that.
type Keyring interface {
	// Get returns the secret of a user of a service. found is false if there is none.
	Get(ctx context.Context, service, user string) (secret string, found bool, err error)
	// Set stores the secret of a user of a service, in the place of an older one.
	Set(ctx context.Context, service, user, secret string) error
}

// SystemKeyring returns the keyring of the user's system: the Secret Service
// on Linux, the Keychain on macOS, the Credential Manager on Windows.
func SystemKeyring() Keyring { return systemKeyring{} }

// systemKeyring is what SystemKeyring returns.
type systemKeyring struct{}

// Get implements Keyring: it reads a secret from the keyring of the system.
func (systemKeyring) Get(ctx context.Context, service, user string) (string, bool, error) {
	return getSystemSecret(ctx, service, user)
}

// Set implements Keyring: it writes a secret to the keyring of the system.
func (systemKeyring) Set(ctx context.Context, service, user, secret string) error {
	return setSystemSecret(ctx, service, user, secret)
}

const (
	// keyringService is the service, in the keyring, of the key with which files are encrypted. There is one key
	// for all folders.
	keyringService = "mcp-bridge"
	keyringUser    = "token store" // the user, in the keyring, of the key with which files are encrypted
	sealKeySize    = 32            // how many bytes the key has that files are encrypted with: AES-256
	sealLockFile   = "seal.lock"   // the name of the file that is locked while a key is made

	// keyringTimeout is how long Open waits for the keyring: somebody may have to unlock it. It is less than the
	// 60 seconds after which most MCP clients give up.
	keyringTimeout = 45 * time.Second
)

// A sealer encrypts and decrypts the contents of files with one key. It may be used by any goroutine.
type sealer struct {
	aead  cipher.AEAD // AES-GCM with the key
	keyID string      // a hash by which the key is known
}

// String returns text with keyID, which does not show the key.
func (k *sealer) String() string { return "sealer " + k.keyID }

// GoString returns what String returns.
func (k *sealer) GoString() string { return k.String() }

// sealedContent is the encrypted content of a file.
type sealedContent struct {
	KeyID string `json:"keyID"` // sealer.keyID of the key
	Nonce []byte `json:"nonce"` // the nonce of AES-GCM
	Data  []byte `json:"data"`  // the encrypted content
}

// newSealer returns the sealer of a key, which has sealKeySize bytes.
func newSealer(key []byte) (*sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte("mcp-bridge key id 1\x00"), key...))
	return &sealer{aead: aead, keyID: hex.EncodeToString(sum[:8])}, nil
}

// additionalData returns the additional data of AES-GCM for a content: with it, the content can only be
// decrypted as that of the same file and generation.
func additionalData(f storeFile, g Generation) []byte {
	return fmt.Appendf(nil, "mcp-bridge token store %d\x00%s\x00%s\x00%d", formatVersion, f.folder, f.stem, g)
}

// seal encrypts the content of file f with generation g.
func (k *sealer) seal(f storeFile, g Generation, content []byte) *sealedContent {
	nonce := make([]byte, k.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return &sealedContent{KeyID: k.keyID, Nonce: nonce, Data: k.aead.Seal(nil, nonce, content, additionalData(f, g))}
}

// unseal decrypts the content of file f with generation g. ErrOtherKey: it was encrypted with another key.
// ErrBroken: it was changed.
func (k *sealer) unseal(f storeFile, g Generation, c *sealedContent) ([]byte, error) {
	if c.KeyID != k.keyID {
		return nil, &Error{Kind: ErrOtherKey}
	}
	if len(c.Nonce) != k.aead.NonceSize() {
		return nil, newBrokenError("its nonce has not the right length")
	}
	content, err := k.aead.Open(nil, c.Nonce, c.Data, additionalData(f, g))
	if err != nil {
		return nil, newBrokenError("it is encrypted with the right key, and was changed since")
	}
	return content, nil
}

// newKeyringSealer returns the sealer of the key in the keyring, which it makes if there is none.
// ErrNoKeyring: the keyring failed, or did not answer within keyringTimeout.
func (s *Store) newKeyringSealer(ctx context.Context, ring Keyring) (*sealer, error) {
	type answer struct {
		seal *sealer // the sealer; nil: err says why there is none
		err  error   // why there is no sealer; nil: there is one
	}
	ctx, cancel := context.WithTimeout(ctx, keyringTimeout)
	defer cancel()
	answers := make(chan answer, 1)
	go func() {
		seal, err := s.readOrMakeKey(ctx, ring)
		answers <- answer{seal, err}
	}()
	select {
	case a := <-answers:
		if a.err == nil || ctx.Err() == nil {
			return a.seal, a.err
		}
	case <-ctx.Done():
	}
	return nil, &Error{Kind: ErrNoKeyring, Detail: "it has not answered in time; is it waiting to be unlocked?", Err: ctx.Err()}
}

// readOrMakeKey returns the sealer of the key in the keyring, which it makes if there is none. Two processes
// that find no key get the same one.
func (s *Store) readOrMakeKey(ctx context.Context, ring Keyring) (*sealer, error) {
	text, found, err := ring.Get(ctx, keyringService, keyringUser)
	if ctx.Err() != nil {
		return nil, ctx.Err() // to nobody: Open has given up, and no key shall be made for it
	}
	if err == nil && !found {
		// Of two processes that find no key, the second must find that of the first.
		unlock, lockErr := s.lock(ctx, "", sealLockFile)
		if lockErr != nil {
			return nil, lockErr
		}
		defer unlock()
		if text, found, err = ring.Get(ctx, keyringService, keyringUser); err == nil && !found {
			return makeKeyringKey(ctx, ring)
		}
	}
	if err != nil {
		return nil, newKeyringError("it cannot be read", err, text)
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != sealKeySize {
		return nil, newKeyringError(fmt.Sprintf("what it has for %q of %q is not a key of ours", keyringUser, keyringService), nil, text)
	}
	return newSealer(key)
}

// makeKeyringKey puts a new key in the keyring, reads it back, and returns its sealer.
func makeKeyringKey(ctx context.Context, ring Keyring) (*sealer, error) {
	key := make([]byte, sealKeySize)
	_, _ = rand.Read(key) // never fails
	text := base64.StdEncoding.EncodeToString(key)
	if err := ring.Set(ctx, keyringService, keyringUser, text); err != nil {
		return nil, newKeyringError("it takes no key", err, text)
	}
	switch again, found, err := ring.Get(ctx, keyringService, keyringUser); {
	case err != nil:
		return nil, newKeyringError("it cannot be read", err, text)
	case !found || again != text:
		return nil, newKeyringError("it does not keep what is put in", nil, text)
	}
	return newSealer(key)
}

// newKeyringError returns an ErrNoKeyring: what is its detail, and err the error of the keyring; nil: none. If err has secret, the key, in its text, err is
// left out: macOS is given the key as a command.
func newKeyringError(what string, err error, secret string) error {
	if err != nil && secret != "" && strings.Contains(err.Error(), secret) {
		err = errors.New("its error has the key in its text")
	}
	return &Error{Kind: ErrNoKeyring, Detail: what, Err: err}
}
