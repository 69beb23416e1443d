package observe

import "golang.org/x/sys/cpu"

// CacheLinePad is for a field between those that change with every message and those that are mostly read: a processor that reads one of
// these need not fetch what another one has just changed.
type CacheLinePad = cpu.CacheLinePad
