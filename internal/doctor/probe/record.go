package probe

import (
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// exchangeRecord tells the Recording of a request's context, if there is one, of the request and its reply.
type exchangeRecord struct {
	recording *doctor.Recording // nil: nothing is recorded
	session   string            // its name in the Recording; "": none so far
	startedAt time.Time
	exchange  trace.Exchange
}

// newExchangeRecord records the message in a request that is about to be made.
func newExchangeRecord(req *http.Request, body []byte) *exchangeRecord {
	r := &exchangeRecord{recording: doctor.RecordingOf(req.Context()), startedAt: time.Now()}
	r.session = r.recording.SessionName(req.Header.Get("Mcp-Session-Id"))
	r.exchange = trace.Exchange{Method: req.Method, URL: req.URL.String(), RequestHeader: req.Header, RequestBytes: int64(len(body))}
	if len(body) > 0 {
		r.recording.RecordMessage(r.session, "http", trace.ToServer, body)
	}
	return r
}

// recordFailure records the exchange without a reply.
func (r *exchangeRecord) recordFailure(err error) {
	r.exchange.Err = NetErrorText(err)
	r.recording.RecordHTTPExchange(r.session, r.startedAt, r.exchange)
}

// recordReply records the exchange once the headers of the reply are there. They may open a session.
func (r *exchangeRecord) recordReply(resp *http.Response) {
	if r.session == "" {
		r.session = r.recording.SessionName(resp.Header.Get("Mcp-Session-Id"))
	}
	x := &r.exchange
	x.Status, x.ResponseHeader, x.Proto, x.FirstByte = resp.StatusCode, resp.Header, resp.Proto, time.Since(r.startedAt)
	r.recording.RecordHTTPExchange(r.session, r.startedAt, *x)
}

// recordMessage records a message of the reply.
func (r *exchangeRecord) recordMessage(text []byte) {
	r.recording.RecordMessage(r.session, "http", trace.ToClient, text)
}
