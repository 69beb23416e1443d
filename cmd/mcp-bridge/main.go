// Command mcp-bridge converts between the transports of the Model Context
// Protocol. Its help text is in usage.go; the rest of the module does the work.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

func main() {
	if supervisor.WatchdogMain() {
		return
	}
	// A closed stderr or stdout is an error of the write, no reason to die.
	// (Ignoring the signal would be inherited by the servers.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	// The first signal asks for a graceful end; after that the default applies.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	hangup := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(hangup, syscall.SIGHUP)
	}
	context.AfterFunc(ctx, func() {
		stop()
		signal.Reset(syscall.SIGHUP)
	})
	os.Exit(run(ctx, os.Args[1:], environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		lookup: os.LookupEnv, hangup: hangup,
	}))
}
