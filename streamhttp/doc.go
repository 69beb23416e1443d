// Package streamhttp is the server side of MCP's Streamable HTTP transport; package
// streamclient is the other one.
//
// HTTP is not one stream. That is hidden in here: a session is one
// bridge.PullConn, whose Send picks the response stream a message belongs to. Since
// 2026-07-28 there are no sessions: each request is a bridge.PullConn of its own.
//
// handler.go checks what comes in and keeps the
// sessions, start.go makes them; post.go, batch.go and get.go are the
// exchanges, and alone.go those without a session; modern.go tells the eras
// apart and serves 2026-07-28, with query.go for what its requests say of
// themselves, exchange.go for the Conn of one, and reply.go for what is written
// to it; session.go is the Conn; route.go decides which stream a message goes
// to, and hold.go keeps it until there is one; attach.go knows who reads the
// streams; stream.go keeps events for replay; headers.go has the rules on
// headers.
package streamhttp
