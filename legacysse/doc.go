// Package legacysse serves clients of the HTTP+SSE transport of revision 2024-11-05,
// which is deprecated but deployed. The client side of the transport is the package
// legacysse/sseclient.
//
// A session is one GET, whose event stream carries everything that the server
// says. The first event names the address for the client's POSTs, each of which
// brings what the client says. When the stream ends the session is over (docs/rules.md, SS).
//
// NewHandler makes a Handler, which gives each session, as a bridge.Conn, to a
// bridge.Handler such as that of bridge.Serve. Its two methods ServeSSE and ServeMessage are
// the two endpoints; the example shows how to serve them. A Handler may be used by many
// goroutines. Close ends the sessions, and returns when they have ended; call it before
// the Close or Shutdown of the http.Server, which would wait for open streams.
//
// For who works on the package: handler.go keeps the sessions, stream.go serves the GET
// and post.go the POSTs, session.go is the Conn, headers.go has the rules on headers.
package legacysse
