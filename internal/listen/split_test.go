package listen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

// TestSplit: HTTP and messages on one Unix socket, and not a byte is lost.
func TestSplit(t *testing.T) {
	path := socketPath(t)
	ls := mustOpen(t, Options{Addrs: []string{"unix:" + path}})
	web, lines := Split(ls[0], nil)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, body)
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(web) })
	wg.Go(func() { // says what it got, when the client has ended its direction
		for {
			conn, err := lines.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				data, err := io.ReadAll(conn)
				fmt.Fprintf(conn, "%s|%v", data, err)
				if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
					t.Error(err)
				}
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	for range 3 {
		resp, err := client.Post("http://localhost/mcp", "text/plain", strings.NewReader(`{"a":1}`))
		bridgetest.Must(t, err)
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if string(body) != `POST /mcp {"a":1}` {
			t.Errorf("reply %q", body)
		}
	}
	for _, text := range []string{"{\"a\":1}\n", "[1]\n", "\n{}\n", " ", "\t\r\n", "{" + strings.Repeat("x", 1<<20)} {
		conn, err := net.Dial("unix", path)
		bridgetest.Must(t, err)
		wg.Go(func() {
			_, _ = io.WriteString(conn, text)
			_ = conn.(*net.UnixConn).CloseWrite()
		})
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != text+"|<nil>" {
			t.Errorf("%.20q: %.40q, %v", text, got, err)
		}
		_ = conn.Close()
	}
	client.CloseIdleConnections()
	_ = srv.Close() // closes web, and lines with it
	wg.Wait()
}

// memory is a listener whose connections are pipes, for time that is fake.
type memory struct {
	conns chan net.Conn
	errs  chan error
	done  chan struct{}
	once  sync.Once
}

func newMemory() *memory {
	return &memory{conns: make(chan net.Conn), errs: make(chan error), done: make(chan struct{})}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case err := <-m.errs:
		return nil, err
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }
func (m *memory) Close() error   { m.once.Do(func() { close(m.done) }); return nil }

func (m *memory) dial() net.Conn {
	client, server := net.Pipe()
	m.conns <- server
	return client
}

func TestSplitSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		web, lines := Split(m, nil)
		defer web.Close()
		silent, slow := m.dial(), m.dial()
		defer slow.Close()
		go func() {
			time.Sleep(firstByteTimeout - time.Second)
			_, _ = slow.Write([]byte("{"))
		}()
		start := time.Now()
		conn, err := lines.Accept()
		bridgetest.Must(t, err)
		defer conn.Close()
		if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the silent one: %v", err)
		}
		if took := time.Since(start); took != firstByteTimeout {
			t.Errorf("closed after %v", took)
		}
		// One that has spoken may be silent for as long as it likes.
		go func() {
			time.Sleep(time.Hour)
			_, _ = slow.Write([]byte("}"))
		}()
		got := make([]byte, 2)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "{}" {
			t.Errorf("read %q, %v", got, err)
		}
		// Deadlines reach the connection.
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		var timeout net.Error
		if _, err := conn.Read(got); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("read after the deadline: %v", err)
		}
	})
}

// TestSplitClose: Close ends what is waited for, and waits.
func TestSplitClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		web, lines := Split(m, nil)
		looked := m.dial()                // has sent nothing
		waiting := m.dial()               // is for HTTP, and nobody accepts
		go waiting.Write([]byte("GET /")) //nolint:errcheck // ends with the connection
		synctest.Wait()
		ended := make(chan error, 1)
		go func() {
			_, err := lines.Accept()
			ended <- err
		}()
		synctest.Wait()
		if err := lines.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v", err)
		}
		if _, err := web.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept of the other: %v", err)
		}
		for _, c := range []net.Conn{looked, waiting} {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Error("a connection is still open")
			}
			_ = c.Close()
		}
		if err := web.Close(); err != nil {
			t.Error(err)
		}
	})
}

// stuck is a connection whose Read takes its time to notice that it is closed.
type stuck struct {
	net.Conn
	release chan struct{}
}

func (c *stuck) Read(p []byte) (int, error) {
	<-c.release
	return c.Conn.Read(p)
}

// TestSplitCloseWaits: no goroutine is left when Close returns.
func TestSplitCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		web, _ := Split(m, nil)
		client, server := net.Pipe()
		defer client.Close()
		release := make(chan struct{})
		m.conns <- &stuck{server, release}
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			_ = web.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close has not waited")
		default:
		}
		close(release)
		<-closed
	})
}

// TestSplitErrors: an error of Accept comes out, and is not the end.
func TestSplitErrors(t *testing.T) {
	m := newMemory()
	web, lines := Split(m, nil)
	defer web.Close()
	var wg sync.WaitGroup
	wg.Go(func() { m.errs <- errors.New("too many open files") })
	if _, err := web.Accept(); err == nil || err.Error() != "too many open files" {
		t.Errorf("Accept: %v", err)
	}
	wg.Go(func() {
		c := m.dial()
		_, _ = io.WriteString(c, "[]\n")
		_ = c.Close()
	})
	conn, err := lines.Accept()
	bridgetest.Must(t, err)
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "[]\n" || err != nil {
		t.Errorf("read %q, %v", line, err)
	}
	_ = conn.Close()
	wg.Wait()
}

// TestSplitFirstByte: which bytes begin a message. A TLS handshake and the
// preface of HTTP/2 do not.
func TestSplitFirstByte(t *testing.T) {
	for c := range 256 {
		want := strings.IndexByte("{[ \t\r\n", byte(c)) >= 0
		if got := beginsMessage(byte(c)); got != want {
			t.Errorf("%q: %v", byte(c), got)
		}
	}
}
