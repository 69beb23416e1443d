package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// transport makes all HTTP requests of this process, floor and bridge alike.
var transport = &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10}

// process is a program under measurement that ends with its stdin.
type process struct {
	cmd   *exec.Cmd // the process
	stdin io.Closer // ends it
}

// close ends the process, waits for it, and closes the idle connections to it.
func (p *process) close() {
	p.stdin.Close()
	_ = p.cmd.Wait()
	transport.CloseIdleConnections()
}

// roleCommand returns the command that runs this program in another role (runRole): a bare server or a stdio server.
func roleCommand(name string) *exec.Cmd {
	self, _ := os.Executable()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "BENCH_ROLE="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// startHTTP starts the bare HTTP server, and returns the process and a client of it.
func startHTTP() (*process, *peer, error) {
	cmd := roleCommand("http")
	stdin, _ := cmd.StdinPipe()
	stdout, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	return &process{cmd, stdin}, &peer{url: "http://" + strings.TrimSpace(addr) + "/"}, err
}

// bridgeAddr is where a bridge listens.
type bridgeAddr struct {
	url        string // http://HOST:PORT
	socketPath string // path of its socket; empty: it has none
}

// startBridge starts "serve" with these arguments, which name the server, and
// waits until it listens. socket is the path of its Unix socket.
func startBridge(binary, socket string, args ...string) (*process, *bridgeAddr, error) {
	return startBridgeIn(nil, binary, socket, args...)
}

// startBridgeIn is startBridge with these variables beside our own.
func startBridgeIn(env []string, binary, socket string, args ...string) (*process, *bridgeAddr, error) {
	listen := []string{"serve", "--listen", "127.0.0.1:0", "--max-sessions", "10000"}
	if runtime.GOOS == "windows" {
		socket = ""
	} else {
		listen = append(listen, "--listen", "unix:"+socket)
	}
	cmd := exec.Command(binary, append(listen, args...)...)
	cmd.Env = append(os.Environ(), env...)
	stdin, _ := cmd.StdinPipe()
	stderr, _ := cmd.StderrPipe()
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	log := bufio.NewReader(stderr)
	for {
		line, err := log.ReadString('\n')
		if err != nil {
			return nil, nil, fmt.Errorf("the bridge did not start: %s %w", line, err)
		}
		if _, rest, ok := strings.Cut(line, "listening: url=http://"); ok {
			host, _, _ := strings.Cut(strings.Fields(rest)[0], "/")
			go io.Copy(io.Discard, log) // ends with the process
			return &process{cmd, stdin}, &bridgeAddr{"http://" + host, socket}, nil
		}
	}
}

// childArgs make the bridge run our stdio server, in the role of one era.
func childArgs(role string) []string {
	self, _ := os.Executable()
	return []string{"--env", "BENCH_ROLE=" + role, "--", self}
}

// The messages with which a client opens a session.
const (
	// hello is the request initialize.
	hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	// ready is the notification that follows its answer.
	ready = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// peer is one session over Streamable HTTP, or a client of the era without
// sessions, or of the bare HTTP server. Several goroutines may use it, each a clone of its own.
type peer struct {
	url     string      // where the POSTs go
	session string      // the session id; "": none is sent
	form    messageForm // how its requests are spelled
	buf     []byte      // what call reads replies into; nil: there was no call yet
}

// clone returns a peer for the same session and another goroutine.
func (p *peer) clone() *peer { return &peer{url: p.url, session: p.session, form: p.form} }

// withForm returns a peer for the same server whose requests have the headers that those
// of an era have: the bare server's are to be like the bridge's.
func (p *peer) withForm(f messageForm) *peer {
	c := &peer{url: p.url, form: f}
	if f == legacy {
		c.session = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" // as long as the bridge's
	}
	return c
}

// messageForm implements client: it returns how the requests are spelled.
func (p *peer) messageForm() messageForm { return p.form }

// initialize opens the session.
func (p *peer) initialize() error {
	resp, err := p.send([]byte(hello))
	if err != nil {
		return err
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if p.session = resp.Header.Get("Mcp-Session-Id"); p.session == "" {
		return fmt.Errorf("initialize: %s %s", resp.Status, body)
	}
	if resp, err = p.send([]byte(ready)); err != nil {
		return err
	}
	return resp.Body.Close()
}

// close ends the session; the bare server has none.
func (p *peer) close() error {
	if p.session == "" {
		return nil
	}
	req, _ := http.NewRequest(http.MethodDelete, p.url, nil)
	req.Header.Set("Mcp-Session-Id", p.session)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// send POSTs a message, with the headers that belong to its form. The caller closes the body of the reply.
func (p *peer) send(body []byte) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header["Accept"] = []string{"application/json, text/event-stream"}
	if p.session != "" {
		req.Header["Mcp-Session-Id"] = []string{p.session}
		req.Header["Mcp-Protocol-Version"] = []string{"2025-06-18"}
	}
	if p.form == modern {
		req.Header["Mcp-Protocol-Version"] = []string{"2026-07-28"}
		req.Header["Mcp-Method"] = []string{"tools/call"}
		req.Header["Mcp-Name"] = []string{"echo"}
	}
	return transport.RoundTrip(req)
}

// call implements client: it POSTs body, a request, and checks the reply as its answer.
func (p *peer) call(body []byte) error {
	if p.buf == nil {
		p.buf = make([]byte, 256<<10)
	}
	resp, err := p.send(body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var head [headSize]byte
	n := 0
	for err == nil {
		var m int
		m, err = resp.Body.Read(p.buf)
		copy(head[min(n, headSize):], p.buf[:m])
		n += m
	}
	if err != io.EOF || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("call: %s: %w", resp.Status, err)
	}
	return checkAnswer(head[:min(n, headSize)], n, body)
}

// notes implements client: it makes a call that n notifications belong to, and counts
// the events with them in its reply.
func (p *peer) notes(n int) error {
	resp, err := p.send(p.form.requestNotes(n))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	got := 0
	for err == nil {
		var line []byte
		line, err = in.ReadSlice('\n')
		if isNote(line) {
			got++
		}
	}
	if err != io.EOF || got != n {
		return fmt.Errorf("%d notifications arrived of %d: %w", got, n, err)
	}
	return nil
}
