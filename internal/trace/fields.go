package trace

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
)

// sortedFields names headers, in the order of their names. Their values stay in the http.Header, except the last value of a header
// whose headerField keeps a member made of it. The zero value names none.
type sortedFields []headerField

// headerField is a header that has a value. It keeps the last member of JSON that was made of it, if the header had one value
// that is not long.
type headerField struct {
	name string // canonical name of the header

	clean     *redact.CleanMark // the Redactor's CleanMark when member was made; nil: there is no member
	value     []byte            // the only value that the header had when member was made
	member    []byte            // the header as a member of JSON, without secrets
	hadSecret bool              // there was a secret in value
}

// set replaces what f names by the headers of h that have values. It keeps none of the values.
func (f *sortedFields) set(h http.Header) {
	*f = (*f)[:0]
	for name, values := range h {
		if len(values) > 0 {
			*f = append(*f, headerField{name: name})
		}
	}
	slices.SortFunc(*f, func(a, b headerField) int { return strings.Compare(a.name, b.name) })
}

const (
	maxCachedFieldBytes = 128 // how long a header, name and value together, may be for headerField to keep its member
	maxCachedFields     = 32  // how many headers a request or reply may have for recentFields to keep them
)

// isShort reports whether recentFields may keep these fields: they are few, and their names not long.
func (f sortedFields) isShort() bool {
	return len(f) <= maxCachedFields && !slices.ContainsFunc(f, func(one headerField) bool { return len(one.name) > maxCachedFieldBytes })
}

// appendField appends a header, which has at least one value, to dst as a member of JSON. shown returns what is written in place of
// a value.
func appendField(dst []byte, name string, values []string, shown func(value string) string) []byte {
	dst = append(appendString(dst, name), ':')
	if len(values) == 1 { // one value is a string
		return appendString(dst, shown(values[0]))
	}
	for i, v := range values {
		dst = appendString(append(dst, "[,"[min(i, 1)]), shown(v))
	}
	return append(dst, ']')
}

// recentFields are the lists of headers that requests and replies had lately: most have the names of one of these lists, and many have
// its values. The zero value is empty.
type recentFields struct {
	all  [8]sortedFields // up to eight lists of headers, in no order
	next int             // index in all of the element that is replaced next
}

const (
	inRequest     = "http.req."      // begins the path of a request's header in Record.Redacted
	inResponse    = "http.resp."     // begins the path of a reply's header in Record.Redacted
	sessionHeader = "Mcp-Session-Id" // the header with the session id, which each Redactor takes out
)

// headerJSON returns headers without secrets, as they stand in the line; nil: there are none. It adds the paths of headers that
// had secrets, which begin with prefix, to Redacted. The bytes are good until reset.
func (m *recordMaker) headerJSON(d *redact.Redactor, h http.Header, prefix string) []byte {
	if len(h) == 0 {
		return nil
	}
	from := len(m.headers)
	usual := &m.recentFields
	for i := range usual.all {
		if f := usual.all[i]; len(f) == len(h) && m.appendFields(d, f, h, prefix) {
			return m.headers[from:len(m.headers):len(m.headers)]
		}
	}
	fields := &usual.all[usual.next]
	usual.next = (usual.next + 1) % len(usual.all)
	if fields.set(h); len(*fields) == 0 {
		return nil
	}
	m.appendFields(d, *fields, h, prefix)
	if !fields.isShort() {
		*fields = nil
	}
	return m.headers[from:len(m.headers):len(m.headers)]
}

// appendFields appends the headers that f names, with their values in h and without secrets, to m.headers. false: one of them
// has no value in h, and nothing is appended.
func (m *recordMaker) appendFields(d *redact.Redactor, f sortedFields, h http.Header, prefix string) bool {
	from, redacted := len(m.headers), len(m.Redacted)
	for i := range f {
		values := h[f[i].name]
		if len(values) == 0 {
			m.headers, m.Redacted = m.headers[:from], m.Redacted[:redacted]
			return false
		}
		m.headers = append(m.headers, "{,"[min(i, 1)])
		if m.appendHeader(d, &f[i], values) {
			m.listRedacted(prefix, f[i].name)
		}
	}
	m.headers = append(m.headers, '}')
	return true
}

// appendHeader appends the header that f names, with these values but without secrets, to m.headers, as a member of JSON. taken: there
// was a secret in it. It keeps a short member in f.
func (m *recordMaker) appendHeader(d *redact.Redactor, f *headerField, values []string) (taken bool) {
	clean := d.CleanMark() // asked for each header: meanwhile something may have been learned
	if f.clean == clean && len(values) == 1 && string(f.value) == values[0] {
		m.headers = append(m.headers, f.member...)
		return f.hadSecret
	}
	begin := len(m.headers)
	m.headers = appendField(m.headers, f.name, values, func(value string) string {
		shown := d.HeaderValue(f.name, value)
		taken = taken || shown != value
		return shown
	})
	if len(values) == 1 && len(f.name)+len(values[0]) <= maxCachedFieldBytes {
		f.clean, f.value, f.member, f.hadSecret = clean, append(f.value[:0], values[0]...), append(f.member[:0], m.headers[begin:]...), taken
	}
	return taken
}

// listRedacted adds to Redacted the path of a header in which there was a secret: prefix and the header's name.
func (m *recordMaker) listRedacted(prefix, name string) {
	path := ""
	switch {
	case name != sessionHeader:
		path = prefix + name
	case prefix == inRequest: // those that nearly all exchanges have need no memory
		path = inRequest + sessionHeader
	default:
		path = inResponse + sessionHeader
	}
	if m.Redacted == nil {
		m.Redacted = m.redactedPaths[:0]
	}
	m.Redacted = append(m.Redacted, path)
}
