package probe

import (
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// exchangeRecord records one request, its reply and the messages in both, if the request's context carries a Recording.
type exchangeRecord struct {
	recording *doctor.Recording // where it is recorded; nil: nowhere
	session   string            // name of the session in the Recording; "": none so far, or it has no name there
	startedAt time.Time         // when the request was begun
	exchange  trace.Exchange    // what is known of the request and its reply so far
}

// newExchangeRecord returns the exchangeRecord of a request that is about to be made, and records body, the message in it.
func newExchangeRecord(req *http.Request, body []byte) *exchangeRecord {
	r := &exchangeRecord{recording: doctor.RecordingOf(req.Context()), startedAt: time.Now()}
	r.session = r.recording.SessionName(req.Header.Get("Mcp-Session-Id"))
	r.exchange = trace.Exchange{Method: req.Method, URL: req.URL.String(), RequestHeader: req.Header, RequestBytes: int64(len(body))}
	if len(body) > 0 {
		r.recording.RecordMessage(r.session, "http", trace.ToServer, body)
	}
	return r
}

// recordFailure records the request as one without a reply, because of err.
func (r *exchangeRecord) recordFailure(err error) {
	r.exchange.Err = NetErrorText(err)
	r.recording.RecordHTTPExchange(r.session, r.startedAt, r.exchange)
}

// recordReply records the request with the status and headers of its reply, which may open a session.
func (r *exchangeRecord) recordReply(resp *http.Response) {
	if r.session == "" {
		r.session = r.recording.SessionName(resp.Header.Get("Mcp-Session-Id"))
	}
	x := &r.exchange
	x.Status, x.ResponseHeader, x.Proto, x.FirstByte = resp.StatusCode, resp.Header, resp.Proto, time.Since(r.startedAt)
	r.recording.RecordHTTPExchange(r.session, r.startedAt, *x)
}

// recordMessage records a message in the reply.
func (r *exchangeRecord) recordMessage(text []byte) {
	r.recording.RecordMessage(r.session, "http", trace.ToClient, text)
}
