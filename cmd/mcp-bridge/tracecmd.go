package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
	"github.com/mcp-bridge/mcp-bridge/internal/traceview"
)

// traceFlags are the flags of trace.
type traceFlags struct {
	verbose int    // --verbose, how many times given: 1 shows each message below its line, 2 what both ends of the bridge have of it
	json    bool   // --json: print the records as they stand in a trace
	http    bool   // --http: show HTTP exchanges and streams too
	lost    bool   // --lost: show only what got lost
	export  string // --export: write the trace in this format, har, otlp or html; "": show it
}

// flagSet returns the set of all flags of trace; parsing it sets the fields of f, which have their defaults until then.
func (f *traceFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("trace", pflag.ContinueOnError)
	fs.CountVarP(&f.verbose, "verbose", "v", "")
	fs.BoolVar(&f.json, "json", false, "")
	fs.BoolVar(&f.http, "http", false, "")
	fs.BoolVar(&f.lost, "lost", false, "")
	fs.StringVar(&f.export, "export", "", "")
	return fs
}

// traceCommand is the command trace: it prints a trace that is in a file, or what passes through a running bridge.
func traceCommand(ctx context.Context, args []string, env environment) error {
	var f traceFlags
	words, argv, err := parseFlags(f.flagSet(), args)
	switch {
	case err != nil:
		return err
	case len(argv) > 0:
		return usagef("trace takes no command; to record one, write \"mcp-bridge connect --trace FILE -- %s\"", shownCommand(argv))
	case f.export != "" && !slices.Contains(traceview.Formats, f.export):
		return usagef("--export %q: use %s", f.export, strings.Join(traceview.Formats, ", "))
	}
	source := ""
	if len(words) > 0 && !isFilter(words[0]) {
		source, words = words[0], words[1:]
	}
	viewer := traceview.Viewer{
		Out: bufio.NewWriterSize(env.stdout, 64<<10), Err: env.stderr, Terminal: isTerminal(env.stdout), Width: terminalWidth(env),
		Verbose: f.verbose, JSON: f.json, Exchanges: f.http,
	}
	if viewer.Filter, err = traceview.ParseFilter(words); err != nil {
		return usagef("%v", err)
	}
	file, cleanup, err := openTrace(source, env)
	if err != nil {
		return err
	}
	if file == nil {
		return f.showLive(ctx, source, &viewer)
	}
	defer cleanup()
	err = f.showFile(file, &viewer)
	if flushed := viewer.Out.Flush(); err == nil {
		err = flushed
	}
	return err
}

// showFile prints the trace in a file, what got lost in it (--lost), or its export (--export). It reads the file twice, as what
// became of a request stands behind the request.
func (f *traceFlags) showFile(file *os.File, viewer *traceview.Viewer) error {
	correlation, err := viewer.ReadAll(file)
	switch {
	case errors.Is(err, traceview.ErrNoTrace):
		return usagef("%v", err)
	case err != nil:
		return err
	case f.lost:
		n, err := viewer.PrintLost(correlation)
		if err == nil && n > 0 {
			err = &loggedError{errors.New(printable.Count(n, "message was lost or has no answer", "messages were lost or have no answer"))}
		}
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if f.export != "" {
		return viewer.Export(file, correlation, f.export)
	}
	return viewer.PrintAll(file, correlation)
}

// terminalWidth returns how many columns the terminal has, as far as the environment variable COLUMNS says; 0: not known.
func terminalWidth(env environment) int {
	text, _ := env.lookup("COLUMNS")
	n, _ := strconv.Atoi(text)
	return n
}

// isFilter reports whether an argument of trace is a word of a filter (KEY:VALUE or !WORD), not the name of a file or a bridge.
func isFilter(word string) bool {
	key, _, is := strings.Cut(strings.TrimPrefix(word, "!"), ":")
	return strings.HasPrefix(word, "!") || is && slices.Contains(traceview.FilterKeys, key)
}

// openTrace opens the trace that source names: a file, or "-" for stdin. file is nil if source means a running bridge: it is "",
// or no file has the name and it looks like a number or a word, not like a path. cleanup closes the file.
func openTrace(source string, env environment) (file *os.File, cleanup func(), err error) {
	if source == "" {
		return nil, nil, nil
	}
	if source == "-" {
		return spoolToTemp(env.stdin)
	}
	info, err := os.Stat(source)
	switch _, notNumber := strconv.Atoi(source); {
	case err == nil && info.IsDir():
		return nil, nil, usagef("%s is a directory; name a trace in it", source)
	case err == nil:
		file, err := os.Open(source)
		if err != nil {
			return nil, nil, usagef("%v", err)
		}
		if !info.Mode().IsRegular() {
			defer file.Close()
			return spoolToTemp(file)
		}
		return file, func() { _ = file.Close() }, nil
	case notNumber != nil && strings.ContainsAny(source, `/\.`):
		return nil, nil, usagef("%v", err)
	}
	return nil, nil, nil
}

// spoolToTemp copies what cannot be read twice into a temporary file, and returns that, to be read from its beginning. After cleanup the
// file is closed, and gone.
func spoolToTemp(in io.Reader) (file *os.File, cleanup func(), err error) {
	if file, err = os.CreateTemp("", "mcp-bridge-trace-"); err != nil {
		return nil, nil, err
	}
	isRemoved := os.Remove(file.Name()) == nil // so that nothing is left whatever ends us; Windows does not remove what is open
	cleanup = func() {
		_ = file.Close()
		if !isRemoved {
			_ = os.Remove(file.Name())
		}
	}
	if _, err = io.Copy(file, in); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return file, cleanup, nil
}
