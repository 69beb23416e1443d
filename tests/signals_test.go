package tests

import (
	"os"
	"syscall"
)

// stopSignals are those that a person or a service manager ends a daemon with.
var stopSignals = []os.Signal{syscall.SIGTERM, os.Interrupt}
