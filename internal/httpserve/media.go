package httpserve

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const jsonMediaType = "application/json"

// usualAccept is what most clients send, to the letter.
const usualAccept = jsonMediaType + ", text/event-stream"

// Accepts reports whether the Accept headers admit each of types: application/json,
// text/event-stream, or both. No Accept header admits everything (LI4).
func Accepts(h http.Header, types ...string) bool {
	values := h["Accept"]
	if len(values) == 0 || (len(values) == 1 && values[0] == usualAccept) {
		return true
	}
	for _, t := range types {
		if !acceptsType(values, t) {
			return false
		}
	}
	return true
}

// acceptsType applies the most specific media range that matches (RFC 9110, 12.5.1).
func acceptsType(values []string, mediaType string) bool {
	major, _, _ := strings.Cut(mediaType, "/")
	best, ok := 0, false
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			mt, params, _ := mime.ParseMediaType(strings.TrimSpace(item))
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
				best, ok = rank, !isZeroQuality(params["q"])
			}
		}
	}
	return ok
}

func isZeroQuality(q string) bool {
	_, err := strconv.ParseFloat(q, 64)
	return err == nil && strings.Trim(q, "0.") == ""
}

// IsJSON reports whether the body is JSON as it stands: application/json in
// UTF-8, not compressed, and said once (LI5).
func IsJSON(h http.Header) bool {
	if len(h["Content-Type"]) > 1 || len(h["Content-Encoding"]) > 1 {
		return false // others on the way may go by another one of them
	}
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return false
	}
	v := h.Get("Content-Type")
	if v == jsonMediaType {
		return true
	}
	mt, params, _ := mime.ParseMediaType(v)
	charset, ok := params["charset"]
	return mt == jsonMediaType && (!ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "us-ascii"))
}
