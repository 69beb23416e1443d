// Package streamhttp is the server side of MCP's Streamable HTTP transport; package
// streamclient is the client side.
//
// HTTP is not one stream. That is hidden in here: a session of a legacy client (up to
// 2025-11-25) is one bridge.Conn, whose Send picks the response stream a message
// belongs to. A modern client (2026-07-28) has no session: each request is a
// bridge.Conn of its own.
//
// What comes in:
//
//   - handler.go checks requests and keeps the sessions, start.go makes them;
//   - post.go, batch.go and get.go are the exchanges of a session, stateless.go those
//     without one; outbox.go passes on what a POST brings, postqueue.go is where POSTs
//     meet the receiver of their session;
//   - modern.go tells the eras apart and serves 2026-07-28, with query.go for what its
//     requests say of themselves, exchange.go for the Conn of one request, inflight.go for
//     all that are in progress, and reply.go for what is written to each;
//   - headers.go has the rules on headers, body.go those on bodies.
//
// A session (session.go) is made of:
//
//   - calls.go: what each side has asked the other;
//   - route.go: which stream a message of the server belongs to, and deliver.go, which
//     puts it there;
//   - deferred.go: what no stream can carry now;
//   - stream.go and reader.go: a stream and the connection that writes it; streams.go
//     brings the two together;
//   - replay.go: what is kept for a client that comes back;
//   - commit.go: when the reply to a POST becomes a stream.
package streamhttp
