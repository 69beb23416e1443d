package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/config"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// limitFlags bound messages and waits. serve, connect, record and replay have them.
type limitFlags struct {
	maxMessage     byteSize      // --max-message-size: how large a message may be; more than 0
	maxDepth       int           // --max-depth: how many levels of objects and arrays a message may have; more than 0
	requestTimeout time.Duration // --request-timeout: a request is cancelled when the server is silent on it for so long; 0: never
	drainTimeout   time.Duration // --drain-timeout: how long calls in progress may go on at the end of the input, or at a server that a new configuration changes or removes; 0: not at all
	grace          time.Duration // --grace: how long calls in progress may go on after SIGTERM or SIGINT; 0: not at all
}

// register adds the flags of limitFlags to fs, and gives the fields their defaults.
func (f *limitFlags) register(fs *pflag.FlagSet) {
	d := config.DefaultSettings()
	f.maxMessage = byteSize(d.MaxMessageSize)
	fs.Var(&f.maxMessage, "max-message-size", "")
	fs.IntVar(&f.maxDepth, "max-depth", d.MaxDepth, "")
	fs.DurationVar(&f.requestTimeout, "request-timeout", d.RequestTimeout, "")
	fs.DurationVar(&f.drainTimeout, "drain-timeout", d.DrainTimeout, "")
	fs.DurationVar(&f.grace, "grace", d.Grace, "")
}

// check returns the first value of these flags that is not valid, as a usageError; nil: there is none.
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
	isolation        string        // --isolation: which clients share a server process
	maxSessions      int           // --max-sessions: how many sessions each transport may have; more than 0
	maxChildren      int           // --max-children: how many processes one server may have at a time; 0: one for each session and 100 that clients share, or 32 with --isolation request
	maxChildrenTotal int           // --max-children-total: how many processes all servers together may have; 0: no limit
	queue            int           // --queue: how many clients may wait for a process to end; 0: none
	queueTimeout     time.Duration // --queue-timeout: how long a client waits for a process to end before it is refused (503); 0: not at all
	sessionTimeout   time.Duration // --session-timeout: a Streamable HTTP session ends when it is idle for so long, and a shared process when it has had no client for so long; 0: never
}

// register adds the flags of scaleFlags to fs, and gives the fields their defaults.
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

// check returns the first value of these flags that is not valid, as a usageError; nil: there is none.
func (f *scaleFlags) check() error {
	_, known := upstream.ParseIsolation(f.isolation)
	switch {
	case !known:
		return usagef("--isolation %q: use %s", f.isolation, strings.Join(upstream.Isolations(), ", "))
	case f.maxSessions <= 0:
		return usagef("--max-sessions must be at least 1")
	case f.maxChildren < 0 || f.maxChildrenTotal < 0 || f.queue < 0:
		return usagef("--max-children, --max-children-total and --queue cannot be negative")
	case f.queueTimeout < 0:
		return usagef("--queue-timeout cannot be negative")
	}
	return nil
}

// byteSize is the value of a flag that is a number of bytes, more than 0, such as 64MiB.
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

// Type returns what pflag calls the kind of value: "size".
func (s *byteSize) Type() string { return "size" }

// Set parses a number of bytes, or one with KiB, MiB or GiB. 0 is an error.
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
