// Package sse writes and reads Server-Sent Events as the WHATWG HTML standard
// defines them (section 9.2, "Server-sent events"). It knows nothing of JSON-RPC.
//
//   - Writer writes events as the reply to an HTTP request. It is for servers.
//   - Reader reads events from a stream. It is for clients.
//   - AppendEvent, AppendHead and AppendComment write events to a slice.
//
// A Writer and a Reader are each for one goroutine at a time. Neither starts a goroutine
// or has to be closed. The examples write a stream and read it.
package sse
