package remoteconn

import (
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

type fakeCall struct {
	id      jsonrpc.ID
	own     bool
	removed int
}

func (c *fakeCall) ID() jsonrpc.ID     { return c.id }
func (c *fakeCall) IsFromBridge() bool { return c.own }
func (c *fakeCall) OnRemoved()         { c.removed++ }

// Each call is ended by one, and the bridge's own do not count, nor can the client cancel them.
func TestLedger(t *testing.T) {
	var l Ledger[*fakeCall, string]
	theirs, ours := &fakeCall{id: jsonrpc.IntID(1)}, &fakeCall{id: jsonrpc.StringID("b"), own: true}
	l.Add(theirs)
	l.Add(ours)
	request := func(id jsonrpc.ID) jsonrpc.Message { return jsonrpc.NewRequest(id, "ping", nil) }
	if _, err := l.RefusalOf(request(jsonrpc.IntID(1)), 9, true); err != ErrDuplicateID {
		t.Errorf("the same id again: %v", err)
	}
	if f, err := l.RefusalOf(request(jsonrpc.IntID(2)), 1, true); f == nil || err != nil {
		t.Errorf("one too many: %v, %v", f, err)
	}
	if f, err := l.RefusalOf(request(jsonrpc.IntID(2)), 2, true); f != nil || err != nil {
		t.Errorf("one more: %v, %v", f, err)
	}
	cancel := func(id string) jsonrpc.Message {
		return jsonrpc.NewNotification("notifications/cancelled", []byte(`{"requestId":`+id+`}`))
	}
	if l.CancelledCall(cancel("1")) != theirs || l.CancelledCall(cancel(`"b"`)) != nil || l.CancelledCall(cancel("3")) != nil {
		t.Error("the wrong call is cancelled")
	}
	if call, ok := l.ClaimByID(jsonrpc.IntID(1)); !ok || call != theirs || l.ClaimCall(theirs) || theirs.removed != 1 {
		t.Error("a call is claimed by two, or by none")
	}
	if !l.ClaimCall(ours) || len(l.Select(func(*fakeCall) bool { return true })) != 0 {
		t.Error("a call is left")
	}
}
