package remote

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
)

// noteOdd looks at a reply for what breaks the rules of event streams and of replies.
func (p *prober) noteOdd(r *probe.Reply) {
	for _, f := range r.Faults() {
		if f.Kind == probe.OddLine && r.Events == 0 {
			continue // it is no event stream at all: noteLabel says so
		}
		severity, means := doctor.Error, "Clients that follow the standard do not get the message, and wait for it until they give up."
		if f.Kind == probe.OddCR {
			severity, means = doctor.Note, "The standard allows it, but some clients take such a stream for one endless line."
		}
		p.add("H22", severity, "The event stream is malformed: "+f.Kind, f.Line, means,
			"Have the server, or whatever changes its streams on the way, write \"data: \" before each line of a message and a blank line after it; messages are UTF-8, and their event name is \"message\" or none.")
	}
	if r.ID == 0 || r.Err != nil && r.Status == 0 {
		return
	}
	p.noteLabel(r)
	p.noteIDs(r)
}

// noteLabel says when the Content-Type of a reply is not what its body is.
func (p *prober) noteLabel(r *probe.Reply) {
	text := bytes.TrimSpace(r.Text)
	looks, first := "", ""
	switch t := r.MediaType(); {
	case r.Status/100 != 2:
	case r.IsStream() && r.Events == 0 && len(r.Faults()) > 0 && r.Faults()[0].Kind == probe.OddLine:
		looks, first = "JSON", r.Faults()[0].Line
	case r.IsStream():
	case hasField(text):
		looks, first = "an event stream", string(text)
	case t != typeJSON && len(r.Messages) > 0:
		looks, first = "JSON", string(text)
	}
	if looks != "" {
		p.fault(doctor.WrongType, "Content-Type: "+r.Header.Get("Content-Type")+", and the body is "+looks+": "+first)
	}
}

// hasField reports whether a body begins like an event stream.
func hasField(text []byte) bool {
	for _, field := range []string{"data:", "event:", "id:", "retry:", ":"} {
		if bytes.HasPrefix(text, []byte(field)) {
			return true
		}
	}
	return false
}

// noteIDs says when responses are not those that were asked for.
func (p *prober) noteIDs(r *probe.Reply) {
	own, ours := 0, strconv.Itoa(r.ID)
	for _, m := range r.Messages {
		id := string(m.ID)
		switch {
		case !m.IsResponse() || id == "" || id == "null":
		case id == ours:
			own++
		case strings.Trim(id, `"`) == ours:
			p.add("H23", doctor.Warning, "Responses have an id of another type", "asked with id "+ours+", answered with id "+id,
				"Most clients compare type and value: they do not find the request, and wait until they give up.",
				"Have the server repeat the id as it came: a number stays a number.")
		default:
			p.fault(doctor.OthersAnswer, "asked with id "+ours+", answered with id "+id)
		}
	}
	if own > 1 {
		p.fault(doctor.AnsweredTwice, strconv.Itoa(own)+" responses had the id "+ours)
	}
}
