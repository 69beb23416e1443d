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
	verbose          int
	json, http, lost bool
	export           string
}

func (f *traceFlags) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("trace", pflag.ContinueOnError)
	fs.CountVarP(&f.verbose, "verbose", "v", "")
	fs.BoolVar(&f.json, "json", false, "")
	fs.BoolVar(&f.http, "http", false, "")
	fs.BoolVar(&f.lost, "lost", false, "")
	fs.StringVar(&f.export, "export", "", "")
	return fs
}

// traceCommand prints a trace: of a file, or of a running bridge.
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
	where := ""
	if len(words) > 0 && !isFilter(words[0]) {
		where, words = words[0], words[1:]
	}
	viewer := traceview.Viewer{
		Out: bufio.NewWriterSize(env.stdout, 64<<10), Err: env.stderr, Terminal: isTerminal(env.stdout), Width: columns(env),
		Verbose: f.verbose, JSON: f.json, Exchanges: f.http,
	}
	if viewer.Filter, err = traceview.ParseFilter(words); err != nil {
		return usagef("%v", err)
	}
	file, closed, err := openTrace(where, env)
	if err != nil {
		return err
	}
	if file == nil {
		return f.live(ctx, where, &viewer)
	}
	defer closed()
	err = f.file(file, &viewer)
	if flushed := viewer.Out.Flush(); err == nil {
		err = flushed
	}
	return err
}

// file shows a file, in two passes: what became of a request stands after it.
func (f *traceFlags) file(file *os.File, viewer *traceview.Viewer) error {
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

// columns returns how wide the terminal is, as far as the environment says; 0: not known.
func columns(env environment) int {
	text, _ := env.lookup("COLUMNS")
	n, _ := strconv.Atoi(text)
	return n
}

// isFilter reports whether an argument is a word of a filter rather than what to trace.
func isFilter(word string) bool {
	key, _, is := strings.Cut(strings.TrimPrefix(word, "!"), ":")
	return strings.HasPrefix(word, "!") || is && slices.Contains(traceview.FilterKeys, key)
}

// openTrace opens the file that is meant, until closed is called; nil: none is, but a running bridge.
func openTrace(where string, env environment) (file *os.File, closed func(), err error) {
	if where == "" {
		return nil, nil, nil
	}
	if where == "-" {
		return spooled(env.stdin)
	}
	info, err := os.Stat(where)
	switch _, number := strconv.Atoi(where); {
	case err == nil && info.IsDir():
		return nil, nil, usagef("%s is a directory; name a trace in it", where)
	case err == nil:
		file, err := os.Open(where)
		if err != nil {
			return nil, nil, usagef("%v", err)
		}
		if !info.Mode().IsRegular() {
			defer file.Close()
			return spooled(file)
		}
		return file, func() { _ = file.Close() }, nil
	case number != nil && strings.ContainsAny(where, `/\.`):
		return nil, nil, usagef("%v", err)
	}
	return nil, nil, nil
}

// spooled copies what cannot be read twice into a file, which closed removes.
func spooled(in io.Reader) (file *os.File, closed func(), err error) {
	if file, err = os.CreateTemp("", "mcp-bridge-trace-"); err != nil {
		return nil, nil, err
	}
	early := os.Remove(file.Name()) == nil // so that nothing is left whatever ends us; Windows does not remove what is open
	closed = func() {
		_ = file.Close()
		if !early {
			_ = os.Remove(file.Name())
		}
	}
	if _, err = io.Copy(file, in); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		closed()
		return nil, nil, err
	}
	return file, closed, nil
}
