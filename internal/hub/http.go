package hub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/internal/upstream"
)

// ServeHTTP answers one request, whatever its path, within Options.Deadlines.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.opts.Observer.ServeHTTP(h.handler, w, r)
}

// serve answers one request by its path: it gives it to a server's endpoint, or answers it itself. The deadlines are set already.
func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	path := trimSlash(r.URL.Path)
	at, name := h.find(path)
	handler := at.endpoint(name)
	if handler == nil {
		path = h.withoutPrefix(path)
		at, name = h.find(path)
		handler = at.endpoint(name)
	}
	if handler != nil {
		handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if path == "/healthz" || path == "/readyz" {
		// Who watches the process has no token; there is nothing to hide here.
		if no := h.opts.Guard.Check(r); no != nil {
			httpserve.RefuseText(w, r, no.Rule, no.Status, no.Reason)
			return
		}
		h.serveHealth(w, path)
		return
	}
	if h.opts.Metadata != nil && (path == metadataPath || strings.HasPrefix(path, metadataPath+"/")) {
		h.opts.Metadata.ServeHTTP(w, r)
		return
	}
	if h.isStartPage(r, path) {
		h.serveStartPage(w, r)
		return
	}
	known, no := h.opts.Guard.Enter(w, r)
	if no != nil {
		refusePath(w, observe.WithCause(r, no.Cause), name, no)
		return
	}
	switch r = known; {
	case r == nil: // a preflight
	case at.hidesEndpoint(name):
		httpserve.RefuseText(w, r, "SS10", http.StatusNotFound, "HTTP+SSE is not served here: it has the revisions up to 2025-11-25 only, and clients may speak 2026-07-28 only (--client-protocol modern); use Streamable HTTP, at "+
			h.opts.publicPrefix(r)+h.pathPrefix(at.spec.Name)+"/mcp")
	case !h.opts.SingleServer && path == "/servers":
		h.serveIndex(w, r)
	default:
		httpserve.RefuseText(w, r, "path", http.StatusNotFound, h.notFoundText(path, h.opts.publicPrefix(r)))
	}
}

// metadataPath is the path, perhaps with the path of an endpoint behind it, at which clients ask how they are to authenticate
// (Options.Metadata).
const metadataPath = "/.well-known/oauth-protected-resource"

// refusePath refuses a request, which is not let in, at a path that is no endpoint. endpoint is what find has returned. If that is the
// name of an endpoint of MCP, as with an unknown server, the refusal has the form that the endpoint's has: a client that is not let in must not
// learn which servers there are.
func refusePath(w http.ResponseWriter, r *http.Request, endpoint string, refusal *access.Refusal) {
	switch endpoint {
	case "mcp", "sse", "message":
		httpserve.Refuse(w, r, refusal.Rule, refusal.Status, refusal.Reason)
	default:
		httpserve.RefuseText(w, r, refusal.Rule, refusal.Status, refusal.Reason)
	}
}

// notFoundText returns the text of a 404: where clients should go instead. HTTP+SSE is left out where any server does not serve it. prefix
// is what clients put in front of our paths. The client has been let in, and may see the names of servers.
func (h *Hub) notFoundText(path, prefix string) string {
	text, base := "not found; the MCP endpoints are ", prefix
	if !h.opts.SingleServer {
		text, base = h.unknownServerText(path)+"; "+prefix+"/servers lists the servers, each at ", prefix+"/servers/NAME"
	}
	text += base + "/mcp (Streamable HTTP)"
	if !slices.ContainsFunc(h.serversInOrder(), func(s *server) bool { return s.hidesEndpoint("sse") }) {
		text += ", " + base + "/sse (HTTP+SSE)"
	}
	return text + " and " + base + "/ws (WebSocket)" + h.prefixHint(path)
}

// prefixHint returns the end of the text of a 404: that --path-prefix is missing, if path is that of an endpoint behind a prefix that
// a proxy may have added; else "".
func (h *Hub) prefixHint(path string) string {
	end := strings.LastIndexByte(path, '/')
	if !h.opts.SingleServer {
		end = strings.Index(path, "/servers/")
	}
	isEndpoint := strings.HasSuffix(path, "/mcp") || strings.HasSuffix(path, "/sse") || strings.HasSuffix(path, "/ws")
	if h.opts.PathPrefix != "" || !isEndpoint || end <= 0 || end > 100 || strings.HasPrefix(path, "/servers/") {
		return ""
	}
	return fmt.Sprintf("; if a proxy in front adds %q to the path, --path-prefix names it", path[:end])
}

// unknownServerText returns the beginning of the text of a 404: "not found" and, if path is that of a server that does not exist, which one.
func (h *Hub) unknownServerText(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/servers/"), "/")
	switch at, _ := h.find("/servers/" + name + "/"); {
	case name == "" || at != nil || !strings.HasPrefix(path, "/servers/"):
		return "not found"
	case len(name) > 100: // as no name of a server is
		return "not found; there is no such server"
	}
	return fmt.Sprintf("not found; there is no server %q", name)
}

// trimSlash returns a path without one slash at its end; "/" stays.
func trimSlash(path string) string {
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// withoutPrefix returns a path without Options.PathPrefix in front of it; a path that does not begin with it stays, as some proxies take it off.
func (h *Hub) withoutPrefix(path string) string {
	if rest, ok := strings.CutPrefix(path, h.opts.PathPrefix); ok && h.opts.PathPrefix != "" && strings.HasPrefix(rest, "/") {
		return rest
	}
	return path
}

// find returns the server that a path, which is without Options.PathPrefix, is about, and the name of its endpoint that is meant; nil: there
// is no such server. It does not check whether there is such an endpoint. With Options.SingleServer every path is about that server; otherwise
// the name is "" if the path is not /servers/NAME/ENDPOINT.
func (h *Hub) find(path string) (at *server, endpoint string) {
	name, endpoint := "", strings.TrimPrefix(path, "/")
	h.mu.RLock()
	defer h.mu.RUnlock()
	switch {
	case !h.opts.SingleServer:
		rest, ok := strings.CutPrefix(path, "/servers/")
		if !ok {
			return nil, ""
		}
		if name, endpoint, ok = strings.Cut(rest, "/"); !ok {
			return nil, ""
		}
	case len(h.serverOrder) > 0:
		name = h.serverOrder[0]
	}
	return h.servers[name], endpoint
}

// describeRequest returns what the Observer is told of a request (Observer.Describe): the name of the server that it is for ("": none; with
// Options.SingleServer it is always that one), and the address of its client, also of one behind trusted proxies.
func (h *Hub) describeRequest(r *http.Request) (server, remote string) {
	remote = h.opts.Guard.RemoteAddr(r)
	path := trimSlash(r.URL.Path)
	at, _ := h.find(path)
	if at == nil {
		at, _ = h.find(h.withoutPrefix(path))
	}
	if at == nil {
		return "", remote
	}
	return at.spec.Name, remote
}

// indexEntry is one server in the index (/servers).
type indexEntry struct {
	Name           string            `json:"name"`                  // the name of the server
	Description    string            `json:"description,omitempty"` // what the configuration says of the server; "": nothing
	Endpoints      map[string]string `json:"endpoints"`             // the path of each endpoint that is served, by name: mcp, sse, ws
	Sessions       int               `json:"sessions"`              // how many sessions clients have with it
	upstream.State                   // whether the server works, and what it does now
}

// serveIndex answers a request for the index (/servers): JSON with all servers.
func (h *Hub) serveIndex(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		httpserve.RefuseText(w, r, "path", http.StatusMethodNotAllowed, "use GET")
		return
	}
	prefix := h.opts.publicPrefix(r)
	list := []indexEntry{}
	for _, s := range h.serversInOrder() {
		e := indexEntry{
			Name: s.spec.Name, Description: h.description(s.spec.Name),
			Endpoints: map[string]string{}, Sessions: s.sessions(), State: s.state(),
		}
		for _, name := range endpoints {
			if s.hidesEndpoint(name) {
				continue
			}
			e.Endpoints[name] = prefix + h.pathPrefix(s.spec.Name) + "/" + name
		}
		list = append(list, e)
	}
	writeJSON(w, http.StatusOK, map[string]any{"servers": list})
}

// readiness is what /readyz answers, in its embedded State for all servers together. Of many servers one that can work is enough to be
// ready: the others must not take the bridge out of service.
type readiness struct {
	upstream.State                           // of all servers together: Ready if one of them is, or if there is none
	Servers        map[string]upstream.State `json:"servers,omitempty"` // the state of each of many servers, by name; nil: there is one, or clients must authenticate
}

// serveHealth answers /healthz, always with 200, or /readyz, with 200 or 503 and the readiness.
func (h *Hub) serveHealth(w http.ResponseWriter, path string) {
	if path == "/healthz" {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
		return
	}
	ready := h.readiness()
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, ready)
}

// readiness returns what /readyz answers now.
func (h *Hub) readiness() readiness {
	list := h.serversInOrder()
	if h.opts.SingleServer && len(list) == 1 {
		return readiness{State: list[0].state()}
	}
	all := readiness{Servers: map[string]upstream.State{}}
	all.Ready = len(list) == 0
	for _, s := range list {
		state := s.state()
		all.Ready = all.Ready || state.Ready
		all.Running += state.Running
		all.Calls += state.Calls
		all.OldestCallSeconds = max(all.OldestCallSeconds, state.OldestCallSeconds)
		all.Servers[s.spec.Name] = state
	}
	if h.opts.Guard.Authenticates() {
		all.Servers = nil // names are for those who may use them
	}
	return all
}

// writeJSON answers a request with this status and v as JSON.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "the bridge has made a mistake", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	httpserve.WriteWithDeadline(w, append(body, '\n'))
}
