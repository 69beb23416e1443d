// Package era has what the two eras of MCP are made of, and what a filter
// between them is.
//
// The two words are used everywhere in this module:
//
//   - "legacy" is every revision up to 2025-11-25: a client opens a session with
//     initialize, and a server may send requests of its own.
//   - "modern" is 2026-07-28: there are no sessions. Each request says in its _meta
//     which revision and which capabilities it has, and a server that needs
//     something of the client answers a call with input_required.
//
// The package has the names and error codes of both eras, reads the _meta of modern
// requests (MetaOf, Meta.IsModern, Meta.Check) and refuses what a revision does not have
// (Refusal). The transports and the Mux use it; package bridge passes either era on.
//
// A Filter rewrites the messages between a legacy and a modern side. There are
// two: package legacyclient makes a legacy client look modern, and package
// legacyserver makes a legacy server look modern. A legacy client and a legacy
// server that is shared are joined by both. Package bridge/translate runs a Filter
// around a bridge.Conn.
//
// The functions may be called concurrently, and so may the methods of a Sealer. A Filter
// is for one goroutine at a time. The examples check a request, and run a Filter.
package era
