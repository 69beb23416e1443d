package tokenstore

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// shownSecretText is what is shown in the place of a secret.
const shownSecretText = "(secret)"

// A Secret is a text that must not be seen: a token, a key, a client secret. Only Reveal returns the text;
// printing, logging and encoding show "(secret)", even where a Secret is in a field that is not exported. The
// zero value is the empty text. A Secret does not change and may be used by any goroutine.
type Secret struct {
	// the text; nil: it is empty. It is a pointer because fmt prints a field that is not exported without asking
	// its methods, and of a pointer it prints the address.
	text *string
}

// NewSecret returns text as a Secret.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{text: &text}
}

// Reveal returns the text itself; "" of the zero Secret.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether the text is empty.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// Equal reports whether two texts are the same, in a time that does not depend
// on where they differ.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns "(secret)", or "" for the empty text.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return shownSecretText
}

// GoString returns what String returns.
func (s Secret) GoString() string { return s.String() }

// Format writes what String returns, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue returns what String returns.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns what String returns: a Secret cannot be encoded by mistake.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
