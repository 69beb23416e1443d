package era

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Filter rewrites the traffic between one side that speaks legacy and one
// that speaks modern. It does no I/O, starts no goroutine, does not block, and
// is never called from two goroutines at once. now never goes back.
//
// Each method appends to out what is to be sent; out is the caller's and is
// empty at the call. Messages of one direction are sent in order. A
// Filter sees to it that every request it has taken from the client gets one
// answer, as long as the server answers; what is owed when the server ends is
// answered in ServerEnded.
type Filter interface {
	// Start is called first, once.
	Start(now time.Time, out *Out)

	// FromClient takes a message from the client's side.
	FromClient(now time.Time, m jsonrpc.Message, out *Out)

	// FromServer takes a message from the server's side.
	FromServer(now time.Time, m jsonrpc.Message, out *Out)

	// Due returns when Tick is to be called; zero: not until something else happens.
	Due() time.Time

	// Tick does what is due.
	Tick(now time.Time, out *Out)

	// ServerEnded is called once, when the server has ended for the reason err:
	// out.ToClient answers what is owed. Nothing is called afterwards.
	ServerEnded(now time.Time, err error, out *Out)
}

// Out is what a Filter wants sent, and what goes nowhere.
type Out struct {
	ToClient, ToServer []jsonrpc.Message
	Dropped            []Dropped
}

// Dropped is a message that goes nowhere, and why. The reason holds no content.
type Dropped struct {
	Message jsonrpc.Message
	Reason  string
}

// Client appends a message for the client's side.
func (o *Out) Client(m jsonrpc.Message) { o.ToClient = append(o.ToClient, m) }

// Server appends a message for the server's side.
func (o *Out) Server(m jsonrpc.Message) { o.ToServer = append(o.ToServer, m) }

// Drop says that a message goes nowhere.
func (o *Out) Drop(m jsonrpc.Message, reason string) {
	o.Dropped = append(o.Dropped, Dropped{m, reason})
}
