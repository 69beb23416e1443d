package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
)

// kind is a transport by which a bridge is called. The clients are minimal:
// what they cost is added to what the bridge costs.
type kind struct {
	name    string                            // what the tables call the transport
	open    func(*bridgeAddr) (client, error) // opens a session with a bridge
	senders int                               // how many goroutines send at a time in linkRate; 0: the transport has no link
}

// streamable is Streamable HTTP, with a session.
var streamable = kind{"Streamable HTTP", openStreamable, 0}

// kinds returns all transports that this system has, each with sessions of 2025-06-18: on Windows there is no Unix socket.
func kinds() []kind {
	all := []kind{streamable, {"HTTP+SSE", openLink(dialSSE), 8}, {"WebSocket", openLink(dialWS), 1}}
	if runtime.GOOS != "windows" {
		all = append(all, kind{"Unix socket", openLink(dialUnix), 1})
	}
	return all
}

// openStreamable opens a session over Streamable HTTP: it has sent initialize and notifications/initialized.
func openStreamable(s *bridgeAddr) (client, error) {
	p := &peer{url: s.url + "/mcp"}
	return p, p.initialize()
}

// openLink returns a function that opens a session over the link that dial returns.
func openLink(dial func(*bridgeAddr) (link, error)) func(*bridgeAddr) (client, error) {
	return func(s *bridgeAddr) (client, error) {
		l, err := dial(s)
		if err != nil {
			return nil, err
		}
		if err := initialize(l); err != nil {
			l.close()
			return nil, err
		}
		return linkClient{link: l}, nil
	}
}

// dialUnix connects to the bridge's Unix socket. No session is opened.
func dialUnix(s *bridgeAddr) (link, error) {
	c, err := net.Dial("unix", s.socketPath)
	if err != nil {
		return nil, err
	}
	return newLines(c, c, c.Close), nil
}

// sseLink is a link over HTTP+SSE.
type sseLink struct {
	body io.Closer      // ends the event stream
	r    *bufio.Reader  // reads the event stream
	post string         // the URL for the POSTs
	head [headSize]byte // what recv has returned last
}

// dialSSE opens the event stream of HTTP+SSE, and reads from it where POSTs go. No session is opened.
func dialSSE(s *bridgeAddr) (link, error) {
	req, err := http.NewRequest(http.MethodGet, s.url+"/sse", nil)
	if err != nil {
		return nil, err
	}
	req.Header["Accept"] = []string{"text/event-stream"}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	e := &sseLink{body: resp.Body, r: bufio.NewReaderSize(resp.Body, 256<<10), post: s.url}
	if resp.StatusCode != http.StatusOK {
		e.close()
		return nil, errors.New("GET of the event stream: " + resp.Status)
	}
	for { // of the endpoint event
		line, err := e.r.ReadString('\n')
		if err != nil {
			e.close()
			return nil, err
		}
		if path, ok := strings.CutPrefix(line, "data: "); ok {
			e.post += strings.TrimSpace(path)
		}
		if line == "\n" {
			return e, nil
		}
	}
}

// close ends the event stream, and so the session.
func (e *sseLink) close() error { return e.body.Close() }

// send implements link: it POSTs a message. It may be called concurrently.
func (e *sseLink) send(body []byte) error {
	req, err := http.NewRequest(http.MethodPost, e.post, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return errors.New("POST: " + resp.Status)
	}
	return nil
}

// recv implements link. It returns when it has read the end of an event that has data.
func (e *sseLink) recv() (head []byte, size int, err error) {
	const field = "data: "
	for {
		line, err := e.r.ReadSlice('\n')
		switch {
		case err == nil && len(line) == 1 && size > 0:
			return head, size, nil
		case bytes.HasPrefix(line, []byte(field)):
			head = e.head[:copy(e.head[:], line[len(field):])]
			size = len(line) - len(field)
		}
		for err == bufio.ErrBufferFull {
			line, err = e.r.ReadSlice('\n')
			size += len(line)
		}
		if err != nil {
			return nil, 0, err
		}
	}
}

// webSocket is a link over WebSocket (RFC 6455).
type webSocket struct {
	conn net.Conn       // the TCP connection
	r    *bufio.Reader  // reads conn
	head [headSize]byte // what recv has returned last
}

// What the first two bytes of a WebSocket frame have beside its length (RFC 6455, 5.2).
const (
	wsFin   = 0x80 // bit of the first byte: the frame is the last of its message
	wsText  = 0x1  // opcode, in the low four bits of the first byte: the frame begins a text message
	wsClose = 0x8  // opcode: the frame ends the WebSocket. All control frames, and no others, have this bit
	wsPing  = 0x9  // opcode: the frame wants a pong
	wsPong  = 0xA  // opcode: the frame answers a ping
	wsMask  = 0x80 // bit of the second byte: the payload is masked, as a client's must be
)

// dialWS opens a WebSocket. No session is opened.
func dialWS(s *bridgeAddr) (link, error) {
	host := strings.TrimPrefix(s.url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return nil, err
	}
	ws := &webSocket{conn: conn, r: bufio.NewReaderSize(conn, 256<<10)}
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mcp\r\n\r\n", host)
	resp, err := http.ReadResponse(ws.r, nil)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = errors.New("WebSocket: " + resp.Status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return ws, nil
}

// close sends a close frame, and closes the connection without waiting for the bridge's.
func (ws *webSocket) close() error {
	err := ws.frame(wsClose, []byte{1000 >> 8, 1000 & 0xff})
	return errors.Join(err, ws.conn.Close())
}

// send writes a message as one text frame.
func (ws *webSocket) send(body []byte) error { return ws.frame(wsText, body) }

// frame writes one frame. Its mask is 0: that saves the client the work, but
// not the bridge.
func (ws *webSocket) frame(op byte, payload []byte) error {
	h := []byte{wsFin | op}
	switch n := len(payload); {
	case n < 126:
		h = append(h, wsMask|byte(n))
	case n < 1<<16:
		h = binary.BigEndian.AppendUint16(append(h, wsMask|126), uint16(n))
	default:
		h = binary.BigEndian.AppendUint64(append(h, wsMask|127), uint64(n))
	}
	parts := net.Buffers{append(h, 0, 0, 0, 0), payload}
	_, err := parts.WriteTo(ws.conn)
	return err
}

// recv implements link. It returns when it has read the last frame of a text message, and answers pings meanwhile.
func (ws *webSocket) recv() (head []byte, size int, err error) {
	for {
		first, n, err := ws.header()
		if err != nil {
			return nil, 0, err
		}
		start, err := ws.r.Peek(min(n, 125)) // all of a control frame
		if err != nil {
			return nil, 0, err
		}
		switch first &^ wsFin {
		case wsClose:
			return nil, 0, io.EOF
		case wsPing:
			if err := ws.frame(wsPong, start); err != nil {
				return nil, 0, err
			}
		case wsText:
			head = ws.head[:copy(ws.head[:], start)]
			fallthrough
		default: // the rest of a fragmented message
			size += n
		}
		if _, err := ws.r.Discard(n); err != nil {
			return nil, 0, err
		}
		if first&wsFin != 0 && first&wsClose == 0 {
			return head, size, nil
		}
	}
}

// header reads the beginning of a frame, and returns its first byte and the
// length of its payload.
func (ws *webSocket) header() (first byte, size int, err error) {
	h, err := ws.r.Peek(2)
	if err != nil {
		return 0, 0, err
	}
	first, size = h[0], int(h[1])
	long := map[int]int{126: 2, 127: 8}[size]
	if h, err = ws.r.Peek(2 + long); err != nil {
		return 0, 0, err
	}
	switch long {
	case 2:
		size = int(binary.BigEndian.Uint16(h[2:]))
	case 8:
		size = int(binary.BigEndian.Uint64(h[2:]))
	}
	_, err = ws.r.Discard(2 + long)
	return first, size, err
}
