//go:build !linux

package startpages

// Release does nothing. On Linux it gives back the memory that only starting has needed; other systems take that back on their own, or
// not at all.
func Release() {}
