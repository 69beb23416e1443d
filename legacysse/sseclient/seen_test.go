package sseclient

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// streams is an EventWatcher that keeps what becomes of streams.
type streams struct {
	mu  sync.Mutex
	all []string
}

func (s *streams) Event(e observe.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := e.(observe.Stream); ok {
		s.all = append(s.all, e.Hop.String()+" "+e.Name+" "+e.Action)
	}
}

// The Observer is told when the event stream is there, and when it has ended.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		var told streams
		defer o.WatchEvents(&told)()
		f := newFake(t)
		ctx := observe.WithSession(t.Context(), o.OpenSession("far", "stdio"))
		conn, err := (&Client{URL: "http://127.0.0.1/sse", Options: Options{Transport: f.rt, NoRenew: true}}).Dial(ctx)
		bridgetest.Must(t, err)
		u := &user{t: t, f: f, Conn: conn}
		s := u.initializes("2024-11-05")
		if want := []string{"up events opened"}; !slices.Equal(told.all, want) {
			t.Errorf("told %q, want %q", told.all, want)
		}
		s.end()
		synctest.Wait()
		bridgetest.Must(t, conn.Close(nil))
		if want := []string{"up events opened", "up events closed"}; !slices.Equal(told.all, want) {
			t.Errorf("told %q, want %q", told.all, want)
		}
	})
}
