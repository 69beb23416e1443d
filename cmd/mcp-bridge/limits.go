package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// limitFlags bound messages and waits. serve and connect have them.
type limitFlags struct {
	maxMessage                          byteSize
	maxDepth                            int
	requestTimeout, drainTimeout, grace time.Duration
}

func (f *limitFlags) register(fs *pflag.FlagSet) {
	d := config.DefaultSettings()
	f.maxMessage = byteSize(d.MaxMessageSize)
	fs.Var(&f.maxMessage, "max-message-size", "")
	fs.IntVar(&f.maxDepth, "max-depth", d.MaxDepth, "")
	fs.DurationVar(&f.requestTimeout, "request-timeout", d.RequestTimeout, "")
	fs.DurationVar(&f.drainTimeout, "drain-timeout", d.DrainTimeout, "")
	fs.DurationVar(&f.grace, "grace", d.Grace, "")
}

// check finds mistakes that do not depend on the system.
func (f *limitFlags) check() error {
	if f.maxDepth < 1 {
		return usagef("--max-depth must be at least 1")
	}
	return nil
}

// applyTo puts the limits into a server's settings.
func (f *limitFlags) applyTo(s *config.Settings) {
	s.MaxMessageSize, s.MaxDepth = int(f.maxMessage), f.maxDepth
	s.RequestTimeout, s.DrainTimeout, s.Grace = f.requestTimeout, f.drainTimeout, f.grace
}

// scaleFlags bound what runs: sessions, processes, and who waits for them. serve has them.
type scaleFlags struct {
	isolation                                  string
	maxSessions, maxChildren, maxChildrenTotal int
	queue                                      int
	queueTimeout, sessionTimeout               time.Duration
}

func (f *scaleFlags) register(fs *pflag.FlagSet) {
	d := config.DefaultSettings()
	fs.StringVar(&f.isolation, "isolation", d.Isolation, "")
	fs.IntVar(&f.maxSessions, "max-sessions", d.MaxSessions, "")
	fs.IntVar(&f.maxChildren, "max-children", d.MaxChildren, "")
	fs.IntVar(&f.maxChildrenTotal, "max-children-total", 0, "")
	fs.IntVar(&f.queue, "queue", d.Queue, "")
	fs.DurationVar(&f.queueTimeout, "queue-timeout", d.QueueTimeout, "")
	fs.DurationVar(&f.sessionTimeout, "session-timeout", d.SessionTimeout, "")
}

func (f *scaleFlags) check() error {
	_, known := upstream.ParseIsolation(f.isolation)
	switch {
	case !known:
		return usagef("--isolation %q: use %s", f.isolation, strings.Join(upstream.Isolations(), ", "))
	case f.maxSessions <= 0:
		return usagef("--max-sessions must be at least 1")
	case f.maxChildren < 0 || f.maxChildrenTotal < 0 || f.queue < 0:
		return usagef("--max-children, --max-children-total and --queue cannot be negative")
	}
	return nil
}

// byteSize is a flag value in bytes.
type byteSize int

// String returns the size as one writes it, with the largest unit of which it is a whole number.
func (s *byteSize) String() string {
	for _, unit := range []struct {
		name  string
		bytes byteSize
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if *s > 0 && *s%unit.bytes == 0 {
			return strconv.Itoa(int(*s/unit.bytes)) + unit.name
		}
	}
	return strconv.Itoa(int(*s))
}

func (s *byteSize) Type() string { return "size" }

func (s *byteSize) Set(text string) error {
	number, unit := strings.TrimSpace(text), 1
	for suffix, n := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = strings.TrimSpace(rest), n
			break
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n <= 0 || n > (1<<40)/unit {
		return usagef("write a number of bytes, or one with KiB, MiB or GiB")
	}
	*s = byteSize(n * unit)
	return nil
}
