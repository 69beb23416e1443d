package supervisor

import "time"

// Usage is how much CPU time and memory some processes use together.
type Usage struct {
	CPU      time.Duration // CPU time that they have used since each was started; processes that have ended do not count
	Resident int64         // resident memory, in bytes; what several of them share counts for each
}
