//go:build unix

package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// many is how many connections one client opens at a time.
const many = 300

// A way is how one client gets at a transport, and keeps a connection from being of
// use.
type way struct {
	name    string
	network string
	begin   func(c *bufio.Reader, w io.Writer) error // what comes before a message; nil: nothing
	promise []byte                                   // announces a megabyte; nil: that cannot be
	wants   string                                   // the server has seen that when it says so
}

// ways returns how ann gets at the transports of a site, which may be behind a Unix socket.
func ways(t *testing.T, ann *site) []way {
	const length = 1 << 20
	auth := "Host: localhost\r\nAuthorization: Bearer " + annToken + "\r\n"
	post := func(path, headers string) []byte {
		return fmt.Appendf(nil, "POST %s HTTP/1.1\r\n%sContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
			path, auth, headers, length)
	}
	legacy := ann.mustOpen(t, "mcp").(*httpTalker)
	event := ann.mustOpen(t, "sse").(*sseTalker)
	_, message, _ := strings.Cut(strings.TrimPrefix(event.post, "http://"), "/")
	frame := binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, length)
	return []way{
		{name: "mcp", promise: post("/mcp", "Mcp-Session-Id: "+legacy.id+"\r\n"), wants: "HTTP/1.1 "},
		{name: "modern", promise: post("/mcp", "Mcp-Protocol-Version: "+modernVersion+"\r\nMcp-Method: tools/call\r\nMcp-Name: x\r\n"), wants: "HTTP/1.1 "},
		{name: "sse", promise: post("/"+message, ""), wants: "HTTP/1.1 "},
		{name: "ws", begin: func(in *bufio.Reader, w io.Writer) error { return rawSocket(in, w, auth) }, promise: append(frame, 0, 0, 0, 0)},
	}
}

// rawSocket makes a connection a WebSocket.
func rawSocket(in *bufio.Reader, w io.Writer, headers string) error {
	_, err := io.WriteString(w, "GET /ws HTTP/1.1\r\n"+headers+
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	if err != nil {
		return err
	}
	resp, err := http.ReadResponse(in, nil)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return err
}

// occupy opens many connections of a way that say nothing, or promise, or say one
// byte a second. It returns when the bridge has seen what it can see of that.
func (w way) occupy(t *testing.T, address, how string) {
	t.Helper()
	var conns []net.Conn
	for range many {
		conn, err := net.Dial(w.network, address)
		bridgetest.Must(t, err)
		t.Cleanup(func() { conn.Close() })
		conn.SetReadDeadline(time.Now().Add(harness.Patience))
		in := bufio.NewReader(conn)
		if w.begin != nil {
			bridgetest.Must(t, w.begin(in, conn))
		}
		conns = append(conns, conn)
		if how == "silent" {
			continue
		}
		if _, err := conn.Write(w.promise); err != nil {
			t.Fatal(err)
		}
		if w.wants != "" { // it waits for the body, or has refused it
			if line, err := in.ReadString('\n'); !strings.HasPrefix(line, w.wants) {
				t.Fatalf("%q, %v", line, err)
			}
		}
	}
	if how == "slow" {
		trickle(t, conns)
	}
}

// trickle says a byte a second on each connection, until the test ends.
func trickle(t *testing.T, conns []net.Conn) {
	said, stop := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for n := 0; ; n++ {
			for _, conn := range conns {
				_, _ = conn.Write([]byte{'{'}) // it may be cut off by now
			}
			if n == 0 {
				close(said)
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); wg.Wait() })
	<-said
}

// largeCall is a call of more than passes for small.
func largeCall(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"echo","params":{"x":%q}}`, id, strings.Repeat("x", 200<<10))
}

// isServed checks that large calls are answered over every transport.
func (s *site) isServed(t *testing.T, open map[string]talker) {
	t.Helper()
	for name, c := range open {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		answer, err := c.exchange(ctx, largeCall("7"), nil)
		cancel()
		if err != nil || !strings.Contains(answer, `"result"`) {
			t.Errorf("over %s the other is answered %.200s, %v", name, answer, err)
		}
	}
}

// TestSlowClients: connections that say nothing, that promise a megabyte, or that
// send a byte a second do not keep another client from being served, on any
// transport: memory is taken as bytes arrive, and each client has its share of it.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"silent", "promising", "slow"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := serve(t, []string{"--token-file", tokenFile(t, "ann "+annToken, "bob "+bobToken)})
			ann, bob := s.site().bearer(annToken), s.site().bearer(bobToken)
			open := map[string]talker{}
			for _, transport := range transports {
				open[transport] = bob.mustOpen(t, transport)
			}
			for _, w := range ways(t, ann) {
				w.network = "tcp"
				w.occupy(t, s.host(), how)
				bob.isServed(t, open)
			}
			for _, transport := range transports { // and for who comes now
				mustAnswer(t, bob.mustOpen(t, transport), ping)
			}
		})
	}
}

// TestSlowLines: so it is with messages in lines over a Unix socket, whose clients
// are all one.
func TestSlowLines(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"silent", "promising", "slow"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(socketDir(t), "s")
			startServe(t, nil, 1, "--listen", "unix:"+path, "--", childBin)
			c := mustLines(t, path)
			way{name: "lines", network: "unix", promise: []byte("{")}.occupy(t, path, how)
			unixSite(t, path).isServed(t, map[string]talker{"lines": c, "mcp": unixSite(t, path).mustOpen(t, "mcp")})
			mustAnswer(t, mustLines(t, path), ping)
		})
	}
}

// TestUnfinishedMessages: what one client has begun to send over WebSockets, and does
// not finish, leaves room for another's messages.
func TestUnfinishedMessages(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--max-message-size", "16MiB", "--token-file", tokenFile(t, "ann "+annToken, "bob "+bobToken)})
	bob := s.site().bearer(bobToken)
	open := map[string]talker{}
	for _, transport := range transports {
		open[transport] = bob.mustOpen(t, transport)
	}
	for i := range many + 30 {
		size := 960 << 10
		if i >= many { // what is left is taken as well
			size = 130 << 10
		}
		frame := append(binary.BigEndian.AppendUint64([]byte{0x01, 0x80 | 127}, uint64(size)), 0, 0, 0, 0) // more is to come
		frame = append(frame, bytes.Repeat([]byte("{"), size)...)
		frame = append(frame, 0x89, 0x80, 0, 0, 0, 0) // a ping, which is answered when that has been read
		conn, err := net.Dial("tcp", s.host())
		bridgetest.Must(t, err)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(harness.Patience))
		in := bufio.NewReader(conn)
		bridgetest.Must(t, rawSocket(in, conn, "Host: localhost\r\nAuthorization: Bearer "+annToken+"\r\n"))
		_, _ = conn.Write(frame) // it may be refused, and then it is cut off
		_, _ = in.ReadByte()     // a pong, or a close frame
		if i%16 == 0 {           // who answers no ping for long is gone, and this may take long
			for _, transport := range transports {
				mustAnswer(t, open[transport], ping)
			}
		}
	}
	bob.isServed(t, open)
}
