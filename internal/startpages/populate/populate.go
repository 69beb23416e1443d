// Package populate calls startpages.PopulateHeap while it is initialised, unless the process is the watchdog, which is to need little memory.
// Only the command imports it: a program that uses the packages of this module decides itself about its memory.
//
// Of the packages whose own imports are initialised, Go initialises the first one by its import path. This package imports few packages that
// come early, so that nearly all others come after it. Another import could let a hundred packages come first.
package populate

import (
	"os"

	"github.com/mcp-bridge/mcp-bridge/internal/startpages"
)

func init() {
	if os.Getenv(startpages.WatchdogVar) == "" {
		startpages.PopulateHeap()
	}
}
