package streamhttp

// Header names of Streamable HTTP.
const (
	headerSession     = "Mcp-Session-Id"
	headerVersion     = "Mcp-Protocol-Version"
	headerLastEventID = "Last-Event-Id"
)

// Protocol revisions with sessions ("legacy"). Being dates, they compare as strings.
const (
	version2024_11_05 = "2024-11-05"
	version2025_03_26 = "2025-03-26"
	version2025_06_18 = "2025-06-18"
	version2025_11_25 = "2025-11-25"
)

const supportedVersions = version2024_11_05 + ", " + version2025_03_26 + ", " + version2025_06_18 + ", " + version2025_11_25

func knownVersion(v string) bool {
	switch v {
	case version2024_11_05, version2025_03_26, version2025_06_18, version2025_11_25:
		return true
	}
	return false
}

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream"
)

// Values shared by all replies; net/http does not change them.
var (
	valueJSON      = []string{typeJSON}
	valueNoSniff   = []string{"nosniff"}
	acceptsBothWay = "application/json, text/event-stream" // what clients send
)
