//go:build !linux

package stdio

import (
	"net"
	"os"
)

// pipeTryWriter returns a tryWriter that takes nothing: on this system nothing is written without waiting.
func pipeTryWriter(_ *os.File, isOurs bool) tryWriter { return tryWriter{} }

// socketTryWriter returns a tryWriter that takes nothing: on this system nothing is written without waiting.
func socketTryWriter(net.Conn) tryWriter { return tryWriter{} }
