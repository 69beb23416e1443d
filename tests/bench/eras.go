package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// modernKinds are the transports on which a bridge is called in the era
// without sessions.
func modernKinds() []kind {
	all := []kind{
		{"Streamable HTTP", func(s *bridgeAddr) (client, error) { return &peer{url: s.url + "/mcp", form: modern}, nil }, 0},
		{"WebSocket", plainLink(dialWS), 1},
	}
	if runtime.GOOS != "windows" {
		all = append(all, kind{"Unix socket", plainLink(dialUnix), 1})
	}
	return all
}

// plainLink returns a function that opens a client of 2026-07-28 over the link that dial returns: nothing need be said first.
func plainLink(dial func(*bridgeAddr) (link, error)) func(*bridgeAddr) (client, error) {
	return func(s *bridgeAddr) (client, error) {
		l, err := dial(s)
		return linkClient{l, modern}, err
	}
}

// beginTranslation is begin, and a bridge to a server of 2026-07-28 that all clients share.
func (b *bench) beginTranslation() (s *scene, shared *bridgeAddr, err error) {
	if s, err = b.begin(); err != nil {
		return nil, nil, err
	}
	if shared, err = b.startBridge(s, childArgs("modern")...); err != nil {
		s.close()
	}
	return s, shared, err
}

// measureEras measures clients of 2026-07-28, whose server is one process for all of
// them, and what it costs when server and client are of different eras.
func (b *bench) measureEras() error {
	err := b.printCalls("2026-07-28: one call, p50", modern, func(s *scene) (rows []row, err error) {
		shared, err := b.startBridge(s, childArgs("modern")...)
		if err != nil {
			return nil, err
		}
		same, err := s.rows(modernKinds(), shared, "")
		if err != nil {
			return nil, err
		}
		both, err := startPipe(exec.Command(b.binary, append([]string{"connect", "--log-level", "warn"}, childArgs("modern")...)...))
		if err != nil {
			return nil, err
		}
		s.cleanups = append(s.cleanups, func() { both.close() })
		mixed, err := s.rows(modernKinds(), s.bridge, ", 2025 child")
		return append(append(same, row{"stdio to stdio", linkClient{both, modern}, 2, 0}), mixed...), err
	})
	if err != nil {
		return err
	}
	err = b.printCalls("2025-06-18: one call, p50", legacy, func(s *scene) ([]row, error) {
		shared, err := b.startBridge(s, childArgs("modern")...)
		if err != nil {
			return nil, err
		}
		return s.rows(kinds(), shared, ", 2026 child")
	})
	if err != nil {
		return err
	}
	s, shared, err := b.beginTranslation()
	if err != nil {
		return err
	}
	defer s.close()
	same, err := s.rows(modernKinds(), shared, "")
	if err != nil {
		return err
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", "2026-07-28: calls a second, 100 B", "stdio", "HTTP", "floor", "bridge", "ratio")
	for i, k := range modernKinds() {
		if err := b.printInFlight(s, k, same[i].c); err != nil {
			return err
		}
	}
	fmt.Println()
	return b.printNotes(s, "2026-07-28: notifications a second", same)
}

// rows opens a session over each of these transports, with the bridge that listens where at says, and returns a row for each. more is added
// to the names of the rows.
func (s *scene) rows(kinds []kind, at *bridgeAddr, more string) ([]row, error) {
	var rows []row
	for _, k := range kinds {
		c, err := s.open(k, at)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{k.name + more, c, 1, 1})
	}
	return rows, nil
}

// printInFlight measures how many calls of 2026-07-28 a second are answered, 32 at a time, over the transport k, which c is a client of,
// and prints it.
func (b *bench) printInFlight(s *scene, k kind, c client) error {
	const n = 32
	bare, same := make([]client, n), make([]client, n)
	for i := range n {
		bare[i] = s.bareHTTP.withForm(modern)
		if p, ok := c.(*peer); ok {
			same[i] = p.clone()
		}
	}
	one := func() (float64, error) { return rate(same, b.measureTime) }
	if l, ok := c.(linkClient); ok {
		one = func() (float64, error) { return linkRate(l, n, k.senders, b.measureTime) }
	}
	return b.printRate(k.name+", 32 in flight", []link{s.pipe}, bare, one)
}

// comparedClients is a call between the eras, and what it is compared with: calls over
// the same transport.
type comparedClients struct {
	name       string // what the table calls the call
	translated client // calls between the eras, a process that all share

	newer client // calls within 2026-07-28, a process that all share; nil: the transport is none of 2026-07-28
	older client // calls within 2025-06-18, a process of its own
}

// measureTranslation measures what the calls between eras cost more than those within
// one, each in turn with its like: the difference of two rows that were measured
// at other times says more about the machine. And first on one CPU, where nobody
// waits for another to wake up: that is the work, and the same every time.
func (b *bench) measureTranslation() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-binary", b.binary, "-only", onOneCPU, fmt.Sprint("-quick=", b.quick))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	switch err := startOnOneCPU(cmd); {
	case errors.Is(err, errors.ErrUnsupported):
		fmt.Printf("translation on one CPU is only measured on Linux\n\n")
	case err != nil:
		return err
	default:
		if err := cmd.Wait(); err != nil {
			return err
		}
	}
	return b.compare("all CPUs")
}

// onOneCPU is the part of translation that is a process of its own.
const onOneCPU = "translation on one CPU"

// compare measures the calls between the eras, and prints what they take and how much more that is than within one era. cpus is for the
// title: the CPUs that all processes have.
func (b *bench) compare(cpus string) error {
	type times struct{ mixed, newer, older []time.Duration }
	var names []string
	all := map[string]*times{}
	for range b.scenes {
		err := b.mixed(func(c comparedClients) error {
			t := all[c.name]
			if t == nil {
				t = &times{}
				names, all[c.name] = append(names, c.name), t
			}
			for turn := range turnsPerRound {
				var took [3]time.Duration
				for i, one := range []client{c.translated, c.newer, c.older} {
					if one == nil {
						continue
					}
					var err error
					if took[i], err = timeCalls(one, one.messageForm(), b.calls/turnsPerRound, 100); err != nil {
						return fmt.Errorf("%s: %w", c.name, err)
					}
				}
				if turn == 0 {
					continue // to warm up
				}
				t.mixed, t.older = append(t.mixed, took[0]), append(t.older, took[0]-took[2])
				if c.newer != nil {
					t.newer = append(t.newer, took[0]-took[1])
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	fmt.Printf("%-44s %10s %17s %17s\n", "translation: one call, 100 B, p50, "+cpus, "", "more than in 2026", "more than in 2025")
	for _, name := range names {
		t, newer := all[name], "-"
		if t.newer != nil {
			newer = micros(median(t.newer))
		}
		fmt.Printf("%-44s %10s %17s %17s\n", name, micros(median(t.mixed)), newer, micros(median(t.older)))
	}
	fmt.Println()
	return nil
}

// mixed calls f for each transport, first with clients of 2026-07-28 and then with clients of 2025-06-18. The clients end when mixed returns.
func (b *bench) mixed(f func(comparedClients) error) error {
	s, shared, err := b.beginTranslation()
	if err != nil {
		return err
	}
	defer s.close()
	open := func(kinds []kind, name string, at *bridgeAddr) (c client, err error) {
		for _, k := range kinds {
			if k.name == name {
				c, err = s.open(k, at)
			}
		}
		return c, err
	}
	for _, way := range []struct {
		name  string
		kinds []kind // of the client's era
		mixed *bridgeAddr
	}{
		{"2026 client, 2025 child", modernKinds(), s.bridge},
		{"2025 client, 2026 child", kinds(), shared},
	} {
		for _, k := range way.kinds {
			c := comparedClients{name: way.name + ", " + k.name}
			if c.translated, err = s.open(k, way.mixed); err != nil {
				return err
			}
			if c.newer, err = open(modernKinds(), k.name, shared); err != nil {
				return err
			}
			if c.older, err = open(kinds(), k.name, s.bridge); err != nil {
				return err
			}
			if err := f(c); err != nil {
				return err
			}
		}
	}
	return nil
}
