package observe

import (
	"io"
	"net/http"
	"time"
)

// ServeHTTP lets h answer a request, and tells the Watchers of the exchange when it has ended, if
// somebody watches exchanges.
func (o *Observer) ServeHTTP(h http.Handler, w http.ResponseWriter, r *http.Request) {
	if o.WantsExchanges() {
		o.serveHTTP(h, w, r)
		return
	}
	h.ServeHTTP(w, r)
}

// serveHTTP lets h answer a request, and tells of the exchange.
func (o *Observer) serveHTTP(h http.Handler, w http.ResponseWriter, r *http.Request) {
	e := &exchange{ResponseWriter: w, o: o}
	e.Exchange = Exchange{
		Hop: Downstream, Method: r.Method, URL: r.RequestURI, Proto: r.Proto, RemoteAddr: r.RemoteAddr,
		RequestHeader: r.Header, Began: now().Time(),
	}
	if e.URL == "" || e.URL[0] != '/' {
		e.URL = r.URL.RequestURI()
	}
	if o.Describe != nil {
		e.Server, e.RemoteAddr = o.Describe(r)
	}
	e.request, e.body = r, countedBody{r.Body, &e.RequestBytes}
	r.Body = &e.body
	defer e.end()
	h.ServeHTTP(e, r)
}

// exchange is an HTTP exchange in progress, and the http.ResponseWriter that the Handler gets. It has no other methods than
// those of that interface, and Unwrap for an http.ResponseController. Its body is a field and no pointer, because each
// allocation costs time.
type exchange struct {
	http.ResponseWriter
	o *Observer // is told of the exchange at its end
	Exchange
	origin  *SessionOrigin // the origin of the session that the exchange belongs to; nil: not known
	request *http.Request  // the request; its Body is body until the reply begins
	body    countedBody    // the body of the request; counts what the Handler reads
}

// SetExchangeOrigin says to which session an HTTP exchange belongs. w is the ResponseWriter that the
// Handler was given. It does nothing if nobody watches the exchange.
func SetExchangeOrigin(w http.ResponseWriter, to *SessionOrigin) {
	if e := exchangeOf(w); e != nil {
		e.origin = to
	}
}

// exchangeOf returns the exchange that w is, or that it writes to; nil: nobody watches exchanges.
func exchangeOf(w http.ResponseWriter) *exchange {
	for {
		switch x := w.(type) {
		case *exchange:
			return x
		case interface{ Unwrap() http.ResponseWriter }:
			w = x.Unwrap()
		default:
			return nil
		}
	}
}

// Unwrap returns the ResponseWriter to which the reply goes, for an http.ResponseController.
func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// WriteHeader implements http.ResponseWriter. It passes the status on, and notes it for the exchange, with the headers and when
// the reply began. Informational statuses but 101 are not noted.
func (e *exchange) WriteHeader(status int) {
	if e.Status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		// No copy of the header: what stands in it now stays, because Handlers set no header later.
		e.Status, e.ResponseHeader, e.FirstByte = status, e.Header(), time.Since(e.Began)
		e.restoreBody()
	}
	e.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter. It passes bytes of the reply on, and counts them for the exchange.
func (e *exchange) Write(p []byte) (int, error) {
	if e.Status == 0 {
		e.WriteHeader(http.StatusOK)
	}
	n, err := e.ResponseWriter.Write(p)
	e.ResponseBytes += int64(n)
	if err != nil {
		e.Err = err
	}
	return n, err
}

// restoreBody gives the request back its Body: net/http looks at it before it replies. Where it knows the Body, a client that has
// much to send, or waits to be told to send, gets its reply at once; otherwise net/http first waits for what the client sends.
func (e *exchange) restoreBody() { e.request.Body = e.body.ReadCloser }

// end completes the Exchange, which is over, and tells of it.
func (e *exchange) end() {
	e.restoreBody()
	e.Duration = time.Since(e.Began)
	if e.origin != nil {
		e.Session = e.origin.Session()
	}
	if e.Err == nil {
		e.Err = e.request.Context().Err()
	}
	e.o.Event(&e.Exchange)
}

// countedBody is the body of a request. It counts the bytes that are read.
type countedBody struct {
	io.ReadCloser
	bytesRead *int64 // how many bytes were read: RequestBytes of the exchange
}

// Read implements io.Reader: it reads the body, and counts the bytes.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	*b.bytesRead += int64(n)
	return n, err
}
