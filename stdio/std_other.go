//go:build !unix

package stdio

import "os"

// openIn returns f itself, and a function that does nothing: a blocked read cannot be
// ended on this system.
func openIn(f *os.File) (*os.File, func()) { return f, func() {} }

// openOut returns f itself, and a function that does nothing: a blocked write cannot
// be ended on this system.
func openOut(f *os.File) (*os.File, func()) { return f, func() {} }
