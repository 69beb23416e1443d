//go:build !linux

package startpages

// Release does nothing: other systems take pages back on their own, or not at all.
func Release() {}
