package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// oneLineLogger is a Logger that writes every error in one line. The text of several joined errors (errors.Join) would otherwise be a
// block of lines.
type oneLineLogger struct{ hclog.Logger }

// Log logs msg at a level, with each error among args in one line.
func (l oneLineLogger) Log(level hclog.Level, msg string, args ...any) {
	l.Logger.Log(level, msg, joinErrorLines(args)...)
}

// Trace logs msg at the level trace, with each error among args in one line.
func (l oneLineLogger) Trace(msg string, args ...any) { l.Logger.Trace(msg, joinErrorLines(args)...) }

// Debug logs msg at the level debug, with each error among args in one line.
func (l oneLineLogger) Debug(msg string, args ...any) { l.Logger.Debug(msg, joinErrorLines(args)...) }

// Info logs msg at the level info, with each error among args in one line.
func (l oneLineLogger) Info(msg string, args ...any) { l.Logger.Info(msg, joinErrorLines(args)...) }

// Warn logs msg at the level warn, with each error among args in one line.
func (l oneLineLogger) Warn(msg string, args ...any) { l.Logger.Warn(msg, joinErrorLines(args)...) }

// Error logs msg at the level error, with each error among args in one line.
func (l oneLineLogger) Error(msg string, args ...any) { l.Logger.Error(msg, joinErrorLines(args)...) }

// With returns a oneLineLogger whose lines have args, too, with each error among them in one line.
func (l oneLineLogger) With(args ...any) hclog.Logger {
	return oneLineLogger{l.Logger.With(joinErrorLines(args)...)}
}

// Named returns a oneLineLogger with name behind the name of this one.
func (l oneLineLogger) Named(name string) hclog.Logger { return oneLineLogger{l.Logger.Named(name)} }

// ResetNamed returns a oneLineLogger with this name in place of that of this one.
func (l oneLineLogger) ResetNamed(name string) hclog.Logger {
	return oneLineLogger{l.Logger.ResetNamed(name)}
}

// joinErrorLines returns the arguments of a line of the log with the text of each error in one line. It does not change args.
func joinErrorLines(args []any) []any {
	for i, arg := range args {
		err, ok := arg.(error)
		if !ok || !strings.Contains(err.Error(), "\n") {
			continue
		}
		text, more, _ := strings.Cut(err.Error(), "\n")
		for line := range strings.SplitSeq(more, "\n") {
			text = httpdial.AppendSentence(text, line)
		}
		args = slices.Clone(args) // they may be the caller's
		args[i] = errors.New(text)
	}
	return args
}
