package ws

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// FuzzFrames: whatever a client sends, its session ends with its connection,
// and hands on nothing that is no message.
func FuzzFrames(f *testing.F) {
	for _, seed := range [][]byte{
		frame(fin|opText, []byte(initializeText)),
		frame(fin|opPing, []byte("x")),
		frame(fin|opClose, []byte{3, 232}),
		frame(fin|opClose, []byte{3}),
		append(frame(opText, []byte("[1,")), frame(fin|opContinuation, []byte("2]"))...),
		header(fin|opText, 1<<40, 0x80),
		header(fin|opText, -1, 0x80),
		header(fin|opBinary, 300, 0),
	} {
		f.Add(seed)
	}
	s := &site{sessions: make(chan *session, 1), quit: make(chan error), over: make(chan error, 1)}
	s.start(f, HandlerOptions{MaxMessageSize: 1 << 16})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := s.dialRaw(t, data)
		session := <-s.sessions
		if err := c.conn.(*net.TCPConn).CloseWrite(); err != nil {
			return // the server was faster
		}
		c.conn.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, c.conn); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the connection does not end")
			}
		}
		for {
			m, err := bridgetest.Recv(t.Context(), session)
			if err != nil {
				break
			}
			if m.Kind() == 0 {
				t.Error("received what is no message")
			}
		}
		c.conn.Close()
		<-s.over
	})
}
