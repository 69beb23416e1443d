package probe

import (
	"errors"
	"fmt"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file says why it could not be found out which era a server speaks.

// silentError is the reason for a server that is there and answers nothing. Clients get its text:
// if they were told that the server could not be started, they would look in vain for what keeps
// it from starting.
type silentError struct {
	command    bool          // the bridge has started it
	discover   time.Duration // how long it had to answer server/discover
	initialize time.Duration // and then initialize; 0: it was not asked
}

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

// unauthorizedError is the reason for a server to which nobody has signed in, so that it could not be asked. answer is what
// the Conn has answered in its place; it says where to sign in.
type unauthorizedError struct{ answer jsonrpc.Message }

// isUnauthorized reports whether an answer is that of a Conn to which a credential is missing.
func isUnauthorized(m jsonrpc.Message) bool { return signInReason(m) != "" }

// signInReason returns why a credential is missing, by the answer of a Conn; "": none is.
func signInReason(m jsonrpc.Message) string {
	reason, _ := jsonrpc.Text(m.Lookup("error", "data", "reason"))
	if !(&httpdial.Fault{Reason: reason}).IsMissingCredential() {
		return ""
	}
	return reason
}

func (e *unauthorizedError) Error() string {
	text, _ := jsonrpc.Text(e.answer.Lookup("error", "message"))
	return text
}

// PublicError is what clients are told.
func (e *unauthorizedError) PublicError() string { return e.Error() }

// PublicData is the data that goes with it: where to sign in, for instance.
func (e *unauthorizedError) PublicData() []byte { return e.answer.Lookup("error", "data") }

// rounded returns a time as people want to read it.
func rounded(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}

// noteUnasked says in the log why it is not known what the server speaks.
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

// failureReason returns what stays the same when something fails for the same reason:
// the text about a connection may have a port in it, and that about silence times.
func failureReason(err error) string {
	if fault, ok := errors.AsType[*httpdial.Fault](err); ok {
		return fault.Reason
	}
	if _, ok := errors.AsType[*silentError](err); ok {
		return "silence"
	}
	return err.Error()
}
