package redact

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sensitivity says whether a name tells that its value is a secret.
type sensitivity uint8

const (
	harmless      sensitivity = iota // the value is no secret
	alwaysSecret                     // the value is a secret, whatever it is
	countOrSecret                    // the value is no secret if it is a number, since it is a count ("maxTokens"), else it is one
)

// IsSensitive reports whether a name, of a member, header or variable, tells that its value is a secret.
func IsSensitive(name string) bool { return sensitivityOf(name) != harmless }

// sensitiveStems make a name sensitive wherever they stand in it, also with characters between their letters that are neither
// letters nor digits.
var sensitiveStems = []string{"password", "passwd", "passphrase", "apikey", "accesskey", "privatekey", "credential", "authorization"}

// sensitiveWords make a name sensitive if they are a word of it, or its end ("authtoken").
var sensitiveWords = []string{"secret", "token", "cookie"}

// sensitiveParts are sensitiveStems and sensitiveWords, each with the set of its letters.
var sensitiveParts = func() (all []sensitivePart) {
	for _, w := range append(append([]string(nil), sensitiveStems...), sensitiveWords...) {
		all = append(all, sensitivePart{w, letters(w)})
	}
	return all
}()

// sensitivePart is a stem or word that makes a name sensitive.
type sensitivePart struct {
	text    string // the stem or word, in lower case
	letters uint32 // the set of its letters
}

// A set of letters has a bit for each letter from a to z, in any case, and these.
const (
	nonASCII     = 1 << 30 // bit of a name with a character that is not ASCII: its set has the bits of all letters, too
	hasBackslash = 1 << 31 // bit of a name with a backslash
)

// letterSetOf has for each byte the set of letters that a name of this byte alone has.
var letterSetOf = func() (all [256]uint32) {
	for c := range all {
		switch lower := c | 0x20; {
		case c >= utf8.RuneSelf:
			all[c] = nonASCII | (nonASCII - 1)
		case lower >= 'a' && lower <= 'z':
			all[c] = 1 << (lower - 'a')
		case c == '\\':
			all[c] = hasBackslash
		}
	}
	return all
}()

// letters returns the set of the letters in a name: a bit for each from a to z, in any case, with nonASCII and hasBackslash.
func letters[T string | []byte](name T) (set uint32) {
	for i := range len(name) {
		set |= letterSetOf[name[i]]
	}
	return set
}

// sensitivityOf returns whether a name, whose escapes are decoded, is sensitive. Nearly all names cost one look at each letter.
func sensitivityOf[T string | []byte](name T) sensitivity {
	return sensitivityIn(name, letters(name))
}

// sensitivityIn is sensitivityOf for a name whose set of letters is set.
func sensitivityIn[T string | []byte](name T, set uint32) sensitivity {
	if len(name) < len("token") {
		return harmless
	}
	var room [maxShortNameBytes]byte
	joined := room[:0]
	for i := range sensitiveParts {
		p := &sensitiveParts[i]
		if set&p.letters != p.letters {
			continue
		}
		if set&nonASCII != 0 || len(name) > len(room) {
			return sensitivityOfWords(string(name))
		}
		if len(joined) == 0 {
			for i := range len(name) {
				if c := name[i] | 0x20; c >= 'a' && c <= 'z' {
					joined = append(joined, c)
				}
			}
		}
		if bytes.Contains(joined, []byte(p.text)) {
			return sensitivityOfWords(string(name))
		}
	}
	return harmless
}

// sensitivityOfWords returns whether any name, whose escapes are decoded, is sensitive: it takes the name apart into its words, which
// costs more than sensitivityIn.
func sensitivityOfWords(name string) sensitivity {
	joined, parts := splitWords(name)
	for _, stem := range sensitiveStems {
		if strings.Contains(joined, stem) {
			return alwaysSecret
		}
	}
	found := harmless
	for _, w := range sensitiveWords {
		if strings.HasSuffix(joined, w) {
			return alwaysSecret
		}
		for _, part := range append(parts, joined) {
			switch {
			case part == w:
				return alwaysSecret
			case strings.HasSuffix(part, w+"s"):
				found = countOrSecret
			}
		}
	}
	return found
}

// splitWords returns the letters and digits of a name in lower case, and its words: what stands
// between other characters, and in camelCase and HTTPServer.
func splitWords(name string) (joined string, parts []string) {
	var all, part strings.Builder
	flush := func() {
		if part.Len() > 0 {
			parts = append(parts, part.String())
			part.Reset()
		}
	}
	runes := []rune(name)
	for i, r := range runes {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			flush()
			continue
		}
		upper := unicode.IsUpper(r)
		if upper && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			flush()
		}
		r = lower(r)
		part.WriteRune(r)
		all.WriteRune(r)
	}
	flush()
	return all.String(), parts
}

// lower returns the lower case of a character; of the long s and the Kelvin sign, which are no ASCII, "s" and "k": some peers
// compare the names of members so.
func lower(r rune) rune {
	switch r {
	case 'ſ':
		return 's'
	case '\u212A': // Kelvin
		return 'k'
	}
	return unicode.ToLower(r)
}

// queryWords are names of query values that are credentials, though they are not sensitive otherwise. The first
// sessionQueryWords are names of session ids.
var queryWords = []string{"sessionid", "session", "sid", "key", "sig", "signature", "code", "auth", "jwt", "access"}

// sessionQueryWords is how many of queryWords, from the first on, are names of session ids.
const sessionQueryWords = 3

// isSensitiveInQuery reports whether the name of a value in a query tells that the value is a secret.
func isSensitiveInQuery(name []byte) bool {
	if sensitivityOf(name) != harmless {
		return true
	}
	return isQueryWord(name, queryWords)
}

// isSessionIDInQuery reports whether the name of a value in a query tells that the value is a session id.
func isSessionIDInQuery(name []byte) bool { return isQueryWord(name, queryWords[:sessionQueryWords]) }

// isQueryWord reports whether the name of a query value is one of list, or ends in "sessionid". list is queryWords, with which
// names that end in "signature" count, too, or the beginning of it. A name of more than 64 bytes counts as one.
func isQueryWord(name []byte, list []string) bool {
	if len(name) > 64 {
		return true
	}
	joined, _ := splitWords(string(name))
	for _, w := range list {
		if joined == w {
			return true
		}
	}
	return strings.HasSuffix(joined, "sessionid") || len(list) == len(queryWords) && strings.HasSuffix(joined, "signature")
}
