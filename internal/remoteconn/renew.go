package remoteconn

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// restoreTimeout bounds how long subscriptions and the log level of a new session may take.
const restoreTimeout = 10 * time.Second

// A ReplacementSession is one that is to take the place of a lost one.
type ReplacementSession interface {
	// Ask makes a request of the bridge's own, and waits for the response.
	Ask(ctx context.Context, m jsonrpc.Message) (jsonrpc.Message, *httpdial.Fault)

	// Tell sends a notification of the bridge's own.
	Tell(ctx context.Context, m jsonrpc.Message) *httpdial.Fault

	// Opened is called, with the lock of the Ledger held, with the server's answer to
	// initialize, and with what the client may be told then: see sessionstate.State.Changed.
	Opened(answer jsonrpc.Message, changed []jsonrpc.Message)
}

// Renewal is how a session is renewed.
type Renewal struct {
	Server  string        // for texts
	Timeout time.Duration // of initialize and initialized; 0: none
	Log     hclog.Logger
}

// Renew initializes a new session in the client's place, with the client's own words but
// another id, and tells it what the client has told the old one: log level and
// subscriptions (LE5). A fault means that there is no session.
func (l *Ledger[C, S]) Renew(ctx context.Context, s ReplacementSession, r Renewal) *httpdial.Fault {
	l.Lock()
	initialize, initialized := l.State.Opening()
	l.Unlock()
	if fault := l.initialize(ctx, s, r, initialize, initialized); fault != nil {
		return fault
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	l.Lock()
	settings := l.State.Settings()
	l.Unlock()
	for _, m := range settings {
		if answer, fault := s.Ask(ctx, m); fault != nil || answer.IsError() {
			r.Log.Warn("the new session did not take over a setting of the old one", "method", m.Method())
		}
	}
	return nil
}

func (l *Ledger[C, S]) initialize(ctx context.Context, s ReplacementSession, r Renewal, initialize, initialized jsonrpc.Message) *httpdial.Fault {
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	answer, fault := s.Ask(ctx, initialize)
	switch {
	case fault != nil:
		return fault
	case answer.IsError():
		return &httpdial.Fault{Reason: httpdial.ReasonRefused, Own: answer, Text: r.Server + " refused to initialize the session again"}
	}
	l.Lock()
	s.Opened(answer, l.State.ChangeNotifications(answer))
	l.Unlock()
	return s.Tell(ctx, initialized)
}
