// Package redact takes secrets out of what is traced: out of messages, headers, URLs and lines. It
// works on their bytes: what it leaves stands as it was.
package redact

import (
	"bytes"
	"encoding/base64"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Placeholder stands where something was taken out.
const Placeholder = "[redacted]"

const (
	// minSecretBytes is the length of the shortest secret that is looked for. Shorter ones occur by chance.
	minSecretBytes = 4

	// minLineBytes is how long a line of a secret of several lines must be, in bytes, to be looked for by itself, too.
	minLineBytes = 16
)

// Options say what is taken out of a trace, beside what always is.
type Options struct {
	// Secrets are values that are taken out wherever they occur. Those shorter than four bytes, and words
	// such as "true" and "debug", are ignored: nothing would be left.
	Secrets []string

	// Headers are names of headers whose values are taken out, beside those that are known to
	// carry credentials.
	Headers []string

	// Rules are what a user adds: "re:" and a regular expression, what it matches is taken out of
	// strings, headers and lines; or the path of a member of a message, "params.arguments.pin", where *
	// stands for any member or element.
	Rules []string

	// Off leaves all in but session ids and requestState, which nobody may see (C.4.2). The other Options count for nothing then.
	Off bool
}

// Redactor takes secrets out of what is traced. A string that it has taken out because of a name or a path, it takes out of all
// that follows, unless it may be a word. Its methods may be called concurrently, but for Inherit.
type Redactor struct {
	off           bool                               // Options.Off: nearly all is left in
	secrets       [][]byte                           // Options.Secrets in all their spellings, the longest first
	prefilter     *prefilter                         // finds out that none of secrets stands in a text
	hasEscapable  bool                               // isEscapable holds for one of secrets
	learned       *learnedSecrets                    // strings that were taken out because of a name or a path; may be shared with another Redactor: see Inherit
	secretHeaders map[string]bool                    // by canonical name: headers of whose values nothing is shown
	headerKinds   map[string]headerKind              // by name: the kinds of commonHeaders
	rulePaths     [][]string                         // those of Options.Rules that are paths, split at the dots
	rulePatterns  []*regexp.Regexp                   // those of Options.Rules that begin with "re:"
	lastCleanMark atomic.Pointer[CleanMark]          // what the method CleanMark has returned last; nil: nothing yet
	cleanNames    [32]atomic.Pointer[knownCleanName] // the latest names without secrets, by some of their bytes: most messages have one of few
}

// CleanMark stands for all values that a Redactor looks for at one time. Who keeps the pointer with a message in which nothing was
// found knows that nothing would be found now, as long as the Redactor's method CleanMark returns the same pointer.
type CleanMark struct {
	learned *learnedSet // the values that had been learned at that time
}

// CleanMark returns the mark of all values that d looks for now. It returns the same one until another value was learned.
func (d *Redactor) CleanMark() *CleanMark {
	set := d.learned.set.Load()
	if c := d.lastCleanMark.Load(); c != nil && c.learned == set {
		return c
	}
	c := &CleanMark{set}
	d.lastCleanMark.Store(c)
	return c
}

// IsPlainID reports whether an id, as JSON, is a whole number of digits alone in which there is surely no secret.
func (d *Redactor) IsPlainID(id string) bool {
	for i := range len(id) {
		if id[i] < '0' || id[i] > '9' {
			return false
		}
	}
	return id != "" && !d.mayHoldSecret(id)
}

// plainValues are values, in lower case, that are not looked for elsewhere, though they are in an environment or were taken out
// because of a name.
var plainValues = []string{"true", "false", "none", "null", "debug", "info", "warn", "warning", "error", "trace", "test", "production",
	"development", "staging", "utf-8", "utf8", "http", "https", "stdio", "localhost", "127.0.0.1", "json", "text"}

// credentialHeaders are headers whose values are credentials, though not all of their names are sensitive.
var credentialHeaders = []string{"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "Dpop", sessionHeader}

// IsCredentialHeader reports whether the value of a header is one that nobody else may know, by the
// header's name.
func IsCredentialHeader(name string) bool {
	return slices.Contains(credentialHeaders, textproto.CanonicalMIMEHeaderKey(name)) || IsSensitive(name)
}

// urlHeaders are the headers whose values are URLs, or may be: of Mcp-Name, the URI of a resource.
var urlHeaders = []string{"Location", "Content-Location", "Referer", "Mcp-Name"}

// commonHeaders are headers that most exchanges have: New finds out their headerKinds, so that this is not done for each
// exchange.
var commonHeaders = []string{"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Connection", "Content-Length",
	"Content-Type", "Date", "Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Origin", "Referer", "Traceparent", "User-Agent", "Vary",
	"X-Accel-Buffering", sessionHeader}

const sessionHeader = "Mcp-Session-Id" // the header with the session id, which is taken out also with Options.Off

// New returns a Redactor. The error says which of the Rules is wrong.
func New(o Options) (*Redactor, error) {
	d := &Redactor{off: o.Off, secretHeaders: map[string]bool{sessionHeader: true}, learned: new(learnedSecrets)}
	defer d.classifyCommonHeaders()
	if o.Off {
		return d, nil
	}
	for _, h := range append(credentialHeaders, o.Headers...) {
		d.secretHeaders[textproto.CanonicalMIMEHeaderKey(h)] = true
	}
	for _, rule := range o.Rules {
		if text, ok := strings.CutPrefix(rule, "re:"); ok {
			pattern, err := regexp.Compile(text)
			if err != nil {
				return nil, err
			}
			d.rulePatterns = append(d.rulePatterns, pattern)
			continue
		}
		d.rulePaths = append(d.rulePaths, strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(rule), "."))
	}
	for _, s := range o.Secrets {
		d.addSpellings(s)
	}
	// The longest first: one secret may be part of another.
	slices.SortFunc(d.secrets, func(a, b []byte) int { return len(b) - len(a) })
	d.prefilter = newPrefilter(d.secrets)
	return d, nil
}

// classifyCommonHeaders sets headerKinds, once secretHeaders is known.
func (d *Redactor) classifyCommonHeaders() {
	d.headerKinds = make(map[string]headerKind, len(commonHeaders))
	for _, name := range commonHeaders {
		d.headerKinds[name] = d.headerKindOf(name)
	}
}

// Inherit has d take out what from has learned, and share with from what either learns from now on. Nobody uses d yet.
func (d *Redactor) Inherit(from *Redactor) { d.learned = from.learned }

// addSpellings adds a secret to secrets in each way in which it may be spelled, and the parts of it that are secrets by
// themselves: long lines, the token behind "Bearer", values with sensitive names in JSON.
func (d *Redactor) addSpellings(s string) {
	d.addSecret(s)
	d.addSecret(url.QueryEscape(s))
	d.addSecret(url.PathEscape(s))
	if strings.Contains(s, "\n") {
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); len(line) >= minLineBytes {
				d.addSecret(line)
			}
		}
	}
	if scheme, value, ok := strings.Cut(s, " "); ok && len(scheme) <= len("Negotiate") && !strings.Contains(value, " ") {
		d.addSecret(value) // Bearer TOKEN
		if plain, err := base64.StdEncoding.DecodeString(value); err == nil && utf8.Valid(plain) {
			d.addSecret(string(plain))
		}
	}
	for _, found := range (&walk{redactor: d, text: []byte(s)}).sensitiveStrings() {
		d.addSecret(found)
	}
}

// addSecret adds a value as it is to secrets, unless it is too short, a plain value, a small number, or there already.
func (d *Redactor) addSecret(s string) {
	if len(s) < minSecretBytes || slices.Contains(plainValues, strings.ToLower(s)) {
		return
	}
	if slices.ContainsFunc(d.secrets, func(b []byte) bool { return string(b) == s }) {
		return
	}
	if n, err := strconv.Atoi(s); err == nil && n < 1e5 { // a port, a size
		return
	}
	d.secrets = append(d.secrets, []byte(s))
	d.hasEscapable = d.hasEscapable || isEscapable([]byte(s))
}

// Message takes secrets, and the values in extra, out of a message, which is valid JSON. out is message itself if there are none in
// it, else a copy; if a secret would still stand in that, out is the JSON string of Placeholder alone. redacted are the paths of
// what was taken out, such as "params.arguments.token". found are strings that were taken out because of a name or a path, and not
// for what they are: they may be the extra values for an answer to the message.
func (d *Redactor) Message(message []byte, extra [][]byte) (out []byte, redacted []string, found [][]byte) {
	if d.off && len(extra) == 0 && !mayHaveRequestState(message) || d.isClean(message, extra) {
		return message, nil, nil
	}
	w := walkPool.Get().(*walk)
	defer w.release()
	w.redactor, w.text, w.extraValues = d, message, extra
	w.run()
	if len(w.cuts) == 0 {
		return message, nil, nil
	}
	if found = w.removedValues; len(found) > 0 { // the same values may stand elsewhere in the message
		*w = walk{redactor: d, text: message, stack: w.stack[:0], cuts: w.cuts[:0], extraValues: append(found, extra...)}
		w.run()
		if !d.off {
			d.learned.add(found)
		}
	}
	if out = w.applyCuts(); d.containsSecret(out) {
		return []byte(`"` + Placeholder + `"`), []string{"*"}, found
	}
	return out, w.paths, found
}

// mayHaveRequestState reports whether a message may have a member requestState. It is false only if that is sure.
func mayHaveRequestState(message []byte) bool {
	return bytes.Contains(message, []byte("requestState")) || bytes.Contains(message, []byte(`\u`))
}

// containsSecret reports whether a secret or a learned value stands in text as it is, without any escape decoded.
func (d *Redactor) containsSecret(text []byte) bool {
	holds := func(s []byte) bool { return bytes.Contains(text, s) && !strings.Contains(Placeholder, string(s)) }
	return d.prefilter.mayBeIn(text) && slices.ContainsFunc(d.secrets, holds) || slices.ContainsFunc(d.learned.valuesMaybeIn(text), holds)
}

// Text takes secrets out of a text that is no JSON: a line of stderr, an error. changed says whether there were any; if not, out is
// text itself. With Options.Off, only session ids in URLs are taken out.
func (d *Redactor) Text(text []byte) (out []byte, changed bool) {
	cuts := d.appendTextCuts(nil, text, nil)
	if !d.off {
		cuts, _ = appendAssignmentCuts(cuts, text)
	}
	if len(cuts) == 0 {
		return text, false
	}
	return applyCuts(text, cuts), true
}

// String takes secrets out of a text that is no JSON, as Text does.
func (d *Redactor) String(text string) string {
	if text == "" || !d.mayHoldSecret(text) && strings.IndexByte(text, '=') < 0 && strings.IndexByte(text, ':') < 0 {
		return text
	}
	out, changed := d.Text([]byte(text))
	if !changed {
		return text
	}
	return string(out)
}

// URL takes out of a URL the values of its query and fragment, its user and password, and secrets; with Options.Off, only session ids.
// changed says whether there were any.
func (d *Redactor) URL(text string) (out string, changed bool) {
	if !d.mayHoldSecret(text) && !strings.ContainsAny(text, urlParts) {
		return text, false
	}
	raw := []byte(text)
	cuts := d.appendURLCuts(nil, raw, true)
	cuts = d.appendTextCuts(cuts, raw, nil)
	if len(cuts) == 0 {
		return text, false
	}
	return string(applyCuts(raw, cuts)), true
}

// HeaderValue returns a value of the header name without secrets, or Placeholder (perhaps behind "Bearer" or "Basic") if all of
// it may be one. With Options.Off, only the session id is taken out.
func (d *Redactor) HeaderValue(name, value string) (clean string) {
	if value == "" {
		return ""
	}
	kind, known := d.headerKinds[name]
	if !known {
		kind = d.headerKindOf(textproto.CanonicalMIMEHeaderKey(name))
	}
	switch kind {
	case textHeader:
		return d.String(value)
	case urlHeader:
		clean, _ := d.URL(value)
		return clean
	case verbatimHeader:
		return value
	}
	for _, scheme := range []string{"Bearer ", "Basic "} {
		if len(value) > len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
			return scheme + Placeholder
		}
	}
	return Placeholder
}

// headerKind says what is shown of a header's value.
type headerKind uint8

const (
	secretHeader   headerKind = iota // nothing of the value is shown, but for the scheme "Bearer" or "Basic"
	textHeader                       // the value is a text: secrets are taken out of it
	urlHeader                        // the value is a URL: its query values, user, password and secrets are taken out
	verbatimHeader                   // the value is shown as it is, because of Options.Off
)

// headerKindOf returns the headerKind of a header, by its canonical name.
func (d *Redactor) headerKindOf(canonical string) headerKind {
	switch {
	case d.secretHeaders[canonical]:
		return secretHeader
	case d.off:
		return verbatimHeader
	case strings.HasPrefix(canonical, "Mcp-Param-"), // the twin of an argument, which may be a secret
		sensitivityOf(canonical) != harmless:
		return secretHeader
	case slices.Contains(urlHeaders, canonical):
		return urlHeader
	}
	return textHeader
}

// cut is a part of a text that is taken out.
type cut struct {
	from, to    int    // the part is text[from:to]
	replacement string // what stands in its place
}

// applyCuts returns a copy of text with each of cuts replaced. Cuts may overlap: then the first, or the longer of two that
// begin together, decides. It sorts cuts.
func applyCuts(text []byte, cuts []cut) []byte {
	slices.SortStableFunc(cuts, func(a, b cut) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to // the larger one first: it decides what stands there
	})
	out := make([]byte, 0, len(text)+len(cuts)*len(Placeholder))
	at := 0
	for _, c := range cuts {
		if c.from < at { // the cut before takes out all of it, or its beginning
			at = max(at, c.to)
			continue
		}
		out = append(append(out, text[at:c.from]...), c.replacement...)
		at = c.to
	}
	return append(out, text[at:]...)
}

// appendTextCuts appends the cuts of all in text that is to be taken out wherever it stands: secrets, learned and extra values,
// what matches a rule, and credentials in URLs. No escape in text is decoded.
func (d *Redactor) appendTextCuts(cuts []cut, text []byte, extra [][]byte) []cut {
	if d.prefilter.mayBeIn(text) {
		cuts = appendValueCuts(cuts, text, d.secrets)
	}
	cuts = appendValueCuts(cuts, text, d.learned.valuesMaybeIn(text))
	cuts = appendValueCuts(cuts, text, extra)
	for _, p := range d.rulePatterns {
		for _, at := range p.FindAllIndex(text, -1) {
			if at[1] > at[0] {
				cuts = append(cuts, cut{at[0], at[1], Placeholder})
			}
		}
	}
	return d.appendURLCuts(cuts, text, false)
}

// appendValueCuts appends a cut for each place in text where one of values stands.
func appendValueCuts(cuts []cut, text []byte, values [][]byte) []cut {
	for _, s := range values {
		for at := 0; ; {
			i := bytes.Index(text[at:], s)
			if i < 0 {
				break
			}
			cuts = append(cuts, cut{at + i, at + i + len(s), Placeholder})
			at += i + len(s)
		}
	}
	return cuts
}

// appendURLCuts appends the cuts of credentials in URLs that stand in text: values of queries and fragments whose names tell
// it, and user and password. whole: text is nothing but a URL, and all values of its query and fragment are taken out. With
// Options.Off only session ids are.
func (d *Redactor) appendURLCuts(cuts []cut, text []byte, whole bool) []cut {
	until := until
	if whole {
		until = func(text []byte, stops string) int {
			if i := bytes.IndexAny(text, stops); i >= 0 {
				return i
			}
			return len(text)
		}
	}
	some := whole || bytes.IndexByte(text, '=') >= 0
	for at := 0; some; {
		i := bytes.IndexAny(text[at:], "?#&")
		if i < 0 {
			break
		}
		at += i + 1
		end := at + until(text[at:], "=?#&")
		name := text[at:end]
		if end == len(text) || text[end] != '=' {
			if whole && !d.off && end > at {
				cuts = append(cuts, cut{at, end, Placeholder})
			}
			continue
		}
		from := end + 1
		at = from + until(text[from:], "&#")
		if plain, err := url.QueryUnescape(string(name)); err == nil {
			name = []byte(plain)
		}
		if at > from && (isSessionIDInQuery(name) || !d.off && (whole || isSensitiveInQuery(name))) {
			cuts = append(cuts, cut{from, at, Placeholder})
		}
	}
	if d.off {
		return cuts
	}
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte("://"))
		if i < 0 {
			return cuts
		}
		at += i + len("://")
		host := text[at : at+until(text[at:], "/?#")]
		if n := bytes.LastIndexByte(host, '@'); n > 0 {
			cuts = append(cuts, cut{at, at + n, Placeholder})
		}
	}
}

// until returns how many bytes of text there are before the first of the characters stops, or before one with which every URL and
// every value without quotes ends: a space, a control character, or one of "<>`. len(text): there is none.
func until(text []byte, stops string) int {
	for i, c := range text {
		if c <= ' ' || c == '"' || c == '<' || c == '>' || c == '`' || strings.IndexByte(stops, c) >= 0 {
			return i
		}
	}
	return len(text)
}

// appendAssignmentCuts appends the cuts of values that stand behind a sensitive name and "=" or ":" in a text. sure is false if
// the end of a value cannot be told: then the last cut goes to the end of the text.
func appendAssignmentCuts(cuts []cut, text []byte) (_ []cut, sure bool) {
	end := 0 // of the last value without quotes: a value that begins inside of it ends there, too
	for i, c := range text {
		if c != '=' && c != ':' {
			continue
		}
		name := bytes.TrimRight(text[:i], " \t\r\n\"'\\")
		start := len(name)
		for start > 0 && len(name)-start < 64 && isNameByte(name[start-1]) {
			start--
		}
		if sensitivityOf(name[start:]) == harmless {
			continue
		}
		from := skipSpace(text, i+1)
		for _, scheme := range []string{"bearer ", "basic "} {
			if rest := text[from:]; len(rest) > len(scheme) && bytes.EqualFold(rest[:len(scheme)], []byte(scheme)) {
				from += len(scheme)
			}
		}
		if from >= len(text) {
			continue
		}
		to := from
		switch first := text[from]; first {
		case '{', '[', '\\':
			return append(cuts, cut{from, len(text), Placeholder}), false
		case '"', '\'':
			from++
			if to = from; first == '"' {
				to = endOfString(text, from)
			} else if n := bytes.IndexByte(text[from:], first); n >= 0 {
				to = from + n + 1
			} else {
				to = len(text)
			}
			if to > from && text[to-1] == first {
				to--
			}
		default:
			if from >= end {
				end = from + until(text[from:], "',;)}")
			}
			to = end
		}
		if to > from {
			cuts = append(cuts, cut{from, to, Placeholder})
		}
	}
	return cuts, true
}

// isNameByte reports whether a byte may belong to the name in front of an assignment: a letter, a digit, "_", "-" or no ASCII.
func isNameByte(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= utf8.RuneSelf
}

// ID returns an id, or Placeholder in its place if there is a secret in it.
func (d *Redactor) ID(id jsonrpc.ID) jsonrpc.ID {
	text, ok := jsonrpc.Text([]byte(id.String()))
	if ok && len(d.appendTextCuts(nil, []byte(text), nil)) > 0 || !ok && d.containsSecret([]byte(id.String())) {
		return jsonrpc.StringID(Placeholder)
	}
	return id
}

// Name returns a method, the name of a tool or a URI without secrets, and of a URI without what URL takes out; with
// Options.Off, as it is. A name without secrets costs little, and less if it has come lately.
func (d *Redactor) Name(s string) string {
	if d.off || s == "" {
		return s
	}
	at := &d.cleanNames[(len(s)+3*int(s[0])+5*int(s[len(s)/2])+7*int(s[len(s)-1]))%len(d.cleanNames)]
	clean := d.CleanMark()
	if known := at.Load(); known != nil && known.asOf == clean && known.name == s {
		return s
	}
	out, changed := d.URL(s)
	if !changed && len(s) <= maxShortNameBytes {
		at.Store(&knownCleanName{clean, s})
	}
	return out
}

// knownCleanName is a name in which there was nothing to take out.
type knownCleanName struct {
	asOf *CleanMark // what the Redactor looked for when the name was looked through
	name string     // the name
}

// urlParts are characters of which a URL has at least one if it has a query, a fragment, or a user and password.
const urlParts = "?#&@"

// mayHoldSecret reports whether a short text may have a secret or a learned value in it, or there are rules that are patterns.
// It is false only if that is sure.
func (d *Redactor) mayHoldSecret(s string) bool {
	return len(d.rulePatterns) > 0 || d.prefilter.mayBeInName(s) || d.learned.mayBeInName(s)
}

// Error returns the text of an error without secrets; "" for nil.
func (d *Redactor) Error(err error) string {
	if err == nil {
		return ""
	}
	return d.String(err.Error())
}
