//go:build !linux

package startpages

import "errors"

// PopulateHeap does nothing but return an error. On Linux it has the kernel provide the memory that a start uses.
func PopulateHeap() error { return errors.ErrUnsupported }
