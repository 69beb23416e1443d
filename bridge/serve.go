package bridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/bridge/admission"
	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Serve returns a Handler that gives each client a server Conn of its own from
// d, pumps between the two, and closes both: the client first, so that nobody
// waits for an answer until a slow server has stopped.
//
// When there is no server to be had, each request is answered with an error
// that says so and no more: the reason may name files, so it is only returned.
// Clients see the text of ErrBusy, ErrClosing or ErrReclaimed if the error of Dial
// wraps one of them, but not what it adds. An error with a method PublicError() string has
// its own text for clients; with a method PublicData() []byte it says what data
// goes with that, nil: the usual. ErrBusy and ErrReclaimed end the conversation
// with the first answer, so that who tries again begins anew. Without a server the
// client's Conn is not closed here: whoever has called the Handler does that.
func Serve(d Dialer, opts PumpOptions) Handler {
	return HandlerFunc(func(ctx context.Context, client Conn) error {
		server, err := d.Dial(ctx)
		if err != nil {
			return serveWithoutServer(ctx, client, err)
		}
		return closeBoth(client, server, newPump(ctx, client, server, &opts).run(ctx))
	})
}

// closeBoth closes client, with err as the reason, and then server, after a Pump between them has returned err. It
// returns err with the errors of closing. It is not inlined into the Handler of Serve, because a goroutine that waits there
// should need little stack: there are as many as there are sessions.
//
//go:noinline
func closeBoth(client, server Conn, err error) error {
	return errors.Join(err, client.Close(err), server.Close(nil))
}

// serveWithoutServer serves a client for which Dial has returned why: it answers requests with errors (refuseAll), and
// returns an error that wraps why.
func serveWithoutServer(ctx context.Context, client Conn, why error) error {
	refuseAll(ctx, client, why)
	return fmt.Errorf("no server: %w", why)
}

// Unavailable returns the error response for the request id where the server could not be had: err is that of
// Dialer.Dial. What clients may see of err is said at Serve.
func Unavailable(id jsonrpc.ID, err error) jsonrpc.Message {
	text, data := ownmsg.Unavailable(err)
	return jsonrpc.NewError(id, jsonrpc.CodeInternalError, text, data)
}

// refuseAll answers each request of a client with an error, until the client ends, because Dial has returned why. If
// that is ErrBusy or ErrReclaimed, it ends with the first answer.
func refuseAll(ctx context.Context, client Conn, why error) {
	defer admission.MarkUnused(ctx)()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	_ = client.Receive(ctx, &unavailableSink{client: client, why: why, stop: stop})
}

// unavailableSink is the Sink of a client for which there is no server: it answers requests with an error, and drops
// all else.
type unavailableSink struct {
	client Conn               // the client, to which the errors are sent
	why    error              // the error with which Dial has failed
	stop   context.CancelFunc // ends the Receive that the Sink is for
}

// TrySend implements Sink: it takes, and drops, all messages but requests. A request is left to Send.
func (r *unavailableSink) TrySend(m jsonrpc.Message) bool { return m.Kind() != jsonrpc.Request }

// Send implements Sink: it answers a request with an error, and drops any other message.
func (r *unavailableSink) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Request {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ownmsg.FinalSendTimeout) // what was received is answered
	defer cancel()
	err := r.client.Send(ctx, Unavailable(m.ID(), r.why))
	if errors.Is(r.why, ErrBusy) || errors.Is(r.why, ErrReclaimed) {
		r.stop()
	}
	return err
}
