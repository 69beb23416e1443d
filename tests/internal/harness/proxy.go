package harness

import (
	"bytes"
	"io"
	"net/http/httputil"
)

// ReadBody has a proxy read the body of a request before it sends the request on. Otherwise the Transport looks for the end of the body
// when all of it is sent. If the server has answered by then, the body is closed, the Transport takes that for an error,
// and breaks off the reply.
func ReadBody(r *httputil.ProxyRequest) {
	if r.Out.Body == nil {
		return
	}
	body, err := io.ReadAll(r.Out.Body)
	if err != nil {
		return // the client has gone, or its request is cut off: the Transport gets the same error
	}
	r.Out.Body = io.NopCloser(bytes.NewReader(body))
}
