package ws

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
)

// checkUpgrade reports whether r asks for a WebSocket, in a way in which it can be given one. If not, it has answered
// r with an HTTP error.
func checkUpgrade(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case r.ProtoMajor != 1:
		// A 426 would have to name the way to upgrade, which HTTP/2 cannot.
		httpserve.RefuseText(w, r, "WS3", http.StatusNotImplemented, "a WebSocket needs HTTP/1.1; this request came over "+r.Proto)
	case !hasToken(r.Header["Upgrade"], "websocket") || !hasToken(r.Header["Connection"], "upgrade"):
		w.Header().Set("Upgrade", "websocket")
		w.Header().Add("Connection", "Upgrade") // it may say that this is the last request
		httpserve.RefuseText(w, r, "WS3", http.StatusUpgradeRequired, "this is a WebSocket endpoint: connect with a ws:// or wss:// URL")
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET")
		httpserve.RefuseText(w, r, "WS3", http.StatusMethodNotAllowed, "a WebSocket begins with a GET")
	case r.ContentLength != 0: // it would be read as frames
		httpserve.RefuseText(w, r, "WS3", http.StatusBadRequest, "a WebSocket begins with a GET without a body")
	default:
		return true
	}
	return false
}

// hasToken reports whether token is, but for upper and lower case, one of the elements of a header with these lines,
// which is a list.
func hasToken(lines []string, token string) bool {
	for _, line := range lines {
		for element := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(element), token) {
				return true
			}
		}
	}
	return false
}

// wireHijacker is a ResponseWriter whose Hijack puts a wire between the connection and the WebSocket that is made with
// it.
type wireHijacker struct {
	http.ResponseWriter
	stallTimeout time.Duration // the stall timeout of the wire
	wire         *wire         // what Hijack has made; nil: it was not called
}

// Hijack implements http.Hijacker: it returns the connection by way of a new wire.
func (u *wireHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	under, rw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	u.wire = newWire(under, u.stallTimeout)
	rw.Writer.Reset(u.wire)
	return &wiredConn{Conn: under, wire: u.wire}, rw, nil
}

// wiredConn is a net.Conn whose bytes go by way of a wire.
type wiredConn struct {
	net.Conn
	wire *wire // the wire, over the embedded Conn
}

// Read implements net.Conn: it reads from the wire.
func (c *wiredConn) Read(p []byte) (int, error) { return c.wire.Read(p) }

// Write implements net.Conn: it writes to the wire.
func (c *wiredConn) Write(p []byte) (int, error) { return c.wire.Write(p) }

// Close implements net.Conn: it closes the wire.
func (c *wiredConn) Close() error { return c.wire.Close() }
