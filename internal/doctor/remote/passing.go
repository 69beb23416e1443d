package remote

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
)

// checkReply adds a finding for each fault of a reply: a malformed event stream (H22); of a JSON-RPC request also a
// Content-Type that its body is not (H10), and responses with a wrong id (H23). Of a stream it looks at what was read so far.
func (p *prober) checkReply(r *probe.Reply) {
	for _, f := range r.StreamFaults() {
		if f.Kind == probe.FaultJSONOutsideData && r.EventCount == 0 {
			continue // it is no event stream at all: checkContentType says so
		}
		severity, means := doctor.Error, "Clients that follow the standard do not get the message, and wait for it until they give up."
		if f.Kind == probe.FaultLoneCR {
			severity, means = doctor.Note, "The standard allows it, but some clients take such a stream for one endless line."
		}
		p.addFinding("H22", severity, "The event stream is malformed: "+f.Kind, f.Line, means,
			"Have the server, or whatever changes its streams on the way, write \"data: \" before each line of a message and a blank line after it; messages are UTF-8, and their event name is \"message\" or none.")
	}
	if r.ID == 0 || r.Err != nil && r.Status == 0 {
		return
	}
	p.checkContentType(r)
	p.checkResponseIDs(r)
}

// checkContentType adds H10 if the Content-Type of a reply is not that of its body.
func (p *prober) checkContentType(r *probe.Reply) {
	text := bytes.TrimSpace(r.Text)
	looks, first := "", ""
	switch t := r.MediaType(); {
	case r.Status/100 != 2:
	case r.IsStream() && r.EventCount == 0 && len(r.StreamFaults()) > 0 && r.StreamFaults()[0].Kind == probe.FaultJSONOutsideData:
		looks, first = "JSON", r.StreamFaults()[0].Line
	case r.IsStream():
	case looksLikeEventStream(text):
		looks, first = "an event stream", string(text)
	case t != typeJSON && len(r.Messages) > 0:
		looks, first = "JSON", string(text)
	}
	if looks != "" {
		p.addFault(doctor.WrongContentType, "Content-Type: "+r.Header.Get("Content-Type")+", and the body is "+looks+": "+first)
	}
}

// looksLikeEventStream reports whether a body begins with a field or comment of an event stream.
func looksLikeEventStream(text []byte) bool {
	for _, field := range []string{"data:", "event:", "id:", "retry:", ":"} {
		if bytes.HasPrefix(text, []byte(field)) {
			return true
		}
	}
	return false
}

// checkResponseIDs adds H23 if a reply has a response to another request, one with an id of another type, or more than one to
// its own request.
func (p *prober) checkResponseIDs(r *probe.Reply) {
	own, ours := 0, strconv.Itoa(r.ID)
	for _, m := range r.Messages {
		id := string(m.ID)
		switch {
		case !m.IsResponse() || id == "" || id == "null":
		case id == ours:
			own++
		case strings.Trim(id, `"`) == ours:
			p.addFinding("H23", doctor.Warning, "Responses have an id of another type", "asked with id "+ours+", answered with id "+id,
				"Most clients compare type and value: they do not find the request, and wait until they give up.",
				"Have the server repeat the id as it came: a number stays a number.")
		default:
			p.addFault(doctor.ResponseToOtherRequest, "asked with id "+ours+", answered with id "+id)
		}
	}
	if own > 1 {
		p.addFault(doctor.AnsweredTwice, strconv.Itoa(own)+" responses had the id "+ours)
	}
}
