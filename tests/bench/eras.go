package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"time"
)

// modernKinds are the transports on which a bridge is called in the era
// without sessions.
func modernKinds() []kind {
	all := []kind{
		{"Streamable HTTP", func(s *site) (client, error) { return &peer{url: s.url + "/mcp", form: modern}, nil }, 0},
		{"WebSocket", plainLink(dialWS), 1},
	}
	if runtime.GOOS != "windows" {
		all = append(all, kind{"Unix socket", plainLink(dialUnix), 1})
	}
	return all
}

// plainLink opens what dial returns: nothing need be said first.
func plainLink(dial func(*site) (link, error)) func(*site) (client, error) {
	return func(s *site) (client, error) {
		l, err := dial(s)
		return linkClient{l, modern}, err
	}
}

// eras measures clients of 2026-07-28, whose server is one process for all of
// them, and what it costs when server and client are of different eras.
func (b *bench) eras() error {
	s, err := b.begin()
	if err != nil {
		return err
	}
	defer s.close()
	shared, err := b.start1(s, childArgs("modern")...)
	if err != nil {
		return err
	}
	same, err := s.rows(modernKinds(), shared, "")
	if err != nil {
		return err
	}
	mixed, err := s.rows(modernKinds(), s.bridge, ", 2025 child")
	if err != nil {
		return err
	}
	both, err := startPipe(exec.Command(b.binary, append([]string{"connect", "--log-level", "warn"}, childArgs("modern")...)...))
	if err != nil {
		return err
	}
	defer both.close()
	stdio := row{"stdio to stdio", linkClient{both, modern}, 2, 0}
	if err := b.printCalls(s, "2026-07-28: one call, p50", append(append(same, stdio), mixed...), modern); err != nil {
		return err
	}
	old, err := s.rows(kinds(), shared, ", 2026 child")
	if err != nil {
		return err
	}
	if err := b.printCalls(s, "2025-06-18: one call, p50", old, legacy); err != nil {
		return err
	}
	// Others than have waited so long: nobody has answered pings for those.
	if same, err = s.rows(modernKinds(), shared, ""); err != nil {
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

// rows opens a session over each transport.
func (s *scene) rows(kinds []kind, at *site, more string) ([]row, error) {
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

// printInFlight measures 32 calls at a time over one transport.
func (b *bench) printInFlight(s *scene, k kind, c client) error {
	const n = 32
	bare, same := make([]client, n), make([]client, n)
	for i := range n {
		bare[i] = s.http.clone()
		if p, ok := c.(*peer); ok {
			same[i] = p.clone()
		}
	}
	one := func() (float64, error) { return rate(same, b.window) }
	if l, ok := c.(linkClient); ok {
		one = func() (float64, error) { return linkRate(l, n, k.senders, b.window) }
	}
	return b.printRate(k.name+", 32 in flight", []link{s.pipe}, bare, one)
}

// pair is a call with translation, and the same one without.
type pair struct {
	name         string
	plain, mixed client
	form         form
}

// translation measures what the calls between eras cost more than those within
// one, each in turn with its like: the difference of two rows that were measured
// at other times says more about the machine.
func (b *bench) translation() error {
	const title = "translation: one call, p50, 100 B"
	fmt.Printf("%-42s %12s %12s %12s\n", title, "one era", "two eras", "adds")
	var names []string
	plain, mixed, adds := map[string][]time.Duration{}, map[string][]time.Duration{}, map[string][]time.Duration{}
	for range b.rounds {
		err := b.pairs(func(p pair) error {
			if plain[p.name] == nil {
				names = append(names, p.name)
			}
			for range turns {
				one, err := timeCalls(p.plain, p.form, b.calls/turns, 100)
				if err != nil {
					return fmt.Errorf("%s, one era: %w", p.name, err)
				}
				two, err := timeCalls(p.mixed, p.form, b.calls/turns, 100)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				plain[p.name], mixed[p.name], adds[p.name] = append(plain[p.name], one), append(mixed[p.name], two), append(adds[p.name], two-one)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, name := range names {
		fmt.Printf("%-42s %12s %12s %12s\n", name, micros(median(plain[name])), micros(median(mixed[name])), micros(median(adds[name])))
	}
	fmt.Println()
	return nil
}

// pairs calls f for each transport in both directions, with new processes.
func (b *bench) pairs(f func(pair) error) error {
	s, err := b.begin()
	if err != nil {
		return err
	}
	defer s.close()
	shared, err := b.start1(s, childArgs("modern")...)
	if err != nil {
		return err
	}
	for _, way := range []struct {
		name         string
		kinds        []kind
		plain, mixed *site
		form         form
	}{
		{"2026 client, 2025 child", modernKinds(), shared, s.bridge, modern},
		{"2025 client, 2026 child", kinds(), s.bridge, shared, legacy},
	} {
		for _, k := range way.kinds {
			plain, err := s.open(k, way.plain)
			if err != nil {
				return err
			}
			mixed, err := s.open(k, way.mixed)
			if err != nil {
				return err
			}
			if err := f(pair{way.name + ", " + k.name, plain, mixed, way.form}); err != nil {
				return err
			}
		}
	}
	return nil
}
