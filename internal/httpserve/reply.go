package httpserve

import (
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Values of headers, shared by all replies; net/http does not change them.
var (
	contentTypeJSON = []string{jsonMediaType} // the Content-Type of JSON replies
	connectionClose = []string{"close"}       // the Connection header that ends a connection
	retryAfterValue = []string{"5"}           // the Retry-After of replies with status 503, in seconds
)

// WriteError answers a request with an HTTP status and a JSON-RPC error, and tells the
// Observer that it is refused, by which rule of docs/rules.md. The zero id means that the id is
// not known: it is sent as null, and from 2025-11-25 on, whose schema made it optional, left out (J4).
func WriteError(w http.ResponseWriter, r *http.Request, rule string, status, code int, id jsonrpc.ID, text string) {
	observe.Refuse(w, r, rule, status, text)
	writeError(w, r, status, code, id, text)
}

// writeError answers a request with an HTTP status and a JSON-RPC error with this id (zero: not known, as with WriteError). It does not tell
// the Observer that the request is refused.
func writeError(w http.ResponseWriter, r *http.Request, status, code int, id jsonrpc.ID, text string) {
	if id.IsZero() && r.Header.Get("Mcp-Protocol-Version") < "2025-11-25" {
		id = jsonrpc.NullID
	}
	w.Header()["Content-Type"] = contentTypeJSON
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		m := jsonrpc.NewError(id, code, text, nil)
		WriteWithDeadline(w, m.Bytes())
	}
}

// Refuse answers a request that is not let in, or is none that its endpoint takes, as WriteError does:
// with the code for an invalid request, and no id.
func Refuse(w http.ResponseWriter, r *http.Request, rule string, status int, text string) {
	WriteError(w, r, rule, status, jsonrpc.CodeInvalidRequest, jsonrpc.ID{}, text)
}

// RefuseText answers a request that is not let in, or is none that its endpoint takes, with this status and text, as plain text and not as
// JSON, and tells the Observer that it is refused, by which rule of docs/rules.md.
func RefuseText(w http.ResponseWriter, r *http.Request, rule string, status int, text string) {
	observe.Refuse(w, r, rule, status, text)
	http.Error(w, text, status)
}

// RefuseBusy answers a request with status 503, Retry-After, and a JSON-RPC error with this id (zero:
// not known) and text: it may succeed later. The Observer is told why, which may say more than clients
// are to know.
func RefuseBusy(w http.ResponseWriter, r *http.Request, id jsonrpc.ID, text string, why error) {
	observe.Refuse(w, r, ruleBusy, http.StatusServiceUnavailable, why.Error())
	SetRetryAfter(w.Header())
	writeError(w, r, http.StatusServiceUnavailable, jsonrpc.CodeInternalError, id, text)
}

// RefuseBusyText answers a request with status 503, Retry-After, and text, as plain text and not as JSON: the request may succeed later. The
// Observer is told why, which may say more than clients are to know.
func RefuseBusyText(w http.ResponseWriter, r *http.Request, text string, why error) {
	observe.Refuse(w, r, ruleBusy, http.StatusServiceUnavailable, why.Error())
	SetRetryAfter(w.Header())
	http.Error(w, text, http.StatusServiceUnavailable)
}

// SetRetryAfter sets in h, the headers of a reply with status 503, after how many seconds the client may try again: 5. RefuseBusy and
// RefuseBusyText call it.
func SetRetryAfter(h http.Header) { h["Retry-After"] = retryAfterValue }

// ruleBusy is what the Observer is told in the place of a rule of docs/rules.md when a request is refused
// for want of memory or of a place (docs/limits.md).
const ruleBusy = "busy"

// CloseAfterReply makes r the last request of its connection, by a header of the reply. Over HTTP/2 it
// does nothing: the header would end other requests of the connection, too.
func CloseAfterReply(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = connectionClose
	}
}
