// Package legacysse serves clients of the HTTP+SSE transport of revision 2024-11-05,
// which is deprecated but deployed. The client side of the transport is the package
// legacysse/sseclient.
//
// A session is one GET, whose event stream carries everything that the server
// says; its first event names the address to which the client POSTs what it
// has to say. When the stream ends the session is over (docs/rules.md, SS).
//
// handler.go keeps the sessions, stream.go serves the GET and post.go the POSTs,
// session.go is the Conn, headers.go has the rules on headers.
package legacysse
