package sseclient

import (
	"context"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// BenchmarkBoth is a session's Conn sending to the Client's Conn.
func BenchmarkBoth(b *testing.B) {
	note := jsonrpc.NewNotification("notifications/message", []byte(`{"level":"info","data":"`+strings.Repeat("x", 15)+`"}`))
	client, session, stop := newContractPair(b)
	defer stop()
	defer client.Close(nil)
	b.Run("100B", func(b *testing.B) {
		b.ReportAllocs()
		n := b.N
		done := make(chan error, 1)
		go func() {
			var err error
			for i := 0; i < n && err == nil; i++ {
				err = session.Send(b.Context(), note)
			}
			done <- err
		}()
		for range n {
			if _, err := bridgetest.Recv(b.Context(), client); err != nil {
				b.Fatal(err)
			}
		}
		bridgetest.Must(b, <-done)
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "messages/s")
	})
	b.Run("call", func(b *testing.B) {
		b.ReportAllocs()
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- echo.ServeConn(ctx, session) }()
		for i := range b.N {
			bridgetest.Must(b, client.Send(ctx, jsonrpc.NewRequest(jsonrpc.IntID(int64(i)), "tools/call", []byte(`{}`))))
			if _, err := bridgetest.Recv(ctx, client); err != nil {
				b.Fatal(err)
			}
		}
		cancel()
		<-done
	})
}
