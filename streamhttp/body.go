package streamhttp

import (
	"net/http"
	"strconv"

	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/streamhttp/internal/wire"
)

// maxSessionlessBody is how large a body may be that belongs to no session: an
// initialize request, or what has to be refused once its id is known.
const maxSessionlessBody = 1 << 20

// maxBody returns how many bytes the body of r may have. sessionless says that this is
// less than usual, because r names no session.
func (h *Handler) maxBody(r *http.Request) (max int, sessionless bool) {
	max = h.bodies.MaxBytes
	if max <= maxSessionlessBody || h.opts.Stateless || h.servesModern() && namesModern(r.Header) || h.namedSession(r) != nil {
		return max, false
	}
	return maxSessionlessBody, true
}

// refuseBody answers a request whose body could not be read, because of err. If the body is
// too large only because the request belongs to no session (sessionless), the answer says
// so, or says that the session which the request names does not exist.
func (h *Handler) refuseBody(w http.ResponseWriter, r *http.Request, err error, sessionless bool) {
	if err != httpserve.ErrTooLarge || !sessionless || r.ContentLength > int64(h.bodies.MaxBytes) {
		h.bodies.Refuse(w, r, err)
		return
	}
	httpserve.CloseAfterReply(w, r) // at once: the rest is not worth reading
	if r.Header.Get(wire.HeaderSession) != "" {
		refuse(w, r, "LI21", http.StatusNotFound, noSuchSessionText)
		return
	}
	refuse(w, r, "J9", http.StatusRequestEntityTooLarge,
		"a message without an Mcp-Session-Id must not be larger than "+strconv.Itoa(maxSessionlessBody)+" bytes; begin with an initialize request")
}
