package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of what is read of WWW-Authenticate.
const (
	maxChallengeBytes  = 16 << 10 // how long all WWW-Authenticate lines of an answer may be together
	maxChallenges      = 32       // how many challenges an answer may have
	maxChallengeParams = 64       // how many parameters one challenge may have
)

// A Challenge is one challenge of WWW-Authenticate (RFC 9110, 11.3 and 11.6.1).
type Challenge struct {
	Scheme  string  // the authentication scheme, as it was sent; compared without regard to case
	Token68 string  // the text that some schemes have in the place of parameters (RFC 9110, 11.2); "": none
	Params  []Param // the parameters in their order, without their quotes
}

// A Param is one parameter of a Challenge. Its name is compared without regard to case, and occurs
// once (RFC 9110, 11.2).
type Param struct {
	Name  string // the parameter's name, as it was sent
	Value string // the parameter's value, without the quotes and escapes with which WWW-Authenticate writes it
}

// Param returns the value of the parameter with this name, in upper or lower case; false: there is none.
func (c Challenge) Param(name string) (value string, ok bool) {
	for _, p := range c.Params {
		if strings.EqualFold(p.Name, name) {
			return p.Value, true
		}
	}
	return "", false
}

// String returns the challenge as it is written into a header (RFC 9110, 11.6.1). All values are
// quoted. A character that may not stand in a quoted string, or is not ASCII, becomes "?": no value
// can end the header.
func (c Challenge) String() string {
	var b strings.Builder
	b.WriteString(c.Scheme)
	if c.Token68 != "" {
		b.WriteString(" " + c.Token68)
	}
	for i, p := range c.Params {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(" " + p.Name + `="`)
		for _, r := range p.Value {
			switch {
			case r == '"' || r == '\\':
				b.WriteByte('\\')
				b.WriteRune(r)
			case r < ' ' || r > '~':
				b.WriteByte('?')
			default:
				b.WriteRune(r)
			}
		}
		b.WriteByte('"')
	}
	return b.String()
}

// A ChallengeError says where the WWW-Authenticate lines of an answer break the syntax of RFC 9110, 11, or have more than
// ParseChallenges reads.
type ChallengeError struct {
	LineNumber int    // which of the header lines is wrong; the first one is 1
	Offset     int    // how many bytes of the line stand before what is wrong; 0 also where the whole line or a challenge is
	Problem    string // what is wrong there
}

// Error returns the place and the problem in one line. Of the header's text, which the peer has chosen, it repeats
// at most the name of a parameter.
func (e *ChallengeError) Error() string {
	return fmt.Sprintf("WWW-Authenticate, line %d, byte %d: %s", e.LineNumber, e.Offset+1, e.Problem)
}

// ParseChallenges reads the lines of WWW-Authenticate (header.Values), each of which may have several
// challenges. A value without quotes may have any visible character except a comma and a quote:
// servers write URLs so. It returns those challenges that can be read, and of what cannot be read
// the first *ChallengeError: the rest of that line is left out, and so is a challenge that has a
// parameter twice, because readers could choose different ones. Nothing is read beyond
// maxChallengeBytes and maxChallenges.
func ParseChallenges(lines []string) ([]Challenge, error) {
	var all []Challenge
	var first error
	fail := func(err *ChallengeError) {
		if err != nil && first == nil {
			first = err
		}
	}
	total := 0
	for i, line := range lines {
		if total += len(line); total > maxChallengeBytes {
			fail(&ChallengeError{LineNumber: i + 1, Problem: "the header has more than 16 KiB"})
			break
		}
		s := &challengeScanner{text: line, lineNumber: i + 1}
		got, err := s.readChallenges()
		fail(err)
		for _, c := range got {
			if name := c.repeatedParam(); name != "" {
				fail(&ChallengeError{LineNumber: i + 1, Problem: fmt.Sprintf("a challenge has the parameter %.40q twice", name)})
				continue
			}
			if len(all) == maxChallenges {
				fail(&ChallengeError{LineNumber: i + 1, Problem: "there are more than 32 challenges"})
				return all, first
			}
			all = append(all, c)
		}
	}
	return all, first
}

// repeatedParam returns the name of a parameter that occurs twice; "": none does.
func (c Challenge) repeatedParam() string {
	for i, p := range c.Params {
		if slices.ContainsFunc(c.Params[:i], func(o Param) bool { return strings.EqualFold(o.Name, p.Name) }) {
			return p.Name
		}
	}
	return ""
}

// A challengeScanner parses one line of WWW-Authenticate. Its read methods move pos behind what they have
// read.
type challengeScanner struct {
	text       string // the header line that it reads
	pos        int    // how many bytes of text were read
	lineNumber int    // which header line it reads, for errors; the first line is 1
}

// syntaxError returns the error for a fault at pos; what says in words what is wrong there.
func (s *challengeScanner) syntaxError(what string) *ChallengeError {
	return &ChallengeError{LineNumber: s.lineNumber, Offset: s.pos, Problem: what}
}

// peek returns the next byte, and does not read it; 0 at the end. A NUL in the text looks like the end, but
// no caller looks for a NUL.
func (s *challengeScanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// takeWhile reads on while the bytes match, and returns them.
func (s *challengeScanner) takeWhile(matches func(byte) bool) string {
	start := s.pos
	for s.pos < len(s.text) && matches(s.text[s.pos]) {
		s.pos++
	}
	return s.text[start:s.pos]
}

// skipSpace reads spaces and tabs, and reports whether there were any.
func (s *challengeScanner) skipSpace() bool { return s.takeWhile(isSpace) != "" }

// skipEmptyElements skips empty elements of a list: commas and spaces.
func (s *challengeScanner) skipEmptyElements() {
	s.takeWhile(func(c byte) bool { return isSpace(c) || c == ',' })
}

// readChallenges reads the rest of the line. With a fault, all are the challenges before it, and the rest of
// the line is not read.
func (s *challengeScanner) readChallenges() (all []Challenge, fault *ChallengeError) {
	for s.skipEmptyElements(); s.pos < len(s.text); s.skipEmptyElements() {
		c, fault := s.readChallenge()
		if fault != nil {
			return all, fault
		}
		all = append(all, c)
	}
	return all, nil
}

// readChallenge reads one challenge: a scheme, and its parameters or its token68. It stops before the next
// scheme. A fault says where the rules are broken.
func (s *challengeScanner) readChallenge() (Challenge, *ChallengeError) {
	c := Challenge{Scheme: s.takeWhile(isTokenChar)}
	if c.Scheme == "" {
		return c, s.syntaxError("an authentication scheme should stand here")
	}
	if !s.skipSpace() {
		if s.pos < len(s.text) && s.peek() != ',' {
			return c, s.syntaxError("after an authentication scheme comes a space or a comma")
		}
		return c, nil
	}
	if t := s.readToken68(); t != "" {
		c.Token68 = t
		return c, nil
	}
	for {
		s.skipEmptyElements()
		before := s.pos
		p, ok, fault := s.readParam()
		if fault != nil {
			return c, fault
		}
		if !ok {
			s.pos = before
			return c, nil
		}
		if c.Params = append(c.Params, p); len(c.Params) > maxChallengeParams {
			return c, s.syntaxError("a challenge has more than 64 parameters")
		}
		s.skipSpace()
		if s.pos < len(s.text) && s.peek() != ',' {
			return c, s.syntaxError("after a parameter comes a comma")
		}
	}
}

// readToken68 reads a token68 (RFC 9110, 11.2) that ends at a comma or with the line. "": none stands
// there, and nothing was read.
func (s *challengeScanner) readToken68() string {
	start := s.pos
	t := s.takeWhile(isToken68Char)
	if t != "" {
		t += s.takeWhile(func(c byte) bool { return c == '=' })
		end := s.pos
		s.skipSpace()
		if s.pos == len(s.text) || s.peek() == ',' {
			return s.text[start:end]
		}
	}
	s.pos = start
	return ""
}

// readParam reads a parameter of a challenge, name=value or name="value". ok is false where none stands; what
// was read then is for the caller to read again. A fault: there is one (ok is true), and its value is missing or
// breaks the rules.
func (s *challengeScanner) readParam() (p Param, ok bool, fault *ChallengeError) {
	p.Name = s.takeWhile(isTokenChar)
	s.skipSpace()
	if p.Name == "" || s.peek() != '=' {
		return p, false, nil
	}
	s.pos++
	s.skipSpace()
	if s.peek() == '"' {
		p.Value, fault = s.readQuotedString()
		return p, true, fault
	}
	p.Value = s.takeWhile(func(c byte) bool { return c > ' ' && c < 0x7f && c != ',' && c != '"' })
	if p.Value == "" {
		return p, true, s.syntaxError("a parameter has no value")
	}
	return p, true, nil
}

// readQuotedString reads a quoted string (RFC 9110, 5.6.4) and returns its text, without the quotes and
// escapes.
func (s *challengeScanner) readQuotedString() (string, *ChallengeError) {
	start := s.pos
	s.pos++
	var b strings.Builder
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		switch {
		case c == '"':
			s.pos++
			return b.String(), nil
		case c == '\\' && s.pos+1 < len(s.text):
			s.pos++
			c = s.text[s.pos]
		}
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", s.syntaxError("a quoted string has a control character")
		}
		b.WriteByte(c)
		s.pos++
	}
	s.pos = start
	return "", s.syntaxError("a quoted string begins and does not end")
}

// isSpace reports whether c is a space or a tab.
func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// isAlnum reports whether c is an ASCII letter or digit.
func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isTokenChar reports whether c may stand in a token (RFC 9110, 5.6.2).
func isTokenChar(c byte) bool {
	return isAlnum(c) || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// isToken68Char reports whether c may stand in a token68 (RFC 9110, 11.2) before the "=" at its end.
func isToken68Char(c byte) bool { return isAlnum(c) || c != 0 && strings.IndexByte("-._~+/", c) >= 0 }

// The schemes that a Demand knows.
const (
	SchemeBearer = "Bearer" // the scheme of tokens that are bound to no key (RFC 6750)
	SchemeDPoP   = "DPoP"   // the scheme of tokens that are bound to a key (RFC 9449)
)

// A Demand is what a server asks of an OAuth client in its WWW-Authenticate challenges.
type Demand struct {
	AcceptsBearer    bool     // a challenge is of the scheme Bearer
	AcceptsDPoP      bool     // a challenge is of the scheme DPoP
	ResourceMetadata string   // the address of the server's metadata (RFC 9728, 5.1); "": it does not say
	Scopes           []string // the scopes that the request needs (RFC 6750, 3); nil: it does not say
	ErrorCode        string   // "invalid_token", "insufficient_scope", "use_dpop_nonce" ...; "": it names none
	ErrorDescription string   // the server's own words, which are foreign text
	DPoPAlgs         []string // the algorithms that DPoP proofs may be signed with (RFC 9449, 5.1); nil: it does not say
}

// DemandOf returns what challenges ask for (RFC 6750, 3; RFC 9728, 5.1; RFC 9449, 7.1). Of each value the
// first one counts that a Bearer or DPoP challenge has. The address of the metadata is taken from challenges
// of other schemes too if those have none.
func DemandOf(challenges []Challenge) Demand {
	var d Demand
	foreign := ""
	first := func(into *string, c Challenge, name string) {
		if v, ok := c.Param(name); ok && *into == "" {
			*into = v
		}
	}
	for _, c := range challenges {
		bearer, dpop := strings.EqualFold(c.Scheme, SchemeBearer), strings.EqualFold(c.Scheme, SchemeDPoP)
		if !bearer && !dpop {
			first(&foreign, c, "resource_metadata")
			continue
		}
		d.AcceptsBearer, d.AcceptsDPoP = d.AcceptsBearer || bearer, d.AcceptsDPoP || dpop
		first(&d.ResourceMetadata, c, "resource_metadata")
		first(&d.ErrorCode, c, "error")
		first(&d.ErrorDescription, c, "error_description")
		if scope, ok := c.Param("scope"); ok && d.Scopes == nil {
			d.Scopes = SplitScope(scope)
		}
		if algs, ok := c.Param("algs"); ok && dpop && d.DPoPAlgs == nil {
			d.DPoPAlgs = strings.Fields(algs)
		}
	}
	if d.ResourceMetadata == "" {
		d.ResourceMetadata = foreign
	}
	return d
}

// Challenges returns the challenges with which a server asks for d: one of Bearer, one of DPoP, or both, from which
// DemandOf reads d again. nil: d accepts neither scheme. DPoPAlgs are sent with DPoP only.
func (d Demand) Challenges() []Challenge {
	var params []Param
	add := func(name, value string) {
		if value != "" {
			params = append(params, Param{name, value})
		}
	}
	add("resource_metadata", d.ResourceMetadata)
	add("scope", JoinScope(d.Scopes))
	add("error", d.ErrorCode)
	add("error_description", d.ErrorDescription)
	var all []Challenge
	if d.AcceptsBearer {
		all = append(all, Challenge{Scheme: SchemeBearer, Params: slices.Clone(params)})
	}
	if d.AcceptsDPoP {
		add("algs", strings.Join(d.DPoPAlgs, " "))
		all = append(all, Challenge{Scheme: SchemeDPoP, Params: params})
	}
	return all
}

// SplitScope returns the values of a scope parameter (RFC 6749, 3.3), each once. nil: there is none.
func SplitScope(scope string) []string {
	var all []string
	for _, s := range strings.Split(scope, " ") {
		if s != "" && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// JoinScope returns the scope parameter of these values (RFC 6749, 3.3).
func JoinScope(scopes []string) string { return strings.Join(scopes, " ") }

// UnionScope returns the scopes of have, and after them those of more that have lacks: what a client asks for
// when a request needs more than it has (the specification's step-up authorization flow).
func UnionScope(have, more []string) []string {
	all := slices.Clone(have)
	for _, s := range more {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
