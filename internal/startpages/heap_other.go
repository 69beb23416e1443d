//go:build !linux

package startpages

// PopulateHeap does nothing. On Linux it has the kernel provide memory that a start uses.
func PopulateHeap() {}

// PopulateGarbage does nothing. On Linux it has the kernel provide memory for garbage.
func PopulateGarbage(int) {}
