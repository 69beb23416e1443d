package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// transport is shared by all calls, floor and bridge alike.
var transport = &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, DisableCompression: true, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10}

// peer is a process under measurement that is called over HTTP.
type peer struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	url     string
	session string
}

func (p *peer) close() {
	p.stdin.Close()
	p.cmd.Wait()
	transport.CloseIdleConnections()
}

func role(name string) *exec.Cmd {
	self, _ := os.Executable()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "BENCH_ROLE="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// startHTTP starts the bare HTTP server.
func startHTTP() (*peer, error) {
	cmd := role("http")
	stdin, _ := cmd.StdinPipe()
	stdout, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	return &peer{cmd: cmd, stdin: stdin, url: "http://" + strings.TrimSpace(addr) + "/"}, err
}

// startBridge starts "serve" in front of the stdio server and waits until it listens.
func startBridge(binary string) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "serve", "--listen", "127.0.0.1:0", "--max-sessions", "10000", "--env", "BENCH_ROLE=stdio", "--", self)
	stdin, _ := cmd.StdinPipe()
	stderr, _ := cmd.StderrPipe()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	log := bufio.NewReader(stderr)
	p := &peer{cmd: cmd, stdin: stdin}
	for p.url == "" {
		line, err := log.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("the bridge did not start: %s %w", line, err)
		}
		if _, rest, ok := strings.Cut(line, "url="); ok {
			p.url = strings.Fields(rest)[0]
		}
	}
	go io.Copy(io.Discard, log) // ends with the process
	return p, nil
}

// initialize opens a session and returns the peer as that session sees it.
func (p *peer) initialize() (*peer, error) {
	s := *p
	resp, err := s.send([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`))
	if err != nil {
		return nil, err
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if s.session = resp.Header.Get("Mcp-Session-Id"); s.session == "" {
		return nil, fmt.Errorf("initialize: %s %s", resp.Status, body)
	}
	resp, err = s.send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err != nil {
		return nil, err
	}
	return &s, resp.Body.Close()
}

func (p *peer) delete() error {
	req, _ := http.NewRequest(http.MethodDelete, p.url, nil)
	req.Header.Set("Mcp-Session-Id", p.session)
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

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
	return transport.RoundTrip(req)
}

// call makes one call and checks that the answer is as long as it must be.
func (p *peer) call(body []byte, buf []byte) error {
	resp, err := p.send(body)
	if err != nil {
		return err
	}
	n := 0
	for err == nil {
		var m int
		m, err = resp.Body.Read(buf)
		n += m
	}
	resp.Body.Close()
	if err != io.EOF || resp.StatusCode != 200 || n < len(body)-40 {
		return fmt.Errorf("call: %s, %d bytes back for %d: %v", resp.Status, n, len(body), err)
	}
	return nil
}

// request spells a call of about size bytes.
func request(id int64, size int) []byte {
	const head, tail = `"method":"tools/call","params":{"name":"echo","arguments":{"pad":"`, `"}}}`
	pad := max(size-len(head)-len(tail)-30, 1)
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,%s%s%s`, id, head, strings.Repeat("x", pad), tail)
}

var ids atomic.Int64

// timeCalls returns the median time of n calls, one after the other.
func (p *peer) timeCalls(n, size int) (time.Duration, error) {
	buf := make([]byte, 256<<10)
	times := make([]time.Duration, 0, n)
	for i := range n + n/10 {
		body := request(ids.Add(1), size)
		begin := time.Now()
		if err := p.call(body, buf); err != nil {
			return 0, err
		}
		if i >= n/10 { // the first tenth warms up
			times = append(times, time.Since(begin))
		}
	}
	return median(times), nil
}

// rate returns how many calls a second the workers make together.
func rate(workers []*peer, d time.Duration) (float64, error) {
	var wg sync.WaitGroup
	var count atomic.Int64
	var failed atomic.Pointer[error]
	begin := time.Now()
	until := begin.Add(d)
	for _, p := range workers {
		wg.Go(func() {
			buf := make([]byte, 4<<10)
			for time.Now().Before(until) {
				if err := p.call(request(ids.Add(1), 100), buf); err != nil {
					failed.Store(&err)
					return
				}
				count.Add(1)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(count.Load()) / time.Since(begin).Seconds(), nil
}

// pipePeer is a process that is called over its stdin and stdout.
type pipePeer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startPipe(cmd *exec.Cmd) (*pipePeer, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &pipePeer{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20)}, cmd.Start()
}

func (p *pipePeer) close() {
	p.in.Close()
	p.cmd.Wait()
}

// line reads one line and returns its length.
func (p *pipePeer) line() (int, error) {
	n := 0
	for {
		part, err := p.out.ReadSlice('\n')
		n += len(part)
		if err != bufio.ErrBufferFull {
			return n, err
		}
	}
}

func (p *pipePeer) timeCalls(n, size int) (time.Duration, error) {
	times := make([]time.Duration, 0, n)
	for i := range n + n/10 {
		body := append(request(ids.Add(1), size), '\n')
		begin := time.Now()
		if _, err := p.in.Write(body); err != nil {
			return 0, err
		}
		if _, err := p.line(); err != nil {
			return 0, err
		}
		if i >= n/10 {
			times = append(times, time.Since(begin))
		}
	}
	return median(times), nil
}

// rate keeps inFlight calls in the pipe.
func (p *pipePeer) rate(inFlight int, d time.Duration) (float64, error) {
	slots := make(chan struct{}, inFlight)
	stop := make(chan struct{})
	sent := make(chan int)
	go func() { // ends when stop is closed
		n := 0
		for {
			select {
			case slots <- struct{}{}:
				if _, err := p.in.Write(append(request(ids.Add(1), 100), '\n')); err != nil {
					sent <- n
					return
				}
				n++
			case <-stop:
				sent <- n
				return
			}
		}
	}()
	begin := time.Now()
	count, total := 0, -1
	for count != total {
		if total < 0 && time.Since(begin) > d {
			close(stop)
			total = <-sent
			if count == total {
				break
			}
		}
		if _, err := p.line(); err != nil {
			return 0, err
		}
		<-slots
		count++
	}
	return float64(count) / time.Since(begin).Seconds(), nil
}

// pipeRate adds up what the processes answer side by side.
func pipeRate(pipes []*pipePeer, inFlight int, d time.Duration) (sum float64, err error) {
	rates, errs := make([]float64, len(pipes)), make([]error, len(pipes))
	var wg sync.WaitGroup
	for i, p := range pipes {
		wg.Go(func() { rates[i], errs[i] = p.rate(inFlight, d) })
	}
	wg.Wait()
	for i := range pipes {
		sum, err = sum+rates[i], errors.Join(err, errs[i])
	}
	return sum, err
}
