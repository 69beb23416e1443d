// Package wire has the names that both sides of HTTP+SSE use.
package wire

// The names.
const (
	HeaderVersion = "Mcp-Protocol-Version" // the header of a POST with the protocol version, from Version2025_06_18 on

	TypeJSON = "application/json"  // the media type of what is POSTed
	TypeSSE  = "text/event-stream" // the media type of the event stream

	Version2025_06_18 = "2025-06-18" // the first revision that has HeaderVersion
)
