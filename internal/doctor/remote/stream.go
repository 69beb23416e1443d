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

// sayBuffered says that a stream is held back on its way (H11). r names who answers.
func (p *prober) sayBuffered(r *probe.Reply, seen string) {
	if p.buffered.Swap(true) {
		return // said of another stream
	}
	if who := r.Intermediary(); who != "the server" {
		seen += "; answers come from " + who
	}
	p.fault(doctor.Buffered, seen)
}

// noteCompressed notes that an event stream is compressed.
func (p *prober) noteCompressed(r *probe.Reply) {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		p.fault(doctor.Compressed, "Content-Encoding: "+e+", by "+r.Intermediary())
	}
}

// checkGet looks at the stream for what the server says by itself (H11, H13, H14).
func (s *session) checkGet(ctx context.Context) {
	if s == nil {
		return
	}
	first := s.listen(ctx, "", checkTimeout)
	defer first.Close()
	switch {
	case first.Skip():
	case first.TimedOut(0):
		s.p.recheckLater(s, s.first, func(ctx context.Context) (silent string) {
			again := s.listen(ctx, "", checkTimeout)
			defer again.Close()
			if again.TimedOut(0) {
				return "GET: no headers came"
			}
			return ""
		})
	case first.Err != nil:
		s.p.add("H13", doctor.Warning, "The connection of the stream for the server's own messages is lost", first.Line(), "Clients do not hear what the server says by itself; some give up.",
			"Have the server answer GET with an event stream, or with 405.")
	case first.IsStream():
		s.readGet(ctx, first)
	default:
		s.explainGet(first)
	}
}

// listen opens the GET stream of a session, to be read for the time.
func (s *session) listen(ctx context.Context, last string, within time.Duration) *probe.Reply {
	h := s.headers()
	delete(h, "Content-Type")
	h["Accept"] = typeSSE
	if last != "" {
		h[headerLastEvent] = last
	}
	return s.p.Start(ctx, probe.Request{Method: http.MethodGet, Header: h, Within: within})
}

// explainGet says what clients make of a GET that is not answered with a stream.
func (s *session) explainGet(r *probe.Reply) {
	severity, means := doctor.Note, "Most clients go on without the stream; some report an error."
	switch {
	case r.Status == http.StatusMethodNotAllowed:
		s.p.fact("GET stream", "none (405)")
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
	s.p.add("H13", severity, doctor.OddGet.Title, r.Line(), means, doctor.OddGet.Do)
}

// quickEnd is how soon after its beginning the end of a GET stream is no coincidence.
const quickEnd = time.Second

// readGet reads the beginning of a GET stream, and opens it again.
func (s *session) readGet(ctx context.Context, r *probe.Reply) {
	s.p.fact("GET stream", "yes")
	s.p.noteCompressed(r)
	late := time.AfterFunc(quickEnd, r.Close)
	last := ""
	for r.Next() {
		if r.Last.HasID {
			last = r.Last.ID
		}
	}
	late.Stop()
	s.p.noteOdd(r)
	polls := r.Others() > 0 || r.Events > 0 // the server may want to be polled
	if r.Ended && !polls {
		s.p.fault(doctor.EndsGet, fmt.Sprintf("200, text/event-stream, and the end after %s with nothing in it", millis(time.Since(r.Began))))
		return
	}
	if last == "" || r.Ended {
		s.checkAgain(ctx)
		return
	}
	resumed := s.listen(ctx, last, checkTimeout)
	defer resumed.Close()
	if resumed.Err == nil && !resumed.Skip() && resumed.Status/100 != 2 {
		s.sayNotResumed("GET with the Last-Event-ID of the stream that was cut: " + resumed.Line())
	}
}

// checkAgain sees whether a GET stream that was cut can be opened anew (H13).
func (s *session) checkAgain(ctx context.Context) {
	const tries = 4
	for i := range tries {
		r := s.listen(ctx, "", checkTimeout)
		r.Close()
		switch {
		case r.Err != nil || r.Status != http.StatusConflict:
			return
		case i == tries-1:
			s.p.add("H13", doctor.Warning, "After a cut, the GET stream cannot be opened again", fmt.Sprintf("the first one was closed %s ago; GET: %d %s", quickEnd, r.Status, http.StatusText(r.Status)),
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

func (s *session) sayNotResumed(seen string) {
	s.p.fault(doctor.CannotResume, seen)
}

// checkResume cuts the reply to a ping after its first event and resumes it (H14), if the
// server sends an id before it sends the response.
func (s *session) checkResume(ctx context.Context) {
	if s == nil || s.id == "" {
		return
	}
	id := s.p.NewID()
	q := probe.Request{Header: s.headers(), ID: id, Body: probe.BodyOf(map[string]any{"jsonrpc": "2.0", "id": id, "method": "ping"}), Within: checkTimeout}
	r := s.p.Start(ctx, q)
	primed := r.IsStream() && r.Next() && r.Last.HasID && r.Message() == nil
	r.Close()
	if !primed {
		return
	}
	again := s.listen(ctx, r.Last.ID, checkTimeout-time.Second)
	defer again.Close()
	if again.Err != nil || again.Skip() {
		return
	}
	again.ID = id
	if !again.IsStream() {
		s.sayNotResumed("the reply to a ping was cut after its first event; GET with its Last-Event-ID: " + again.Line())
		return
	}
	for again.Next() {
		if again.Last.HasID && again.Last.ID == r.Last.ID && len(again.Last.Data) > 0 {
			s.sayNotResumed("an event was sent again that the client had said it has")
		}
		if again.Message() != nil {
			break
		}
	}
	for _, m := range again.Messages {
		if m.IsResponse() && string(m.ID) != fmt.Sprint(id) {
			s.sayNotResumed(fmt.Sprintf("the resumed stream brings the response to another request, with id %s", m.ID))
			return
		}
	}
	if again.Message() != nil {
		s.p.fact("resumption", "works")
	} else if again.Ended || again.TimedOut(checkTimeout-time.Second) && s.first.UntilEnd < time.Second {
		s.sayNotResumed(fmt.Sprintf("the reply to a ping was cut after its first event; GET with its Last-Event-ID was answered 200, with %s and not the response", printable.Count(again.Events, "event", "events")))
	}
}

// checkIdle sees for how long a stream may be silent (H12). It waits for minutes.
func (p *prober) checkIdle(ctx context.Context, f found) {
	quiet := p.opts.quiet
	if quiet == 0 {
		quiet = slowQuiet
	}
	ctx, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	began := time.Now()
	var r *probe.Reply
	switch {
	case f.legacy != nil:
		r = f.legacy.listen(ctx, "", quiet)
	case f.modern != nil:
		r = p.Start(ctx, p.modernRequest("subscriptions/listen", map[string]any{"notifications": map[string]any{"toolsListChanged": true}}))
	default:
		r, began = f.sse.stream, f.sse.began
		select {
		case <-f.sse.done:
		case <-ctx.Done():
			return
		}
	}
	if f.sse == nil || r != f.sse.stream {
		defer r.Close()
		if !r.IsStream() {
			return
		}
		for r.Next() {
		}
	}
	lasted := time.Since(began)
	if ctx.Err() != nil || lasted < 2*quickEnd || !r.Ended && r.Err == nil {
		p.fact("quiet stream", "open for %s", quiet)
		return
	}
	seen := fmt.Sprintf("after %s; comments or the like before: %d", lasted.Round(time.Second), r.Others())
	if r.Ended { // in due form, by the server: it may want to be polled
		p.add("H12", doctor.Note, "The server ends quiet streams", seen, "Clients open the stream again and again.",
			"If it is no intention, see whether the platform bounds how long a request may take: calls that take longer are lost as well.")
		return
	}
	p.fault(doctor.CutIdle(lasted.Round(time.Second), r.Intermediary()), seen)
}
