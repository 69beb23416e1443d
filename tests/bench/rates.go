package main

import "fmt"

// measureThroughput prints how many calls a second are answered over each transport, with 32 in one session and with one in each
// of 32. The floor of a rate is what remains when each call costs what it costs in both bare forms together.
func (b *bench) measureThroughput() error {
	s, err := b.begin()
	if err != nil {
		return err
	}
	defer s.close()
	const n = 32
	pipes, bare := make([]link, n), make([]client, n)
	for i := range n {
		pipe, err := startPipe(roleCommand("stdio"))
		if err != nil {
			return err
		}
		defer pipe.close()
		pipes[i], bare[i] = pipe, s.bareHTTP.withForm(legacy)
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", "serve: calls a second, 100 B", "stdio", "HTTP", "floor", "bridge", "ratio")
	for _, k := range kinds() {
		own := make([]client, n)
		for i := range own {
			if own[i], err = k.open(s.bridge); err != nil {
				return err
			}
		}
		one := func() (float64, error) { return linkRate(own[0].(linkClient), n, k.senders, b.measureTime) }
		if p, ok := own[0].(*peer); ok {
			same := make([]client, n)
			for i := range same {
				same[i] = p.clone()
			}
			one = func() (float64, error) { return rate(same, b.measureTime) }
		}
		all := func() (float64, error) { return rate(own, b.measureTime) }
		if err := b.printRate(k.name+", 32 in flight", pipes[:1], bare, one); err != nil {
			return err
		}
		if err := b.printRate(k.name+", 32 sessions", pipes, bare, all); err != nil {
			return err
		}
		for _, c := range own {
			if err := c.close(); err != nil {
				return err
			}
		}
	}
	fmt.Println()
	return nil
}

// printRate measures a rate of calls, which bridge returns, and its floor in turn, and prints the medians in a row called name. The floor
// is that of the links pipes, with as many calls at a time as there are clients in bare, and of bare.
func (b *bench) printRate(name string, pipes []link, bare []client, bridge func() (float64, error)) error {
	var stdio, web, floor, bridged, ratio []float64
	for range b.rounds {
		s, err := linkRates(pipes, len(bare)/len(pipes), b.measureTime)
		if err != nil {
			return err
		}
		h, err := rate(bare, b.measureTime)
		if err != nil {
			return err
		}
		br, err := bridge()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f := 1 / (1/s + 1/h)
		stdio, web, floor, bridged, ratio = append(stdio, s), append(web, h), append(floor, f), append(bridged, br), append(ratio, br/f)
	}
	fmt.Printf("%-34s %12.0f %12.0f %12.0f %12.0f %8.2f\n", name, median(stdio), median(web), median(floor), median(bridged), median(ratio))
	return nil
}

// measureNotifications prints how many notifications a second get through a bridge, over each transport.
func (b *bench) measureNotifications() error {
	s, err := b.begin()
	if err != nil {
		return err
	}
	defer s.close()
	rows, err := s.rows(kinds(), s.bridge, "")
	if err != nil {
		return err
	}
	return b.printNotes(s, "serve: notifications a second", rows)
}

// printNotes measures how many notifications of 100 B a second get to the client of
// each row, and prints it under title. The floor is one SSE reply of the bare server.
func (b *bench) printNotes(s *scene, title string, rows []row) error {
	var bare []float64
	bridged, ratios := make([][]float64, len(rows)), make([][]float64, len(rows))
	for range b.rounds {
		h, err := noteRate(s.bareHTTP, b.notes)
		if err != nil {
			return err
		}
		bare = append(bare, h)
		for i, r := range rows {
			rate, err := noteRate(r.c, b.notes)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			bridged[i], ratios[i] = append(bridged[i], rate), append(ratios[i], rate/h)
		}
	}
	fmt.Printf("%-34s %12s %12s %12s %12s %8s\n", title, "", "HTTP", "", "bridge", "ratio")
	for i, r := range rows {
		fmt.Printf("%-34s %12s %12.0f %12s %12.0f %8.2f\n", r.name, "", median(bare), "", median(bridged[i]), median(ratios[i]))
	}
	fmt.Println()
	return nil
}
