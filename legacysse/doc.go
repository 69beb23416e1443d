// Package legacysse speaks the HTTP+SSE transport of revision 2024-11-05,
// which is deprecated but deployed: as a server (Handler) and as a client
// (Client).
//
// A session is one GET, whose event stream carries everything that the server
// says; its first event names the address to which the client POSTs what it
// has to say. When the stream ends the session is over (docs/rules.md, SS).
//
// The files of the server: handler.go keeps the sessions, stream.go serves the
// GET and post.go the POSTs, body.go reads their bodies, session.go is the
// Conn, headers.go has the rules on headers. The client's files begin with
// client.
package legacysse
