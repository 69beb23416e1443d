package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
)

// oneLine is a Logger that writes every error in one line. Several in one, as
// errors.Join returns them, would be a block of lines.
type oneLine struct{ hclog.Logger }

func (l oneLine) Log(level hclog.Level, msg string, args ...any) {
	l.Logger.Log(level, msg, inLine(args)...)
}

func (l oneLine) Trace(msg string, args ...any) { l.Logger.Trace(msg, inLine(args)...) }
func (l oneLine) Debug(msg string, args ...any) { l.Logger.Debug(msg, inLine(args)...) }
func (l oneLine) Info(msg string, args ...any)  { l.Logger.Info(msg, inLine(args)...) }
func (l oneLine) Warn(msg string, args ...any)  { l.Logger.Warn(msg, inLine(args)...) }
func (l oneLine) Error(msg string, args ...any) { l.Logger.Error(msg, inLine(args)...) }

func (l oneLine) With(args ...any) hclog.Logger       { return oneLine{l.Logger.With(inLine(args)...)} }
func (l oneLine) Named(name string) hclog.Logger      { return oneLine{l.Logger.Named(name)} }
func (l oneLine) ResetNamed(name string) hclog.Logger { return oneLine{l.Logger.ResetNamed(name)} }

// inLine puts errors of several lines into one.
func inLine(args []any) []any {
	for i, arg := range args {
		err, ok := arg.(error)
		if !ok || !strings.Contains(err.Error(), "\n") {
			continue
		}
		text, more, _ := strings.Cut(err.Error(), "\n")
		for line := range strings.SplitSeq(more, "\n") {
			text = httpdial.Also(text, line)
		}
		args = slices.Clone(args) // they may be the caller's
		args[i] = errors.New(text)
	}
	return args
}
