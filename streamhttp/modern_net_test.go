package streamhttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// These tests have real connections.

// post26 posts a modern tools/call.
func post26(ctx context.Context, t *testing.T, srv *httptest.Server, id, arguments string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", srv.URL, strings.NewReader(request26(id, "tools/call", `"name":"t","arguments":`+arguments)))
	bridgetest.Must(t, err)
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Protocol-Version": {r26}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"t"},
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return nil
	}
	return resp
}

// Ids of different POSTs are different things: all may be 1 (J3).
func TestServerModernSameID(t *testing.T) {
	const n = 1000
	all := make(chan struct{}) // closed when all requests are there at once
	var arrived sync.WaitGroup
	arrived.Add(n)
	h := streamhttp.NewHandler(nil, streamhttp.HandlerOptions{Modern: bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		m, err := bridgetest.Recv(ctx, c)
		if err != nil {
			return err
		}
		arrived.Done()
		<-all
		return c.Send(ctx, jsonrpc.NewResult(m.ID(), m.Lookup("params", "arguments")))
	})})
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Close()
	srv.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = n
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			resp := post26(t.Context(), t, srv, "1", fmt.Sprintf(`{"n":%d}`, i))
			if resp == nil {
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":{"n":%d}}`, i); string(body) != want || err != nil || resp.StatusCode != 200 {
				t.Errorf("%s %s %v, want %s", resp.Status, body, err, want)
			}
		})
	}
	arrived.Wait()
	close(all)
	done.Wait()
}

// A connection that is broken, or a stream that is reset, cancels its own
// request and no other (MI15).
func TestServerModernDisconnect(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			taken := make(chan string)
			cancelled := make(chan string)
			finish := make(chan struct{})
			h := streamhttp.NewHandler(nil, streamhttp.HandlerOptions{Modern: bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
				m, err := bridgetest.Recv(ctx, c)
				if err != nil {
					return err
				}
				name, _ := jsonrpc.Text(m.Lookup("params", "arguments", "who"))
				if strings.HasPrefix(name, "stream") {
					if err := c.Send(ctx, message(note26("begun"))); err != nil {
						return err
					}
				}
				taken <- name
				if name == "stays" {
					<-finish
					return c.Send(ctx, jsonrpc.NewResult(m.ID(), nil))
				}
				next, err := bridgetest.Recv(context.Background(), c)
				if err == nil {
					cancelled <- name + " " + next.Method() + " " + next.CancelledID().String()
				} else {
					cancelled <- name + ": " + err.Error()
				}
				return nil
			})})
			srv := httptest.NewUnstartedServer(h)
			srv.EnableHTTP2 = http2
			srv.StartTLS()
			defer srv.Close()
			defer h.Close()
			kept := make(chan string)
			go func() {
				resp := post26(t.Context(), t, srv, `"s"`, `{"who":"stays"}`)
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				kept <- fmt.Sprint(resp.ProtoMajor, " ", string(body))
			}()
			<-taken
			for _, who := range []string{"pending", "stream"} {
				ctx, cancel := context.WithCancel(t.Context())
				var client sync.WaitGroup
				client.Go(func() {
					if resp := post26(ctx, t, srv, `"s"`, `{"who":"`+who+`"}`); resp != nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				})
				<-taken
				cancel()
				if got, want := <-cancelled, who+` notifications/cancelled "s"`; got != want {
					t.Errorf("the server got %q, want %q", got, want)
				}
				client.Wait()
			}
			close(finish)
			want := `1 {"jsonrpc":"2.0","id":"s","result":{}}`
			if http2 {
				want = "2" + want[1:]
			}
			if got := <-kept; got != want {
				t.Errorf("the other request got %q, want %q", got, want)
			}
		})
	}
}

// Bytes that the value of a header must not have are refused, whoever finds them (MI5, MI6).
func TestServerModernHeaderBytes(t *testing.T) {
	h := streamhttp.NewHandler(nil, streamhttp.HandlerOptions{Modern: bridge.HandlerFunc(func(context.Context, bridge.Conn) error {
		t.Error("the request was served")
		return nil
	})})
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Close()
	for _, name := range []string{"t\x00", "t\x01", "t\x7f", "\xff", "t\x80", "é", "t\r x"} {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		bridgetest.Must(t, err)
		raw := string(jsonrpc.Quote(name))
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nMcp-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: %s\r\n%s",
			r26, name, sized(request26("1", "tools/call", `"name":`+raw)))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q is answered %s", name, resp.Status)
		}
		c.Close()
	}
}

// A client that has closed its own direction only has hung up, as far as
// net/http can tell. It gets no reply then, rather than an empty one that it
// would take for the answer (MI15, LI7).
func TestServerHalfClosed(t *testing.T) {
	call := request26("1", "tools/call", `"name":"t"`)
	modern := vHeader + r26 + "\r\n" + mHeader + "tools/call\r\n" + nHeader + "t\r\n"
	for _, c := range []struct {
		name, headers, body string
		opts                streamhttp.HandlerOptions
		slow                bool // it is the question about the tool that takes its time
	}{
		{name: "modern", headers: modern, body: call},
		{name: "modern, before it is served", headers: modern, body: call, slow: true},
		{name: "initialize", body: initialize(r25c)},
		{name: "stateless", body: ping, opts: streamhttp.HandlerOptions{Stateless: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			taken := make(chan struct{})
			hangs := bridge.HandlerFunc(func(ctx context.Context, conn bridge.Conn) error {
				if _, err := bridgetest.Recv(ctx, conn); err != nil {
					return err
				}
				close(taken)
				for {
					m, err := bridgetest.Recv(ctx, conn)
					if err != nil || m.Method() == "notifications/cancelled" {
						return err
					}
				}
			})
			c.opts.Modern = hangs
			if c.slow {
				c.opts.ToolSchema = func(ctx context.Context, _ jsonrpc.Message, _ string) ([]byte, bool) {
					close(taken)
					<-ctx.Done()
					return nil, false
				}
			}
			h := streamhttp.NewHandler(hangs, c.opts)
			srv := httptest.NewServer(h)
			defer srv.Close()
			defer h.Close()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			bridgetest.Must(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%s%s", c.headers, sized(c.body))
			<-taken
			bridgetest.Must(t, conn.(*net.TCPConn).CloseWrite())
			if got, _ := io.ReadAll(conn); len(got) > 0 {
				t.Errorf("it got %q", got)
			}
		})
	}
}
