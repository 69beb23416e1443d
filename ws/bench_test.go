package ws

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// benchSession opens a session, and counts the writes to its client.
func benchSession(b *testing.B) (*session, *raw, *atomic.Int64) {
	s := &site{sessions: make(chan *session, 1), quit: make(chan error), over: make(chan error, 1)}
	s.start(b, HandlerOptions{})
	c := s.dialRaw(b, nil)
	session := <-s.sessions
	var writes atomic.Int64
	session.wire.mu.Lock()
	session.wire.rwc = &countingConn{session.wire.rwc, &writes}
	session.wire.mu.Unlock()
	return session, c, &writes
}

type countingConn struct {
	io.ReadWriteCloser
	n *atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.ReadWriteCloser.Write(p)
}

// BenchmarkNotifications: a session sends notifications of 100 bytes to a
// reader that does nothing with them, over TCP.
func BenchmarkNotifications(b *testing.B) {
	session, c, writes := benchSession(b)
	m := msg(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + strings.Repeat("x", 29) + `"}}`)
	if len(m.Bytes()) != 100 {
		b.Fatal(len(m.Bytes()))
	}
	r := bufio.NewReaderSize(c.r, 64<<10)
	b.ReportAllocs()
	b.SetBytes(int64(len(m.Bytes())))
	b.ResetTimer()
	go func() {
		for range b.N {
			if session.Send(context.Background(), m) != nil {
				return
			}
		}
	}()
	for range b.N {
		if _, err := r.Discard(len(m.Bytes()) + 2); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64(writes.Load())/float64(b.N), "writes/msg")
}

// BenchmarkReceive is the other direction: a client's notifications.
func BenchmarkReceive(b *testing.B) {
	session, c, _ := benchSession(b)
	one := frame(fin|opText, []byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`+strings.Repeat("x", 29)+`"}}`))
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		w := bufio.NewWriterSize(c.conn, 64<<10)
		for range b.N {
			if _, err := w.Write(one); err != nil {
				return
			}
		}
		w.Flush()
	}()
	enough := errors.New("enough")
	n := 0
	if err := session.Receive(context.Background(), counter(func() error {
		if n++; n == b.N {
			return enough
		}
		return nil
	})); err != enough {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}

// counter is a Sink that takes messages at once, until it returns an error.
type counter func() error

func (f counter) TrySend(jsonrpc.Message) bool { return false }

func (f counter) Send(context.Context, jsonrpc.Message) error { return f() }

// BenchmarkCall is one call at a time, there and back: from a Client to a
// session that answers.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{100, 10_000, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			s := &site{}
			s.answer = func(ctx context.Context, c bridge.Conn) error {
				return c.Receive(ctx, echo{c})
			}
			s.start(b, HandlerOptions{})
			client, err := (&Client{URL: s.url()}).Dial(context.Background())
			bridgetest.Must(b, err)
			defer client.Close(nil)
			if err := client.Send(context.Background(), msg(initializeText)); err != nil { // a first message is smaller
				b.Fatal(err)
			}
			if _, err := bridgetest.Recv(context.Background(), client); err != nil {
				b.Fatal(err)
			}
			params := []byte(`{"s":"` + strings.Repeat("x", size) + `"}`)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				m := jsonrpc.NewRequest(jsonrpc.IntID(int64(n)), "tools/call", params)
				bridgetest.Must(b, client.Send(context.Background(), m))
				if _, err := bridgetest.Recv(context.Background(), client); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// echo is a Sink that answers requests.
type echo struct{ bridge.Sink }

func (e echo) TrySend(m jsonrpc.Message) bool { return e.Sink.TrySend(e.answer(m)) }

func (e echo) Send(ctx context.Context, m jsonrpc.Message) error {
	return e.Sink.Send(ctx, e.answer(m))
}

func (e echo) answer(m jsonrpc.Message) jsonrpc.Message {
	return jsonrpc.NewResult(m.ID(), m.Params())
}

// BenchmarkFloor is the floor of BenchmarkCall: the same bytes on a bare TCP
// connection, answered by an echo.
func BenchmarkFloor(b *testing.B) {
	for _, size := range []int{100, 10_000, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchEcho(b, size) })
	}
}
