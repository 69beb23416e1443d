package ws

import (
	"context"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/budget"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// inbound is the queue of the peer's messages for a Sink. It keeps each message's share of
// a budget until the Sink has taken the message. Only the goroutine of readLoop calls deliver.
type inbound struct {
	bridge.Inbox

	mu             sync.Mutex    // guards the fields below
	deliveredCount int           // how many messages deliver was given
	takenCount     int           // how many of the messages that deliver was given a Sink has taken
	held           []heldMessage // the shares of messages that no Sink has taken, the oldest first
}

// heldMessage is what one message that waits for a Sink holds of a budget.
type heldMessage struct {
	number int           // which message it is: how many deliver had been given, with this one
	share  *budget.Share // the part of the budget that the message holds
}

// deliver queues m for the Sink, or hands it on. It waits while the queue is full: the WebSocket is then not read, and
// TCP slows the peer. share, what m holds of a budget, belongs to in from now on; nil: it holds nothing. The error
// says that the conversation is over. beforeWait is called before it waits.
func (in *inbound) deliver(m jsonrpc.Message, share *budget.Share, beforeWait func()) error {
	in.mu.Lock()
	in.deliveredCount++
	if share != nil {
		in.held = append(in.held, heldMessage{in.deliveredCount, share})
	}
	in.mu.Unlock()
	if in.TrySend(m) {
		return nil
	}
	beforeWait()
	return in.Send(context.Background(), m) // which the end of the Inbox ends
}

// noteTaken is called when a Sink has taken one more message, the oldest: its share is given back.
func (in *inbound) noteTaken() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.takenCount++
	for len(in.held) > 0 && in.held[0].number <= in.takenCount {
		in.held[0].share.ReleaseAll()
		in.held = in.held[1:]
	}
	if len(in.held) == 0 {
		in.held = nil
	}
}

// freeHeld gives back the shares of the messages that no Sink will take any more.
func (in *inbound) freeHeld() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, h := range in.held {
		h.share.ReleaseAll()
	}
	in.held = nil
}
