package supervisor

import "time"

// Usage is what processes use of their machine.
type Usage struct {
	CPU      time.Duration // of those that run, since each was started
	Resident int64         // memory, in bytes; what they share counts for each
}
