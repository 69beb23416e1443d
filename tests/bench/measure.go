package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// trio is what every round of a step needs: both floors and the bridge.
type trio struct {
	pipe   *pipePeer
	http   *peer
	bridge *peer
}

func (b *bench) start3() (*trio, error) {
	pipe, err := startPipe(role("stdio"))
	if err != nil {
		return nil, err
	}
	bare, err := startHTTP()
	if err != nil {
		return nil, err
	}
	br, err := startBridge(b.binary)
	if err != nil {
		return nil, err
	}
	return &trio{pipe, bare, br}, nil
}

func (t *trio) close() {
	t.pipe.close()
	t.http.close()
	t.bridge.close()
}

func (b *bench) latency() error {
	t, err := b.start3()
	if err != nil {
		return err
	}
	defer t.close()
	session, err := t.bridge.initialize()
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", "serve: one call, p50", "stdio", "HTTP", "floor", "bridge", "ratio")
	for _, c := range []struct {
		name  string
		size  int
		calls int
	}{{"100 B", 100, b.calls}, {"10 KB", 10_000, b.calls}, {"1 MB", 1_000_000, b.bigCalls}} {
		var stdio, bare, floor, bridged []time.Duration
		var ratio []float64
		for range b.rounds {
			s, err := t.pipe.timeCalls(c.calls, c.size)
			if err != nil {
				return err
			}
			h, err := t.http.timeCalls(c.calls, c.size)
			if err != nil {
				return err
			}
			br, err := session.timeCalls(c.calls, c.size)
			if err != nil {
				return err
			}
			stdio, bare, floor, bridged = append(stdio, s), append(bare, h), append(floor, s+h), append(bridged, br)
			ratio = append(ratio, float64(br)/float64(s+h))
		}
		fmt.Printf("%-34s %12s %12s %12s %12s %8.2f\n", c.name, micros(median(stdio)), micros(median(bare)), micros(median(floor)), micros(median(bridged)), median(ratio))
	}
	fmt.Println()
	return nil
}

// throughput: the floor of a rate is what remains when each call costs what it
// costs in both bare forms together.
func (b *bench) throughput() error {
	t, err := b.start3()
	if err != nil {
		return err
	}
	defer t.close()
	one, err := t.bridge.initialize()
	if err != nil {
		return err
	}
	const n = 32
	same, bare, own := make([]*peer, n), make([]*peer, n), make([]*peer, n)
	for i := range n {
		same[i], bare[i] = one, t.http
		if own[i], err = t.bridge.initialize(); err != nil {
			return err
		}
	}
	pipes := make([]*pipePeer, n)
	for i := range pipes {
		if pipes[i], err = startPipe(role("stdio")); err != nil {
			return err
		}
		defer pipes[i].close()
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", "serve: calls a second, 100 B", "stdio", "HTTP", "floor", "bridge", "ratio")
	for _, c := range []struct {
		name    string
		pipes   []*pipePeer
		workers []*peer
	}{{"1 session, 32 in flight", pipes[:1], same}, {"32 sessions, 1 in flight each", pipes, own}} {
		var stdio, web, floor, bridged, ratio []float64
		for range b.rounds {
			s, err := pipeRate(c.pipes, n/len(c.pipes), b.window)
			if err != nil {
				return err
			}
			h, err := rate(bare, b.window)
			if err != nil {
				return err
			}
			br, err := rate(c.workers, b.window)
			if err != nil {
				return err
			}
			f := 1 / (1/s + 1/h)
			stdio, web, floor, bridged, ratio = append(stdio, s), append(web, h), append(floor, f), append(bridged, br), append(ratio, br/f)
		}
		fmt.Printf("%-34s %12.0f %12.0f %12.0f %12.0f %8.2f\n", c.name, median(stdio), median(web), median(floor), median(bridged), median(ratio))
	}
	fmt.Println()
	return nil
}

// notifications counts events in one SSE reply, and that none is missing.
func (b *bench) notifications() error {
	t, err := b.start3()
	if err != nil {
		return err
	}
	defer t.close()
	session, err := t.bridge.initialize()
	if err != nil {
		return err
	}
	web := *t.http
	web.url += "notes?n=" + strconv.Itoa(b.notes)
	count := func(p *peer, body []byte) (float64, error) {
		begin := time.Now()
		resp, err := p.send(body)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		in := bufio.NewReaderSize(resp.Body, 64<<10)
		n := 0
		for {
			line, err := in.ReadSlice('\n')
			if bytes.Contains(line, []byte(`"notifications/progress"`)) {
				n++
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				return 0, err
			}
		}
		if n != b.notes {
			return 0, fmt.Errorf("%d notifications arrived of %d", n, b.notes)
		}
		return float64(n) / time.Since(begin).Seconds(), nil
	}
	var bare, bridged, ratio []float64
	for range b.rounds {
		f, err := count(&web, []byte("{}"))
		if err != nil {
			return err
		}
		body := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"n","_meta":{"progressToken":"t"},"arguments":{"notes":%d}}}`, ids.Add(1), b.notes)
		br, err := count(session, body)
		if err != nil {
			return err
		}
		bare, bridged, ratio = append(bare, f), append(bridged, br), append(ratio, br/f)
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", "serve: notifications a second", "", "HTTP", "", "bridge", "ratio")
	fmt.Printf("%-34s %12s %12.0f %12s %12.0f %8.2f\n\n", "in one SSE reply", "", median(bare), "", median(bridged), median(ratio))
	return nil
}

// connect measures the other direction: a stdio client, the bridge, and
// "serve" as the HTTP server.
func (b *bench) connect() error {
	t, err := b.start3()
	if err != nil {
		return err
	}
	defer t.close()
	begin := time.Now()
	c, err := startPipe(exec.Command(b.binary, "connect", "--log-level", "warn", t.bridge.url))
	if err != nil {
		return err
	}
	defer c.close()
	for _, m := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
	} {
		if _, err := io.WriteString(c.in, m+"\n"); err != nil {
			return err
		}
	}
	if _, err := c.line(); err != nil {
		return err
	}
	started := time.Since(begin)
	session, err := t.bridge.initialize()
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", "connect: one call, p50", "stdio", "serve", "floor", "both bridges", "ratio")
	for _, k := range []struct {
		name  string
		size  int
		calls int
	}{{"100 B", 100, b.calls}, {"1 MB", 1_000_000, b.bigCalls}} {
		s, err := t.pipe.timeCalls(k.calls, k.size)
		if err != nil {
			return err
		}
		h, err := session.timeCalls(k.calls, k.size)
		if err != nil {
			return err
		}
		br, err := c.timeCalls(k.calls, k.size)
		if err != nil {
			return err
		}
		fmt.Printf("%-34s %12s %12s %12s %12s %8.2f\n", k.name, micros(s), micros(h), micros(s+h), micros(br), float64(br)/float64(s+h))
	}
	fmt.Printf("%-34s %51s\n\n", "start and initialize", micros(started))
	return nil
}

// start is the time from starting the process to the first connection it accepts.
func (b *bench) start() error {
	var ready []time.Duration
	for range 5 * b.rounds {
		begin := time.Now()
		p, err := startBridge(b.binary)
		if err != nil {
			return err
		}
		ready = append(ready, time.Since(begin))
		p.close()
	}
	fmt.Printf("%-34s %51s\n", "serve: ready after start", micros(median(ready)))
	return nil
}

func (b *bench) memory() error {
	p, err := startBridge(b.binary)
	if err != nil {
		return err
	}
	defer p.close()
	empty, err := rss(p.cmd.Process.Pid)
	if err != nil {
		fmt.Println("resident memory is measured on Linux only")
		return nil
	}
	sessions := make([]*peer, b.sessions)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < b.sessions && errs[w] == nil; i += 8 {
				sessions[i], errs[w] = p.initialize()
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	full, err := rss(p.cmd.Process.Pid)
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %47.1f MiB\n", "serve: resident, no session", float64(empty)/(1<<20))
	fmt.Printf("%-34s %47.1f MiB\n", fmt.Sprintf("serve: resident, %d sessions", b.sessions), float64(full)/(1<<20))
	fmt.Printf("%-34s %47.1f KiB\n", "serve: for each further session", float64(full-empty)/float64(b.sessions)/1024)
	for _, s := range sessions {
		if err := s.delete(); err != nil {
			return err
		}
	}
	return nil
}

// rss returns the resident set of a process in bytes.
func rss(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	return kb << 10, err
}
