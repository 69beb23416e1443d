package probe

import (
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file says why it could not be found out which era a server speaks.

// A silentError says that a server is there and answers nothing. Clients get its text: if they were told that
// the server could not be started, they would look in vain for what keeps it from starting.
type silentError struct {
	command    bool          // the server is a command that the bridge has started
	discover   time.Duration // how long the server had to answer server/discover
	initialize time.Duration // how long the server had to answer initialize after that; 0: it was not sent
}

// Error says what the server has not answered, and within which times.
func (e *silentError) Error() string {
	there := "is connected"
	if e.command {
		there = "was started"
	}
	if e.initialize == 0 {
		return fmt.Sprintf("the server %s but has not answered server/discover within %v", there, rounded(e.discover))
	}
	return fmt.Sprintf("the server %s but has answered neither server/discover within %v nor initialize within %v",
		there, rounded(e.discover), rounded(e.initialize))
}

// PublicError is what clients are told (bridge.Serve).
func (e *silentError) PublicError() string { return e.Error() }

// ErrUnasked is what errors wrap which say that a remote server could not be asked: it was not reached, or did not let us in.
var ErrUnasked = errors.New("the server could not be asked")

// An inPlaceError says that a Conn has answered a question in the place of a remote server, and why. It wraps ErrUnasked, unless the
// connection was lost before the server had answered: then the question may be what it has ended at.
type inPlaceError struct {
	answer jsonrpc.Message // the error response of the Conn; it may say where to sign in
	reason string          // the reason in answer, one of package httpdial
}

// inPlaceErrorOf returns what m says if the Conn to a remote server has answered m in the server's place; nil: the server has answered
// itself. Over HTTP it is always nil: there m may be made of what the server has said.
func (p *Prober) inPlaceErrorOf(m jsonrpc.Message) error {
	if p.opts.IsCommand || p.isHTTP() || !m.IsError() {
		return nil
	}
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	switch reason {
	case httpdial.ReasonAuthRequired, httpdial.ReasonAuthFailed, httpdial.ReasonAuthServerUnavailable,
		httpdial.ReasonUnreachable, httpdial.ReasonTLS, httpdial.ReasonTimeout, httpdial.ReasonConnectionLost, httpdial.ReasonServerDown,
		httpdial.ReasonForbidden, httpdial.ReasonRedirect, httpdial.ReasonHTTPStatus, httpdial.ReasonNotMCP, httpdial.ReasonTooManyRequests:
		return &inPlaceError{m, reason}
	}
	return nil
}

// IsUnasked reports whether the Conn to a remote server has answered m in the server's place, because the server was not reached,
// or did not let us in. That says nothing of the server's era. Over HTTP it is false: there m may be made of what the server has said.
func (p *Prober) IsUnasked(m jsonrpc.Message) bool {
	return errors.Is(p.inPlaceErrorOf(m), ErrUnasked)
}

// isUnauthorized reports whether a response says that a credential for the server is missing.
func isUnauthorized(m jsonrpc.Message) bool { return signInReason(m) != "" }

// signInReason returns the reason, one of package httpdial, in a response that says that a credential for the
// server is missing; "": it does not say that.
func signInReason(m jsonrpc.Message) string {
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	if !(&httpdial.Fault{Reason: reason}).IsMissingCredential() {
		return ""
	}
	return reason
}

// Error returns the message of the answer.
func (e *inPlaceError) Error() string {
	text, _ := jsonrpc.Text(e.answer.Lookup("error", "message"))
	return text
}

// PublicError is what clients are told (bridge.Serve).
func (e *inPlaceError) PublicError() string { return e.Error() }

// Unwrap returns ErrUnasked, or nil if the connection was lost.
func (e *inPlaceError) Unwrap() error {
	if e.reason == httpdial.ReasonConnectionLost {
		return nil
	}
	return ErrUnasked
}

// PublicData is the data of the error that clients get: where to sign in, for instance.
func (e *inPlaceError) PublicData() []byte { return e.answer.Lookup("error", "data") }

// rounded returns a time as people want to read it: in whole seconds, or whole milliseconds if it is below a second.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// noteUnasked logs why it is not known which era the server speaks.
func (p *Prober) noteUnasked(err error) {
	if mute, ok := errors.AsType[*silentError](err); ok {
		p.log.Warn("the server does not answer; if it is only slow to start, --protocol legacy or modern gives it more time", "error", mute)
		return
	}
	attrs := []any{"error", err}
	if fault, ok := errors.AsType[*httpdial.Fault](err); ok {
		attrs = fault.LogAttrs()
	}
	p.log.Warn("the server could not be asked whether it speaks 2026-07-28", attrs...)
}

// failureReason returns a text that is the same for errors with the same reason: the text about a connection
// may have a port in it, and that about silence times.
func failureReason(err error) string {
	if fault, ok := errors.AsType[*httpdial.Fault](err); ok {
		return fault.Reason
	}
	if _, ok := errors.AsType[*silentError](err); ok {
		return "silence"
	}
	return err.Error()
}
