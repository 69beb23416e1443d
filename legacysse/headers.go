package legacysse

import "github.com/mcp-bridge/mcp-bridge/legacysse/internal/wire"

// Protocol revisions with sessions, beside wire.Version2025_06_18.
const (
	version2024_11_05 = "2024-11-05" // revision 2024-11-05 of the protocol, one with sessions
	version2025_03_26 = "2025-03-26" // revision 2025-03-26 of the protocol, one with sessions
	version2025_11_25 = "2025-11-25" // revision 2025-11-25 of the protocol, one with sessions
)

// isKnownVersion reports whether v is a revision that has sessions.
func isKnownVersion(v string) bool {
	switch v {
	case version2024_11_05, version2025_03_26, wire.Version2025_06_18, version2025_11_25:
		return true
	}
	return false
}

// valueNoSniff is the X-Content-Type-Options header of all replies; net/http does not change it.
var valueNoSniff = []string{"nosniff"}
