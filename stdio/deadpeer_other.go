//go:build !linux

package stdio

import (
	"net"
	"time"
)

// awaitingAck leaves it to the system to give up. Windows does so within
// half a minute.
func awaitingAck(net.Conn) (silent time.Duration, waiting bool) { return 0, false }
