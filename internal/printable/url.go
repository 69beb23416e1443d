package printable

import (
	"strconv"
	"strings"
)

// RedactURL returns an address without what may be secret in it: hidden stands in place of who the user is, and of each value in the query and
// in the fragment. The names of values stay; what has no name counts as a value. The address need not be a valid one: people paste
// passwords with "/" and "@" in them.
//
// Addresses in what passes are the business of internal/trace/redact. That also knows which values are secrets, leaves what it is told to
// leave, and finds addresses in other text; but it only knows what a parser takes for the user.
func RedactURL(addr, hidden string) string {
	if !strings.ContainsAny(addr, "@?#") {
		return addr
	}
	var shown strings.Builder
	end := strings.IndexAny(addr, "?#")
	if end < 0 {
		end = len(addr)
	}
	rest := addr[:end]
	for {
		before, after, found := strings.Cut(rest, "://")
		shown.WriteString(before)
		if !found {
			break
		}
		shown.WriteString("://")
		if n := userInfoLen(after); n > 0 {
			shown.WriteString(hidden)
			after = after[n:]
		}
		rest = after
	}
	for rest = addr[end:]; rest != ""; {
		shown.WriteByte(rest[0]) // what separates values
		value := rest[1:]
		if end = strings.IndexAny(value, "?#&"); end < 0 {
			end = len(value)
		}
		value, rest = value[:end], value[end:]
		name, text, _ := strings.Cut(value, "=")
		switch {
		case strings.Trim(text, "=") != "": // base64 may end in "="
			shown.WriteString(name + "=" + hidden)
		case value != "":
			shown.WriteString(hidden)
		}
	}
	return shown.String()
}

// userInfoLen returns how many bytes of text, which stands behind "://", say who the user is: a
// user name, perhaps with a password, in which there may be a slash. 0: none. Behind a host, or a
// port, an "@" stands in the path.
func userInfoLen(text string) int {
	authority, _, path := strings.Cut(text, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		return at
	}
	name, port, colon := strings.Cut(authority, ":")
	if !path || !colon || name == "" || strings.Contains(authority, "[") {
		return 0
	}
	if _, err := strconv.Atoi(port); err == nil || port == "" {
		return 0
	}
	return max(0, strings.IndexByte(text, '@'))
}
