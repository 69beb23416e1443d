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

	mu             sync.Mutex
	deliveredCount int           // how many messages have come
	takenCount     int           // how many of those a Sink has taken
	held           []heldMessage // the oldest first
}

// heldMessage is the share of a budget that the n-th message holds.
type heldMessage struct {
	number int // the message's, counted by deliveredCount
	share  *budget.Share
}

// deliver hands m on. It waits while the queue is full: the WebSocket is then not read,
// and TCP slows the peer. The share is in's from now on; nil: m holds none. The error
// says that the conversation is over.
func (in *inbound) deliver(m jsonrpc.Message, share *budget.Share) error {
	in.mu.Lock()
	in.deliveredCount++
	if share != nil {
		in.held = append(in.held, heldMessage{in.deliveredCount, share})
	}
	in.mu.Unlock()
	return in.Send(context.Background(), m) // which the end of the Inbox ends
}

// noteTaken says that a Sink has taken one more message.
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

// freeHeld gives back what the messages hold that no Sink will take.
func (in *inbound) freeHeld() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, h := range in.held {
		h.share.ReleaseAll()
	}
	in.held = nil
}
