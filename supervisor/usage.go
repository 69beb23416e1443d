package supervisor

import "time"

// Usage is how much CPU time and memory some processes use together.
type Usage struct {
	// CPU time that the processes have used since each was started; processes that have ended do not count
	CPU      time.Duration
	Resident int64 // resident memory, in bytes; what several processes share counts for each
}
