package bridge

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/internal/ownmsg"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// This file is how a Pump ends, and what it says itself to both sides.

// finishAfterClientEnd is called when nothing more comes from the client, for the reason err. It answers the server's
// requests, and ends subscriptions. If the client may still read, it waits for the answers that the server owes, but not
// after errHungUp. What is left is cancelled at the server (but for initialize), and answered with an error for a client
// that is still there. If the conversation is over already, it does nothing.
func (p *pump) finishAfterClientEnd(ctx, graceCtx context.Context, err error) {
	if ctx.Err() != nil { // the server ended first
		return
	}
	// Nobody answers the server's requests any more: it must not wait for answers.
	p.forEachBounded(ctx, p.serverRequests.closeAndTakeAll(false), func(ctx context.Context, c *call) {
		p.refuseServerRequest(ctx, c.id, jsonrpc.CodeInternalError, errOtherSideGone.Error())
	})
	p.endListens(ctx, isOrderlyEnd(err))
	if isOrderlyEnd(err) && err != errHungUp {
		p.drainServer(graceCtx, errors.Is(err, io.EOF))
	}
	if ctx.Err() != nil {
		return
	}
	left := p.clientRequests.closeAndTakeAll(false)
	p.forEachBounded(ctx, left, func(ctx context.Context, c *call) {
		if c.method != "initialize" {
			p.cancelAtServer(ctx, c.idAtServer(), "the client has gone")
		}
	})
	if isOrderlyEnd(err) {
		text, data := ErrClosing.Error(), ownmsg.ShuttingDownData
		if err == errHungUp {
			text, data = err.Error(), ownmsg.TimedOutData
		}
		p.forEachBounded(ctx, left, func(ctx context.Context, c *call) {
			p.answerWithError(ctx, c.id, jsonrpc.CodeInternalError, text, data)
		})
	}
}

// awaitClientSend waits until the client has taken the message that it is just being sent, for FinalSendTimeout at
// most: if the message were broken off, it would be the last that the client reads, and no valid one.
func (p *pump) awaitClientSend() {
	t := time.NewTimer(ownmsg.FinalSendTimeout)
	defer t.Stop()
	select {
	case p.sendingToClient <- struct{}{}: // nothing is being sent
		<-p.sendingToClient
	case <-t.C:
	case <-p.ctx.Done():
	}
}

// endListens ends the client's open subscriptions: they are cancelled at the server. listening: the client is there,
// and is told. Nobody waits for what the server might still say about them: it may be silent for ever.
func (p *pump) endListens(ctx context.Context, listening bool) {
	p.listensEnded.Store(true)
	open := p.clientRequests.takeListens()
	p.forEachBounded(ctx, open, func(ctx context.Context, c *call) {
		p.cancelAtServer(ctx, c.id, "the client has gone")
	})
	p.forEachBounded(ctx, open, func(ctx context.Context, c *call) {
		if listening {
			p.endListen(ctx, c.id)
		}
		p.clientRequests.answerDelivered()
	})
}

// forEachBounded calls part for each of calls, which says something about it to a side that may take nothing: all of
// it together takes no longer than FinalSendTimeout.
func (p *pump) forEachBounded(ctx context.Context, calls []*call, part func(ctx context.Context, c *call)) {
	ctx, cancel := context.WithTimeout(ctx, ownmsg.FinalSendTimeout)
	defer cancel()
	for _, c := range calls {
		part(ctx, c)
	}
}

// drainServer waits until the server owes nothing, or graceCtx is done, or the client is gone, and after drainNoticeAfter
// tells OnClientEOF that it waits. A client that may still read (isOrderlyEnd), or from which nothing is received any more
// because the server has ended, is not gone. clientEnd: the client has sent its last, and the wait lasts no longer than
// DrainTimeout; there is none if that is negative.
func (p *pump) drainServer(graceCtx context.Context, clientEnd bool) {
	var enough <-chan time.Time
	if d := orDefault(p.opts.DrainTimeout, DefaultDrainTimeout); clientEnd {
		if d < 0 {
			return
		}
		t := time.NewTimer(d)
		defer t.Stop()
		enough = t.C
	}
	gone, drained := p.clientReceive.done(), p.clientRequests.whenEmpty()
	owing := time.NewTimer(drainNoticeAfter)
	defer owing.Stop()
	for {
		select {
		case <-owing.C:
			if p.opts.OnClientEOF != nil {
				p.opts.OnClientEOF(p.clientRequests.owedCounts())
			}
			continue
		case <-gone:
			if why := p.clientReceive.cause(); isOrderlyEnd(why) || why == errServerEnded {
				gone = nil // told to stop, but somebody still listens
				continue
			}
		case <-drained:
		case <-enough:
		case <-graceCtx.Done():
		}
		return
	}
}

// failOwedRequests ends all requests of the client that have no answer, because the server has ended with err. A subscription
// gets its orderly end (endListen), which is no error; every other request is answered with an error. owed: there was
// something else than subscriptions.
func (p *pump) failOwedRequests(ctx context.Context, err error) (owed bool) {
	text, data := ownmsg.Ending(err)
	p.serverEndText, p.serverEndData = text, data
	for _, c := range p.clientRequests.closeAndTakeAll(true) {
		if c.method == ownmsg.Listen {
			p.endListen(ctx, c.id)
		} else {
			p.answerWithError(ctx, c.id, jsonrpc.CodeInternalError, text, data)
			owed = true
		}
		p.clientRequests.answerDelivered()
	}
	return owed
}

// endListen sends the client the end of its subscription id (ST13).
func (p *pump) endListen(ctx context.Context, id jsonrpc.ID) {
	result, cancelled := ownmsg.ListenEnd(id)
	for _, m := range []jsonrpc.Message{result, cancelled} {
		if err := p.client.Send(ctx, m); err != nil {
			p.reportDropped(m, "the client did not take it")
		}
	}
}

// answerWithError answers the client's request id with an error of the bridge's own.
func (p *pump) answerWithError(ctx context.Context, id jsonrpc.ID, code int, text string, data []byte) {
	m := jsonrpc.NewError(id, code, text, data)
	if err := p.client.Send(ctx, m); err != nil {
		p.reportDropped(m, "the client did not take it")
	}
}

// cancelAtServer tells the server that nobody waits for the answer to a request any more; id is the one that the
// server knows, why a text.
func (p *pump) cancelAtServer(ctx context.Context, id jsonrpc.ID, why string) {
	ctx, cancel := context.WithTimeout(ctx, ownmsg.FinalSendTimeout)
	defer cancel()
	m := ownmsg.Cancellation(id, why)
	if err := p.server.Send(ctx, m); err != nil {
		p.reportDropped(m, "the server did not take it")
	}
}

// reportDropped tells PumpOptions.Dropped that m reaches nobody, for this reason.
func (p *pump) reportDropped(m jsonrpc.Message, reason string) {
	if p.opts.Dropped != nil {
		p.opts.Dropped(m, reason)
	}
}
