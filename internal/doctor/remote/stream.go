package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor/probe"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// addBuffered adds H11, unless it has done so before: a stream is held back on its way. The headers of r may tell by whom; seen
// is the evidence.
func (p *prober) addBuffered(r *probe.Reply, seen string) {
	if p.hasBufferedStream.Swap(true) {
		return // said of another stream
	}
	if who := r.Intermediary(); who != "the server" {
		seen += "; answers come from " + who
	}
	p.addFault(doctor.BufferedStreams, seen)
}

// checkCompression adds H11 as a note if r, an event stream, is compressed.
func (p *prober) checkCompression(r *probe.Reply) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		p.addFault(doctor.CompressedStreams, "Content-Encoding: "+e+", by "+r.Intermediary())
	}
}

// checkGetStream opens the GET stream, on which the server says what answers no request, and adds H11, H13 or H14 for what is
// wrong with it. It does nothing if s is nil.
func (s *session) checkGetStream(ctx context.Context) {
	if s == nil {
		return
	}
	first := s.openGetStream(ctx, "", checkTimeout)
	defer first.Close()
	switch {
	case first.IsInconclusive():
	case first.TimedOut(0):
		s.prober.recheckLater(s, s.initializeReply, func(ctx context.Context) (silent string) {
			again := s.openGetStream(ctx, "", checkTimeout)
			defer again.Close()
			if again.TimedOut(0) {
				return "GET: no headers came"
			}
			return ""
		})
	case first.Err != nil:
		s.prober.addFinding("H13", doctor.Warning, "The connection of the stream for the server's own messages is lost", first.Summary(), "Clients do not hear what the server says by itself; some give up.",
			"Have the server answer GET with an event stream, or with 405.")
	case first.IsStream():
		s.readGetStream(ctx, first)
	default:
		s.explainGetAnswer(first)
	}
}

// openGetStream opens the GET stream of the session; the reply can be read for the time within. last is the id of the event
// after which an earlier stream is resumed; "": the stream is a new one.
func (s *session) openGetStream(ctx context.Context, last string, within time.Duration) *probe.Reply {
	h := s.requestHeaders()
	delete(h, "Content-Type")
	h["Accept"] = typeSSE
	if last != "" {
		h[headerLastEvent] = last
	}
	return s.prober.Start(ctx, probe.Request{Method: http.MethodGet, Header: h, Timeout: within})
}

// explainGetAnswer adds H13 for r, the answer to GET, which is no event stream; 405 is in order, and only a fact.
func (s *session) explainGetAnswer(r *probe.Reply) {
	severity, means := doctor.Note, "Most clients go on without the stream; some report an error."
	switch {
	case r.Status == http.StatusMethodNotAllowed:
		s.prober.setFact("GET stream", "none (405)")
		return
	case r.Status == http.StatusNotFound && s.id != "":
		severity, means = doctor.Warning, "404 says that the session is gone: clients begin a new one, again and again."
	case r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden:
		severity, means = doctor.Warning, "The same credentials are taken for POST: clients ask the user to sign in again, or give up."
	case r.Status >= 500 && r.Status != http.StatusNotImplemented:
		severity, means = doctor.Warning, "Clients try again and again, or give up."
	case r.Status/100 == 2:
		severity, means = doctor.Warning, "Clients take the page for an event stream, find nothing in it, and open it again and again."
	}
	s.prober.addFinding("H13", severity, doctor.OddGetAnswer.Title, r.Summary(), means, doctor.OddGetAnswer.Advice)
}

// quickEnd is for how long readGetStream reads a GET stream: one that ends before that has not ended by coincidence.
const quickEnd = time.Second

// readGetStream reads r, a GET stream, for quickEnd, cuts it, and opens it again or resumes it. It adds H13 or H14 if it ends
// at once, or that fails.
func (s *session) readGetStream(ctx context.Context, r *probe.Reply) {
	s.prober.setFact("GET stream", "yes")
	s.prober.checkCompression(r)
	late := time.AfterFunc(quickEnd, r.Close)
	last := ""
	for r.NextEvent() {
		if r.LastEvent.HasID {
			last = r.LastEvent.ID
		}
	}
	late.Stop()
	s.prober.checkReply(r)
	polls := r.LifeSigns() > 0 || r.EventCount > 0 // the server may want to be polled
	if r.HasEnded && !polls {
		s.prober.addFault(doctor.GetStreamEndsAtOnce, fmt.Sprintf("200, text/event-stream, and the end after %s with nothing in it", millis(time.Since(r.StartedAt))))
		return
	}
	if last == "" || r.HasEnded {
		s.checkReopening(ctx)
		return
	}
	resumed := s.openGetStream(ctx, last, checkTimeout)
	defer resumed.Close()
	if resumed.Err == nil && !resumed.IsInconclusive() && resumed.Status/100 != 2 {
		s.addNotResumed("GET with the Last-Event-ID of the stream that was cut: " + resumed.Summary())
	}
}

// checkReopening adds H13 if a GET stream cannot be opened again after the first one was cut.
func (s *session) checkReopening(ctx context.Context) {
	const tries = 4
	for i := range tries {
		r := s.openGetStream(ctx, "", checkTimeout)
		r.Close()
		switch {
		case r.Err != nil || r.Status != http.StatusConflict:
			return
		case i == tries-1:
			s.prober.addFinding("H13", doctor.Warning, "After a cut, the GET stream cannot be opened again", fmt.Sprintf("the first one was closed %s ago; GET: %d %s", quickEnd, r.Status, http.StatusText(r.Status)),
				"A client whose connection was lost is locked out of its stream.", "A proxy may hide from the server that the client has gone; have the server let a new stream take the place of the old one.")
			return
		}
		select {
		case <-time.After(quickEnd / (tries - 1)):
		case <-ctx.Done():
			return
		}
	}
}

// addNotResumed adds H14: streams have event ids, but cannot be resumed; seen is the evidence.
func (s *session) addNotResumed(seen string) {
	s.prober.addFault(doctor.CannotResumeStreams, seen)
}

// checkResume cuts the reply to a ping after its first event and resumes it: it adds H14 if that fails. It does so only if that
// event has an id and is not the response, and does nothing if s is nil or has no id.
func (s *session) checkResume(ctx context.Context) {
	if s == nil || s.id == "" {
		return
	}
	id := s.prober.NewID()
	q := probe.Request{Header: s.requestHeaders(), ID: id, Body: probe.EncodeMessage(map[string]any{"jsonrpc": "2.0", "id": id, "method": "ping"}), Timeout: checkTimeout}
	r := s.prober.Start(ctx, q)
	primed := r.IsStream() && r.NextEvent() && r.LastEvent.HasID && r.Response() == nil
	r.Close()
	if !primed {
		return
	}
	again := s.openGetStream(ctx, r.LastEvent.ID, checkTimeout-time.Second)
	defer again.Close()
	if again.Err != nil || again.IsInconclusive() {
		return
	}
	again.ID = id
	if !again.IsStream() {
		s.addNotResumed("the reply to a ping was cut after its first event; GET with its Last-Event-ID: " + again.Summary())
		return
	}
	for again.NextEvent() {
		if again.LastEvent.HasID && again.LastEvent.ID == r.LastEvent.ID && len(again.LastEvent.Data) > 0 {
			s.addNotResumed("an event was sent again that the client had said it has")
		}
		if again.Response() != nil {
			break
		}
	}
	for _, m := range again.Messages {
		if m.IsResponse() && string(m.ID) != fmt.Sprint(id) {
			s.addNotResumed(fmt.Sprintf("the resumed stream brings the response to another request, with id %s", m.ID))
			return
		}
	}
	if again.Response() != nil {
		s.prober.setFact("resumption", "works")
	} else if again.HasEnded || again.TimedOut(checkTimeout-time.Second) && s.initializeReply.Duration < time.Second {
		s.addNotResumed(fmt.Sprintf("the reply to a ping was cut after its first event; GET with its Last-Event-ID was answered 200, with %s and not the response", printable.Count(again.EventCount, "event", "events")))
	}
}

// checkIdleStream opens a stream, waits for minutes (quietStreamWait), and adds H12 if the stream ends meanwhile, but not within two
// seconds; otherwise it notes the fact "quiet stream". With HTTP+SSE it takes the stream that is open already. It adds and notes nothing if
// the server opens no stream.
func (p *prober) checkIdleStream(ctx context.Context, f foundProtocols) {
	quiet := p.options.quietStreamWait
	if quiet == 0 {
		quiet = defaultQuietStreamWait
	}
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	began := time.Now()
	var r *probe.Reply
	switch {
	case f.legacy != nil:
		r = f.legacy.openGetStream(ctx, "", quiet)
	case f.modern != nil:
		r = p.Start(ctx, p.modernRequest("subscriptions/listen", map[string]any{"notifications": map[string]any{"toolsListChanged": true}}))
	default:
		r, began = f.sse.stream, f.sse.startedAt
		select {
		case <-f.sse.streamEnded:
		case <-ctx.Done(): // r is still read
		}
	}
	if f.sse == nil || r != f.sse.stream {
		defer r.Close()
		if !r.IsStream() {
			return
		}
		for r.NextEvent() {
		}
	}
	lasted := time.Since(began)
	switch {
	case ctx.Err() != nil:
		p.setFact("quiet stream", "open for %s", quiet)
		return
	case !r.HasEnded && r.Err == nil:
		p.setFact("quiet stream", "not quiet: too much came in %s", lasted.Round(time.Second))
		return
	case lasted < 2*quickEnd: // the server may want to be polled; of one that ends streams at once, other checks tell
		p.setFact("quiet stream", "ended after %s", millis(lasted))
		return
	}
	seen := fmt.Sprintf("after %s; comments or the like before: %d", lasted.Round(time.Second), r.LifeSigns())
	if r.HasEnded { // in due form, by the server: it may want to be polled
		p.addFinding("H12", doctor.Note, "The server ends quiet streams", seen, "Clients open the stream again and again.",
			"If it is no intention, see whether the platform bounds how long a request may take: calls that take longer are lost as well.")
		return
	}
	p.addFault(doctor.QuietStreamCut(lasted.Round(time.Second), r.Intermediary()), seen)
}
