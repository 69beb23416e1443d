// Package sseclient is the client side of the HTTP+SSE transport of revision
// 2024-11-05 (see package legacysse): Client is a bridge.Dialer for a server of it.
//
// client.go has the options, conn.go the Conn, post.go the way of one message and of its
// answer, state.go the books on all of them, stream.go the event stream and
// renew.go what happens when a lost session is begun anew.
package sseclient
