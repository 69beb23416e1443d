package bridge

import (
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Why a client is not served, or no longer.
var (
	// ErrBusy says that there is no place for a client, or for a server process of its own: as many are taken as may be.
	ErrBusy = ownmsg.ErrBusy

	// ErrClosing is the cause of the end of a Handler's ctx when the bridge shuts down or
	// was configured anew.
	ErrClosing = ownmsg.ErrClosing

	// ErrReclaimed is the cause of the end of a Handler's ctx when the client's place goes to another party
	// (identity.Party): the session was idle, and its party has more places than the other.
	ErrReclaimed = ownmsg.ErrReclaimed
)

// UnsentError is the error with which Receive of a Conn ends that takes requests before it writes them to the server,
// as one that translates does: the server has ended without getting some of them.
type UnsentError struct {
	Err error // why Receive has ended

	// Requests are the requests that the server has not got, as the Conn was given them. None was answered; they may be
	// sent to another server.
	Requests []jsonrpc.Message
}

// Error returns the text of Err; if that is nil, that the server has ended.
func (e *UnsentError) Error() string {
	if e.Err == nil {
		return "the server has ended"
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *UnsentError) Unwrap() error { return e.Err }

// ErrSlow is the error with which a Mux ends the Conn of a client that does not read what it is sent (D.2).
var ErrSlow = errors.New("the client does not read what it is sent")
