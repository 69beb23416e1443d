package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// scene is what every round of a step needs: both floors and a bridge.
type scene struct {
	pipe     *lines      // the bare stdio server
	bareHTTP *peer       // a client of the bare HTTP server
	bridge   *bridgeAddr // a bridge with a stdio server

	cleanups []func() // end what was started; close calls them, the last one first
}

// begin starts the processes of a scene. After an error those that were started before end with this program.
func (b *bench) begin() (*scene, error) {
	s := &scene{}
	pipe, err := startPipe(roleCommand("stdio"))
	if err != nil {
		return nil, err
	}
	s.pipe = pipe
	s.cleanups = append(s.cleanups, func() { pipe.close() })
	process, http, err := startHTTP()
	if err != nil {
		return nil, err
	}
	s.bareHTTP = http
	s.cleanups = append(s.cleanups, process.close)
	s.bridge, err = b.startBridge(s, childArgs("stdio")...)
	return s, err
}

// startBridge starts a bridge that ends with the scene. args name its server, and may have flags before that.
func (b *bench) startBridge(s *scene, args ...string) (*bridgeAddr, error) {
	process, at, err := startBridge(b.binary, b.socket(), args...)
	if err != nil {
		return nil, err
	}
	s.cleanups = append(s.cleanups, process.close)
	return at, nil
}

// socket returns a path for a bridge's Unix socket, another one each time.
func (b *bench) socket() string {
	b.lastSocket++
	return filepath.Join(b.dir, fmt.Sprint("s", b.lastSocket))
}

// close ends what was started for the scene.
func (s *scene) close() {
	for _, end := range slices.Backward(s.cleanups) {
		end()
	}
}

// open opens a session over the transport k, with the bridge that listens where at says. The session ends with the scene.
func (s *scene) open(k kind, at *bridgeAddr) (client, error) {
	c, err := k.open(at)
	if err == nil {
		s.cleanups = append(s.cleanups, func() { c.close() })
	}
	return c, err
}

// sizes are how long the requests are that are measured, with their names in the tables.
var sizes = []struct {
	name string
	size int
}{{"100 B", 100}, {"10 KB", 10_000}, {"1 MB", 1_000_000}}

// callsForSize returns how many calls of a size are made in a scene.
func (b *bench) callsForSize(size int) int {
	if size < 1_000_000 {
		return b.calls
	}
	return b.bigCalls
}

// row is one line of a table of calls.
type row struct {
	name  string // what the table calls the row
	c     client // makes its calls
	pipes int    // how many bare stdio calls its floor has
	hops  int    // how many bare HTTP calls its floor has
}

// floor is what a row's call costs without a bridge.
func (r row) floor(pipe, hop time.Duration) time.Duration {
	return time.Duration(r.pipes)*pipe + time.Duration(r.hops)*hop
}

// measureLatency prints what a call takes over each transport, beside the same floor, that of Streamable HTTP.
func (b *bench) measureLatency() error {
	return b.printCalls("serve: one call, p50", legacy, func(s *scene) ([]row, error) {
		return s.rows(kinds(), s.bridge, "")
	})
}

// turnsPerRound is how many times a scene's calls go from the floor through all rows: the
// machine may be another one a moment later. The first turn is to warm up.
const turnsPerRound = 4

// printCalls times the calls of all rows and their floor in turn, in one scene after
// the other: on which CPUs its processes have come to run makes a difference that
// stays for as long as they do. It prints the medians under title. open opens the clients of
// the rows in a scene, whose requests have the form f.
func (b *bench) printCalls(title string, f messageForm, open func(*scene) ([]row, error)) error {
	var names []string
	all := make([]callTimes, len(sizes))
	for range b.scenes {
		err := func() error {
			s, err := b.begin()
			if err != nil {
				return err
			}
			defer s.close()
			rows, err := open(s)
			if err != nil {
				return err
			}
			names = names[:0]
			for _, r := range rows {
				names = append(names, r.name)
			}
			for i, size := range sizes {
				if err := b.timeRows(s, rows, f, size.size, &all[i]); err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			return err
		}
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", title, "stdio", "HTTP", "floor", "bridge", "ratio")
	for k, size := range sizes {
		t := all[k]
		for i, name := range names {
			fmt.Printf("%-34s %12s %12s %12s %12s %8.2f\n", name+", "+size.name,
				micros(median(t.stdio)), micros(median(t.http)), micros(median(t.floor[i])), micros(median(t.bridged[i])), median(t.ratios[i]))
		}
	}
	fmt.Println()
	return nil
}

// callTimes are the times of calls of one size: of the bare forms, and by rows.
type callTimes struct {
	stdio, http    []time.Duration   // how long a bare stdio call takes, and a bare HTTP call: the median of each turn
	floor, bridged [][]time.Duration // by row: how long its floor takes, and its call, in each turn
	ratios         [][]float64       // by row: bridged / floor, in each turn
}

// timeRows times the calls of size bytes of one scene, of all rows and of the bare forms, and adds the times to t.
func (b *bench) timeRows(s *scene, rows []row, f messageForm, size int, t *callTimes) error {
	n, bare := b.callsForSize(size)/turnsPerRound, s.bareHTTP.withForm(f)
	if t.floor == nil {
		t.floor, t.bridged, t.ratios = make([][]time.Duration, len(rows)), make([][]time.Duration, len(rows)), make([][]float64, len(rows))
	}
	for turn := range turnsPerRound {
		p, err := timeCalls(linkClient{link: s.pipe}, f, n, size)
		if err != nil {
			return err
		}
		h, err := timeCalls(bare, f, n, size)
		if err != nil {
			return err
		}
		if turn > 0 {
			t.stdio, t.http = append(t.stdio, p), append(t.http, h)
		}
		for i, r := range rows {
			d, err := timeCalls(r.c, f, n, size)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if turn > 0 {
				floor := r.floor(p, h)
				t.floor[i], t.bridged[i] = append(t.floor[i], floor), append(t.bridged[i], d)
				t.ratios[i] = append(t.ratios[i], float64(d)/float64(floor))
			}
		}
	}
	return nil
}

// measureRemote measures "serve URL": two bridges in a row, whose floor has one bare
// HTTP call for each.
func (b *bench) measureRemote() error {
	open := func(s *scene) (rows []row, err error) {
		for _, c := range chains() {
			at, err := b.startBridge(s, "--transport", c.mode, s.bridge.url+c.path)
			if err != nil {
				return nil, err
			}
			session, err := s.open(c.kind, at)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row{c.name, session, 1, 2})
		}
		return rows, nil
	}
	if err := b.printCalls("serve URL: one call, p50", legacy, open); err != nil {
		return err
	}
	s, err := b.begin()
	if err != nil {
		return err
	}
	defer s.close()
	rows, err := open(s)
	if err != nil {
		return err
	}
	return b.printNotes(s, "serve URL: notifications a second", rows)
}

// chain is a way through two bridges, the first of which serves a URL.
type chain struct {
	name string // what the table calls the way
	kind kind   // the transport of the session with the first bridge
	mode string // --transport of the first bridge
	path string // the path at which the second bridge is called
}

// chains returns the ways through two bridges that are measured.
func chains() []chain {
	return []chain{
		{"HTTP to HTTP+SSE", streamable, "sse-only", "/sse"},
		{"WebSocket to HTTP", kinds()[2], "http-only", "/mcp"},
	}
}

// measureConnect measures the other direction: a stdio client, the bridge, and
// "serve" as the HTTP server.
func (b *bench) measureConnect() error {
	s, err := b.begin()
	if err != nil {
		return err
	}
	defer s.close()
	begin := time.Now()
	both, err := startPipe(exec.Command(b.binary, "connect", "--log-level", "warn", s.bridge.url+"/mcp"))
	if err != nil {
		return err
	}
	defer both.close()
	if err := initialize(both); err != nil {
		return err
	}
	started := time.Since(begin)
	session, err := s.open(streamable, s.bridge)
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", "connect: one call, p50", "stdio", "serve", "floor", "both bridges", "ratio")
	for _, size := range sizes {
		n := b.callsForSize(size.size) * 2
		p, err := timeCalls(linkClient{link: s.pipe}, legacy, n, size.size)
		if err != nil {
			return err
		}
		h, err := timeCalls(session, legacy, n, size.size)
		if err != nil {
			return err
		}
		br, err := timeCalls(linkClient{link: both}, legacy, n, size.size)
		if err != nil {
			return err
		}
		fmt.Printf("%-34s %12s %12s %12s %12s %8.2f\n", size.name, micros(p), micros(h), micros(p+h), micros(br), float64(br)/float64(p+h))
	}
	fmt.Printf("%-34s %51s\n\n", "start and initialize", micros(started))
	return nil
}

// measureStart prints the time from the start of a bridge's process until it says that it listens.
func (b *bench) measureStart() error {
	var ready []time.Duration
	for range 20 * b.rounds {
		begin := time.Now()
		p, _, err := startBridge(b.binary, b.socket(), childArgs("stdio")...)
		if err != nil {
			return err
		}
		ready = append(ready, time.Since(begin))
		p.close()
	}
	fmt.Printf("%-34s %51s\n", "serve: ready after start", micros(median(ready)))
	return nil
}
