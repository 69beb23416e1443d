package hub_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// patience is how long a client that should be served may have to wait for it:
// less than --queue-timeout, and than --session-timeout by far.
const patience = 20 * time.Second

// client is one who is told from others by a token, or by its address.
type client struct {
	*testing.T
	url    string
	header http.Header
	http   *http.Client
}

const annToken, bobToken = "0123456789abcdef-of-ann", "0123456789abcdef-of-bob"

// two serves a server to two clients. They have tokens, or else addresses of
// their own, of which there are several where all of 127.0.0.0/8 is this host.
func two(t *testing.T, byToken bool, spec hub.Spec) (a, b *client) {
	t.Helper()
	o := hub.Options{SingleServer: true}
	if byToken {
		tokens, err := access.ParseTokens("ann " + annToken + "\nbob " + bobToken)
		bridgetest.Must(t, err)
		o.Guard.Tokens = tokens
	}
	h := hub.New(o)
	t.Cleanup(func() { _ = h.Close() })
	bridgetest.Must(t, h.Apply([]hub.Spec{spec}))
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	made := func(token, address string) *client {
		d := &net.Dialer{}
		if !byToken {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(address)}
		}
		tr := &http.Transport{DialContext: d.DialContext}
		t.Cleanup(tr.CloseIdleConnections)
		c := &client{T: t, url: srv.URL, header: http.Header{}, http: &http.Client{Transport: tr}}
		if byToken {
			c.header.Set("X-Api-Key", token)
		}
		return c
	}
	return made(annToken, "127.0.0.1"), made(bobToken, "127.0.0.2")
}

// parties runs a test with tokens and without.
func parties(t *testing.T, spec func() hub.Spec, test func(t *testing.T, a, b *client)) {
	for name, byToken := range map[string]bool{"tokens": true, "peers": false} {
		t.Run(name, func(t *testing.T) {
			if !byToken {
				l, err := net.Listen("tcp", "127.0.0.2:0")
				if err != nil {
					t.Skip("this host has one address only:", err)
				}
				l.Close()
			}
			a, b := two(t, byToken, spec())
			test(t, a, b)
		})
	}
}

// send makes a request; its reply's body is still to be read.
func (c *client) send(ctx context.Context, method, path, body string, header ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = c.header.Clone()
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.http.Do(req)
}

// conversation is a session over any transport.
type conversation struct {
	*client
	say   func(message string) error // over Streamable HTTP it is answered when this returns
	hear  func() (string, error)
	close func()
}

func (c *client) open(ctx context.Context, transport string) (*conversation, error) {
	switch transport {
	case "mcp":
		return c.openMCP(ctx)
	case "sse":
		return c.openSSE(ctx)
	}
	socket, resp, err := websocket.Dial(ctx, strings.Replace(c.url, "http", "ws", 1)+"/ws", &websocket.DialOptions{HTTPHeader: c.header, HTTPClient: c.http})
	if err != nil {
		if resp != nil {
			err = fmt.Errorf("%d: %w", resp.StatusCode, err)
		}
		return nil, err
	}
	return &conversation{
		client: c,
		say:    func(m string) error { return socket.Write(ctx, websocket.MessageText, []byte(m)) },
		hear:   func() (string, error) { _, m, err := socket.Read(ctx); return string(m), err },
		close:  func() { socket.CloseNow() },
	}, nil
}

func (c *client) openMCP(ctx context.Context) (*conversation, error) {
	heard := make(chan string, 10)
	id := ""
	say := func(m string) error {
		resp, err := c.send(ctx, http.MethodPost, "/mcp", m, "Mcp-Session-Id", id)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 300 {
			return fmt.Errorf("%d", resp.StatusCode)
		}
		if id == "" {
			id = resp.Header.Get("Mcp-Session-Id")
		}
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			if line := strings.TrimPrefix(in.Text(), "data: "); strings.HasPrefix(line, "{") {
				heard <- line
			}
		}
		return nil
	}
	hear := func() (string, error) {
		select {
		case m := <-heard:
			return m, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return &conversation{client: c, say: say, hear: hear, close: func() {}}, nil
}

func (c *client) openSSE(ctx context.Context) (*conversation, error) {
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.send(ctx, http.MethodGet, "/sse", "")
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		cancel()
		resp.Body.Close()
		return nil, fmt.Errorf("%d", resp.StatusCode)
	}
	in := bufio.NewScanner(resp.Body)
	next := func() (string, error) {
		for in.Scan() {
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok {
				return data, nil
			}
		}
		return "", fmt.Errorf("the stream has ended: %v", in.Err())
	}
	path, err := next()
	say := func(m string) error {
		resp, err := c.send(ctx, http.MethodPost, path, m)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			return fmt.Errorf("%d", resp.StatusCode)
		}
		return nil
	}
	return &conversation{client: c, say: say, hear: next, close: func() { cancel(); resp.Body.Close() }}, err
}

// ask says a request and returns its answer.
func (v *conversation) ask(m string) (string, error) {
	if err := v.say(m); err != nil {
		return "", err
	}
	return v.answer()
}

// answer returns the next answer.
func (v *conversation) answer() (string, error) {
	for {
		got, err := v.hear()
		if err != nil {
			return "", err
		}
		var head struct{ Result, Error json.RawMessage }
		if _ = json.Unmarshal([]byte(got), &head); head.Error != nil {
			return "", fmt.Errorf("answered %s", got)
		} else if head.Result != nil {
			return got, nil
		}
	}
}

// begin opens a session and has its server start.
func (c *client) begin(ctx context.Context, transport string) (*conversation, error) {
	v, err := c.open(ctx, transport)
	if err == nil {
		if _, err = v.ask(hello); err != nil {
			v.close()
		}
	}
	return v, err
}

// mustBegin is begin by one who is to be served.
func (c *client) mustBegin(transport string) *conversation {
	c.Helper()
	v, err := c.begin(c.Context(), transport)
	if err != nil {
		c.Fatalf("%s: %v", transport, err)
	}
	c.Cleanup(v.close)
	return v
}

// served wants a client to be served soon: session and call.
func (c *client) served(transport string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	v, err := c.begin(ctx, transport)
	if err == nil {
		defer v.close()
		_, err = v.ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	}
	if err != nil {
		c.Errorf("%s: the other is not served: %v", transport, err)
	}
}

// working begins a call, returns when it is in progress, and tells what comes of it.
func (v *conversation) working(seconds int, to chan<- error) {
	v.Helper()
	said := make(chan error, 1)
	begun := make(chan struct{})
	go func() { said <- v.say(fmt.Sprintf(slowCall, seconds)) }()
	go func() {
		_, err := v.hear() // progress
		close(begun)
		if err == nil {
			_, err = v.answer()
		}
		to <- errors.Join(err, <-said)
	}()
	select {
	case <-begun:
	case <-time.After(patience):
		v.Fatal("the call does not begin")
	}
}

const slowCall = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow","arguments":{"seconds":%d,"steps":4},"_meta":{"progressToken":"p"}}}`

// Sessions are counted by principal, and without tokens by peer: idle ones of one who
// has all places do not keep another out. One alone may have all. The clients whose
// sessions are ended for others are told so, and can begin anew.
func TestIdleSessionsMakeRoom(t *testing.T) {
	for _, transport := range []string{"mcp", "sse", "ws"} {
		t.Run(transport, func(t *testing.T) {
			spec := func() hub.Spec {
				s := demoSpec(t, "demo")
				s.MaxSessions, s.Upstream.Protocol = 4, era.OnlyLegacy
				return s
			}
			parties(t, spec, func(t *testing.T, a, b *client) {
				var all []*conversation
				for range 4 {
					v := a.mustBegin(transport)
					all = append(all, v)
				}
				if v, err := a.begin(t.Context(), transport); err == nil || !strings.Contains(err.Error(), "503") {
					t.Errorf("a fifth session: %v", err)
					if err == nil {
						v.close()
					}
				}
				b.served(transport)
				_, err := all[0].ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
				switch {
				case err == nil:
					t.Error("the session that was idle longest goes on")
				case transport == "mcp" && err.Error() != "404":
					t.Errorf("its client hears %v, want 404", err)
				case transport == "ws" && websocket.CloseStatus(err) != websocket.StatusTryAgainLater:
					t.Errorf("its client hears %v, want 1013", err)
				}
				if _, err := all[3].ask(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`); err != nil {
					t.Errorf("the session that was used last: %v", err)
				}
			})
		})
	}
}

// A session with a call in progress is not ended for another; but who holds less
// than an equal part is the next to be served.
func TestBusySessionsStay(t *testing.T) {
	for _, transport := range []string{"mcp", "sse", "ws"} {
		t.Run(transport, func(t *testing.T) {
			spec := func() hub.Spec {
				s := demoSpec(t, "demo")
				s.MaxChildren, s.Queue, s.QueueTimeout, s.Upstream.Protocol = 2, 1, time.Minute, era.OnlyLegacy
				return s
			}
			parties(t, spec, func(t *testing.T, a, b *client) {
				answers := make(chan error, 2)
				for range 2 {
					a.mustBegin(transport).working(3, answers)
				}
				served := make(chan string, 2)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				refused := make(chan error, 2)
				for range 2 { // of two, one is in the queue when the other finds that full
					go func() {
						v, err := a.begin(ctx, transport)
						if err != nil {
							refused <- err
							return
						}
						served <- "a"
						v.close()
					}()
				}
				<-refused
				b.served(transport)
				served <- "b"
				if first := <-served; first != "b" {
					t.Errorf("%s is served first", first)
				}
				for range 2 {
					if err := <-answers; err != nil {
						t.Errorf("a call in progress: %v", err)
					}
				}
				cancel()
			})
		})
	}
}

// A connection that says nothing has no place of a process.
func TestSilentConnections(t *testing.T) {
	for _, transport := range []string{"sse", "ws"} {
		t.Run(transport, func(t *testing.T) {
			spec := func() hub.Spec {
				s := demoSpec(t, "demo")
				s.MaxChildren, s.QueueTimeout = 4, time.Minute
				return s
			}
			parties(t, spec, func(t *testing.T, a, b *client) {
				for range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					v, err := a.open(ctx, transport)
					if err != nil {
						t.Fatalf("a connection: %v", err)
					}
					defer v.close()
				}
				for _, other := range []string{"mcp", "sse", "ws"} {
					b.served(other)
				}
			})
		})
	}
}

// Places in the queue are counted as well: who fills it keeps nobody out of it, and
// the others are served first.
func TestQueueIsShared(t *testing.T) {
	spec := func() hub.Spec {
		s := demoSpec(t, "demo")
		s.MaxChildren, s.Queue, s.QueueTimeout, s.Upstream.Protocol = 2, 4, time.Minute, era.OnlyLegacy
		s.Isolation = upstream.PerRequest
		return s
	}
	parties(t, spec, func(t *testing.T, a, b *client) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		refused := make(chan int, 10)
		for range 40 { // again and again, whatever comes of it
			wg.Go(func() {
				for ctx.Err() == nil {
					resp, err := a.send(ctx, http.MethodPost, "/mcp", fmt.Sprintf(slowCall, 1))
					if err != nil {
						continue
					}
					bufio.NewReader(resp.Body).WriteTo(discard{})
					resp.Body.Close()
					if resp.StatusCode == http.StatusServiceUnavailable {
						select {
						case refused <- resp.StatusCode:
						default:
						}
						select {
						case <-time.After(10 * time.Millisecond):
						case <-ctx.Done():
						}
					}
				}
			})
		}
		for range 10 {
			<-refused // the queue is full of a's
		}
		for range 3 {
			within, stop := context.WithTimeout(t.Context(), patience)
			resp, err := b.send(within, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("the other is not served: %v %v", resp, err)
			}
			if err == nil {
				resp.Body.Close()
			}
			stop()
		}
	})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":%s}`

// Clients of 2026-07-28 with other capabilities need other processes of a legacy
// server: one who subscribes with very many takes none away from another for long.
func TestSubscriptionsMakeRoom(t *testing.T) {
	spec := func() hub.Spec {
		s := demoSpec(t, "demo")
		s.MaxChildren, s.Queue, s.QueueTimeout, s.Upstream.Protocol = 4, -1, time.Minute, era.OnlyLegacy
		return s
	}
	parties(t, spec, func(t *testing.T, a, b *client) {
		opened := 0
		for n := range 12 {
			caps := fmt.Sprintf(`{"extensions":{"x/%d":{}}}`, n)
			if n%2 == 0 {
				caps = fmt.Sprintf(`{"experimental":{"x%d":{}}}`, n)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			resp, err := a.send(ctx, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+
				fmt.Sprintf(modernMeta, caps)+`}}`, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "subscriptions/listen")
			bridgetest.Must(t, err)
			defer resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				line, _ := bufio.NewReader(resp.Body).ReadString('\n')
				if line != "" {
					opened++
				}
			}
		}
		if opened < 4 {
			t.Errorf("%d subscriptions of one alone, want all 4 places", opened)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		resp, err := b.send(ctx, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+fmt.Sprintf(modernMeta, `{"sampling":{}}`)+`}}`,
			"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("the other is not served: %v, %v", resp, err)
		}
		resp.Body.Close()
		b.served("mcp")
	})
}

// What is answered where there is no place for a process: 503 over Streamable HTTP,
// and an error that says busy, and the end, where the connection is there already.
func TestNoPlace(t *testing.T) {
	spec := demoSpec(t, "demo")
	spec.MaxChildren, spec.Queue, spec.QueueTimeout, spec.Pump = 1, -1, time.Minute, bridge.PumpOptions{ShutdownGrace: time.Second}
	a, _ := two(t, true, spec)
	a.mustBegin("mcp")
	for transport, want := range map[string]string{"mcp": "503", "sse": `"busy"`, "ws": `"busy"`} {
		v, err := a.open(t.Context(), transport)
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		defer v.close()
		if _, err := v.ask(hello); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", transport, err, want)
		}
		if transport == "mcp" {
			continue
		}
		if _, err := v.hear(); err == nil || transport == "ws" && websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
			t.Errorf("%s goes on: %v", transport, err)
		}
	}
}

// A client that is only refused, because of the era it speaks, keeps no place that
// others want.
func TestRefusedClientsMakeRoom(t *testing.T) {
	spec := demoSpec(t, "demo")
	spec.MaxSessions, spec.Clients, spec.Upstream.Protocol = 2, era.OnlyLegacy, era.OnlyLegacy
	a, b := two(t, true, spec)
	for range 2 {
		v, err := a.open(t.Context(), "ws")
		bridgetest.Must(t, err)
		defer v.close()
		if _, err := v.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + fmt.Sprintf(modernMeta, `{}`) + `}}`); err == nil || !strings.Contains(err.Error(), "-32022") {
			t.Fatalf("a request of another era: %v", err)
		}
	}
	b.served("ws")
}
