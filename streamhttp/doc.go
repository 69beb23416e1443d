// Package streamhttp speaks MCP's Streamable HTTP transport: as a server
// (Handler) and as a client (Client).
//
// HTTP is not one stream. That is hidden in here: a session is one
// bridge.Conn, whose Send picks the response stream a message belongs to.
//
// The files of the server: handler.go checks what comes in and keeps the
// sessions, start.go makes them; post.go, batch.go and get.go are the exchanges,
// and alone.go those without a session; session.go is the Conn; route.go
// decides which stream a message goes to, and hold.go keeps it until there is
// one; attach.go knows who reads the streams; stream.go keeps events for
// replay; headers.go has the rules on headers. The client's files begin with
// client.
package streamhttp
