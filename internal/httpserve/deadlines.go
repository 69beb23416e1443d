package httpserve

import (
	"cmp"
	"net/http"
	"time"
)

// DefaultDeadline is how long a peer may keep us waiting where nothing else is said: with the body of a request, with the end of a
// reply (Deadlines), and while it takes nothing of what is written to it, over each transport.
const DefaultDeadline = 30 * time.Second

// Deadlines are how long the client of a request may keep the server waiting,
// whatever the request is for (LI32). The zero value has the defaults; it may be used
// by any number of goroutines.
type Deadlines struct {
	Body  time.Duration // how long the client may take to send the body of its request. 0: 30 s; negative: no limit
	Reply time.Duration // how long it may take, once the handler has returned, to take the rest of the reply; at least until five seconds after Body is over. 0: 30 s; negative: no limit
}

// Handler returns a handler that holds every request which next serves to the
// deadlines, whether next looks at its body or not. What next itself writes of
// a reply while it serves is bounded where it is written, by WriteWithDeadline or an
// sse.Writer: a reply may take as long as it likes to begin.
//
// It also ends the connection behind a request whose end others on the way may
// see elsewhere: one of HTTP/1.1 with a Transfer-Encoding, beside which
// net/http does not tell of a Content-Length (LI33; RFC 9112, 6.1 and 6.3), and
// each of HTTP/1.0, where it does not even tell of the Transfer-Encoding.
func (d Deadlines) Handler(next http.Handler) http.Handler {
	d.Body, d.Reply = cmp.Or(d.Body, DefaultDeadline), cmp.Or(d.Reply, DefaultDeadline)
	return &deadlineHandler{next, d}
}

// deadlineHandler is the handler that Deadlines.Handler returns.
type deadlineHandler struct {
	next      http.Handler // serves the requests
	deadlines Deadlines    // the Deadlines, with the defaults filled in
}

// ServeHTTP has next serve a request, and sets the deadlines of its body and its reply.
func (b *deadlineHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(r.TransferEncoding) > 0 || r.ProtoMajor == 1 && r.ProtoMinor == 0 {
		CloseAfterReply(w, r)
	}
	var body time.Time // when the body is to have come; zero: there is none to wait for
	if b.deadlines.Body > 0 && r.ContentLength != 0 {
		// Also of a request that is refused: net/http reads what is left of its
		// body, and takes the deadline away when it has all.
		body = time.Now().Add(b.deadlines.Body)
		_ = http.NewResponseController(w).SetReadDeadline(body) // not every ResponseWriter can
	}
	defer b.setReplyDeadline(w, r, body)
	b.next.ServeHTTP(w, r)
}

// setReplyDeadline sets the deadline for what net/http still has to send of the reply. net/http sends it
// when the handler has returned and the body has come, and then takes the deadline away. body is when
// the body is to have come; zero: there is none. After an InlineReply nothing is left to send.
func (b *deadlineHandler) setReplyDeadline(w http.ResponseWriter, r *http.Request, body time.Time) {
	if InlineReplyOf(r).resetReplyWritten() || b.deadlines.Reply <= 0 {
		return
	}
	by := time.Now().Add(b.deadlines.Reply)
	if late := body.Add(minReplyTimeAfterBody); late.After(by) {
		by = late
	}
	_ = http.NewResponseController(w).SetWriteDeadline(by)
}

// minReplyTimeAfterBody is how long a client has at least, after the deadline of its body, to take a
// reply: net/http holds the reply back until the body has come or its deadline has passed.
const minReplyTimeAfterBody = 5 * time.Second

// netHTTPBufferSize is how many bytes of a reply net/http keeps until its handler has returned.
const netHTTPBufferSize = 2048

// WriteWithDeadline writes the whole body of a reply, or the rest of it. A client that does not take it within DefaultDeadline is cut off; a
// body of at most netHTTPBufferSize bytes net/http sends later, when the handler has returned, with the deadline that Deadlines sets then.
func WriteWithDeadline(w http.ResponseWriter, body []byte) {
	if len(body) > netHTTPBufferSize {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(DefaultDeadline))
	}
	_, _ = w.Write(body) // an error: the client has gone, and nobody is left to tell
}
