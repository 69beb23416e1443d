package legacysse

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const headerVersion = "Mcp-Protocol-Version"

// Protocol revisions with sessions, and the first one without. Being dates,
// they compare as strings.
const (
	version2024_11_05 = "2024-11-05"
	version2025_03_26 = "2025-03-26"
	version2025_06_18 = "2025-06-18"
	version2025_11_25 = "2025-11-25"
	version2026_07_28 = "2026-07-28"
)

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
	valueJSON    = []string{typeJSON}
	valueNoSniff = []string{"nosniff"}
)

// acceptsSSE reports whether the Accept headers admit an event stream: the most
// specific media range that matches decides (RFC 9110, 12.5.1), and no Accept
// header admits everything (LI4).
func acceptsSSE(h http.Header) bool {
	values := h["Accept"]
	if len(values) == 0 || len(values) == 1 && values[0] == typeSSE {
		return true
	}
	rank := map[string]int{"*/*": 1, "text/*": 2, typeSSE: 3}
	best, ok := 0, false
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			mediaType, params, _ := mime.ParseMediaType(strings.TrimSpace(item))
			if r := rank[mediaType]; r > best {
				best, ok = r, !zeroQuality(params["q"])
			}
		}
	}
	return ok
}

func zeroQuality(q string) bool {
	_, err := strconv.ParseFloat(q, 64)
	return err == nil && strings.Trim(q, "0.") == ""
}

// isJSON reports whether the body is JSON as it stands: application/json in
// UTF-8, not compressed (LI5).
func isJSON(h http.Header) bool {
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return false
	}
	v := h.Get("Content-Type")
	if v == typeJSON {
		return true
	}
	mediaType, params, _ := mime.ParseMediaType(v)
	charset, ok := params["charset"]
	return mediaType == typeJSON && (!ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii"))
}
