package supervisor

import "time"

// Usage is how much CPU time and memory some processes use together.
type Usage struct {
	// CPU time that they have used since each was started; processes that have ended do not count
	CPU      time.Duration
	Resident int64 // resident memory, in bytes; what several of them share counts for each
}
