// Package toolfilter hides some tools of a server from its clients: they are
// neither listed, on any page, nor callable. It is a bridge.Dialer around
// another one and knows no transport.
//
// Names count, decoded from JSON and compared exactly. What a server would
// take for the same tool in another spelling (upper case, a space behind it)
// is another name to the filter, so a list of what is allowed is safer than
// one of what is ignored. Prose that mentions a tool (the server's
// instructions, errors, logs) is left as it is.
package toolfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/bridge"
)

// maxNameBytes is how many bytes the name of a tool may have. To match a pattern takes a time
// that grows with the name, which clients choose.
const maxNameBytes = 4 << 10

// Rules say by name which tools clients may see and call. The zero value
// hides none.
//
// A pattern is as for path.Match, and matches the whole name: '*' stands for
// any text, '?' for one character, [a-z] and [^a-z] for one of a class or none
// of it, and a backslash takes away the meaning of what follows. Unlike there,
// '*' and '?' stand for '/' too. Upper and lower case differ. Where there are rules, no tool
// has a name of more than 4 KiB: it is neither listed nor callable, whatever they say.
type Rules struct {
	Allow  []string // patterns of the tools that clients may see; none at all: they may see every one
	Ignore []string // patterns of tools that are hidden even if they match Allow
}

// Validate returns an error that names the first bad pattern, and says what
// is wrong with it.
func (r Rules) Validate() error {
	_, err := r.compile()
	return err
}

// Wrap returns a Dialer that hides tools of d's servers. It is d itself when
// there are no rules. With rules that Validate refuses, Dial fails.
func Wrap(d bridge.Dialer, r Rules) bridge.Dialer {
	if len(r.Allow) == 0 && len(r.Ignore) == 0 {
		return d
	}
	f, err := r.compile()
	return &dialer{server: d, filter: f, err: err}
}

// A dialer is the Dialer that Wrap returns.
type dialer struct {
	server bridge.Dialer // the Dialer that is wrapped
	filter *filter       // the compiled Rules; nil: err says why
	err    error         // what is wrong with the Rules, so that each Dial fails; nil: nothing
}

// Dial implements bridge.Dialer: it returns a Conn of server that hides tools, or err.
func (d *dialer) Dial(ctx context.Context) (bridge.Conn, error) {
	if d.err != nil {
		return nil, d.err
	}
	server, err := d.server.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return d.filter.wrapServer(server), nil
}

// A filter is compiled Rules. Any number of goroutines may use it.
type filter struct {
	allow  []pattern // the compiled patterns of Rules.Allow; nil: every tool is allowed
	ignore []pattern // the compiled patterns of Rules.Ignore: tools that match one are hidden
}

// A pattern is a compiled pattern of Rules.
type pattern struct {
	prefix []byte         // what each name that the pattern matches begins with; looked at first, since that is quick
	re     *regexp.Regexp // matches the whole name
}

// compile returns the filter of the rules, or an error that names the first bad pattern.
func (r Rules) compile() (*filter, error) {
	f := new(filter)
	for _, list := range []struct {
		from []string
		to   *[]pattern
	}{{r.Allow, &f.allow}, {r.Ignore, &f.ignore}} {
		for _, text := range list.from {
			p, err := compilePattern(text)
			if err != nil {
				return nil, fmt.Errorf("the tool pattern %q: %w", text, err)
			}
			*list.to = append(*list.to, p)
		}
	}
	return f, nil
}

// isVisibleName reports whether clients may see and call the tool of that name.
func (f *filter) isVisibleName(name []byte) bool {
	return len(name) <= maxNameBytes && !matchesAny(f.ignore, name) && (len(f.allow) == 0 || matchesAny(f.allow, name))
}

// matchesAny reports whether a tool's name matches one of the patterns.
func matchesAny(patterns []pattern, name []byte) bool {
	for _, p := range patterns {
		if bytes.HasPrefix(name, p.prefix) && p.re.Match(name) {
			return true
		}
	}
	return false
}

var (
	errEmpty         = errors.New("it is empty")                                                                        // the pattern is ""
	errNotUTF8       = errors.New("it is not UTF-8")                                                                    // the pattern is not UTF-8
	errEscape        = errors.New("nothing follows the last backslash")                                                 // the pattern ends with a backslash
	errUnclosedClass = errors.New("a [ has no ] (a [ that is meant as such is written \\[)")                            // a [ in the pattern has no ]
	errEmptyClass    = errors.New("there is nothing between [ and ]")                                                   // the pattern has [] or [^]
	errOpenRange     = errors.New("a - in [ ] has no character on one side (one that is meant as such is written \\-)") // a - in a class has no character on one side
	errBackwardRange = errors.New("a range in [ ] goes backwards")                                                      // a range in a class goes backwards, such as [z-a]
)

// compilePattern translates a pattern into a regular expression: path.Match itself
// cannot be told that '/' is a character like others.
func compilePattern(text string) (p pattern, err error) {
	switch {
	case text == "":
		return p, errEmpty
	case !utf8.ValidString(text):
		return p, errNotUTF8
	}
	var re strings.Builder
	re.WriteString(`\A(?s:`)
	literal := true
	for rest := text; rest != ""; {
		switch rest[0] {
		case '*':
			literal = false
			re.WriteString(".*")
			rest = strings.TrimLeft(rest, "*")
		case '?':
			literal = false
			re.WriteByte('.')
			rest = rest[1:]
		case '[':
			literal = false
			rest, err = translateClass(&re, rest[1:])
		default:
			var r rune
			r, rest, err = takeCharacter(rest)
			fmt.Fprintf(&re, `\x{%x}`, r)
			if literal {
				p.prefix = utf8.AppendRune(p.prefix, r)
			}
		}
		if err != nil {
			return p, err
		}
	}
	re.WriteString(`)\z`)
	p.re, err = regexp.Compile(re.String())
	return p, err
}

// takeCharacter takes the first character off text, which is not empty; behind a backslash, the one
// that follows. rest is what is left.
func takeCharacter(text string) (r rune, rest string, err error) {
	if text[0] == '\\' {
		if text = text[1:]; text == "" {
			return 0, "", errEscape
		}
	}
	r, n := utf8.DecodeRuneInString(text)
	return r, text[n:], nil
}

// translateClass writes a class of characters to the regular expression re. text is what stands
// behind its [; rest is what stands behind its ].
func translateClass(re *strings.Builder, text string) (rest string, err error) {
	re.WriteByte('[')
	if strings.HasPrefix(text, "^") {
		re.WriteByte('^')
		text = text[1:]
	}
	for n := 0; ; n++ {
		switch {
		case text == "":
			return "", errUnclosedClass
		case text[0] == ']' && n == 0:
			return "", errEmptyClass
		case text[0] == ']':
			re.WriteByte(']')
			return text[1:], nil
		}
		var low, high rune
		if low, text, err = takeBound(text); err != nil {
			return "", err
		}
		high = low
		if strings.HasPrefix(text, "-") {
			if high, text, err = takeBound(text[1:]); err != nil {
				return "", err
			}
		}
		if high < low {
			return "", errBackwardRange
		}
		fmt.Fprintf(re, `\x{%x}-\x{%x}`, low, high)
	}
}

// takeBound takes one character of a class, which may be one end of a range, off text. rest is what
// is left.
func takeBound(text string) (r rune, rest string, err error) {
	switch {
	case text == "":
		return 0, "", errUnclosedClass
	case text[0] == '-', text[0] == ']':
		return 0, "", errOpenRange
	}
	return takeCharacter(text)
}
