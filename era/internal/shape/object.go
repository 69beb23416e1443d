package shape

import (
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Member returns the raw value of a key of a raw JSON object, the last one if the key
// stands twice; nil if the key is absent, or object is no object.
func Member(object []byte, key string) (value []byte) {
	for m := range jsonrpc.Members(object) {
		if m.Key == key {
			value = m.Value
		}
	}
	return value
}

// EqualStrings reports whether two raw values are the same string. They may be escaped
// in different ways.
func EqualStrings(a, b []byte) bool {
	text, ok := jsonrpc.Text(a)
	other, also := jsonrpc.Text(b)
	return ok && also && text == other
}

// IsObject reports whether a raw value is an object. Like IsArray and IsString it looks at the first byte alone: raw must be valid JSON
// without white space before it, or empty (false).
func IsObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }

// IsArray reports whether a raw value is an array. raw is as for IsObject.
func IsArray(raw []byte) bool { return len(raw) > 0 && raw[0] == '[' }

// IsString reports whether a raw value is a string. raw is as for IsObject.
func IsString(raw []byte) bool { return len(raw) > 0 && raw[0] == '"' }

// IsEmpty reports whether a raw object has no members. It may not be called with another value.
func IsEmpty(object []byte) bool {
	for _, c := range object[1:] {
		switch c {
		case ' ', '\t', '\n', '\r':
		default:
			return c == '}'
		}
	}
	return true
}

// AppendMember appends a member to an object that is being written. object is `{`,
// or `{` and members; the caller closes it.
func AppendMember(object []byte, key string, value []byte) []byte {
	if object[len(object)-1] != '{' {
		object = append(object, ',')
	}
	object = append(append(object, jsonrpc.Quote(key)...), ':')
	return append(object, value...)
}

// MaxCanonicalDepth is down to which level of nesting AppendCanonical, which callers give it as depth, changes the
// spelling of JSON. Each level costs one more scan, and the sender of the JSON chooses how deep it is nested.
const MaxCanonicalDepth = 12

// AppendCanonical appends raw in one spelling: no white space, members sorted by
// key, strings with as few escapes as possible. Numbers stay as they are, and so
// do values that are nested deeper than depth.
func AppendCanonical(out, raw []byte, depth int) []byte {
	if len(raw) == 0 || depth == 0 {
		return append(out, raw...)
	}
	switch raw[0] {
	case '{':
		members := slices.Collect(jsonrpc.Members(raw))
		slices.SortStableFunc(members, func(a, b jsonrpc.Member) int { return strings.Compare(a.Key, b.Key) })
		out = append(out, '{')
		for i, m := range members {
			if i+1 < len(members) && members[i+1].Key == m.Key {
				continue // of equal keys the last counts
			}
			if out[len(out)-1] != '{' {
				out = append(out, ',')
			}
			out = append(append(out, jsonrpc.Quote(m.Key)...), ':')
			out = AppendCanonical(out, m.Value, depth-1)
		}
		return append(out, '}')
	case '[':
		out = append(out, '[')
		for _, e := range jsonrpc.Elements(raw) {
			if out[len(out)-1] != '[' {
				out = append(out, ',')
			}
			out = AppendCanonical(out, e, depth-1)
		}
		return append(out, ']')
	case '"':
		text, _ := jsonrpc.Text(raw)
		return append(out, jsonrpc.Quote(text)...)
	}
	return append(out, raw...)
}
