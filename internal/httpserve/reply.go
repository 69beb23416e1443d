package httpserve

import (
	"net/http"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// Values of headers, shared by all replies; net/http does not change them.
var (
	valueJSON  = []string{typeJSON}
	valueClose = []string{"close"}
)

// WriteError answers a request with an HTTP status and a JSON-RPC error. An
// unknown id, the zero one, is null before 2025-11-25, whose schema made it
// optional (J4).
func WriteError(w http.ResponseWriter, r *http.Request, status, code int, id jsonrpc.ID, text string) {
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

// Refuse answers a request that is not let in, or is none that its endpoint takes.
func Refuse(w http.ResponseWriter, r *http.Request, status int, text string) {
	WriteError(w, r, status, jsonrpc.CodeInvalidRequest, jsonrpc.ID{}, text)
}

// Busy answers a request that may succeed later.
func Busy(w http.ResponseWriter, r *http.Request, id jsonrpc.ID, text string) {
	w.Header().Set("Retry-After", "5")
	WriteError(w, r, http.StatusServiceUnavailable, jsonrpc.CodeInternalError, id, text)
}

// LastRequest makes r the last request of its connection. Over HTTP/2 it ends
// alone: the header would end what other requests have on the connection.
func LastRequest(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = valueClose
	}
}
