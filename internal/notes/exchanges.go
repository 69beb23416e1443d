package notes

import (
	"mime"
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

const (
	inRow      = 3               // replies of one kind, until they are no coincidence
	lostWithin = time.Minute     // in which a server loses so many sessions
	quick      = time.Second     // how long a GET stream that ends at once is there at most
	idleLeast  = 5 * time.Second // how long one that is cut because it is quiet is there at least
	refused    = 5               // requests in a row, until the session must be the reason
)

// replyHistory is what is known of a session's replies over HTTP.
type replyHistory struct {
	worked        bool            // a request of the session was answered with success
	bad           int             // requests in a row that were answered 400 since
	sessionLosses []time.Time     // when the server did not know its session any more
	ends          []time.Duration // how long the last GET streams were there, and had next to nothing in them
}

// exchange looks at an exchange with a server.
func (w *watcher) exchange(e *observe.Exchange) {
	if e.Status == 0 {
		return // no reply: the log says why
	}
	say := func(f doctor.Fault, seen string) { w.note(e.Server, e.Session, f, seen) }
	line := e.Method + " was answered " + count(e.Status)
	t, _, _ := mime.ParseMediaType(e.ResponseHeader.Get("Content-Type"))
	stream := t == "text/event-stream"
	if c := e.ResponseHeader.Get("Content-Encoding"); stream && c != "" && c != "identity" {
		say(doctor.Compressed, "Content-Encoding: "+clip(c))
	}
	switch {
	case e.Status == http.StatusTooManyRequests:
		say(doctor.TooMany, line)
	case e.Status == http.StatusUnauthorized && e.ResponseHeader.Get("WWW-Authenticate") == "":
		say(doctor.NoChallenge, line)
	}
	switch e.Method {
	case http.MethodPost:
		w.post(e, t, line, say)
	case http.MethodGet:
		w.get(e, stream, line, say)
	case http.MethodDelete:
		switch s := e.Status; {
		case s/100 == 2 || s == http.StatusNotFound || s == http.StatusUnauthorized || s == http.StatusTooManyRequests:
		case s >= 500 && s != http.StatusNotImplemented:
			say(doctor.FailsDelete, line)
		default:
			say(doctor.NoDelete, line)
		}
	}
}

// post looks at the reply to messages, of the media type t.
func (w *watcher) post(e *observe.Exchange, t, line string, say func(doctor.Fault, string)) {
	switch s := e.Status; {
	case s == http.StatusNotAcceptable || s == http.StatusUnsupportedMediaType:
		say(doctor.RefusesTypes, line)
	case s == http.StatusRequestEntityTooLarge:
		say(doctor.BodyLimit, line+", with a body of "+count(int(e.RequestBytes))+" bytes")
	case s == http.StatusOK && t == "text/html":
		say(doctor.Page, line+" with text/html")
	case s == http.StatusOK && e.ResponseBytes > 0 && t != "application/json" && t != "text/event-stream":
		if t == "" {
			t = "none"
		}
		say(doctor.WrongType, line+", with the Content-Type "+clip(t))
	}
	if e.RequestHeader.Get("Mcp-Session-Id") == "" {
		return
	}
	c := conversationOf(e.Session)
	lost, bad := 0, 0
	c.mu.Lock()
	r := &c.replyHistory
	switch s := e.Status; {
	case s/100 == 2:
		r.worked, r.bad = true, 0
	case s == http.StatusNotFound:
		r.bad = 0
		lost = r.loses(e.Began)
	case s == http.StatusBadRequest && r.worked:
		r.bad++
		bad = r.bad
	default:
		r.bad = 0
	}
	c.mu.Unlock()
	if lost >= inRow {
		say(doctor.LosesSessions, "the server did not know its own session any more "+count(lost)+" times within a minute")
	}
	if bad >= refused {
		say(doctor.Not404, "the last "+count(bad)+" requests of a session that had worked were answered 400")
	}
}

// loses notes that the session was not known at a time. It returns how often that was so lately.
func (r *replyHistory) loses(at time.Time) int {
	n := 0
	for _, t := range r.sessionLosses {
		if at.Sub(t) < lostWithin {
			r.sessionLosses[n] = t
			n++
		}
	}
	r.sessionLosses = append(r.sessionLosses[:n], at)
	if len(r.sessionLosses) > inRow {
		r.sessionLosses = r.sessionLosses[1:]
	}
	return len(r.sessionLosses)
}

// get looks at the reply to the request for a stream.
func (w *watcher) get(e *observe.Exchange, stream bool, line string, say func(doctor.Fault, string)) {
	if e.RequestHeader.Get("Mcp-Session-Id") == "" && e.RequestHeader.Get("Mcp-Protocol-Version") == "" {
		return // no session is there yet: the client tries what the server speaks
	}
	from := e.RequestHeader.Get("Last-Event-Id") != ""
	switch s := e.Status; {
	case s == http.StatusOK && stream:
	case from && (s == http.StatusBadRequest || s == http.StatusNotFound && e.RequestHeader.Get("Mcp-Session-Id") == ""):
		say(doctor.CannotResume, line+", with Last-Event-ID")
		return
	case s/100 == 2 || s == http.StatusBadRequest || s == http.StatusConflict || s == http.StatusNotFound && e.RequestHeader.Get("Mcp-Session-Id") == "":
		say(doctor.OddGet, line)
		return
	default:
		return
	}
	c := conversationOf(e.Session)
	c.mu.Lock()
	r := &c.replyHistory
	if r.ends = append(r.ends, e.Duration); len(r.ends) > inRow {
		r.ends = r.ends[1:]
	}
	least, most := e.Duration, e.Duration
	for _, d := range r.ends {
		least, most = min(least, d), max(most, d)
	}
	n := len(r.ends)
	if e.ResponseBytes > 64 || from { // something was said
		r.ends, n = nil, 0
	}
	c.mu.Unlock()
	switch {
	case n < inRow:
	case most < quick:
		say(doctor.EndsGet, count(n)+" streams in a row have ended within "+most.Round(time.Millisecond).String()+" with nothing in them")
	case least >= idleLeast && most-least < quick:
		after := most.Round(time.Second)
		say(doctor.CutIdle(after, "the proxy"), count(n)+" streams in a row were cut after "+after.String())
	}
}
