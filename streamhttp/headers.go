package streamhttp

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

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
	valueClose     = []string{"close"}
	acceptsBothWay = "application/json, text/event-stream" // what clients send
)

// accepts reports whether the Accept headers admit every one of the media
// types. No Accept header admits everything (LI4).
func accepts(h http.Header, types ...string) bool {
	values := h["Accept"]
	if len(values) == 0 || (len(values) == 1 && values[0] == acceptsBothWay) {
		return true
	}
	for _, t := range types {
		if !admits(values, t) {
			return false
		}
	}
	return true
}

// admits applies the most specific media range that matches (RFC 9110, 12.5.1).
func admits(values []string, mediaType string) bool {
	major, _, _ := strings.Cut(mediaType, "/")
	best, ok := 0, false
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			mt, params, err := mime.ParseMediaType(strings.TrimSpace(item))
			if err != nil && mt == "" {
				continue
			}
			rank := 0
			switch mt {
			case mediaType:
				rank = 3
			case major + "/*":
				rank = 2
			case "*/*":
				rank = 1
			}
			if rank > best {
				best, ok = rank, !zeroQuality(params["q"])
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
	mt, params, err := mime.ParseMediaType(v)
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return false
	}
	return (err == nil || mt != "") && mt == typeJSON
}
