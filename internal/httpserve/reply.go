package httpserve

import (
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Values of headers, shared by all replies; net/http does not change them.
var (
	valueJSON       = []string{typeJSON}
	valueClose      = []string{"close"}
	valueRetryAfter = []string{"5"} // seconds
)

// WriteError answers a request with an HTTP status and a JSON-RPC error, and tells the
// Observer that it is refused, by which rule of docs/rules.md. An unknown id, the zero one, is
// null before 2025-11-25, whose schema made it optional (J4).
func WriteError(w http.ResponseWriter, r *http.Request, rule string, status, code int, id jsonrpc.ID, text string) {
	observe.Refuse(r, rule, status, text)
	writeError(w, r, status, code, id, text)
}

func writeError(w http.ResponseWriter, r *http.Request, status, code int, id jsonrpc.ID, text string) {
	if id.IsZero() && r.Header.Get("Mcp-Protocol-Version") < "2025-11-25" {
		id = jsonrpc.NullID
	}
	w.Header()["Content-Type"] = valueJSON
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		m := jsonrpc.NewError(id, code, text, nil)
		Write(w, m.Bytes())
	}
}

// Refuse answers a request that is not let in, or is none that its endpoint takes, as
// WriteError does.
func Refuse(w http.ResponseWriter, r *http.Request, rule string, status int, text string) {
	WriteError(w, r, rule, status, jsonrpc.CodeInvalidRequest, jsonrpc.ID{}, text)
}

// RefuseText is Refuse for requests that are not answered with JSON.
func RefuseText(w http.ResponseWriter, r *http.Request, rule string, status int, text string) {
	observe.Refuse(r, rule, status, text)
	http.Error(w, text, status)
}

// Busy answers a request that may succeed later with text. The Observer is told why, which
// may say more than clients are to know.
func Busy(w http.ResponseWriter, r *http.Request, id jsonrpc.ID, text string, why error) {
	observe.Refuse(r, ruleBusy, http.StatusServiceUnavailable, why.Error())
	SetRetryAfter(w.Header())
	writeError(w, r, http.StatusServiceUnavailable, jsonrpc.CodeInternalError, id, text)
}

// BusyText is Busy for requests that are not answered with JSON.
func BusyText(w http.ResponseWriter, r *http.Request, text string, why error) {
	observe.Refuse(r, ruleBusy, http.StatusServiceUnavailable, why.Error())
	SetRetryAfter(w.Header())
	http.Error(w, text, http.StatusServiceUnavailable)
}

// SetRetryAfter tells a client that is answered 503 when to try again. Busy and BusyText call it.
func SetRetryAfter(h http.Header) { h["Retry-After"] = valueRetryAfter }

// ruleBusy stands for the bounds on memory and places (docs/limits.md).
const ruleBusy = "busy"

// LastRequest makes r the last request of its connection. Over HTTP/2 it ends
// alone: the header would end what other requests have on the connection.
func LastRequest(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = valueClose
	}
}
