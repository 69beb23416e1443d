package matrix

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// lineWire is the server's end of newline-delimited messages.
type lineWire struct {
	mu   sync.Mutex
	conn net.Conn
	s    *session
}

func (w *lineWire) send(_, text string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := io.WriteString(w.conn, text+"\n")
	return err
}

func (w *lineWire) crash() {
	if w.s.pid == 0 {
		abort(w.conn)
		return
	}
	if p, err := os.FindProcess(w.s.pid); err == nil {
		p.Kill()
	}
}

// serveLines takes connections. With processes, each is from a relay, which
// says its process id first.
func (v *server) serveLines(l net.Listener, processes bool) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go v.serveConn(conn, processes)
	}
}

// serveConn delivers lines: each is one message, ended by a line feed (ST1).
// At their end the server ends too.
func (v *server) serveConn(conn net.Conn, process bool) {
	defer conn.Close()
	s := v.newSession()
	s.wire = &lineWire{conn: conn, s: s}
	in := bufio.NewReaderSize(conn, 1<<16)
	if process {
		line, _ := in.ReadString('\n')
		s.pid, _ = strconv.Atoi(strings.TrimSpace(line))
	}
	for {
		line, err := in.ReadString('\n')
		switch {
		case err == io.EOF && line == "":
			s.ended("end of file")
			return
		case err != nil:
			if line != "" && err == io.EOF {
				s.fault("a line without its end came: %s", clip(line))
			}
			s.ended("broken")
			return
		}
		s.deliver(frame{text: strings.TrimSuffix(line, "\n")})
	}
}

// stdioServer is run by the bridge: a relay, with its brain here.
func stdioServer(t testing.TB) *server {
	v := newServer()
	l := listenAgain(t, "tcp", "")
	go v.serveLines(l, true)
	t.Cleanup(l.crash)
	v.target = []string{"--", relayBin, l.Addr().String()}
	v.restart = func(t testing.TB) {
		v.mu.Lock()
		all := v.all
		v.mu.Unlock()
		for _, s := range all {
			if _, over, _ := s.peek(); over == "" {
				s.wire.crash()
			}
		}
	}
	v.ends = []string{"end of file"}
	return v
}

// unixServer listens on a Unix socket.
func unixServer(t testing.TB) *server {
	dir, err := os.MkdirTemp("", "m") // a short name: the address of a socket has few bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	v, path := newServer(), filepath.Join(dir, "s")
	l := listenAgain(t, "unix", path)
	t.Cleanup(func() { l.crash() })
	go v.serveLines(l, false)
	v.target = []string{"unix:" + path}
	v.restart = func(t testing.TB) {
		l.crash()
		l = listenAgain(t, "unix", path)
		go v.serveLines(l, false)
	}
	v.ends = []string{"end of file"}
	return v
}
