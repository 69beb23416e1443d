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

// CheckTerminalSafe returns an error if a text does anything to a terminal but begin lines, or is not UTF-8.
func CheckTerminalSafe(text []byte) error {
	if !utf8.Valid(text) {
		return fmt.Errorf("it is not UTF-8: %s", quoteAround(string(text), strings.IndexFunc(string(text), func(r rune) bool { return r == utf8.RuneError })))
	}
	if i := strings.IndexFunc(string(text), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		return fmt.Errorf("it is not quiet: %s", quoteAround(string(text), i))
	}
	return nil
}

// quoteAround returns, in quotes, the 100 bytes of a text before the index at, and the 100 from there on.
func quoteAround(text string, at int) string {
	return strconv.Quote(text[max(0, at-100):min(len(text), max(at, 0)+100)])
}

// allowedTags are those that a page of an export may have, all without attributes but for a class.
var allowedTags = []string{
	"!doctype html", `html lang="en"`, "head", `meta charset="utf-8"`, "title", "style", "body", "h1", "table", "tr", `tr class="bad"`,
	"td", `td class="s"`, "details", "summary", "pre", `div class="both"`, "div", "mark", "p", "html",
}

// policyHeadPattern matches the beginning of the HTML of an export, with its Content-Security-Policy.
var policyHeadPattern = regexp.MustCompile(`^<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n` +
	`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]+'; base-uri 'none'; form-action 'none'">\n<title>mcp-bridge trace</title><style>`)

// CheckHTMLExport returns an error if the HTML of an export may do anything but show text: if it has a tag or an attribute
// that is not its own, no policy before all that a record holds, or characters that turn text round.
func CheckHTMLExport(page []byte) error {
	if !policyHeadPattern.Match(page) {
		return fmt.Errorf("it does not begin with a policy: %.300q", page)
	}
	if err := CheckTerminalSafe(page); err != nil {
		return err
	}
	for i, part := range strings.Split(string(page), "<")[1:] {
		tag, _, closed := strings.Cut(part, ">")
		tag = strings.TrimPrefix(tag, "/")
		if !closed || !slices.Contains(allowedTags, tag) && (i != 4 || !strings.HasPrefix(tag, `meta http-equiv="Content-Security-Policy"`)) {
			return fmt.Errorf("tag %d is <%.200s>", i, tag)
		}
	}
	return nil
}

// object is a decoded JSON object, and the first fault of it.
type object struct {
	path    string         // where the object stands, for the error
	members map[string]any // the members of the object
	err     *error         // the first fault that was found in the whole value; *err is nil: none so far
}

// fail notes a fault of the object, unless there was one before.
func (o object) fail(format string, args ...any) {
	if *o.err == nil {
		*o.err = fmt.Errorf(o.path+": "+format, args...)
	}
}

// requireMembers notes what is not as it should be: "name:" must be a string, "name#" a number, "name{" an object, "name["
// an array.
func (o object) requireMembers(members ...string) {
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

// requireAtLeast notes those of the members names that are below least or, with integer, no whole numbers.
func (o object) requireAtLeast(least float64, integer bool, names ...string) {
	for _, name := range names {
		if n, _ := o.members[name].(float64); n < least || integer && n != math.Trunc(n) {
			o.fail("%s is %v", name, n)
		}
	}
}

// memberObject returns an object that is a member; requireMembers has seen that it is there.
func (o object) memberObject(name string) object {
	inner, _ := o.members[name].(map[string]any)
	return object{o.path + "." + name, inner, o.err}
}

// memberObjects returns the objects in an array that is a member; requireMembers has seen that it is there.
func (o object) memberObjects(name string) (all []object) {
	list, _ := o.members[name].([]any)
	for i, v := range list {
		inner, _ := v.(map[string]any)
		all = append(all, object{fmt.Sprintf("%s.%s[%d]", o.path, name, i), inner, o.err})
	}
	return all
}

// harTimePattern matches a time as the schema of HAR 1.2 wants it.
var harTimePattern = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z$`)

// CheckHAR returns an error if a text is not what HAR 1.2 demands, as the schemas of npm's har-schema say it.
func CheckHAR(text []byte) (err error) {
	top := object{"HAR", nil, &err}
	if err := json.Unmarshal(text, &top.members); err != nil {
		return err
	}
	top.requireMembers("log{")
	log := top.memberObject("log")
	log.requireMembers("version:", "creator{", "entries[")
	log.memberObject("creator").requireMembers("name:", "version:")
	for _, e := range log.memberObjects("entries") {
		e.requireMembers("startedDateTime:", "time#", "request{", "response{", "cache{", "timings{")
		at, _ := e.members["startedDateTime"].(string)
		if _, wrong := time.Parse(time.RFC3339Nano, at); wrong != nil || !harTimePattern.MatchString(at) {
			e.fail("startedDateTime is %q", at)
		}
		e.requireAtLeast(0, false, "time")
		timings := e.memberObject("timings")
		timings.requireMembers("send#", "wait#", "receive#")
		timings.requireAtLeast(-1, false, "send", "wait", "receive")
		request, response := e.memberObject("request"), e.memberObject("response")
		request.requireMembers("method:", "url:", "httpVersion:", "cookies[", "headers[", "queryString[", "headersSize#", "bodySize#")
		if _, is := request.members["postData"]; is {
			request.memberObject("postData").requireMembers("mimeType:", "text:")
		}
		response.requireMembers("status#", "statusText:", "httpVersion:", "cookies[", "headers[", "content{", "redirectURL:", "headersSize#", "bodySize#")
		response.requireAtLeast(0, true, "status")
		for _, side := range []object{request, response} {
			side.requireAtLeast(-1, true, "headersSize", "bodySize")
			for _, h := range append(side.memberObjects("headers"), side.memberObjects("queryString")...) {
				h.requireMembers("name:", "value:")
			}
		}
		response.memberObject("content").requireMembers("size#", "mimeType:")
		response.memberObject("content").requireAtLeast(0, true, "size")
	}
	return err
}

// How OTLP has the id of a trace and of a span, in hexadecimal, and a time, in digits.
var traceIDPattern, spanIDPattern, digitsPattern = regexp.MustCompile(`^[0-9a-f]{32}$`), regexp.MustCompile(`^[0-9a-f]{16}$`), regexp.MustCompile(`^[0-9]+$`)

// CheckOTLP returns an error if a text is no JSON of OTLP's spans.
func CheckOTLP(text []byte) (err error) {
	top := object{"OTLP", nil, &err}
	if err := json.Unmarshal(text, &top.members); err != nil {
		return err
	}
	top.requireMembers("resourceSpans[")
	for _, r := range top.memberObjects("resourceSpans") {
		r.requireMembers("resource{", "scopeSpans[")
		for _, scope := range r.memberObjects("scopeSpans") {
			scope.requireMembers("scope{", "spans[")
			for _, s := range scope.memberObjects("spans") {
				s.requireMembers("traceId:", "spanId:", "name:", "kind#", "startTimeUnixNano:", "endTimeUnixNano:", "attributes[", "status{")
				text := func(name string) string { t, _ := s.members[name].(string); return t }
				start, end := text("startTimeUnixNano"), text("endTimeUnixNano")
				from, wrong := strconv.ParseUint(start, 10, 64)
				to, wrong2 := strconv.ParseUint(end, 10, 64)
				switch {
				case !traceIDPattern.MatchString(text("traceId")) || strings.Trim(text("traceId"), "0") == "":
					s.fail("traceId is %q", text("traceId"))
				case !spanIDPattern.MatchString(text("spanId")) || strings.Trim(text("spanId"), "0") == "":
					s.fail("spanId is %q", text("spanId"))
				case wrong != nil || wrong2 != nil || !digitsPattern.MatchString(start) || to < from:
					s.fail("it lasts from %q to %q", start, end)
				}
				for _, a := range s.memberObjects("attributes") {
					a.requireMembers("key:", "value{")
				}
			}
		}
	}
	return err
}
