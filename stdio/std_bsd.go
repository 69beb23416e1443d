//go:build unix && !linux

package stdio

import "os"

// reopen does nothing: here /dev/fd gives the same open file once more.
func reopen(*os.File, int) *os.File { return nil }
