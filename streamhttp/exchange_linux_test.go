package streamhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// An answer that the client takes at once is written by whoever has it, and is
// complete before the bridge.Handler returns (bridge.Sink). What is no answer to
// the request, or comes after it, is left to Send.
func TestModernAnswerIsDirect(t *testing.T) {
	read := make(chan struct{})
	h := streamhttp.NewHandler(nil, streamhttp.HandlerOptions{Eras: era.OnlyModern, Modern: bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := bridgetest.Recv(ctx, client)
		if err != nil {
			return err
		}
		progress := jsonrpc.NewNotification("notifications/progress", []byte(`{"progressToken":1,"progress":1}`))
		for name, no := range map[string]jsonrpc.Message{
			"a notification":      progress,
			"another's answer":    jsonrpc.NewResult(jsonrpc.IntID(8), nil),
			"an answer that long": jsonrpc.NewResult(m.ID(), []byte(`"`+strings.Repeat("x", 4096)+`"`)),
		} {
			if client.TrySend(no) {
				t.Errorf("%s is not left to Send", name)
			}
		}
		if !client.TrySend(jsonrpc.NewResult(m.ID(), []byte(`{"resultType":"complete"}`))) {
			t.Error("the client takes the answer at once")
		}
		<-read
		if client.TrySend(jsonrpc.NewResult(m.ID(), nil)) {
			t.Error("a second answer")
		}
		return nil
	})})
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ConnContext = httpserve.WithInlineReply
	srv.Start()
	defer srv.Close()
	defer h.Close()
	for range 3 { // on one connection
		answer := post26(t.Context(), t, srv, "7", `{}`)
		if answer == nil {
			return
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || string(body) != `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}` {
			t.Errorf("%d %s, %v", answer.StatusCode, body, err)
		}
		read <- struct{}{}
	}
}

// deadlines counts the write deadlines that a reply is given.
type deadlines struct {
	http.ResponseWriter
	set atomic.Int32
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.set.Add(1)
	return http.NewResponseController(d.ResponseWriter).SetWriteDeadline(t)
}

func (d *deadlines) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// An answer that the client takes at once needs no deadline: those are timers, and
// cost more than they seem. Any other reply has one, on the same connection, too.
func TestModernAnswerSetsNoDeadline(t *testing.T) {
	h := streamhttp.NewHandler(nil, streamhttp.HandlerOptions{Eras: era.OnlyModern, Modern: bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		m, err := bridgetest.Recv(ctx, client)
		if err != nil {
			return err
		}
		quick := string(m.Lookup("params", "arguments", "quick")) == "true"
		if answer := jsonrpc.NewResult(m.ID(), nil); !quick || !client.TrySend(answer) {
			return client.Send(ctx, answer)
		}
		return nil
	})})
	bounded := httpserve.Deadlines{}.Handler(h)
	set := make(chan int32, 1)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := &deadlines{ResponseWriter: w}
		bounded.ServeHTTP(d, r)
		set <- d.set.Load()
	}))
	srv.Config.ConnContext = httpserve.WithInlineReply
	srv.Start()
	defer srv.Close()
	defer h.Close()
	for _, quick := range []bool{true, false, true, true, false} {
		answer := post26(t.Context(), t, srv, "7", fmt.Sprintf(`{"quick":%v}`, quick))
		if answer == nil {
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if n := <-set; answer.StatusCode != http.StatusOK || (n == 0) != quick {
			t.Errorf("quick %v: status %d, %d deadlines", quick, answer.StatusCode, n)
		}
	}
}
