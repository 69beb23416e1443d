package streamclient

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Whatever the server does, over real HTTP: each request gets one answer, the
// last message that comes for it, but those that were cancelled get at most one.
func TestModernChaos(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m := msg(string(body))
		switch rand.N(8) {
		case 0:
			cut()
		case 1:
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/n"}`))
			cut()
		case 2:
			writeStatus(w, 400, failure(m, "-32020", "no"))
		case 3:
			writeStatus(w, 500, "")
		case 4:
			writeSSE(w, sseEvent("", `{"jsonrpc":"2.0","method":"notifications/n"}`)+sseEvent("", result(m, "{}")))
			<-r.Context().Done() // never ends by itself
		case 5:
			select {
			case <-r.Context().Done():
			case <-release:
			}
		case 6:
			writeSSE(w, sseEvent("", result(m, `{"tools":[`+regionTool+`,`+invalidTool+`]}`)))
		default:
			writeJSON(w, result(m, "{}"))
		}
	}))
	defer server.Close()
	conn, err := (&ModernClient{URL: server.URL, Options: ModernOptions{MaxInFlight: 64}}).Dial(t.Context())
	bridgetest.Must(t, err)
	defer conn.Close(nil)

	const senders, each = 8, 40
	var mu sync.Mutex
	answered := map[string]chan struct{}{} // closed when the answer has come
	cancelled := map[string]bool{}
	for s := range senders {
		for i := range each {
			answered[fmt.Sprint(s*1000+i)] = make(chan struct{})
		}
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		for {
			m, err := bridgetest.Recv(t.Context(), conn)
			if err != nil {
				return
			}
			id := m.Related().String()
			select {
			case <-answered[id]:
				t.Errorf("%s came after the answer to %s", m.Bytes(), id)
			default:
			}
			if m.Kind() == jsonrpc.Response {
				if m.ID().String() != id {
					t.Errorf("%s came for %s", m.Bytes(), id)
				}
				close(answered[id])
			}
		}
	}()
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprint(s*1000 + i)
				method := []string{"tools/call", "tools/list", "prompts/get", "resources/read"}[rand.N(4)]
				if err := conn.Send(t.Context(), msg(modern(id, method, `"name":"é","uri":"é"`))); err != nil {
					t.Error(err)
				}
				if rand.N(2) == 0 {
					continue
				}
				mu.Lock()
				cancelled[id] = true
				mu.Unlock()
				if err := conn.Send(t.Context(), msg(cancelOf(id))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(release)
	for id, done := range answered {
		if !cancelled[id] {
			<-done
		}
	}
	conn.Close(nil)
	<-received
}
