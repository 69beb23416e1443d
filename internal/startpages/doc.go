// Package startpages has the memory that a start uses provided at once, and takes the pages of the executable that only starting has needed
// out of memory. It imports little, because supervisor/internal/watchdogwait imports it.
package startpages

import "time"

// StartTime is about how long the bridge and its first server take to start. What is done only for the time after a start, as Release is,
// waits until then.
const StartTime = 100 * time.Millisecond

// WatchdogVar is an environment variable that makes the bridge's executable the watchdog, whatever its value, unless that is empty. The
// watchdog is not to use the memory of a start.
const WatchdogVar = "MCP_BRIDGE_WATCHDOG"
