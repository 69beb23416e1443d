package client

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
)

// A proverCache has the Prover of the key that tokens are bound to (DPoP), so that its nonces are kept. It may be used concurrently.
type proverCache struct {
	*credentialBase

	mu      sync.Mutex        // guards the fields below
	prover  *auth.Prover      // the Prover that was asked for last; nil: none was
	keyText tokenstore.Secret // the stored key from which prover was made
}

// proverForKey returns the Prover of a stored key: the same one as before while the key is the same. nil without an error: text is zero.
func (k *proverCache) proverForKey(text tokenstore.Secret) (*auth.Prover, error) {
	if text.IsZero() {
		return nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.prover != nil && k.keyText.Equal(text) {
		return k.prover, nil
	}
	key, err := parseProofKey(text)
	if err != nil {
		return nil, err
	}
	p, err := auth.NewProver(key, k.options.Now)
	if err == nil {
		k.prover, k.keyText = p, text
	}
	return p, err
}

// parseProofKey reads a key for DPoP proofs in the form in which it is stored (newProofKey).
func parseProofKey(text tokenstore.Secret) (*ecdsa.PrivateKey, error) {
	if der, err := base64.StdEncoding.DecodeString(text.Reveal()); err == nil {
		if key, err := x509.ParsePKCS8PrivateKey(der); err == nil {
			if key, ok := key.(*ecdsa.PrivateKey); ok {
				return key, nil
			}
		}
	}
	return nil, errors.New("the stored key for proofs cannot be used: sign in again")
}

// newProofKey makes a key for DPoP proofs, in the form in which it is stored: PKCS #8 in base64.
func newProofKey() (tokenstore.Secret, error) {
	key, err := auth.NewDPoPKey()
	if err != nil {
		return tokenstore.Secret{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return tokenstore.NewSecret(base64.StdEncoding.EncodeToString(der)), err
}
