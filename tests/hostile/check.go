package hostile

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Quiet returns an error if a text does anything to a terminal but begin lines, or is not UTF-8.
func Quiet(text []byte) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("it is not UTF-8: %s", near(string(text), strings.IndexFunc(string(text), func(r rune) bool { return r == utf8.RuneError })))
	}
	if i := strings.IndexFunc(string(text), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Errorf("it is not quiet: %s", near(string(text), i))
	}
	return nil
}

// near quotes a text around a place.
func near(text string, at int) string {
	return strconv.Quote(text[max(0, at-100):min(len(text), max(at, 0)+100)])
}

// tags are those that a page of an export may have, all without attributes but for a class.
var tags = []string{
	"!doctype html", `html lang="en"`, "head", `meta charset="utf-8"`, "title", "style", "body", "h1", "table", "tr", `tr class="bad"`,
	"td", `td class="s"`, "details", "summary", "pre", `div class="both"`, "div", "mark", "p", "html",
}

var policy = regexp.MustCompile(`^<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n` +
	`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]+'; base-uri 'none'; form-action 'none'">\n<title>mcp-bridge trace</title><style>`)

// Page returns an error if the HTML of an export may do anything but show text: if it has a tag or an attribute
// that is not its own, no policy before all that a record holds, or characters that turn text round.
func Page(page []byte) error {
	if !policy.Match(page) {
		return fmt.Errorf("it does not begin with a policy: %.300q", page)
	}
	if err := Quiet(page); err != nil {
		return err
	}
	for i, part := range strings.Split(string(page), "<")[1:] {
		tag, _, closed := strings.Cut(part, ">")
		tag = strings.TrimPrefix(tag, "/")
		if !closed || !slices.Contains(tags, tag) && (i != 4 || !strings.HasPrefix(tag, `meta http-equiv="Content-Security-Policy"`)) {
			return fmt.Errorf("tag %d is <%.200s>", i, tag)
		}
	}
	return nil
}

// object is a decoded JSON object, and the first fault of it.
type object struct {
	what    string
	members map[string]any
	err     *error
}

func (o object) fail(format string, args ...any) {
	if *o.err == nil {
		*o.err = fmt.Errorf(o.what+": "+format, args...)
	}
}

// has notes what is not as it should be: "name:" must be a string, "name#" a number, "name{" an object, "name["
// an array.
func (o object) has(members ...string) {
	for _, m := range members {
		name := m[:len(m)-1]
		v, ok := o.members[name], false
		switch m[len(m)-1] {
		case ':':
			_, ok = v.(string)
		case '#':
			_, ok = v.(float64)
		case '{':
			_, ok = v.(map[string]any)
		case '[':
			_, ok = v.([]any)
		}
		if !ok {
			o.fail("%s is %v", name, v)
		}
	}
}

// least notes numbers that are below what they may be, or no integers.
func (o object) least(least float64, integer bool, names ...string) {
	for _, name := range names {
		if n, _ := o.members[name].(float64); n < least || integer && n != math.Trunc(n) {
			o.fail("%s is %v", name, n)
		}
	}
}

// in returns an object that is a member; has has seen that it is there.
func (o object) in(name string) object {
	inner, _ := o.members[name].(map[string]any)
	return object{o.what + "." + name, inner, o.err}
}

func (o object) all(name string) (all []object) {
	list, _ := o.members[name].([]any)
	for i, v := range list {
		inner, _ := v.(map[string]any)
		all = append(all, object{fmt.Sprintf("%s.%s[%d]", o.what, name, i), inner, o.err})
	}
	return all
}

// started is how the schema of HAR 1.2 wants a time.
var started = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$`)

// HAR returns an error if a text is not what HAR 1.2 demands, as the schemas of npm's har-schema say it.
func HAR(text []byte) (err error) {
	top := object{"HAR", nil, &err}
	if err := json.Unmarshal(text, &top.members); err != nil {
		return err
	}
	top.has("log{")
	log := top.in("log")
	log.has("version:", "creator{", "entries[")
	log.in("creator").has("name:", "version:")
	for _, e := range log.all("entries") {
		e.has("startedDateTime:", "time#", "request{", "response{", "cache{", "timings{")
		at, _ := e.members["startedDateTime"].(string)
		if _, wrong := time.Parse(time.RFC3339Nano, at); wrong != nil || !started.MatchString(at) {
			e.fail("startedDateTime is %q", at)
		}
		e.least(0, false, "time")
		timings := e.in("timings")
		timings.has("send#", "wait#", "receive#")
		timings.least(-1, false, "send", "wait", "receive")
		request, response := e.in("request"), e.in("response")
		request.has("method:", "url:", "httpVersion:", "cookies[", "headers[", "queryString[", "headersSize#", "bodySize#")
		if _, is := request.members["postData"]; is {
			request.in("postData").has("mimeType:", "text:")
		}
		response.has("status#", "statusText:", "httpVersion:", "cookies[", "headers[", "content{", "redirectURL:", "headersSize#", "bodySize#")
		response.least(0, true, "status")
		for _, side := range []object{request, response} {
			side.least(-1, true, "headersSize", "bodySize")
			for _, h := range append(side.all("headers"), side.all("queryString")...) {
				h.has("name:", "value:")
			}
		}
		response.in("content").has("size#", "mimeType:")
		response.in("content").least(0, true, "size")
	}
	return err
}

var traceID, spanID, digits = regexp.MustCompile(`^[0-9a-f]{32}$`), regexp.MustCompile(`^[0-9a-f]{16}$`), regexp.MustCompile(`^[0-9]+$`)

// OTLP returns an error if a text is no JSON of OTLP's spans.
func OTLP(text []byte) (err error) {
	top := object{"OTLP", nil, &err}
	if err := json.Unmarshal(text, &top.members); err != nil {
		return err
	}
	top.has("resourceSpans[")
	for _, r := range top.all("resourceSpans") {
		r.has("resource{", "scopeSpans[")
		for _, scope := range r.all("scopeSpans") {
			scope.has("scope{", "spans[")
			for _, s := range scope.all("spans") {
				s.has("traceId:", "spanId:", "name:", "kind#", "startTimeUnixNano:", "endTimeUnixNano:", "attributes[", "status{")
				text := func(name string) string { t, _ := s.members[name].(string); return t }
				start, end := text("startTimeUnixNano"), text("endTimeUnixNano")
				from, wrong := strconv.ParseUint(start, 10, 64)
				to, wrong2 := strconv.ParseUint(end, 10, 64)
				switch {
				case !traceID.MatchString(text("traceId")) || strings.Trim(text("traceId"), "0") == "":
					s.fail("traceId is %q", text("traceId"))
				case !spanID.MatchString(text("spanId")) || strings.Trim(text("spanId"), "0") == "":
					s.fail("spanId is %q", text("spanId"))
				case wrong != nil || wrong2 != nil || !digits.MatchString(start) || to < from:
					s.fail("it lasts from %q to %q", start, end)
				}
				for _, a := range s.all("attributes") {
					a.has("key:", "value{")
				}
			}
		}
	}
	return err
}
