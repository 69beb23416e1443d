package outbound

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// statusUnauthorized is the HTTP status of a Fault where the server was not asked because nobody has signed in. It is
// what the server would answer, so that no client takes it for a sign of another transport or revision.
const statusUnauthorized = 401

// faultOf returns the Fault that clients get for an error of client.Transport; nil: it is one of the network. server is
// how the server is shown, login the command that signs in to it, and status the HTTP status that the server has
// answered; 0: it was not asked.
func faultOf(err error, server, login string, status int) *httpdial.Fault {
	status = cmp.Or(status, statusUnauthorized)
	failed := func(text string) *httpdial.Fault {
		return (&httpdial.Fault{Reason: httpdial.ReasonAuthFailed, Status: status, Text: text}).WithLoggedText()
	}
	if need, ok := errors.AsType[*client.SignInRequired](err); ok {
		return signInFault(need, server, login, status)
	}
	if p, ok := errors.AsType[*client.PermanentError](err); ok {
		return failed("No sign-in to " + server + ": " + printable.Text(p.Error()))
	}
	if e, ok := errors.AsType[*auth.Error](err); ok {
		text := "No sign-in to " + server + ": " + e.Error()
		if e.Kind == auth.Unavailable {
			return &httpdial.Fault{Reason: httpdial.ReasonAuthServerUnavailable, Text: text, Transient: true, RetryAfter: e.RetryAfter}
		}
		return failed(text)
	}
	if e, ok := errors.AsType[*tokenstore.Error](err); ok {
		return failed("The credential for " + server + " cannot be read or written: " + printable.Text(e.Error()))
	}
	return nil
}

// signInFault returns the Fault that says where to sign in. server is how the server is shown, login the
// command that signs in to it, status the HTTP status of the Fault.
func signInFault(need *client.SignInRequired, server, login string, status int) *httpdial.Fault {
	f := &httpdial.Fault{Reason: httpdial.ReasonAuthRequired, Status: status}
	var text strings.Builder
	text.WriteString("Sign-in needed for " + server + ": ")
	if need.URL != "" {
		url := printable.Text(need.URL)
		text.WriteString("open " + url)
		f.DataMembers = append(append(f.DataMembers, `,"url":`...), jsonrpc.Quote(url)...)
		if need.UserCode != "" {
			code := printable.Text(need.UserCode)
			text.WriteString(" and enter the code " + code)
			f.DataMembers = append(append(f.DataMembers, `,"userCode":`...), jsonrpc.Quote(code)...)
		}
		if !need.Expires.IsZero() {
			f.DataMembers = append(append(f.DataMembers, `,"expiresAt":`...), jsonrpc.Quote(need.Expires.UTC().Format(time.RFC3339))...)
		}
		text.WriteString(", or ")
	}
	text.WriteString("run: " + login)
	if need.Reason != "" {
		text.WriteString(" (" + printable.Text(need.Reason) + ")")
	}
	f.Text = text.String()
	return f.WithLoggedText()
}
