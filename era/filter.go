package era

import (
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Filter rewrites the messages between a legacy side and a modern side. It does
// no I/O, starts no goroutine and never waits. The caller calls its methods one at
// a time, and now never goes back.
//
// Each method appends the messages to send to out, which is the caller's and empty
// at the call. The caller sends the messages of one direction in order. A Filter
// answers each request of the client once: with what the server answers, with an error
// of its own, or in ServerEnded. It does not answer a request that the client has
// cancelled, nor, in ServerEnded, one that the server has not got (Out.Unsent) or a
// subscriptions/listen of a modern client (ST9).
type Filter interface {
	// Start is called once, before all other methods.
	Start(now time.Time, out *Out)

	// FromClient takes a message from the client's side.
	FromClient(now time.Time, m jsonrpc.Message, out *Out)

	// FromServer takes a message from the server's side.
	FromServer(now time.Time, m jsonrpc.Message, out *Out)

	// Due returns when the caller must call Tick. Zero: nothing is due. The time may
	// change with each call of another method.
	Due() time.Time

	// Tick does what is due by now.
	Tick(now time.Time, out *Out)

	// ServerEnded is called once, when the server has ended with err. It answers the
	// requests that the server has not answered (the exceptions are named above).
	// unwritten are the ids of the requests to the server that it cannot have got.
	// No method is called afterwards.
	ServerEnded(now time.Time, err error, unwritten []jsonrpc.ID, out *Out)
}

// Out holds the messages that a Filter wants sent, those that it drops, and the requests that another server may get.
type Out struct {
	ToClient, ToServer []jsonrpc.Message // what to send to the client and to the server, in order
	Dropped            []Dropped         // messages that are sent to nobody

	// Unsent are requests of the client, as it has sent them, that the server has not got before it has ended. They
	// are not answered: another server may get them. Only ServerEnded appends to it.
	Unsent []jsonrpc.Message
}

// Dropped is a message that is not sent to anybody, and why. Reason never repeats
// the content of the message, so that it can be logged.
type Dropped struct {
	Message jsonrpc.Message // the message
	Reason  string          // why it is not sent, in words
}

// Client appends a message for the client's side.
func (o *Out) Client(m jsonrpc.Message) { o.ToClient = append(o.ToClient, m) }

// Server appends a message for the server's side.
func (o *Out) Server(m jsonrpc.Message) { o.ToServer = append(o.ToServer, m) }

// Drop notes that a message is not sent to anybody.
func (o *Out) Drop(m jsonrpc.Message, reason string) {
	o.Dropped = append(o.Dropped, Dropped{m, reason})
}
