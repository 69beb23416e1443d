// Package startpages takes the pages of the executable that only starting has needed out of memory. It imports little, because
// supervisor/internal/watchdogwait imports it.
package startpages

import "time"

// StartTime is about how long the bridge and its first server take to start. What is done only for the time after a start, as Release is,
// waits until then.
const StartTime = 100 * time.Millisecond
