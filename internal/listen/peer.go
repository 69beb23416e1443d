package listen

import "net"

// PeerUser returns who is at the other end of a Unix socket, as "user " and the
// number of the user that has connected; "" if that cannot be told, as of any
// other connection. What stands before a connection says so by a method
// NetConn() net.Conn.
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
