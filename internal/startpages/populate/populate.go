// Package populate calls startpages.PopulateHeap while it is initialised, unless the process is the watchdog. Only the command imports
// it: a program that uses the packages of this module decides itself about its memory. It imports few packages that come early, so that
// nearly all others come after it ("Program initialization" in the specification of Go).
package populate

import (
	"os"

	"github.com/mcp-bridge/mcp-bridge/internal/startpages"
)

func init() {
	if os.Getenv(startpages.WatchdogVar) == "" {
		_ = startpages.PopulateHeap() // without it, the start only takes longer
	}
}
