// Package streamhttp is the server side of MCP's Streamable HTTP transport; package
// streamclient is the client side.
//
// A Handler is one MCP endpoint, for any net/http server. HandlerOptions say who may
// connect (Guard), whom to serve (Eras) and what the limits are. NewHandler gets a
// bridge.Handler, which serves the clients: bridge.Serve makes one that passes each client
// on to a server, and the example of Handler shows one that answers by itself.
//
// HTTP is not one stream, and the package hides that. A session of a legacy client (up to
// 2025-11-25) is one bridge.Conn, whose Send picks the response stream that a message
// belongs to. A modern client (2026-07-28) has no session: each request is a
// bridge.Conn of its own, for HandlerOptions.Modern.
//
// A Handler may be used by many goroutines. Close ends the sessions, and returns when they
// have ended; call it before the Close or Shutdown of the http.Server, which would wait
// for open streams. Serve a Handler behind Deadlines.
//
// The rest is for who works on the package. What comes in:
//
//   - handler.go checks requests and keeps the sessions, start.go makes them;
//   - post.go, batch.go and get.go are the exchanges of a session, stateless.go those
//     without one; outbox.go passes on what a POST brings, postqueue.go is where POSTs
//     meet the receiver of their session;
//   - modern.go tells the eras apart and serves 2026-07-28, with requestfacts.go for what its
//     requests say of themselves, exchange.go for the Conn of one request, inflight.go for
//     all that are in progress, and reply.go for what is written to each;
//   - the rules on Accept and Content-Type are in post.go and get.go, those on the session
//     and version headers in handler.go (findSession), those on the headers of 2026-07-28 in
//     modern.go and requestfacts.go; headers.go has the protocol versions, and the header values
//     that all replies share; body.go has the rules on bodies.
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
