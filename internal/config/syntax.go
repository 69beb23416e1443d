package config

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

// maxBrackets is how many opening brackets, { and [, a file may have, those in strings and comments included. So it also bounds how deeply
// objects and arrays are nested: the syntax parser recurses.
const maxBrackets = 50_000

// parseSyntax parses JSON with comments and trailing commas. If ok is false, the
// problem is recorded. The words are our own: those of the parser show what it
// found, which may be a secret.
func (p *parser) parseSyntax() (root hujson.Value, ok bool) {
	switch {
	case bytes.HasPrefix(p.data, []byte("\xff\xfe")), bytes.HasPrefix(p.data, []byte("\xfe\xff")):
		p.errorf(0, "the file is in UTF-16: save it as UTF-8")
		return root, false
	case !utf8.Valid(p.data):
		p.errorf(invalidUTF8(p.data), "this is not UTF-8: save the file as UTF-8")
		return root, false
	case bytes.Count(p.data, []byte("{"))+bytes.Count(p.data, []byte("[")) > maxBrackets:
		p.errorf(0, "the file has more than %d brackets", maxBrackets)
		return root, false
	}
	root, err := hujson.Parse(p.data)
	if err == nil {
		return root, true
	}
	// The only form in which the parser tells the place.
	var line, column int
	if _, scan := fmt.Sscanf(err.Error(), "hujson: line %d, column %d:", &line, &column); scan != nil {
		p.errorf(0, "this is not JSON")
		return root, false
	}
	at := min(p.lineOffsets[line-1]+column-1, len(p.data))
	p.errorf(at, "%s", p.explainSyntaxError(at, err.Error()))
	return root, false
}

// explainSyntaxError returns what is wrong with the syntax at an offset, in our words. err is the text of the syntax parser's error.
func (p *parser) explainSyntaxError(offset int, err string) string {
	if len(bytes.TrimSpace(p.data)) == 0 {
		return `the file is empty: write {"mcpServers": {}}`
	}
	if offset == len(p.data) || strings.Contains(err, "unexpected EOF") {
		return `the file ends too early: a quote, a bracket or the end of a comment is missing`
	}
	found, _ := utf8.DecodeRune(p.data[offset:])
	switch {
	case strings.Contains(err, "invalid literal") && found == '"':
		return `this string is not valid: a line break is written \n, a backslash \\ (also in Windows paths)`
	case strings.Contains(err, "invalid literal"):
		return `this is no value: write true, false, null, a number, or a string in double quotes`
	case strings.Contains(err, "at start of object name") || strings.Contains(err, "at start of value") && found == '\'':
		return fmt.Sprintf("found %q, want a name or value in double quotes", found)
	case strings.Contains(err, "after object name"):
		return fmt.Sprintf(`found %q, want ":" after the key`, found)
	case strings.Contains(err, "after object value"):
		return fmt.Sprintf(`found %q, want "," or "}": is a comma missing in front of it?`, found)
	case strings.Contains(err, "after array value"):
		return fmt.Sprintf(`found %q, want "," or "]": is a comma missing in front of it?`, found)
	case strings.Contains(err, "after top-level value"):
		return fmt.Sprintf("found %q after the end of the object: is there a bracket too many?", found)
	case strings.Contains(err, "at start of value"):
		return fmt.Sprintf("found %q, want a value", found)
	}
	return fmt.Sprintf("found %q, which cannot stand here", found)
}

// invalidUTF8 returns the offset of the first byte of data that is not valid UTF-8; len(data) if all of it is valid.
func invalidUTF8(data []byte) int {
	at := 0
	for at < len(data) {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return at
}

// lineStarts returns the offset at which each line of data begins.
func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, c := range data {
		if c == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// typeName returns what messages call the type of a JSON value, such as "an object".
func typeName(v hujson.Value) string {
	switch v.Value.Kind() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	}
	return "true or false"
}
