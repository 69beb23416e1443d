package httpserve

import (
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// jsonMediaType is the media type of a message.
const jsonMediaType = "application/json"

// usualAccept is the Accept header that most clients send, to the letter: Accepts does not parse it.
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

// acceptsType reports whether the Accept headers, whose values these are, admit a media type: the most
// specific media range that matches decides (RFC 9110, 12.5.1).
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

// isZeroQuality reports whether q, the text of the parameter q of a media range, is zero: the range is not accepted then. A text
// that is no number is not zero.
func isZeroQuality(q string) bool {
	_, err := strconv.ParseFloat(q, 64)
	return err == nil && strings.Trim(q, "0.") == ""
}

// IsJSON reports whether a request with these headers has a body that is JSON as it stands (LI5): the Content-Type is
// application/json, without a charset or with utf-8 or us-ascii; there is no Content-Encoding other than identity;
// and neither header is there twice.
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

// NotJSONReason says, in words, why IsJSON is false for these headers, and what to send. It repeats the names of types, charsets and
// encodings alone, and not what else a client may have written there.
func NotJSONReason(h http.Header) string {
	types, encodings := h["Content-Type"], h["Content-Encoding"]
	if len(types) > 1 || len(encodings) > 1 {
		return "the headers Content-Type and Content-Encoding may be sent once"
	}
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return "the Content-Encoding is " + quoteClipped(e) + "; send application/json without one"
	}
	mt, params, _ := mime.ParseMediaType(h.Get("Content-Type")) // an mt with an error is valid, only its parameters are not
	switch charset := params["charset"]; {
	case h.Get("Content-Type") == "":
		return "there is no Content-Type; send application/json"
	case mt == "":
		return "the Content-Type is no media type; send application/json"
	case mt == jsonMediaType:
		return "the charset of the Content-Type is " + quoteClipped(charset) + "; send application/json in UTF-8"
	}
	return "the Content-Type is " + quoteClipped(mt) + "; send application/json"
}

// quoteClipped returns in quotes what a client has sent: printable, and cut to 60 bytes, so that it does not make an answer or a line
// of the log long.
func quoteClipped(text string) string {
	const maxBytes = 60
	if shown := printable.Clip(text, maxBytes); shown != text {
		text = shown + "..."
	}
	return `"` + printable.Text(text) + `"`
}
