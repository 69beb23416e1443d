package streamhttp

import "github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"

// Protocol revisions with sessions ("legacy"). Being dates, they compare as strings.
const (
	version2024_11_05 = "2024-11-05" // revision 2024-11-05 of the protocol, one with sessions
	version2025_03_26 = "2025-03-26" // revision 2025-03-26 of the protocol, one with sessions
	version2025_06_18 = "2025-06-18" // revision 2025-06-18 of the protocol, one with sessions
	version2025_11_25 = "2025-11-25" // revision 2025-11-25 of the protocol, one with sessions
)

// supportedVersions lists the legacy revisions, for error texts.
const supportedVersions = version2024_11_05 + ", " + version2025_03_26 + ", " + version2025_06_18 + ", " + version2025_11_25

// isKnownVersion reports whether v is a legacy revision.
func isKnownVersion(v string) bool {
	switch v {
	case version2024_11_05, version2025_03_26, version2025_06_18, version2025_11_25:
		return true
	}
	return false
}

// Header values shared by all replies; net/http does not change them.
var (
	valueJSON    = []string{wire.TypeJSON} // the Content-Type of JSON replies
	valueNoSniff = []string{"nosniff"}     // the X-Content-Type-Options of all replies
)
