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
	// The first signal asks for a graceful end; after that the default applies.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		lookup: os.LookupEnv,
	}))
}
