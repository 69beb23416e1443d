package bridge

import (
	"context"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Hooks look at the messages that pass a Conn. A nil hook passes everything. Hooks are
// quick, wait for nobody, and may be called concurrently, unless it says otherwise.
type Hooks struct {
	// Send sees a message on its way to the peer, and returns what the peer gets in its
	// place; an invalid out is not sent. A valid reply goes to the receiver, as if the
	// peer had sent it. Send may see a message twice, when the peer does not take
	// it at once, and must say the same of it then.
	Send func(m jsonrpc.Message) (out, reply jsonrpc.Message)

	// Receive sees a message of the peer, once, and returns what the receiver gets in its
	// place; an invalid one: nothing. Its calls do not overlap.
	Receive func(m jsonrpc.Message) jsonrpc.Message

	// Ended sees how Receive ends, and returns what it says.
	Ended func(err error) error

	// Closed is called, once, when Close of the Conn has returned err, and returns what
	// Close says. It may wait.
	Closed func(err error) error
}

// Intercept returns a Conn that is c with h in between. It is the way to wrap a Conn
// by what is said over it; what it costs is what the hooks cost.
func Intercept(c Conn, h Hooks) Conn { panic("to come") }

var _ = context.Background
