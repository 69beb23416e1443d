package streamclient

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// BenchmarkClient measures a call through a Conn, and the bare net/http
// exchange of the same bytes that is its floor.
func BenchmarkClient(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			m, err := jsonrpc.Parse(body)
			if err != nil || m.Kind() != jsonrpc.Request {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			w.Header().Set("Content-Type", wire.TypeJSON)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"pad":%s}}`, m.ID(), m.Lookup("params", "pad"))
		}))
		text := `,"method":"tools/call","params":{"pad":"` + strings.Repeat("x", size) + `"}}`
		b.Run(fmt.Sprintf("bare/%d", size), func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				resp, err := http.Post(server.URL, wire.TypeJSON, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d%s`, i, text)))
				bridgetest.Must(b, err)
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
		for _, inFlight := range []int{1, 32} {
			b.Run(fmt.Sprintf("conn/%d/%d", size, inFlight), func(b *testing.B) {
				conn, err := (&Client{URL: server.URL}).Dial(b.Context())
				bridgetest.Must(b, err)
				defer conn.Close(nil)
				b.ReportAllocs()
				sent := 0
				send := func() {
					m, _ := jsonrpc.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d%s`, sent, text))
					bridgetest.Must(b, conn.Send(b.Context(), m))
					sent++
				}
				for sent < min(inFlight, b.N) {
					send()
				}
				for range b.N {
					if m, err := bridgetest.Recv(b.Context(), conn); err != nil || m.IsError() {
						b.Fatal(err, string(bytes.TrimSpace(m.Bytes())))
					}
					if sent < b.N {
						send()
					}
				}
			})
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}
