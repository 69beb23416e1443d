package streamclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// The modern client keeps the contract of bridge.Conn, over real HTTP, with a
// server that sends what it sends as the reply to a subscription.
func TestModernContract(t *testing.T) {
	bridgetest.TestConn(t, newModernPair, bridgetest.Options{
		NoEOFAt:     "a", // the end of a reply is the end of a request, not of the server
		LateSendsAt: "a", // each message is a POST of its own
	})
}

func newModernPair(t *testing.T) (client, peer bridge.Conn, stop func()) {
	p := &modernPeer{
		out: make(chan modernOut), open: make(chan struct{}), gone: make(chan struct{}), closed: make(chan struct{}),
	}
	p.Conn, p.posted = bridge.Pipe()
	server := httptest.NewServer(p)
	client, err := (&ModernClient{URL: server.URL}).Dial(t.Context())
	bridgetest.Must(t, err)
	bridgetest.Must(t, client.Send(t.Context(), msg(modern("1", "subscriptions/listen", ""))))
	<-p.open
	return client, p, server.Close
}

// modernPeer is a server as a Conn: Receive gives the notifications that are
// POSTed, Send writes into the reply of the one subscription.
type modernPeer struct {
	bridge.Conn             // gives what is POSTed
	posted      bridge.Conn // its other end
	out         chan modernOut
	open        chan struct{} // closed when the subscription has come
	gone        chan struct{} // closed when it was cancelled
	closed      chan struct{}
	once        sync.Once
}

type modernOut struct {
	m    jsonrpc.Message
	done chan error
}

func (p *modernPeer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	m := msg(string(body))
	if m.Kind() == jsonrpc.Request {
		p.stream(w, r)
		return
	}
	if p.posted.Send(r.Context(), m) != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (p *modernPeer) stream(w http.ResponseWriter, r *http.Request) {
	writeSSE(w, ": open\n\n")
	close(p.open)
	for {
		select {
		case o := <-p.out:
			_, err := io.WriteString(w, sseEvent("", string(o.m.Bytes())))
			w.(http.Flusher).Flush()
			o.done <- err
		case <-r.Context().Done():
			close(p.gone)
			_ = p.posted.Close(nil)
			return
		case <-p.closed:
			return
		}
	}
}

var errPeerClosed = errors.New("the peer is closed")

func (p *modernPeer) over(ctx context.Context) error {
	select {
	case <-p.closed:
		return errPeerClosed
	default:
		return ctx.Err()
	}
}

func (p *modernPeer) Send(ctx context.Context, m jsonrpc.Message) error {
	if err := p.over(ctx); err != nil {
		return err
	}
	o := modernOut{m, make(chan error, 1)}
	select {
	case p.out <- o:
	case <-p.gone:
		return errPeerClosed
	case <-p.closed:
		return errPeerClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-o.done:
		return err
	case <-p.closed:
		return errPeerClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *modernPeer) TrySend(jsonrpc.Message) bool { return false }

func (p *modernPeer) Close(reason error) error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close(reason)
}

// BenchmarkModernClient measures a call through a Conn, and the bare net/http
// exchange of the same bytes that is its floor.
func BenchmarkModernClient(b *testing.B) {
	for _, size := range []int{100, 10_000, 1_000_000} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			m, err := jsonrpc.Parse(body)
			if err != nil || m.Method() == "tools/list" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", wire.TypeJSON)
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"pad":%s}}`, m.ID(), m.Lookup("params", "pad"))
		}))
		text := `,"method":"tools/call","params":{"name":"x",` + modernMeta + `,"pad":"` + strings.Repeat("x", size) + `"}}`
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
				benchmarkModernCalls(b, server.URL, text, inFlight)
			})
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	}
}

func benchmarkModernCalls(b *testing.B, url, text string, inFlight int) {
	conn, err := (&ModernClient{URL: url}).dial(b.Context())
	bridgetest.Must(b, err)
	defer conn.Close(nil)
	pull := conn
	conn.tools.put("x", modernTool{})
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
		if m, err := bridgetest.Recv(b.Context(), pull); err != nil || m.IsError() {
			b.Fatal(err, string(m.Bytes()))
		}
		if sent < b.N {
			send()
		}
	}
}
