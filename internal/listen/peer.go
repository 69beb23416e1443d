package listen

import "net"

// PeerUser returns the user who has connected to a Unix socket, as "user " and the number of
// the user. It returns "" for other connections, and on systems that do not tell the user.
// A connection that wraps another one must have a method NetConn() net.Conn.
func PeerUser(c net.Conn) string {
	for c != nil {
		switch v := c.(type) {
		case *net.UnixConn:
			return peerUser(v)
		case interface{ NetConn() net.Conn }:
			c = v.NetConn()
		default:
			return ""
		}
	}
	return ""
}
