package stdio

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

var benchSizes = []struct {
	name string
	size int
}{{"100B", 100}, {"10KB", 10_000}, {"1MB", 1_000_000}}

func benchMessage(size int) jsonrpc.Message {
	const frame = `{"jsonrpc":"2.0","method":"notifications/message","params":{"pad":""}}`
	return jsonrpc.NewNotification("notifications/message", []byte(`{"pad":"`+strings.Repeat("x", max(size-len(frame), 0))+`"}`))
}

// plain hides what else a reader can do.
type plain struct{ io.Reader }

// BenchmarkRoundTrip is a message there and back over two pipes of the
// operating system, for each way to read.
func BenchmarkRoundTrip(b *testing.B) {
	for _, s := range benchSizes {
		for _, way := range []struct {
			name string
			wrap func(*os.File) io.Reader
		}{
			{"direct", func(f *os.File) io.Reader { return f }},
			{"background", func(f *os.File) io.Reader { return plain{f} }},
		} {
			b.Run(s.name+"/"+way.name, func(b *testing.B) {
				ar, bw := osPipe(b)
				br, aw := osPipe(b)
				x := NewConn(way.wrap(ar), aw, closeAll(ar, aw), Options{})
				y := NewConn(way.wrap(br), bw, closeAll(br, bw), Options{})
				benchRoundTrip(b, x, y, benchMessage(s.size))
			})
		}
	}
}

func benchRoundTrip(b *testing.B, x, y *Conn, m jsonrpc.Message) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- y.Receive(ctx, y) }() // sends back what it receives
	b.SetBytes(int64(2 * len(m.Bytes())))
	b.ReportAllocs()
	bridgetest.Must(b, x.Send(ctx, m))
	enough := errors.New("enough")
	err := x.Receive(ctx, bridgetest.SinkFunc(func(ctx context.Context, m jsonrpc.Message) error {
		if !b.Loop() {
			return enough
		}
		return x.Send(ctx, m)
	}))
	if err != enough {
		b.Fatal(err)
	}
	cancel()
	x.Close(nil)
	y.Close(nil)
	<-done
}

// BenchmarkFloor is the same without a Conn: bytes through the same pipes.
func BenchmarkFloor(b *testing.B) {
	for _, s := range benchSizes {
		b.Run(s.name, func(b *testing.B) {
			ar, bw := osPipe(b)
			br, aw := osPipe(b)
			m := new(benchMessage(s.size)).Bytes()
			done := make(chan struct{})
			go func() {
				defer close(done)
				buf := make([]byte, len(m))
				for {
					if _, err := io.ReadFull(br, buf); err != nil {
						return
					}
					if _, err := bw.Write(buf); err != nil {
						return
					}
				}
			}()
			buf := make([]byte, len(m))
			b.SetBytes(int64(2 * len(m)))
			for b.Loop() {
				if _, err := aw.Write(m); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(ar, buf); err != nil {
					b.Fatal(err)
				}
			}
			closeAll(aw, bw, ar, br)()
			<-done
		})
	}
}
