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

// isPrivate always returns true: on Windows the folder for temporary files is the user's own. Elsewhere it reports whether a folder
// belongs to this user, and lets nobody else in.
func isPrivate(fs.FileInfo) bool { return true }

// lock does nothing, and is always true: on Windows folders cannot be locked. Elsewhere it keeps another bridge from taking a socket
// that does not listen yet for one that was left behind. That time is so short that another bridge hardly ever sees it.
func lock(string, time.Duration) (unlock func(), ok bool) { return func() {}, true }
