package bridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Serve returns a Handler that gives each client a server Conn of its own from
// d, pumps between the two, and closes both: the client first, so that nobody
// waits for an answer until a slow server has stopped.
//
// When there is no server to be had, each request is answered with an error
// that says so and no more: the reason may name files and hosts, so it is only
// returned.
func Serve(d Dialer, opts PumpOptions) Handler {
	return HandlerFunc(func(ctx context.Context, client Conn) error {
		server, err := d.Dial(ctx)
		if err != nil {
			refuseAll(ctx, client)
			return fmt.Errorf("no server: %w", err)
		}
		err = Pump(ctx, client, server, opts)
		return errors.Join(err, client.Close(), server.Close())
	})
}

// refuseAll answers a client in place of a server that is not there.
func refuseAll(ctx context.Context, client Conn) {
	for {
		m, err := client.Recv(ctx)
		if err != nil {
			return
		}
		if m.Kind() != jsonrpc.Request {
			continue
		}
		e := jsonrpc.NewError(m.ID(), jsonrpc.CodeInternalError,
			"the server could not be started; the bridge's log says why", []byte(`{"reason":"server_unavailable"}`))
		if client.Send(ctx, e) != nil {
			return
		}
	}
}
