package remoteconn

import (
	"sync"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/sessionstate"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A Call is a request in progress.
type Call interface {
	comparable
	ID() jsonrpc.ID

	// IsFromBridge reports whether it is a request of the bridge's own, and not of the client.
	IsFromBridge() bool

	// OnRemoved is called when the Call is no longer in progress, with the Ledger locked.
	OnRemoved()
}

// A Ledger is what a Conn with sessions knows: the requests that wait for a response,
// and what a new session would have to be told. S is a session. The lock of the Ledger
// guards all other state of the Conn as well, and is never held while waiting.
//
// Who takes a Call out of the Ledger ends it. So each is answered once.
type Ledger[C Call, S comparable] struct {
	sync.Mutex

	// State is what a new session would have to be told. It is guarded by the lock.
	State sessionstate.State[S]

	// InitializeGate is guarded by the lock, too. It is not nil while the client's messages have to wait for an
	// initialize, the client's or one of the bridge's own: meanwhile nothing of the client but responses is sent. It is closed
	// when that was answered or given up; if the Conn ends meanwhile, it stays shut. A transport that does not use it leaves it nil.
	InitializeGate chan struct{}

	calls           map[jsonrpc.ID]C // the requests in progress, by id
	clientCallCount int              // how many of calls are the client's, and not the bridge's own
}

// RefusalOf says why the client's request m is not to be sent, by the rules that all transports
// have in common. ErrDuplicateID: its id is in use, and Send must not accept m. A Fault is
// the answer to m: as many as most requests of the client are in progress (0: no limit), or m is
// a second initialize, after one that has succeeded, while a session is there (open). Both nil: m may be sent. The lock is held.
func (l *Ledger[C, S]) RefusalOf(m jsonrpc.Message, most int, open bool) (*httpdial.Fault, error) {
	switch _, used := l.calls[m.ID()]; {
	case used:
		return nil, ErrDuplicateID
	case most > 0 && l.clientCallCount >= most:
		return TooManyRequestsFault(), nil
	case open && l.State.InitializeSucceeded && m.Method() == "initialize":
		return httpdial.AlreadyInitializedFault(), nil
	}
	return nil, nil
}

// TooManyRequestsFault returns the fault of a request that is refused because as many are in progress as
// may be.
func TooManyRequestsFault() *httpdial.Fault {
	return &httpdial.Fault{Reason: httpdial.ReasonTooManyRequests, Text: "too many requests in progress"}
}

// Add enters a call that is in progress from now on. The lock is held.
func (l *Ledger[C, S]) Add(call C) {
	if l.calls == nil {
		l.calls = make(map[jsonrpc.ID]C)
	}
	l.calls[call.ID()] = call
	if !call.IsFromBridge() {
		l.clientCallCount++
	}
}

// Has reports whether call is in progress. The lock is held.
func (l *Ledger[C, S]) Has(call C) bool { return l.calls[call.ID()] == call }

// Remove takes out a call, which is in progress, and calls its OnRemoved. The lock is held.
func (l *Ledger[C, S]) Remove(call C) {
	delete(l.calls, call.ID())
	if !call.IsFromBridge() {
		l.clientCallCount--
	}
	call.OnRemoved()
}

// Select returns the calls in progress for which wanted returns true, in any order; they stay in the Ledger. The lock is held.
func (l *Ledger[C, S]) Select(wanted func(C) bool) []C {
	var some []C
	for _, call := range l.calls {
		if wanted(call) {
			some = append(some, call)
		}
	}
	return some
}

// CancelledCall returns the call that the client's message m cancels; the zero C: none. A
// client cannot cancel the bridge's own calls. The lock is held.
func (l *Ledger[C, S]) CancelledCall(m jsonrpc.Message) (target C) {
	if m.Method() != "notifications/cancelled" {
		return target
	}
	if _, call, ok := jsonrpc.Find(l.calls, m.CancelledID()); ok && !call.IsFromBridge() {
		target = call
	}
	return target
}

// ClaimByID takes out the call that a response with this id answers, so that the caller has to answer
// it. False: there is no such call (any more). It takes the lock.
func (l *Ledger[C, S]) ClaimByID(id jsonrpc.ID) (call C, ok bool) {
	l.Lock()
	defer l.Unlock()
	if _, call, ok = jsonrpc.Find(l.calls, id); ok {
		l.Remove(call)
	}
	return call, ok
}

// ClaimCall takes out a call, so that the caller has to answer it. False: somebody else has taken it out.
// It takes the lock.
func (l *Ledger[C, S]) ClaimCall(call C) bool {
	l.Lock()
	defer l.Unlock()
	if !l.Has(call) {
		return false
	}
	l.Remove(call)
	return true
}

// OpenInitializeGate closes gate, which lets the messages pass that have waited for it. InitializeGate is
// nil then, unless it is another one. It takes the lock.
func (l *Ledger[C, S]) OpenInitializeGate(gate chan struct{}) {
	l.Lock()
	defer l.Unlock()
	if l.InitializeGate == gate {
		l.InitializeGate = nil
	}
	close(gate)
}

// NoteServerMessage notes a request of the server as open in the session, or that the server has cancelled one, and returns the
// message with the ids that the client knows. Other notifications are returned as they are. False: it is a request, which is
// returned as it is and was not noted, because too many of this session are open. The caller refuses it, or hands it on; the
// client's response to it is then one for which State.RouteResponse knows no session. It takes the lock.
func (l *Ledger[C, S]) NoteServerMessage(session S, m jsonrpc.Message) (jsonrpc.Message, bool) {
	switch {
	case m.Kind() == jsonrpc.Request:
		l.Lock()
		defer l.Unlock()
		return l.State.NoteServerRequest(session, m)
	case m.Method() == "notifications/cancelled":
		l.Lock()
		defer l.Unlock()
		return l.State.ForgetCancelled(session, m), true
	}
	return m, true
}

// RememberSetting keeps m, a request of the client that has succeeded, if a new session would have to be
// told as well: a subscription or the log level; an unsubscription makes it forget the subscription. False:
// there is no room for it. It takes the lock.
func (l *Ledger[C, S]) RememberSetting(m jsonrpc.Message) bool {
	l.Lock()
	defer l.Unlock()
	return l.State.RememberSetting(m)
}
