// Package bridge copies messages between MCP clients and servers, whatever transports
// they use. Each transport turns its traffic into a Conn; this package knows no transport.
//
//   - A Conn carries whole messages to and from one peer: Send and TrySend, Receive, Close.
//   - A Handler serves one client's Conn. Listening transports (package streamhttp,
//     legacysse, ws, and SocketServer of stdio) call it for each session.
//   - A Dialer makes a Conn to a server (stdio.Command, stdio.Socket, ws.Client, and
//     the Clients of streamhttp/streamclient and legacysse/sseclient).
//   - Serve makes a Handler of a Dialer. It is all that a simple bridge needs: see the
//     example of Serve.
//   - Pump copies between a client's Conn and a server's until the conversation is over,
//     and answers every request that the server leaves open. Exchange does so for a
//     single request.
//   - Intercept puts Hooks into a Conn, which look at its messages and may change them.
//   - Inbox and StallWatch help to write a Conn, Pipe connects two in memory, and package
//     bridgetest tests a Conn against the contract.
//
// A Conn and a Handler may be used by many goroutines; the contract of a Conn says what
// each method waits for. Pump and Exchange end every goroutine that they start before
// they return.
//
// What transports need beside Conns is in packages of its own: admission (who gets a
// place), identity (who a client is), access (Origin, Host, tokens) and budget (memory).
package bridge
