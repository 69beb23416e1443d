package ws

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// seen is a Watcher that keeps exchanges and streams.
type seen struct {
	mu        sync.Mutex
	streams   []string
	exchanges []observe.Exchange
}

func (s *seen) Message(*observe.Passed) {}

func (s *seen) Event(e observe.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := e.(type) {
	case *observe.Exchange:
		s.exchanges = append(s.exchanges, *e)
	case observe.Stream:
		s.streams = append(s.streams, e.Hop.String()+" "+e.Name+" "+e.Action+" "+e.Reason)
	}
}

// The Observer is told of the client's handshake, and when its connection is there and has ended.
func TestClientSeen(t *testing.T) {
	h := NewHandler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		m, err := bridgetest.Recv(ctx, c)
		if err == nil {
			err = c.Send(ctx, m)
		}
		<-ctx.Done()
		return err
	}), HandlerOptions{})
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Close()
	var o observe.Observer
	var told seen
	defer o.Watch(&told)()
	ctx := observe.WithSession(t.Context(), o.OpenSession("far", "stdio"))
	c, err := (&Client{URL: "ws" + strings.TrimPrefix(srv.URL, "http")}).Dial(ctx)
	bridgetest.Must(t, err)
	send(t, c, msg(initializeText))
	recv(t, c)
	bridgetest.Must(t, c.Close(nil))
	if want := []string{"up websocket opened ", "up websocket closed the bridge has closed it"}; !slices.Equal(told.streams, want) {
		t.Errorf("streams %q, want %q", told.streams, want)
	}
	if len(told.exchanges) != 1 || told.exchanges[0].Status != 101 || told.exchanges[0].Hop != observe.Upstream || told.exchanges[0].Server != "far" {
		t.Errorf("exchanges %+v, want one with status 101", told.exchanges)
	}
}
