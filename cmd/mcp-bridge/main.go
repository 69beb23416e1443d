// Command mcp-bridge converts between the transports of the Model Context
// Protocol. Its commands are in commands.go, its flags in flagtable.go; the rest of the module does the work.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/mcp-bridge/mcp-bridge/internal/startpages/populate" // has memory of the heap provided before nearly all other packages are initialised
	"github.com/mcp-bridge/mcp-bridge/supervisor"
)

// main runs the program, or the watchdog of another run, and exits with its status. The first SIGINT or SIGTERM ends the run
// gracefully; the second one, at once.
func main() {
	if supervisor.WatchdogMain() {
		return
	}
	// A closed stderr or stdout is an error of the write, no reason to die.
	// (Ignoring the signal would be inherited by the servers.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	hangups := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(hangups, syscall.SIGHUP)
	}
	levelSignals := make(chan os.Signal, 1)
	if sig := levelSignal(); sig != nil {
		signal.Notify(levelSignals, sig)
	}
	// The first signal asks for a graceful end. The second one is not left to its
	// default: in a background job of a script that would be to ignore Ctrl-C.
	ctx, end := context.WithCancel(context.Background())
	stopSignals := make(chan os.Signal, 2)
	signal.Notify(stopSignals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stopSignals
		signal.Reset(syscall.SIGHUP)
		end()
		if <-stopSignals == syscall.SIGTERM {
			os.Exit(exitTerminated)
		}
		os.Exit(exitInterrupted)
	}()
	os.Exit(run(ctx, os.Args[1:], environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		lookup: os.LookupEnv, hangup: hangups, levelSignal: levelSignals,
	}))
}
