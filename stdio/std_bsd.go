//go:build unix && !linux

package stdio

import "os"

// reopen returns nil: on these systems /dev/fd gives the same open file once more.
func reopen(*os.File, int) *os.File { return nil }
