package bridge

import (
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
)

// Why a client is not served, or no longer.
var (
	// ErrBusy says that a client gets no place, because as many are being served as may be.
	ErrBusy = ownmsg.ErrBusy

	// ErrClosing is the cause of the end of a Handler's ctx when the bridge shuts down or
	// was configured anew.
	ErrClosing = ownmsg.ErrClosing

	// ErrReclaimed is the cause of the end of a Handler's ctx when the client's place goes to another party
	// (identity.Party): the session was idle, and its party has more places than the other.
	ErrReclaimed = ownmsg.ErrReclaimed
)

// ErrSlow is the error with which a Mux ends the Conn of a client that does not read what it is sent (D.2).
var ErrSlow = errors.New("the client does not read what it is sent")
