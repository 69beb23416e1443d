package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds of what is read of WWW-Authenticate.
const (
	maxChallengeBytes  = 16 << 10
	maxChallenges      = 32
	maxChallengeParams = 64
)

// A Challenge is one challenge of WWW-Authenticate (RFC 9110, 11.3 and 11.6.1).
type Challenge struct {
	Scheme  string  // as it was sent; compared without regard to case
	Token68 string  // what some schemes have in the place of parameters
	Params  []Param // in their order, without their quotes
}

// A Param is one parameter of a Challenge. Its name is compared without regard to case, and occurs
// once (RFC 9110, 11.2).
type Param struct{ Name, Value string }

// Param returns the value of a parameter.
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

// A ChallengeError says where a WWW-Authenticate header breaks RFC 9110, 11.
type ChallengeError struct {
	LineNumber int    // which of the header lines; the first one is 1
	Offset     int    // how many bytes stand before the place
	Problem    string // what is wrong there
}

// Error returns all of it. The header's text is not in it.
func (e *ChallengeError) Error() string {
	return fmt.Sprintf("WWW-Authenticate, line %d, byte %d: %s", e.LineNumber, e.Offset+1, e.Problem)
}

// ParseChallenges reads the lines of WWW-Authenticate (header.Values), each of which may have several
// challenges. A value without quotes may have any visible character except a comma and a quote:
// servers write URLs so. It returns those challenges that can be read, and of what cannot be read
// the first *ChallengeError: the rest of that line is left out, and so is a challenge that has a
// parameter twice, because readers could choose different ones.
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

// A challengeScanner reads one header line.
type challengeScanner struct {
	text       string
	pos        int
	lineNumber int
}

func (s *challengeScanner) syntaxError(what string) *ChallengeError {
	return &ChallengeError{LineNumber: s.lineNumber, Offset: s.pos, Problem: what}
}

// peek returns the next byte; 0 at the end. A NUL in the text is no character of any rule here.
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

func (s *challengeScanner) skipSpace() bool { return s.takeWhile(isSpace) != "" }

// skipEmptyElements skips empty elements of a list: commas and spaces.
func (s *challengeScanner) skipEmptyElements() {
	s.takeWhile(func(c byte) bool { return isSpace(c) || c == ',' })
}

// readChallenges reads to the end, and returns what came before an error.
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

// readChallenge reads a scheme and what belongs to it. It stops before the next scheme.
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

// readParam reads a parameter. ok is false where no parameter stands; the caller resets pos then.
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

// readQuotedString reads a quoted string (RFC 9110, 5.6.4).
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

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isTokenChar is tchar of RFC 9110, 5.6.2.
func isTokenChar(c byte) bool {
	return isAlnum(c) || c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isToken68Char(c byte) bool { return isAlnum(c) || c != 0 && strings.IndexByte("-._~+/", c) >= 0 }

// The schemes that a Demand knows.
const (
	SchemeBearer = "Bearer" // RFC 6750
	SchemeDPoP   = "DPoP"   // RFC 9449
)

// A Demand is what a server asks of an OAuth client in its WWW-Authenticate challenges.
type Demand struct {
	AcceptsBearer, AcceptsDPoP bool     // whether it accepts tokens of these schemes
	ResourceMetadata           string   // address of its metadata (RFC 9728, 5.1)
	Scopes                     []string // what the request needs (RFC 6750, 3); nil: it does not say
	ErrorCode                  string   // invalid_token, insufficient_scope, use_dpop_nonce ...
	ErrorDescription           string   // foreign text
	DPoPAlgs                   []string // algorithms for DPoP proofs (RFC 9449, 5.1)
}

// DemandOf reads challenges (RFC 6750, 3; RFC 9728, 5.1; RFC 9449, 7.1). Each value is the first one
// that a Bearer or DPoP challenge has. The address of the metadata is taken from other schemes too
// if those have none.
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

// Challenges returns what a server sends: a complete challenge for each scheme it takes, so that
// DemandOf returns the same Demand.
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

// UnionScope returns all of both, each once, in their order: what a client asks for when a request
// needs more than it has (the specification's step-up authorization flow).
func UnionScope(have, more []string) []string {
	all := slices.Clone(have)
	for _, s := range more {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
