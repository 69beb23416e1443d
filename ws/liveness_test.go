package ws

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The tests here run in synctest bubbles, over a network of net.Pipe.

// pipeSession serves one raw client over a pipe.
func pipeSession(t *testing.T, o HandlerOptions) (*raw, *session) {
	n := bridgetest.NewNetwork()
	s := &site{sessions: make(chan *session, 1), quit: make(chan error), over: make(chan error, 1), hold: make(chan struct{})}
	s.h = NewHandler(bridge.HandlerFunc(s.serve), o)
	srv := &http.Server{Handler: s.h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(n)
	}()
	conn, err := n.Dial(t.Context(), "", "")
	bridgetest.Must(t, err)
	t.Cleanup(func() {
		close(s.hold)
		conn.Close()
		s.h.Close()
		srv.Close()
		<-done
		time.Sleep(time.Second) // net/http lingers
	})
	c := &raw{t: t, conn: conn, r: bufio.NewReader(conn)}
	c.write([]byte(upgradeRequest + "\r\n"))
	if resp, err := http.ReadResponse(c.r, nil); err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	return c, <-s.sessions
}

// read hands on the frames that come, until the end.
func (c *raw) read(frame func(first byte, payload []byte)) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		for {
			first, payload, err := c.next()
			if err != nil {
				return
			}
			frame(first, payload)
		}
	}()
	return done
}

// WS5: a client that is silent is gone within a minute, after two pings.
func TestSilentClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, session := pipeSession(t, HandlerOptions{})
		var frames []byte
		done := c.read(func(first byte, payload []byte) { frames = append(frames, first&0xf) })
		began := time.Now()
		_, err := bridgetest.Recv(t.Context(), session)
		if after := time.Since(began); err == nil || err == io.EOF || after < 50*time.Second || after > time.Minute {
			t.Errorf("Recv = %v after %v", err, after)
		}
		<-done
		if fmt.Sprint(frames) != fmt.Sprint([]byte{opPing, opPing, opClose}) {
			t.Errorf("frames of type %v, want two pings and a close", frames)
		}
	})
}

// WS5: pongs are signs of life, and so is anything else.
func TestLivelyClient(t *testing.T) {
	for name, live := range map[string]func(c *raw, ctx context.Context){
		"pongs": func(c *raw, ctx context.Context) {
			c.read(func(first byte, payload []byte) {
				if first&0xf == opPing {
					_, _ = c.conn.Write(frame(fin|opPong, payload))
				}
			})
		},
		"messages": func(c *raw, ctx context.Context) {
			c.read(func(byte, []byte) {})
			for sleep(ctx, 20*time.Second) {
				c.write(frame(fin|opText, []byte(initializedText)))
			}
		},
		"a long message in small pieces": func(c *raw, ctx context.Context) {
			c.read(func(byte, []byte) {})
			c.write(append(header(fin|opText, 1<<20, 0x80), 0, 0, 0, 0))
			for sleep(ctx, 20*time.Second) {
				c.write([]byte(" "))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, session := pipeSession(t, HandlerOptions{ChunkTimeout: -1}) // which is another matter
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				var wg sync.WaitGroup
				defer wg.Wait()
				wg.Go(func() { live(c, ctx) })
				for {
					if _, err := bridgetest.Recv(ctx, session); err == context.DeadlineExceeded {
						return
					} else if err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// A client whose messages nobody takes is not silent: its pongs stand behind
// them. And it gets no more memory than its queue.
func TestNobodyReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, session := pipeSession(t, HandlerOptions{})
		const n = 1000
		text := `{"jsonrpc":"2.0","method":"x","params":{"s":"` + strings.Repeat("x", 10_000) + `"}}`
		var written int
		go func() {
			for ; written < n; written++ {
				if _, err := c.conn.Write(frame(fin|opText, []byte(text))); err != nil {
					return
				}
			}
		}()
		c.read(func(byte, []byte) {}) // pings cannot be answered
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if most := 2*maxQueuedBytes/len(text) + 2; written > most {
			t.Errorf("%d messages were taken in, want at most %d", written, most)
		}
		for range n {
			wantText(t, recv(t, session), text)
		}
	})
}

// A client that takes nothing is cut off after StallAfter, and a Send that
// waits for it ends.
func TestStalledClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, session := pipeSession(t, HandlerOptions{})
		began := time.Now()
		var err error
		for range 10_000 {
			if err = session.Send(t.Context(), msg(initializeText)); err != nil {
				break
			}
		}
		if after := time.Since(began); err == nil || after < 29*time.Second || after > 31*time.Second {
			t.Errorf("Send = %v after %v, want an error after 30 s", err, after)
		}
		if _, err = bridgetest.Recv(t.Context(), session); err == nil || !strings.Contains(err.Error(), "takes nothing") {
			t.Errorf("Recv = %v", err)
		}
	})
}

// A client that takes little by little is served, pings and all, although a
// frame takes minutes and the library's own patience ends after five seconds.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, session := pipeSession(t, HandlerOptions{})
		send(t, session, msg(`{"jsonrpc":"2.0","id":1,"result":"`+strings.Repeat("x", 900_000)+`"}`))
		send(t, session, msg(initializedText))
		c.r = bufio.NewReader(slowReader{c.conn})
		began := time.Now()
		pings := make(chan struct{})
		go func() {
			defer close(pings)
			for range 20 {
				time.Sleep(6 * time.Second)
				c.write(frame(fin|opPing, []byte("x")))
			}
		}()
		_, payload, err := c.next()
		if len(payload) < 900_000 || time.Since(began) < 2*time.Minute {
			t.Errorf("%d bytes, %v, after %v", len(payload), err, time.Since(began))
		}
		<-pings
		seen := map[byte]int{}
		for seen[opPong] < 20 || seen[opText] < 1 {
			first, _, err := c.next()
			if err != nil {
				t.Fatal(err, seen)
			}
			seen[first&0xf]++
		}
		if session.ctx.Err() != nil {
			t.Error("the session has ended")
		}
	})
}

// slowReader reads 64 KiB in ten seconds.
type slowReader struct{ r io.Reader }

func (s slowReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p[:min(len(p), 4096)])
	time.Sleep(time.Duration(n) * 10 * time.Second / (64 << 10))
	return n, err
}

// WS5: a server that is silent is gone within a minute, too.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := bridgetest.NewNetwork()
		transport := &http.Transport{DialContext: n.Dial}
		client := dialClient(t, "ws://silent/ws", ClientOptions{Transport: transport, NoRenew: true})
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			send(t, client, msg(initializeText))
		}()
		conn, err := n.Accept()
		bridgetest.Must(t, err)
		r := bufio.NewReader(conn)
		req, err := http.ReadRequest(r)
		bridgetest.Must(t, err)
		fmt.Fprintf(conn, "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			acceptKey(req.Header.Get("Sec-WebSocket-Key")))
		go io.Copy(io.Discard, r)
		<-answered
		began := time.Now()
		wantError(t, mustRecv(t, client), "1", "no sign of life")
		if after := time.Since(began); after < 50*time.Second || after > time.Minute {
			t.Errorf("gone after %v", after)
		}
		if _, err := bridgetest.Recv(t.Context(), client); err != ErrSessionLost {
			t.Errorf("Recv = %v", err)
		}
		client.Close(nil)
		transport.CloseIdleConnections()
	})
}

// mustRecv waits for as long as it takes.
func mustRecv(t *testing.T, c bridge.Conn) jsonrpc.Message {
	t.Helper()
	m, err := bridgetest.Recv(t.Context(), c)
	bridgetest.Must(t, err)
	return m
}
