package sseclient

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/legacysse"
)

// echo answers each request with its params.
var echo = bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
	for {
		m, err := bridgetest.Recv(ctx, c)
		if err != nil {
			return err
		}
		if m.Kind() != jsonrpc.Request {
			continue
		}
		result := m.Params()
		if m.Method() == "initialize" {
			result = initializeResult("2025-11-25")
		}
		if err := c.Send(ctx, jsonrpc.NewResult(m.ID(), result)); err != nil {
			return err
		}
	}
})

// exchange begins a session, and calls n times, with params of up to size bytes.
func exchange(t *testing.T, conn bridge.Conn, n, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	call := func(m jsonrpc.Message) {
		if err := conn.Send(ctx, m); err != nil {
			t.Error(err)
		}
	}
	recv := func() jsonrpc.Message {
		m, err := bridgetest.Recv(ctx, conn)
		if err != nil || m.IsError() {
			t.Errorf("%s, %v", m.Bytes(), err)
		}
		return m
	}
	call(msg(initializeText))
	recv()
	call(msg(initializedText))
	params := func(i int) []byte { return fmt.Appendf(nil, `{"i":%d,"pad":"%s"}`, i, strings.Repeat("x", i%3*size/2)) }
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			call(jsonrpc.NewRequest(jsonrpc.IntID(int64(i)), "echo", params(i)))
		}
	})
	left := make(map[jsonrpc.ID]string) // requests may overtake each other on a slow machine
	for i := range n {
		left[jsonrpc.IntID(int64(i))] = string(params(i))
	}
	for range n {
		m := recv()
		if want, ok := left[m.ID()]; !ok || string(m.Result()) != want {
			t.Errorf("the answer %.80s", m.Bytes())
		}
		delete(left, m.ID())
	}
	wg.Wait()
}

// Both sides over TLS, with HTTP/2 and without.
func TestTLS(t *testing.T) {
	for _, two := range []bool{true, false} {
		t.Run(fmt.Sprint("HTTP2 ", two), func(t *testing.T) {
			h := legacysse.NewHandler(echo, legacysse.HandlerOptions{})
			protocol := make(chan int, 1000)
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				protocol <- r.ProtoMajor
				mux(h).ServeHTTP(w, r)
			}))
			srv.EnableHTTP2 = two
			srv.StartTLS()
			defer srv.Close()
			defer h.Close()
			conn, err := (&Client{URL: srv.URL + "/sse", Options: Options{Transport: srv.Client().Transport}}).Dial(t.Context())
			bridgetest.Must(t, err)
			exchange(t, conn, 30, 1<<20)
			conn.Close(nil)
			if (<-protocol == 2) != two {
				t.Error("the wrong protocol was spoken")
			}
		})
	}
}

// A certificate that nobody trusts is what initialize is answered with.
func TestUntrusted(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	conn, err := (&Client{URL: srv.URL + "/sse"}).Dial(t.Context())
	bridgetest.Must(t, err)
	defer conn.Close(nil)
	bridgetest.Must(t, conn.Send(t.Context(), msg(initializeText)))
	m, err := bridgetest.Recv(t.Context(), conn)
	if err != nil || string(m.Lookup("error", "data", "reason")) != `"tls"` {
		t.Errorf("%s, %v", m.Bytes(), err)
	}
}

// Many clients come and go, some of them rudely, and nothing is left.
func TestComeAndGo(t *testing.T) {
	before := bridgetest.FDs()
	h := legacysse.NewHandler(echo, legacysse.HandlerOptions{})
	srv := httptest.NewServer(mux(h))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 5 {
				if i%4 == 0 {
					c, err := net.Dial("tcp", srv.Listener.Addr().String())
					if err != nil {
						t.Error(err)
						return
					}
					fmt.Fprintf(c, "GET /sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
					_, _ = c.Read(make([]byte, 10))
					c.Close()
					continue
				}
				conn, err := (&Client{URL: srv.URL + "/sse"}).Dial(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				exchange(t, conn, 5, 1000)
				conn.Close(nil)
			}
		})
	}
	wg.Wait()
	h.Close()
	if n := h.Sessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	srv.Close()
	if after := bridgetest.FDs(); before >= 0 && after > before+2 {
		t.Errorf("%d files are open, %d before", after, before)
	}
}
