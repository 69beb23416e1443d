// Package sseclient is the client side of the HTTP+SSE transport of revision
// 2024-11-05 (see package legacysse).
//
// Client is a bridge.Dialer. Its Conn opens the event stream with the caller's first
// request, which is initialize, and opens another when the stream is lost. Everything that
// goes wrong with a request is answered to the caller as a JSON-RPC error. A Client and
// its Conns may be used by many goroutines; Close of a Conn returns when every goroutine
// of the Conn has ended. The example sends one request.
//
// For who works on the package: client.go has the options, conn.go the Conn, post.go the
// way of one message and of its answer, state.go what is known of all of them, stream.go the
// event stream and renew.go what happens when a lost session is begun anew.
package sseclient
