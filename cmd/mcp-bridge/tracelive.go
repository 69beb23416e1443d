package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/inspect"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/traceview"
)

// showLive prints what passes through a running bridge, until ctx is done or the bridge ends. source says which bridge it is (chooseBridge).
func (f *traceFlags) showLive(ctx context.Context, source string, viewer *traceview.Viewer) error {
	switch {
	case f.lost:
		return usagef("--lost looks at a whole trace: name its file")
	case f.export != "":
		return usagef("--export writes a whole trace: name its file")
	}
	all, err := inspect.List(ctx)
	if err != nil {
		return err
	}
	bridge, err := chooseBridge(all, source)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := bridge.Get(ctx, "stream")
	if err != nil {
		return err
	}
	defer stream.Body.Close()
	fmt.Fprintf(viewer.Err, "mcp-bridge: looking at %s, pid %d; client →|   |→ server\n", bridge.Name, bridge.PID)
	done := make(chan error, 1)
	go func() { done <- viewer.Live(ctx, stream.Body) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		end := time.NewTimer(stdoutTimeout)
		defer end.Stop()
		select {
		case <-done:
		case <-end.C:
			// Nobody reads what we print. The goroutine may still write to viewer, which is right because nobody else
			// uses viewer any more and the process ends now.
		}
	}
	if ctx.Err() != nil {
		return nil // we were asked to end
	}
	if err == nil {
		fmt.Fprintln(viewer.Err, "mcp-bridge: the bridge has ended")
	}
	return err
}

// stdoutTimeout is how long showLive, when it is asked to end, waits for whoever reads our stdout.
const stdoutTimeout = time.Second

// chooseBridge returns the bridge that source means: its process id, its name, or the name of one of its servers; "": the
// only one. If there is not exactly one such bridge, it is an error that lists those that run.
func chooseBridge(all []inspect.RunningBridge, source string) (*inspect.RunningBridge, error) {
	var matches []inspect.RunningBridge
	for _, b := range all {
		if source == "" || strconv.Itoa(b.PID) == source || b.Name == source || slices.Contains(b.Servers, source) {
			matches = append(matches, b)
		}
	}
	switch {
	case len(matches) == 1:
		return &matches[0], nil
	case len(all) == 0 && source == "":
		return nil, usagef("no bridge of this user runs; name the file of a trace, or start one (every serve and connect can be looked at)")
	case len(matches) == 0:
		return nil, usagef("%q is neither a file nor a bridge that runs%s", source, bridgeList(all))
	}
	return nil, usagef("which bridge is meant? Name one by its pid%s", bridgeList(matches))
}

// bridgeList returns the end of an error's text: the bridges among which the user may choose, one a line, or that none runs.
func bridgeList(all []inspect.RunningBridge) string {
	if len(all) == 0 {
		return ": none of this user does"
	}
	var text strings.Builder
	text.WriteString(":")
	for _, b := range all {
		fmt.Fprintf(&text, "\n  %-8d %s (%s)", b.PID, printable.Text(b.Name), printable.Text(strings.Join(b.Servers, ", ")))
		if len(b.Addresses) > 0 {
			text.WriteString(" at " + printable.Text(strings.Join(b.Addresses, ", ")))
		}
	}
	return text.String()
}
