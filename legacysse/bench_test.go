package legacysse

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

var benchSizes = []struct {
	name string
	size int
}{{"100B", 100}, {"10KB", 10_000}, {"1MB", 1_000_000}}

// BenchmarkNotifications is what a server sends in one go, from the session's
// Conn over TCP to a client that only counts, and the same bytes in bare
// writes of 16 KiB, which is the floor.
func BenchmarkNotifications(b *testing.B) {
	for _, size := range benchSizes {
		const frame = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":""}}`
		pad := strings.Repeat("x", size.size-len(frame))
		note := jsonrpc.NewNotification("notifications/message", []byte(`{"level":"info","data":"`+pad+`"}`))
		event := "event: message\ndata: " + string(note.Bytes()) + "\n\n"

		b.Run(size.name, func(b *testing.B) {
			counts := make(chan int)
			h := NewHandler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
				for n := range counts {
					for range n {
						if err := c.Send(ctx, note); err != nil {
							return err
						}
					}
				}
				return nil
			}), HandlerOptions{})
			srv := httptest.NewServer(http.HandlerFunc(h.ServeSSE))
			defer srv.Close()
			defer h.Close()
			defer close(counts)
			benchStream(b, srv.Listener.Addr().String(), len(event), func(n int) { counts <- n })
		})
		b.Run(size.name+"/floor", func(b *testing.B) {
			counts := make(chan int)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte("event: endpoint\ndata: /\n\n"))
				w.(http.Flusher).Flush()
				some := max(1, 16<<10/len(event))
				many := []byte(strings.Repeat(event, some))
				for n := range counts {
					for n > 0 {
						k := min(n, some)
						_, _ = w.Write(many[:k*len(event)])
						n -= k
					}
					w.(http.Flusher).Flush()
				}
			}))
			defer srv.Close()
			defer close(counts)
			benchStream(b, srv.Listener.Addr().String(), len(event), func(n int) { counts <- n })
		})
	}
}

// benchStream has b.N events sent and reads them.
func benchStream(b *testing.B, addr string, size int, send func(n int)) {
	c, err := net.Dial("tcp", addr)
	bridgetest.Must(b, err)
	defer c.Close()
	fmt.Fprintf(c, "GET /sse HTTP/1.1\r\nHost: %s\r\n\r\n", addr)
	r := bufio.NewReaderSize(c, 256<<10)
	resp, err := http.ReadResponse(r, nil)
	bridgetest.Must(b, err)
	body := bufio.NewReaderSize(resp.Body, 256<<10)
	for range 3 { // the endpoint event
		if _, err := body.ReadSlice('\n'); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	n := b.N
	send(n)
	for left := n * size; left > 0; {
		k, err := body.Discard(min(left, 64<<10))
		bridgetest.Must(b, err)
		left -= k
	}
	b.StopTimer()
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}
