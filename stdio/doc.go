// Package stdio carries JSON-RPC messages as lines of text: one message is one line
// that ends with a line feed (docs/rules.md, ST). MCP calls this transport stdio, and
// nothing in it is tied to stdin and stdout. There is one way in for each place where
// the other end can be:
//
//   - Command starts a server as a child process and talks to it over its stdin and
//     stdout. Close stops the process.
//   - Socket connects to a server that listens on a Unix socket or a TCP port.
//   - Std talks to the client that has started this process.
//   - SocketServer serves the clients that connect to a listener.
//   - NewConn makes a Conn of any reader and writer.
//
// Command and Socket are of type bridge.Dialer, and what all of them give is a
// bridge.Conn: Send and TrySend write messages, Receive hands on those that the other
// end has written, Close ends the conversation.
//
// Input that is no valid message does not end a conversation. Servers print banners
// and logs between their messages, so such lines are skipped; a client is answered with
// a JSON-RPC error. Arrays, the batches of revision 2025-03-26, are taken apart.
//
// Dialers, servers and Conns may be used by many goroutines at a time. Close of a Conn,
// and of a SocketServer, returns when all that it started has ended. The examples show
// NewConn, Command, and a SocketServer with a Socket.
//
// A line may be as long as Options.MaxMessageSize. Every byte is copied once, however
// small the pieces are in which a line arrives, and an idle Conn holds 4 KiB.
package stdio
