package bridge

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// A request that was offered to a Pump, and waits to be offered again when everything
// stops, is answered once.
func TestByEraStopAnswersOfferedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // of answers
		answers := map[jsonrpc.ID]int{}
		client := &inboxConn{out: func(_ context.Context, m jsonrpc.Message) error {
			mu.Lock()
			defer mu.Unlock()
			answers[m.ID()]++
			return nil
		}}
		var halves []*eraClientConn
		h := HandlerFunc(func(ctx context.Context, c Conn) error {
			halves = append(halves, c.(*eraClientConn))
			server := &inboxConn{out: func(context.Context, jsonrpc.Message) error { return nil }}
			return Pump(ctx, c, server, PumpOptions{ShutdownGrace: -1})
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ByEra(h, h).ServeConn(ctx, client) }()
		for _, m := range []jsonrpc.Message{
			jsonrpc.NewRequest(jsonrpc.IntID(1), "a", []byte(`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)),
			jsonrpc.NewRequest(jsonrpc.IntID(2), "b", nil),
		} {
			client.Put(m)
			synctest.Wait()
		}
		legacy, m := halves[1], jsonrpc.NewRequest(jsonrpc.IntID(3), "b", nil)
		legacy.inbox.sendTurn.Lock() // as Inbox.TrySend does, step by step: the receiver has not woken yet
		(*splitSink)(legacy.eraSplit).halfFor(&m)
		if legacy.inbox.sink.TrySend(m) || !legacy.inbox.putBack(m) {
			t.Fatal("taken")
		}
		stop()
		<-legacy.inbox.sink.(*watchedSink).watch.ctx.Done()
		legacy.inbox.sendTurn.Unlock()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for i := range 3 {
			if id := jsonrpc.IntID(int64(i + 1)); answers[id] != 1 {
				t.Errorf("%d answers to %v, want 1", answers[id], id)
			}
		}
	})
}
