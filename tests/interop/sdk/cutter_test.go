package sdk

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
)

// A cutter stands between a client and a server on TCP and closes, when it is
// told to, every connection that is open.
type cutter struct {
	url     string // the server as seen through the cutter
	control string // a GET here cuts, and so does what is beyond

	mu     sync.Mutex
	open   map[net.Conn]bool
	cutted int
}

// newCutter makes a cutter in front of a server. When it is told to cut, those
// beyond do so as well.
func newCutter(t *testing.T, server string, beyond ...*cutter) *cutter {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{open: map[net.Conn]bool{}}
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range append(beyond, c) {
			c.cut()
		}
	}))
	t.Cleanup(func() {
		l.Close()
		c.cut()
		control.Close()
	})
	go c.accept(l, u.Host)
	u.Host = l.Addr().String()
	c.url, c.control = u.String(), control.URL
	return c
}

func (c *cutter) accept(l net.Listener, to string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			client.Close()
			continue
		}
		c.mu.Lock()
		c.open[client], c.open[server] = true, true
		c.mu.Unlock()
		go c.copy(client, server)
		go c.copy(server, client)
	}
}

func (c *cutter) copy(from, to net.Conn) {
	io.Copy(to, from)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range []net.Conn{from, to} {
		conn.Close()
		delete(c.open, conn)
	}
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		conn.Close()
		c.cutted++
	}
}

func (c *cutter) cuts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cutted
}
