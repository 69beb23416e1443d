package probe

import (
	"net/http"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
)

// record tells the Recording of a request's context, if there is one, of the request and its reply.
type record struct {
	to       *doctor.Recording
	session  string
	began    time.Time
	exchange trace.Exchange
}

// newRecord begins with a request that is about to be made.
func newRecord(req *http.Request, body []byte) *record {
	r := &record{to: doctor.RecordingOf(req.Context()), began: time.Now()}
	r.session = r.to.SessionName(req.Header.Get("Mcp-Session-Id"))
	r.exchange = trace.Exchange{Method: req.Method, URL: req.URL.String(), RequestHeader: req.Header, RequestBytes: int64(len(body))}
	if len(body) > 0 {
		r.to.Message(r.session, "http", trace.ToServer, body)
	}
	return r
}

// failed says that there is no reply.
func (r *record) failed(err error) {
	r.exchange.Err = NetText(err)
	r.to.Exchange(r.session, r.began, r.exchange)
}

// answered says that the reply has begun. It may open a session.
func (r *record) answered(resp *http.Response) {
	if r.session == "" {
		r.session = r.to.SessionName(resp.Header.Get("Mcp-Session-Id"))
	}
	x := &r.exchange
	x.Status, x.ResponseHeader, x.Proto, x.FirstByte = resp.StatusCode, resp.Header, resp.Proto, time.Since(r.began)
	r.to.Exchange(r.session, r.began, *x)
}

// message says what message the reply has.
func (r *record) message(text []byte) { r.to.Message(r.session, "http", trace.ToClient, text) }
