package bridge_test

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// J2: a client that uses the id of a cancelled request again never gets the late answer to that one.
func TestPumpReusedID(t *testing.T) {
	const (
		cancelOne = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		timedOut  = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the server did not answer within 10s","data":{"reason":"timeout"}}}`
		lateOne   = `{"jsonrpc":"2.0","id":1,"result":{"late":true}}`
		otherCall = `{"jsonrpc":"2.0","id":"mcp-bridge-1","method":"tools/call"}`
		otherOne  = `{"jsonrpc":"2.0","id":"mcp-bridge-1","result":{}}`
	)
	afterCancel := func(name string, opts bridge.PumpOptions, cancel, then func(t *testing.T, p *pumping)) {
		bubble(t, name, func(t *testing.T) {
			p := pump(t, opts)
			p.client.Says(callOne)
			p.server.Gets(callOne)
			cancel(t, p)
			p.client.Says(callOne)
			p.server.Gets(otherCall)
			then(t, p)
			p.client.End <- io.EOF
			p.ended(t)
		})
	}
	byClient := func(t *testing.T, p *pumping) {
		p.client.Says(cancelOne)
		p.server.Gets(cancelOne)
	}
	byTime := func(t *testing.T, p *pumping) {
		time.Sleep(10 * time.Second)
		p.client.Gets(timedOut)
		p.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"timed out"}}`)
	}
	answered := func(t *testing.T, p *pumping) {
		p.server.Says(lateOne)
		p.client.Gets()
		p.server.Says(lateOne) // once more, which no server should do
		p.client.Gets()
		p.server.Says(otherOne)
		p.client.Gets(resultOne)
		// The server has no other answer to give under this id.
		p.client.Says(callOne)
		p.server.Gets(callOne)
		p.server.Says(resultOne)
		p.client.Gets(resultOne)
	}
	afterCancel("cancelled", bridge.PumpOptions{}, byClient, answered)
	afterCancel("timed out", bridge.PumpOptions{RequestTimeout: 10 * time.Second}, byTime, answered)
	afterCancel("never answered", bridge.PumpOptions{}, byClient, func(t *testing.T, p *pumping) {
		p.server.Says(otherOne)
		p.client.Gets(resultOne)
	})
	afterCancel("in use", bridge.PumpOptions{}, byClient, func(t *testing.T, p *pumping) {
		p.client.Says(callOne)
		p.client.Gets(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a request with this id is already in progress"}}`)
		p.client.Says(otherCall) // the client's own id happens to be that
		p.server.Gets(`{"jsonrpc":"2.0","id":"mcp-bridge-2","method":"tools/call"}`)
		p.server.Says(`{"jsonrpc":"2.0","id":"mcp-bridge-2","result":{}}`)
		p.client.Gets(otherOne)
		p.server.Says(otherOne)
		p.client.Gets(resultOne)
	})
	afterCancel("cancelled again", bridge.PumpOptions{}, byClient, func(t *testing.T, p *pumping) {
		p.client.Says(cancelOne)
		p.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"mcp-bridge-1"}}`)
		p.client.Says(callOne)
		p.server.Gets(`{"jsonrpc":"2.0","id":"mcp-bridge-2","method":"tools/call"}`)
		p.server.Says(otherOne)
		p.client.Gets()
		p.server.Says(`{"jsonrpc":"2.0","id":"mcp-bridge-2","result":{}}`)
		p.client.Gets(resultOne)
	})
	bubble(t, "another spelling was cancelled", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(callOne)
		p.client.Says(`{"jsonrpc":"2.0","id":1.0,"method":"tools/call"}`)
		p.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.0}}`)
		p.server.Says(resultOne)
		p.client.Gets(resultOne)
		p.client.End <- io.EOF
		p.ended(t)
	})
	bubble(t, "the client leaves", func(t *testing.T) {
		p := pump(t, bridge.PumpOptions{})
		p.client.Says(callOne)
		p.server.Gets(callOne)
		byClient(t, p)
		p.client.Says(callOne)
		p.server.Gets(otherCall)
		p.client.End <- io.ErrUnexpectedEOF
		p.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"mcp-bridge-1","reason":"the client has gone"}}`)
		p.ended(t)
	})
}

// B.4: what the transport relates to such a request is related to it for the client, too.
func TestPumpReusedIDRelated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := relationsOf{bridgetest.NewPeer(t, 100), make(chan jsonrpc.ID, 2)}, bridgetest.NewPeer(t, 100)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = bridge.Pump(t.Context(), client, relating{server, jsonrpc.StringID("mcp-bridge-1")}, bridge.PumpOptions{})
		}()
		for _, text := range []string{callOne, cancelledNote("1"), callOne} {
			client.Says("%s", text)
		}
		synctest.Wait()
		server.Says(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`)
		server.Says(`{"jsonrpc":"2.0","id":7,"method":"roots/list"}`)
		for range 2 {
			if id := <-client.related; id != jsonrpc.IntID(1) {
				t.Errorf("related to %v, want the client's id", id)
			}
		}
		client.End <- io.EOF
		<-done
	})
}

// relating is a server whose messages are related to a request.
type relating struct {
	*bridgetest.Peer
	to jsonrpc.ID
}

func (r relating) Receive(ctx context.Context, sink bridge.Sink) error {
	return r.Peer.Receive(ctx, relatingSink{sink, r.to})
}

type relatingSink struct {
	bridge.Sink
	to jsonrpc.ID
}

func (s relatingSink) TrySend(m jsonrpc.Message) bool { return s.Sink.TrySend(m.WithRelated(s.to)) }

func (s relatingSink) Send(ctx context.Context, m jsonrpc.Message) error {
	return s.Sink.Send(ctx, m.WithRelated(s.to))
}

// relationsOf tells to what the messages are related that a client gets.
type relationsOf struct {
	*bridgetest.Peer
	related chan jsonrpc.ID
}

func (r relationsOf) Send(ctx context.Context, m jsonrpc.Message) error {
	if m.Kind() != jsonrpc.Response {
		r.related <- m.Related()
	}
	return r.Peer.Send(ctx, m)
}
