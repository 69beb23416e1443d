package notes

import (
	"mime"
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

const (
	minRepeats     = 3               // how many times a session is lost within lossWindow, or GET streams in a row end alike, for that to be no coincidence
	lossWindow     = time.Minute     // how long a session that was lost counts: minRepeats must be lost within this time
	maxEmptyStream = time.Second     // a GET stream that ends at once lasts less than this; those that are cut alike differ by less
	minIdleStream  = 5 * time.Second // a GET stream that is cut because it is quiet lasts at least so long
	minBadRequests = 5               // how many requests in a row must be answered 400 for the session to be the reason
)

// replyHistory is what is known of a session's replies over HTTP.
type replyHistory struct {
	hasSucceeded    bool            // a request of the session was answered with success
	badRequests     int             // how many requests in a row were answered 400 since then
	sessionLosses   []time.Time     // when the server did not know its session any more; the latest minRepeats
	streamDurations []time.Duration // how long the latest GET streams with next to nothing in them lasted; minRepeats at most
}

// checkExchange looks for faults in the reply of an exchange with a server, and tells the observer of each (note).
func (w *watcher) checkExchange(e *observe.Exchange) {
	if e.Status == 0 {
		return // no reply: the log says why
	}
	report := func(f doctor.Fault, evidence string) { w.note(e.Server, e.Session, f, evidence) }
	summary := e.Method + " was answered " + itoa(e.Status)
	mediaType, _, _ := mime.ParseMediaType(e.ResponseHeader.Get("Content-Type"))
	isStream := mediaType == "text/event-stream"
	if c := e.ResponseHeader.Get("Content-Encoding"); isStream && c != "" && c != "identity" {
		report(doctor.CompressedStreams, "Content-Encoding: "+clip(c))
	}
	switch {
	case e.Status == http.StatusTooManyRequests:
		report(doctor.TooManyRequests, summary)
	case e.Status == http.StatusUnauthorized && e.ResponseHeader.Get("WWW-Authenticate") == "":
		report(doctor.No401Challenge, summary)
	}
	switch e.Method {
	case http.MethodPost:
		w.checkPost(e, mediaType, summary, report)
	case http.MethodGet:
		w.checkGet(e, isStream, summary, report)
	case http.MethodDelete:
		switch s := e.Status; {
		case s/100 == 2 || s == http.StatusNotFound || s == http.StatusUnauthorized || s == http.StatusTooManyRequests:
		case s >= 500 && s != http.StatusNotImplemented:
			report(doctor.DeleteFails, summary)
		default:
			report(doctor.DeleteUnsupported, summary)
		}
	}
}

// checkPost looks at the reply to a POST, whose media type is mediaType; "": it has none. summary says in words how the POST was
// answered; report tells of a fault, with the evidence for it.
func (w *watcher) checkPost(e *observe.Exchange, mediaType, summary string, report func(doctor.Fault, string)) {
	switch s := e.Status; {
	case s == http.StatusNotAcceptable || s == http.StatusUnsupportedMediaType:
		report(doctor.RefusesMediaTypes, summary)
	case s == http.StatusRequestEntityTooLarge:
		report(doctor.LargeBodiesRefused, summary+", with a body of "+itoa(int(e.RequestBytes))+" bytes")
	case s == http.StatusOK && mediaType == "text/html":
		report(doctor.WebPageAnswers, summary+" with text/html")
	case s == http.StatusOK && e.ResponseBytes > 0 && mediaType != "application/json" && mediaType != "text/event-stream":
		if mediaType == "" {
			mediaType = "none"
		}
		report(doctor.WrongContentType, summary+", with the Content-Type "+clip(mediaType))
	}
	if e.RequestHeader.Get("Mcp-Session-Id") == "" {
		return
	}
	c := conversationOf(e.Session)
	losses, badRequests := 0, 0
	c.mu.Lock()
	r := &c.replyHistory
	switch s := e.Status; {
	case s/100 == 2:
		r.hasSucceeded, r.badRequests = true, 0
	case s == http.StatusNotFound:
		r.badRequests = 0
		losses = r.addSessionLoss(e.Began)
	case s == http.StatusBadRequest && r.hasSucceeded:
		r.badRequests++
		badRequests = r.badRequests
	default:
		r.badRequests = 0
	}
	c.mu.Unlock()
	if losses >= minRepeats {
		report(doctor.ReplicasLoseSessions, "the server did not know its own session any more "+itoa(losses)+" times within a minute")
	}
	if badRequests >= minBadRequests {
		report(doctor.UnknownSessionNot404, "the last "+itoa(badRequests)+" requests of a session that had worked were answered 400")
	}
}

// addSessionLoss notes that the server did not know the session at a time. It returns how often that was so in lossWindow, up to minRepeats.
func (r *replyHistory) addSessionLoss(at time.Time) int {
	n := 0
	for _, t := range r.sessionLosses {
		if at.Sub(t) < lossWindow {
			r.sessionLosses[n] = t
			n++
		}
	}
	r.sessionLosses = append(r.sessionLosses[:n], at)
	if len(r.sessionLosses) > minRepeats {
		r.sessionLosses = r.sessionLosses[1:]
	}
	return len(r.sessionLosses)
}

// checkGet looks at the reply to a GET, which asks for a stream, and is one if isStream. summary and report are as for checkPost: how
// the GET was answered, and what tells of a fault.
func (w *watcher) checkGet(e *observe.Exchange, isStream bool, summary string, report func(doctor.Fault, string)) {
	if e.RequestHeader.Get("Mcp-Session-Id") == "" && e.RequestHeader.Get("Mcp-Protocol-Version") == "" {
		return // no session is there yet: the client tries what the server speaks
	}
	isResumed := e.RequestHeader.Get("Last-Event-Id") != ""
	switch s := e.Status; {
	case s == http.StatusOK && isStream:
	case isResumed && (s == http.StatusBadRequest || s == http.StatusNotFound && e.RequestHeader.Get("Mcp-Session-Id") == ""):
		report(doctor.CannotResumeStreams, summary+", with Last-Event-ID")
		return
	case s/100 == 2 || s == http.StatusBadRequest || s == http.StatusConflict || s == http.StatusNotFound && e.RequestHeader.Get("Mcp-Session-Id") == "":
		report(doctor.OddGetAnswer, summary)
		return
	default:
		return
	}
	c := conversationOf(e.Session)
	c.mu.Lock()
	r := &c.replyHistory
	if r.streamDurations = append(r.streamDurations, e.Duration); len(r.streamDurations) > minRepeats {
		r.streamDurations = r.streamDurations[1:]
	}
	shortest, longest := e.Duration, e.Duration
	for _, d := range r.streamDurations {
		shortest, longest = min(shortest, d), max(longest, d)
	}
	streams := len(r.streamDurations)
	if e.ResponseBytes > 64 || isResumed { // something was said
		r.streamDurations, streams = nil, 0
	}
	c.mu.Unlock()
	switch {
	case streams < minRepeats:
	case longest < maxEmptyStream:
		report(doctor.GetStreamEndsAtOnce, itoa(streams)+" streams in a row have ended within "+longest.Round(time.Millisecond).String()+" with nothing in them")
	case shortest >= minIdleStream && longest-shortest < maxEmptyStream:
		after := longest.Round(time.Second)
		report(doctor.QuietStreamCut(after, "the proxy"), itoa(streams)+" streams in a row were cut after "+after.String())
	}
}
