package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// errTooLarge says that the bridge does not take a message of this size.
var errTooLarge = errors.New("the message is too large for the bridge (413)")

// timeout is how long an HTTP request may take, and how long a bridge may take to start.
const timeout = 30 * time.Second

// session is a client's session over Streamable HTTP.
type session struct {
	url, id string       // the address of the bridge, and the id of the session; "": it has none
	client  *http.Client // makes the requests
	next    atomic.Int64 // the id of the latest request
}

// open begins a session with the bridge at a port, as soon as it listens; it waits for that as long as timeout.
func open(port int) (*session, error) {
	s := &session{url: fmt.Sprintf("http://127.0.0.1:%d/mcp", port), client: &http.Client{Timeout: timeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}}
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"compare","version":"1"}}}`
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		resp, err := s.post(hello, "")
		if err == nil && resp.StatusCode == http.StatusOK {
			s.id = resp.Header.Get("Mcp-Session-Id")
			if _, err := answer(resp); err != nil {
				return nil, err
			}
			break
		}
		if err == nil {
			resp.Body.Close()
		}
		if time.Since(began) > timeout {
			return nil, fmt.Errorf("no answer to initialize for %v: %v", timeout, err)
		}
	}
	resp, err := s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
	if err == nil {
		resp.Body.Close()
	}
	return s, err
}

// post sends a message. origin is the Origin header; "": none.
func (s *session) post(body, origin string) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("MCP-Protocol-Version", "2025-06-18")
	if s.id != "" {
		r.Header.Set("Mcp-Session-Id", s.id)
	}
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	return s.client.Do(r)
}

// answer reads the answer to a request: a JSON body, or the first message of a stream.
func answer(resp *http.Response) ([]byte, error) {
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusRequestEntityTooLarge:
		return nil, errTooLarge
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("status %s", resp.Status)
	case !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream"):
		return io.ReadAll(resp.Body)
	}
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && len(bytes.TrimSpace(data)) > 0 {
			_, _ = io.Copy(io.Discard, in) // so that the connection is used again
			return bytes.TrimSpace(data), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// call calls the tool "echo" with text, and returns an error unless the answer has that text and the id of the call.
func (s *session) call(text string) error {
	id := s.next.Add(1)
	resp, err := s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"message":"%s"}}}`, id, text), "")
	if err != nil {
		return err
	}
	got, err := answer(resp)
	if err == nil && !(bytes.Contains(got, fmt.Appendf(nil, `"id":%d`, id)) && bytes.Contains(got, []byte(text))) {
		err = fmt.Errorf("a wrong answer to call %d: %.200s", id, got)
	}
	return err
}

// median returns the median time of as many calls as calls says, one after the other, with texts of size bytes. warmupCalls more, which
// come before, do not count.
func (s *session) median(size, warmupCalls, calls int) (time.Duration, error) {
	text := strings.Repeat("x", size)
	times := make([]time.Duration, 0, calls)
	for i := range warmupCalls + calls {
		began := time.Now()
		if err := s.call(text); err != nil {
			return 0, err
		}
		if i >= warmupCalls {
			times = append(times, time.Since(began))
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// rate returns how many calls of 100 bytes a second are answered, with inFlight of them at a time, for duration.
func (s *session) rate(inFlight int, duration time.Duration) (float64, error) {
	var wg sync.WaitGroup
	var calls atomic.Int64
	text := strings.Repeat("x", 100)
	began := time.Now()
	errs := make([]error, inFlight)
	for i := range errs {
		wg.Go(func() {
			for time.Since(began) < duration && errs[i] == nil {
				errs[i] = s.call(text)
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(calls.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

// postFromForeignPage returns the HTTP status with which a call is answered that comes from a web page of another site, by its Origin.
func (s *session) postFromForeignPage() (int, error) {
	resp, err := s.post(`{"jsonrpc":"2.0","id":-1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}`, "https://evil.example")
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// freePort returns a port of this machine that nobody uses now.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
