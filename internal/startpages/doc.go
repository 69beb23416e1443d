// Package startpages has the kernel provide at once the memory that a start uses, and the memory for garbage once the bridge is busy. It also
// takes the pages of the executable that only starting has needed out of memory. It imports little, because its package populate and
// supervisor/internal/watchdogwait are to be initialised before nearly all other packages.
package startpages

import "time"

// StartTime is about how long the bridge and its first server take to start. What is done only for the time after a start, as Release is,
// waits until then.
const StartTime = 100 * time.Millisecond

// WatchdogVar is an environment variable that makes the bridge's executable the watchdog (supervisor/internal/watchdogwait), whatever its
// value, unless that is empty. It stands here because package populate, which must know it, would otherwise be initialised after the watchdog.
const WatchdogVar = "MCP_BRIDGE_WATCHDOG"
