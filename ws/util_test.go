package ws

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

const (
	initializeText  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	initializedText = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

var msg = bridgetest.Parse

// site is a Handler behind a real HTTP server. Each session goes to sessions,
// and lives until its client is gone or quit gets what ServeConn is to return.
type site struct {
	h        *Handler
	srv      *httptest.Server
	sessions chan *session
	quit     chan error
	over     chan error   // what ServeConn has returned
	listener net.Listener // nil: one of its own
	tls      bool

	// hold keeps ServeConn from returning when the client is gone, as long as
	// it is open; nil: it returns.
	hold chan struct{}

	// answer is what ServeConn does instead of all that; nil: nothing.
	answer func(ctx context.Context, c bridge.Conn) error
}

func newSite(t *testing.T, o HandlerOptions) *site {
	s := &site{sessions: make(chan *session, 100), quit: make(chan error), over: make(chan error, 100)}
	s.start(t, o)
	return s
}

func (s *site) start(t testing.TB, o HandlerOptions) {
	s.h = NewHandler(bridge.HandlerFunc(s.serve), o)
	s.srv = httptest.NewUnstartedServer(s.h)
	if s.listener != nil {
		s.srv.Listener.Close()
		s.srv.Listener = s.listener
	}
	if s.tls {
		s.srv.EnableHTTP2 = true
		s.srv.StartTLS()
	} else {
		s.srv.Start()
	}
	t.Cleanup(func() {
		s.h.Close()
		s.srv.Close()
	})
}

func (s *site) serve(ctx context.Context, c bridge.Conn) error {
	if s.answer != nil {
		return s.answer(ctx, c)
	}
	s.sessions <- c.(*session)
	select {
	case <-ctx.Done():
		if s.hold != nil {
			<-s.hold
		}
		s.over <- ctx.Err()
		return ctx.Err()
	case err := <-s.quit:
		s.over <- err
		return err
	}
}

const upgradeRequest = "GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

// acceptKey is what a server answers to a key (RFC 6455, section 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// raw is a WebSocket client that is made by hand, and may do what none does.
type raw struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
}

// Opcodes of RFC 6455, and the bit of a last frame.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
	fin            = 0x80
)

// dialRaw upgrades; more is sent in the same write as the request.
func (s *site) dialRaw(t testing.TB, more []byte, headers ...string) *raw {
	t.Helper()
	c, resp := s.upgrade(t, more, headers...)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the upgrade was answered %s", resp.Status)
	}
	return c
}

func (s *site) upgrade(t testing.TB, more []byte, headers ...string) (*raw, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", s.srv.Listener.Addr().String())
	bridgetest.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	c := &raw{t: t, conn: conn, r: bufio.NewReader(conn)}
	request := upgradeRequest
	for _, h := range headers {
		request += h + "\r\n"
	}
	c.write(append([]byte(request+"\r\n"), more...))
	resp, err := http.ReadResponse(c.r, nil)
	bridgetest.Must(t, err)
	return c, resp
}

func (c *raw) write(b []byte) {
	c.t.Helper()
	if _, err := c.conn.Write(b); err != nil {
		c.t.Errorf("write: %v", err)
	}
}

// frame returns a frame as a client sends it.
func frame(first byte, payload []byte) []byte {
	b := append(header(first, len(payload), 0x80), 1, 2, 3, 4)
	for i, x := range payload {
		b = append(b, x^[4]byte{1, 2, 3, 4}[i%4])
	}
	return b
}

func header(first byte, size int, masked byte) []byte {
	b := []byte{first}
	switch {
	case size < 126:
		return append(b, masked|byte(size))
	case size < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, masked|126), uint16(size))
	}
	return binary.BigEndian.AppendUint64(append(b, masked|127), uint64(size))
}

// next reads one frame of the server, which must not be masked.
func (c *raw) next() (first byte, payload []byte, err error) {
	var h [10]byte
	if _, err = io.ReadFull(c.r, h[:2]); err != nil {
		return 0, nil, err
	}
	size := uint64(h[1])
	switch size {
	case 126:
		_, err = io.ReadFull(c.r, h[2:4])
		size = uint64(binary.BigEndian.Uint16(h[2:]))
	case 127:
		_, err = io.ReadFull(c.r, h[2:10])
		size = binary.BigEndian.Uint64(h[2:])
	}
	if err == nil && size > 1<<30 {
		err = errors.New("masked, or far too long")
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(c.r, payload)
	return h[0], payload, err
}

// text reads the next text message, of however many frames.
func (c *raw) text() string {
	c.t.Helper()
	var text strings.Builder
	for {
		first, payload, err := c.next()
		if err != nil {
			c.t.Errorf("no message: %v", err)
			return ""
		}
		if op := first & 0xf; op != opText && op != opContinuation {
			c.t.Errorf("frame of type %x, want text", op)
		}
		text.Write(payload)
		if first&fin != 0 {
			return text.String()
		}
	}
}

// wantClose reads up to the close frame, and wants its status.
func (c *raw) wantClose(status int) (reason string) {
	c.t.Helper()
	for {
		first, payload, err := c.next()
		if err != nil {
			c.t.Errorf("no close frame: %v", err)
			return ""
		}
		if first&0xf != opClose {
			continue
		}
		got := 0
		if len(payload) >= 2 {
			got = int(binary.BigEndian.Uint16(payload))
			reason = string(payload[2:])
		}
		if got != status {
			c.t.Errorf("closed with %d %q, want %d", got, reason, status)
		}
		return reason
	}
}

func send(t *testing.T, c bridge.Conn, m jsonrpc.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := c.Send(ctx, m); err != nil {
		t.Errorf("Send: %v", err)
	}
}

func recv(t *testing.T, c bridge.Conn) jsonrpc.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	m, err := bridgetest.Recv(ctx, c)
	if err != nil {
		t.Errorf("Recv: %v", err)
	}
	return m
}

func wantText(t *testing.T, m jsonrpc.Message, text string) {
	t.Helper()
	if string(m.Bytes()) != text {
		t.Errorf("got %.200s, want %.200s", m.Bytes(), text)
	}
}

// benchEcho sends size bytes over TCP to an echo and back, again and again.
func benchEcho(b *testing.B, size int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bridgetest.Must(b, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, size)
		for {
			if _, err := io.ReadFull(c, buf); err != nil {
				return
			}
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	bridgetest.Must(b, err)
	defer c.Close()
	buf := make([]byte, size)
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}
