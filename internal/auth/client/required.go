package client

import (
	"errors"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// SignInRequired is the error of a request that needs a person to sign in, and what SignInFlow.Instructions returns.
type SignInRequired struct {
	URL      string    // where the person signs in; "": nobody has begun the sign-in
	UserCode string    // what the person types at URL; "": nothing
	Expires  time.Time // when URL and UserCode end; zero: that is not known
	Reason   string    // why a sign-in is needed, in one line

	TriedGeneration tokenstore.Generation // the generation of the stored credential that was not enough; 0: none was stored. A credential of another generation may be enough
}

// Error returns the reason, the URL and the code in one line.
func (r *SignInRequired) Error() string {
	var b strings.Builder
	b.WriteString("sign-in needed: " + printable.Text(r.Reason))
	if r.URL != "" {
		b.WriteString("; open " + printable.Text(r.URL))
	}
	if r.UserCode != "" {
		b.WriteString(" and enter " + printable.Text(r.UserCode))
	}
	return b.String()
}

// A PermanentError says that a token cannot be had until somebody changes something: a setting, the server, or by signing in.
type PermanentError struct {
	Problem string // what is wrong, and what helps
	Err     error  // the error that led to this one; required
}

// Error returns the problem and the error below.
func (p *PermanentError) Error() string { return p.Problem + ": " + p.Err.Error() }

// Unwrap returns the error below.
func (p *PermanentError) Unwrap() error { return p.Err }

// isTransient reports whether a renewal that failed with err may succeed later: no answer came, it was not one of an authorization server at all, the store
// failed, or the Credential was closed. Nothing that is stored is deleted then.
func isTransient(err error) bool {
	var required *SignInRequired
	var permanent *PermanentError
	switch {
	case errors.As(err, &required), errors.As(err, &permanent):
		return false
	case auth.Is(err, auth.Unavailable, auth.Invalid, auth.NotFound):
		return true
	}
	var stored *tokenstore.Error
	return errors.As(err, &stored) || errors.Is(err, errCredentialClosed)
}

// errCredentialClosed is the error of a renewal or sign-in that would begin after Close.
var errCredentialClosed = errors.New("the credential has been closed")
