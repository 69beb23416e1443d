package trace

import (
	"maps"
	"net/http"
	"slices"

	"github.com/mcp-bridge/mcp-bridge/internal/trace/redact"
)

// Redact takes secrets out of a record that no Recorder has made, with what d knows. It changes nothing that the record
// refers to.
func (r *Record) Redact(d *redact.Redactor) {
	var changed bool
	switch {
	case r.Body.Text == nil:
	case r.Kind.IsMessage() || r.Kind == Drop:
		r.Body.Text, r.Redacted, _ = d.Message(r.Body.Text, nil)
	default:
		if r.Body.Text, changed = d.Text(r.Body.Text); changed {
			r.Redacted = append(r.Redacted, "raw")
		}
	}
	r.Method, r.Name, r.ID, r.Reason = d.Name(r.Method), d.Name(r.Name), d.ID(r.ID), d.String(r.Reason)
	if r.HTTP != nil {
		x := *r.HTTP
		if x.URL, changed = d.URL(x.URL); changed {
			r.Redacted = append(r.Redacted, "http.url")
		}
		x.RequestHeader, x.ResponseHeader = r.redactHeaders(d, x.RequestHeader, inRequest), r.redactHeaders(d, x.ResponseHeader, inResponse)
		x.Reason, x.Err = d.String(x.Reason), d.String(x.Err)
		r.HTTP = &x
	}
	if r.Event != nil {
		e := *r.Event
		for _, text := range []*string{&e.Program, &e.Client, &e.Version, &e.FromEventID, &e.Reason, &e.Err, &e.Text} {
			*text = d.String(*text)
		}
		r.Event = &e
	}
}

// redactHeaders returns a copy of h without secrets, and adds to Redacted, behind prefix, the names of headers that had some.
func (r *Record) redactHeaders(d *redact.Redactor, h http.Header, prefix string) http.Header {
	clean := make(http.Header, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			clean[name] = append(clean[name], d.HeaderValue(name, value))
		}
		if !slices.Equal(clean[name], h[name]) {
			r.Redacted = append(r.Redacted, prefix+name)
		}
	}
	return clean
}
