package inspect

import (
	"io/fs"
	"syscall"
	"time"
)

// userID always returns "user": on Windows the folder for temporary files is the user's own, and its permissions hold for what is in it.
func userID() string { return "user" }

// connRefused is the error of a socket on which nobody listens: WSAECONNREFUSED, which is not the ECONNREFUSED of package syscall.
const connRefused = syscall.Errno(10061)

// isPrivate always returns true: on Windows the folder for temporary files is the user's own.
func isPrivate(fs.FileInfo) bool { return true }

// lock does nothing, and is always true: on Windows folders cannot be locked. A socket is there without its listener for so
// short a time that another bridge hardly ever sees that.
func lock(string, time.Duration) (unlock func(), ok bool) { return func() {}, true }
