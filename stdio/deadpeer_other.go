//go:build !linux

package stdio

import (
	"net"
	"time"
)

// awaitingAck says that nothing is waiting: here it is left to the system to give a
// dead peer up. Windows does so within half a minute.
func awaitingAck(net.Conn) (silent time.Duration, waiting bool) { return 0, false }
