//go:build !linux

package stdio

import "os"

// tryPipe returns nil: messages are handed to who may wait.
func tryPipe(*os.File) func(p []byte) bool { return nil }
