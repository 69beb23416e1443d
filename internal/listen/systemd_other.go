//go:build !linux

package listen

import "net"

func isListening(net.Listener) bool { return true }
