package trace

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
)

// headerField is a header and its values, of which there is one at least.
type headerField struct {
	name   string
	values []string
}

// sortedFields are headers in the order of their names. The zero value has none.
type sortedFields struct {
	all   []headerField
	order []int // indexes of all: to move these costs less, because the garbage collector need not hear of it
}

// set makes f the headers that have values.
func (f *sortedFields) set(h http.Header) {
	if f.setValues(h) {
		return
	}
	clear(f.all)
	f.all, f.order = f.all[:0], f.order[:0]
	for name, values := range h {
		if len(values) > 0 {
			f.order = append(f.order, len(f.all))
			f.all = append(f.all, headerField{name, values})
		}
	}
	slices.SortFunc(f.order, func(a, b int) int { return strings.Compare(f.all[a].name, f.all[b].name) })
}

// setValues is set for headers that have the names of those before, as most exchanges have: their order is known. false: they
// have others.
func (f *sortedFields) setValues(h http.Header) bool {
	if len(h) != len(f.all) {
		return false
	}
	for i := range f.all {
		values := h[f.all[i].name]
		if len(values) == 0 {
			return false
		}
		f.all[i].values = values
	}
	return true
}

// release forgets the values, and keeps the names and their memory unless they are many or long.
func (f *sortedFields) release() {
	long := len(f.all) > maxReusedFields
	for i := range f.all {
		f.all[i].values = nil
		long = long || len(f.all[i].name) > maxCachedField
	}
	if long {
		*f = sortedFields{}
	}
}

// appendField appends a header as a member. shown returns what stands there of a value.
func appendField(dst []byte, f headerField, shown func(value string) string) []byte {
	dst = append(appendString(dst, f.name), ':')
	if len(f.values) == 1 { // one value is a string
		return appendString(dst, shown(f.values[0]))
	}
	for i, v := range f.values {
		dst = appendString(append(dst, "[,"[min(i, 1)]), shown(v))
	}
	return append(dst, ']')
}

// maxCachedField is how long a name and its value are, in bytes, of which a fieldCache keeps the member.
const maxCachedField = 128

// fieldCache has the latest headers in which there was nothing to take out: most exchanges have the same ones. The zero value is
// empty.
type fieldCache [64]cachedField

// cachedField is a header with one value, and its member.
type cachedField struct {
	clean       *redact.Clean // nil: there is none
	name, value string
	member      []byte
}

// slot returns where a header is kept.
func (u *fieldCache) slot(f headerField) *cachedField {
	hash := uint(len(f.name))
	if v := f.values[0]; v != "" {
		hash += uint(len(v))<<2 + uint(v[0]) + uint(v[len(v)-1])<<4
	}
	return &u[hash%uint(len(u))]
}

// matches reports whether f is kept here, and still as it is to be shown.
func (u *cachedField) matches(f headerField, clean *redact.Clean) bool {
	return u.clean == clean && len(f.values) == 1 && u.value == f.values[0] && u.name == f.name
}

// keep keeps a header, in the place of another one.
func (u *cachedField) keep(f headerField, clean *redact.Clean, member []byte) {
	if v := f.values[0]; len(f.values) == 1 && len(f.name)+len(v) <= maxCachedField {
		u.clean, u.name, u.value, u.member = clean, f.name, v, append(u.member[:0], member...)
	}
}

const (
	inRequest     = "http.req."
	inResponse    = "http.resp."
	sessionHeader = "Mcp-Session-Id"
)

// header returns headers without secrets, as they stand in the line. It lists the names of those that had some,
// behind prefix.
func (m *recordMaker) header(d *redact.Redactor, h http.Header, prefix string) []byte {
	fields := &m.requestFields
	if prefix == inResponse {
		fields = &m.responseFields
	}
	if fields.set(h); len(fields.all) == 0 {
		return nil
	}
	from := len(m.headers)
	for i, at := range fields.order {
		f := fields.all[at]
		m.headers = append(m.headers, "{,"[min(i, 1)])
		if m.field(d, f) {
			m.noteRedacted(prefix, f.name)
		}
	}
	m.headers = append(m.headers, '}')
	return m.headers[from:len(m.headers):len(m.headers)]
}

// field appends one header, as it stands in the line. taken: there was a secret in it.
func (m *recordMaker) field(d *redact.Redactor, f headerField) (taken bool) {
	clean := d.Clean() // for this header alone: by the next one, something may have been learned
	usual := m.fieldCache.slot(f)
	if usual.matches(f, clean) {
		m.headers = append(m.headers, usual.member...)
		return false
	}
	begin := len(m.headers)
	m.headers = appendField(m.headers, f, func(value string) string {
		shown := d.Field(f.name, value)
		taken = taken || shown != value
		return shown
	})
	if !taken {
		usual.keep(f, clean, m.headers[begin:])
	}
	return taken
}

// noteRedacted lists a header in which there was a secret.
func (m *recordMaker) noteRedacted(prefix, name string) {
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
