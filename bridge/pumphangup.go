package bridge

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// hangUpEvery is how often a Pump looks after a client while the server does not take
// what that has sent.
const hangUpEvery = time.Second

// errHungUp ends the client's direction when the server takes nothing more, and the
// client does not wait for it either.
var errHungUp = errors.New("the client has hung up, and the server reads nothing more")

// hand sends the server what the client has sent. As long as that waits nobody
// receives from the client, so its end has to be found out in another way: it must not
// keep its server, nor its place, for as long as the server reads nothing.
func (p *pump) hand(ctx context.Context, m jsonrpc.Message) error {
	switch {
	case p.try != nil && p.try(m):
		return nil
	case p.hungUp == nil:
		return p.server.Send(ctx, m)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sent, looked := make(chan struct{}), make(chan struct{})
	left := false
	look := time.AfterFunc(hangUpEvery, func() {
		defer close(looked)
		if left = p.leaves(sent); left {
			cancel()
		}
	})
	err := p.server.Send(ctx, m)
	if look.Stop() { // mostly so
		return err
	}
	close(sent)
	<-looked
	if err != nil && left {
		return errHungUp
	}
	return err
}

// leaves waits until the client is gone, or it is Drain ago that it has sent its last,
// as it would be waited for answers then. It is false when sent is closed before.
func (p *pump) leaves(sent <-chan struct{}) bool {
	look := time.NewTicker(hangUpEvery)
	defer look.Stop()
	var since time.Time // when the client's last was seen
	for {
		if err := p.hungUp(); err != nil {
			if since.IsZero() {
				since = time.Now()
			}
			if !errors.Is(err, io.EOF) || time.Since(since) >= orDefault(p.opts.Drain, DefaultDrain) {
				return true
			}
		}
		select {
		case <-sent:
			return false
		case <-look.C:
		}
	}
}
