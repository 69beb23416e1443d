package traceview

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// lateThreshold is how long a request must have waited for its answer, or an exchange have lasted, for status:late to match it.
// Live prints a request again that waits so long.
const lateThreshold = 10 * time.Second

// View is a record with what other records say of it.
type View struct {
	*trace.Record

	Pending   bool          // it is a request that has no answer, at least so far; false for one that has just come to Viewer.Live
	Cancelled bool          // it is a request that its sender has cancelled before it was answered; Pending may be true, too
	Waited    time.Duration // of a request: how long it waited for its answer; without one, until the end of the trace, or until now; 0: not known
	Answer    *trace.Record // of a request: the record of its answer, without its Body; nil: there is none, or it is not known
}

// Filter chooses records. The zero value chooses all of them. It may be used concurrently.
type Filter struct {
	groups []conditionGroup // all of them must hold
}

// conditionGroup is the words of a filter of which one must hold. It holds if one of its conditions does; if negated, if none
// of them does.
type conditionGroup struct {
	key        string             // the one of FilterKeys that its words have; "": it has one word, which is a text
	negated    bool               // its words have "!" in front
	conditions []func(*View) bool // one for each word
}

// FilterKeys are the words that may stand in front of a colon in a filter.
var FilterKeys = []string{"method", "tool", "id", "dir", "hop", "ses", "srv", "status", "kind", "slow"}

// ParseFilter reads a filter. Each word is KEY:VALUE with one of FilterKeys, or text that the record has
// to contain, in upper or lower case. A "!" in front of a word turns it round. All of the words must hold; but of several with the
// same key and no "!" only one, unless they are texts or slow. Patterns, such as of method, may have * for any text. Empty words do
// not count.
func ParseFilter(words []string) (Filter, error) {
	var f Filter
	for _, word := range words {
		rest, not := strings.CutPrefix(word, "!")
		if rest == "" {
			continue
		}
		key, value, is := strings.Cut(rest, ":")
		if !is || !slices.Contains(FilterKeys, key) {
			key, value = "", rest
		}
		cond, err := parseCondition(key, value)
		if err != nil {
			return Filter{}, fmt.Errorf("%q: %w", word, err)
		}
		at := slices.IndexFunc(f.groups, func(g conditionGroup) bool { return g.key == key && g.negated == not })
		if at < 0 || key == "" || key == "slow" {
			f.groups = append(f.groups, conditionGroup{key: key, negated: not})
			at = len(f.groups) - 1
		}
		f.groups[at].conditions = append(f.groups[at].conditions, cond)
	}
	return f, nil
}

// Has reports whether the filter has a word KEY:VALUE with this key, and no "!" in front of it.
func (f Filter) Has(key string) bool {
	return slices.ContainsFunc(f.groups, func(g conditionGroup) bool { return g.key == key && !g.negated })
}

// Match reports whether the filter chooses v.
func (f Filter) Match(v *View) bool {
	for _, g := range f.groups {
		if slices.ContainsFunc(g.conditions, func(is func(*View) bool) bool { return is(v) }) == g.negated {
			return false
		}
	}
	return true
}

// parseCondition returns the condition of one word KEY:VALUE of a filter, without its "!"; key "": the word is the text value.
func parseCondition(key, value string) (func(*View) bool, error) {
	byPattern := func(of func(*View) string) (func(*View) bool, error) {
		is, err := parsePattern(value)
		return func(v *View) bool { return is(of(v)) }, err
	}
	switch key {
	case "method":
		return byPattern(func(v *View) string { return v.Method })
	case "tool":
		is, err := parsePattern(value)
		return func(v *View) bool { return v.Method == "tools/call" && is(v.Name) }, err
	case "id":
		return func(v *View) bool {
			id := v.ID.String()
			return id == value || id == strconv.Quote(value)
		}, nil
	case "dir":
		return parseOneOf(value, func(v *View) string { return v.Dir }, trace.ToServer, trace.ToClient)
	case "hop":
		return parseOneOf(value, func(v *View) string { return v.Hop }, trace.Downstream, trace.Upstream)
	case "ses":
		return byPattern(func(v *View) string { return v.Session })
	case "srv":
		return byPattern(func(v *View) string { return v.Server })
	case "kind":
		return byPattern(func(v *View) string { return string(v.Kind) })
	case "status":
		return parseStatus(value)
	case "slow":
		least, err := time.ParseDuration(value)
		if err != nil || least < 0 {
			return nil, errors.New("write a time with its unit, such as slow:500ms")
		}
		return func(v *View) bool { return durationOf(v) >= least && durationOf(v) > 0 }, nil
	}
	return containsText(value), nil
}

// parsePattern returns a function that reports whether a string matches value, in which * stands for any text. An empty value
// is an error.
func parsePattern(value string) (func(string) bool, error) {
	if value == "" {
		return nil, errors.New("nothing stands behind the colon")
	}
	if !strings.Contains(value, "*") {
		return func(s string) bool { return s == value }, nil
	}
	parts := strings.Split(value, "*")
	return func(s string) bool {
		rest, ok := strings.CutPrefix(s, parts[0])
		if !ok {
			return false
		}
		for _, part := range parts[1 : len(parts)-1] {
			_, after, ok := strings.Cut(rest, part)
			if !ok {
				return false
			}
			rest = after
		}
		return strings.HasSuffix(rest, parts[len(parts)-1])
	}, nil
}

// parseOneOf returns the condition that field of a record is value. If value is none of the known ones, it returns an error.
func parseOneOf(value string, field func(*View) string, known ...string) (func(*View) bool, error) {
	if !slices.Contains(known, value) {
		return nil, fmt.Errorf("use %s", strings.Join(known, " or "))
	}
	return func(v *View) bool { return field(v) == value }, nil
}

// parseStatus returns the condition for the VALUE of the word status:VALUE: "ok", "err", "pending", "late", a status of HTTP
// such as "404", a class of them such as "4xx", or the code of an error. Any other VALUE is an error.
func parseStatus(value string) (func(*View) bool, error) {
	switch value {
	case "ok":
		return func(v *View) bool {
			return v.Kind == trace.Response && !hasFailed(v.Record) || v.HTTP != nil && v.HTTP.Status > 0 && !hasFailed(v.Record)
		}, nil
	case "err":
		return func(v *View) bool { return hasFailed(v.Record) }, nil
	case "pending":
		return func(v *View) bool { return v.Pending && !v.Cancelled }, nil
	case "late":
		return func(v *View) bool { return !v.Cancelled && durationOf(v) >= lateThreshold }, nil
	case "1xx", "2xx", "3xx", "4xx", "5xx":
		class := int(value[0] - '0')
		return func(v *View) bool { return v.HTTP != nil && v.HTTP.Status/100 == class }, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n == 0 {
		return nil, errors.New("use ok, err, pending, late, a status of HTTP such as 401 or 4xx, or the code of an error such as -32601")
	}
	return func(v *View) bool { return v.Code == n || v.HTTP != nil && v.HTTP.Status == n }, nil
}

// hasFailed reports whether a record tells of an error (of a response, an HTTP exchange, a session or a process), a failed tool, a
// dropped message, or an HTTP status from 400 on.
func hasFailed(r *trace.Record) bool {
	switch {
	case r.HTTP != nil:
		return r.HTTP.Status >= http.StatusBadRequest || r.HTTP.Err != ""
	case r.Event != nil:
		return r.Event.Err != ""
	}
	return r.Code != 0 || r.Failed || r.Kind == trace.Drop
}

// durationOf returns how long what v tells of has lasted: an HTTP exchange; a request, until its answer or until now; a response, or a
// remark about a request, since that request; 0: not known.
func durationOf(v *View) time.Duration {
	switch {
	case v.HTTP != nil:
		return v.HTTP.Duration
	case v.Kind == trace.Request:
		return v.Waited
	}
	return v.Duration
}

// containsText returns the condition that text occurs, in upper or lower case, in the Body of a record, or in most of its other texts.
// Session, headers and times are not looked through.
func containsText(text string) func(*View) bool {
	want := bytes.ToLower([]byte(text))
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), string(want)) }
	return func(v *View) bool {
		if has(v.Method) || has(v.Name) || has(v.Reason) || has(v.Server) || has(v.ID.String()) {
			return true
		}
		if e := v.Event; e != nil && (has(e.Text) || has(e.Program) || has(e.Client) || has(e.Err) || has(e.Code)) {
			return true
		}
		if x := v.HTTP; x != nil && (has(x.URL) || has(x.Method) || has(x.Rule) || has(x.Reason) || has(x.Err)) {
			return true
		}
		return bytes.Contains(bytes.ToLower(v.Body.Text), want) || bytes.Contains(bytes.ToLower(v.Body.Tail), want)
	}
}
