package remoteconn

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// restoreSettingsTimeout bounds how long a new session may take to be told the client's subscriptions and
// log level.
const restoreSettingsTimeout = 10 * time.Second

// A ReplacementSession is one that is to take the place of a lost one.
type ReplacementSession interface {
	// SendRequest makes a request of the bridge's own in the session, and waits for the response, which may be an error. A
	// Fault says why there is none.
	SendRequest(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, *httpdial.Fault)

	// SendNotification sends a notification of the bridge's own in the session. A Fault says that it could not be sent.
	SendNotification(ctx context.Context, m jsonrpc.Message) *httpdial.Fault

	// OnInitialized is called, with the lock of the Ledger held, with the result that the server has answered to
	// initialize, and with notifications that everything may have changed, which the client may be told when the session is
	// renewed (sessionstate.State.ChangeNotifications).
	OnInitialized(answer jsonrpc.Message, changed []jsonrpc.Message)
}

// RenewalOptions are what Ledger.RenewSession needs to know of the Conn.
type RenewalOptions struct {
	Server            string        // names the server in texts
	InitializeTimeout time.Duration // bounds initialize and notifications/initialized together; 0: no limit
	Log               hclog.Logger  // is told of settings that fail; not nil
}

// RenewSession opens the new session s for the client. It sends the client's own initialize, with
// an id of the bridge's own, and initialized; then the client's subscriptions and log level (LE5).
// If one of these settings fails, that is only logged. A fault means that there is no session.
func (l *Ledger[C, S]) RenewSession(ctx context.Context, s ReplacementSession, r RenewalOptions) *httpdial.Fault {
	l.Lock()
	initialize, initialized := l.State.OpeningMessages()
	l.Unlock()
	if fault := l.initialize(ctx, s, r, initialize, initialized); fault != nil {
		return fault
	}
	ctx, cancel := context.WithTimeout(ctx, restoreSettingsTimeout)
	defer cancel()
	l.Lock()
	settings := l.State.SettingRequests()
	l.Unlock()
	for _, m := range settings {
		if answer, fault := s.SendRequest(ctx, m); fault != nil || answer.IsError() {
			r.Log.Warn("the new session did not take over a setting of the old one", "method", m.Method())
		}
	}
	return nil
}

// initialize sends the messages initialize and initialized, which open the new session s, and calls
// s.OnInitialized between them. A fault means that there is no session.
func (l *Ledger[C, S]) initialize(ctx context.Context, s ReplacementSession, r RenewalOptions, initialize, initialized jsonrpc.Message) *httpdial.Fault {
	if r.InitializeTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.InitializeTimeout)
		defer cancel()
	}
	answer, fault := s.SendRequest(ctx, initialize)
	switch {
	case fault != nil:
		return fault
	case answer.IsError():
		return &httpdial.Fault{Reason: httpdial.ReasonInitializeRefused, ServerError: answer, Text: r.Server + " refused to initialize the session again"}
	}
	l.Lock()
	s.OnInitialized(answer, l.State.ChangeNotifications(answer))
	l.Unlock()
	return s.SendNotification(ctx, initialized)
}
