package bridge

import (
	"errors"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
)

// Why a client is not served, or no longer.
var (
	// ErrBusy says that as many clients as may be are being served.
	ErrBusy = ownmsg.ErrBusy

	// ErrClosing is the cause of the end of a Handler's ctx when the bridge shuts down or
	// was configured anew.
	ErrClosing = ownmsg.ErrClosing

	// ErrReclaimed is the cause of the end of a Handler's ctx when the client's place is
	// another party's from now on: the session was idle, and its party holds more of them.
	ErrReclaimed = ownmsg.ErrReclaimed
)

// ErrSlow ends the Conn of a Mux whose client does not read what it is sent (D.2).
var ErrSlow = errors.New("the client does not read what it is sent")
