//go:build !linux

package stdio

import (
	"net"
	"os"
)

// pipeTryWriter returns nil: on this system nothing is written without waiting.
func pipeTryWriter(*os.File) tryWriter { return nil }

// socketTryWriter returns nil: on this system nothing is written without waiting.
func socketTryWriter(net.Conn) tryWriter { return nil }
