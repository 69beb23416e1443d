// Package wire has the names that both sides of HTTP+SSE use.
package wire

// Header names, media types, and the first revision that has a header of its own for
// the version.
const (
	HeaderVersion = "Mcp-Protocol-Version"

	TypeJSON = "application/json"
	TypeSSE  = "text/event-stream"

	Version2025_06_18 = "2025-06-18"
)
