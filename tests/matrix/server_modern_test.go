package matrix

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// modernServer is a strict server of 2026-07-28 over Streamable HTTP. Each
// request is a session of the books, which ends with its reply.
type modernServer struct {
	*server
	mu      sync.Mutex
	replies int
}

func newModernServer(t testing.TB) *server {
	v := &modernServer{server: newServer()}
	addr := v.serveHTTP(t, v)
	v.target = []string{"http://" + addr + "/up/mcp?x=%2F"}
	v.ends = []string{"answered", "closed"}
	return v.server
}

// postWire is the reply to one request.
type postWire struct {
	*outlet
	crashed chan struct{}
	once    sync.Once
}

func (w *postWire) send(_, text string) error { return w.outlet.send(text) }
func (w *postWire) crash()                    { w.once.Do(func() { close(w.crashed) }) }

func (v *modernServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	text := string(body)
	m, openErr := open(shrink(text))
	switch {
	case err != nil: // the client has gone while it spoke
		return
	case r.Method != http.MethodPost:
		v.fault(r.Method + " came")
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	case r.URL.RequestURI() != "/up/mcp?x=%2F":
		v.fault("POST to " + r.URL.RequestURI())
	case openErr == nil && m.isResponse() && v.answered(m, text): // to a request that this revision does not have (ST10)
		if got := r.Header.Get("Mcp-Protocol-Version"); got != modernRevision || r.Header.Get("Mcp-Method") != "" {
			v.fault("a response came with the headers " + fmt.Sprint(r.Header))
		}
		w.WriteHeader(http.StatusAccepted)
		return
	case openErr != nil || !m.isRequest(): // the protocol has no notification for it (ME5)
		v.fault("POST of " + clip(text))
		w.WriteHeader(http.StatusBadRequest)
		return
	case m.Method == "initialize" && r.Header.Get("Mcp-Protocol-Version") != modernRevision: // who does not know us may ask
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, failure(string(m.ID), onlyModern))
		return
	}
	if wrong := v.headers(r, m); wrong != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, failure(string(m.ID), fmt.Sprintf(`{"code":-32020,"message":%q}`, wrong)))
		return
	}
	s := v.newSession()
	wire := &postWire{outlet: newOutlet(), crashed: make(chan struct{})}
	s.wire = wire
	s.deliver(frame{text: text})
	how := v.reply(w, r, wire, m)
	close(wire.done)
	s.ended(how)
}

// answered hands on an answer to a request that came in one of the replies; false:
// there is none.
func (v *modernServer) answered(m envelope, text string) bool {
	v.server.mu.Lock()
	h := v.host
	v.server.mu.Unlock()
	x := h.whoAsked(m.ID)
	if x != nil {
		x.s.deliver(frame{text: text})
	}
	return x != nil
}

// headers compares what the headers say with what the body says (ME1 to ME3).
// What is wrong is a fault of the client's, except for the headers of
// arguments, of which it may not know yet (ME4).
func (v *modernServer) headers(r *http.Request, m envelope) (wrong string) {
	accept := r.Header.Get("Accept")
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" || !strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream") {
		v.fault(fmt.Sprintf("POST with Accept: %q and Content-Type: %q", accept, kind))
	}
	want := headersOf(m)
	for _, name := range []string{"Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id", "Last-Event-Id"} {
		if got := r.Header.Values(name); strings.Join(got, "|") != strings.Join(want.Values(name), "|") {
			wrong = fmt.Sprintf("%s of %s is %q, want %q", name, m.Method, got, want.Values(name))
			v.fault(wrong)
		}
	}
	v.server.mu.Lock()
	h := v.host
	v.server.mu.Unlock()
	h.mu.Lock()
	shift := h.shift
	h.mu.Unlock()
	if shift && want.Get("Mcp-Param-Region") != "" {
		want.Set("Mcp-Param-Zone", want.Get("Mcp-Param-Region"))
		want.Del("Mcp-Param-Region")
		want.Del("Mcp-Param-Count")
	}
	for _, name := range []string{"Mcp-Param-Region", "Mcp-Param-Count", "Mcp-Param-Zone"} {
		if got := r.Header.Values(name); strings.Join(got, "|") != strings.Join(want.Values(name), "|") {
			return fmt.Sprintf("%s is %q, want %q", name, got, want.Values(name))
		}
	}
	return wrong
}

// reply writes the reply as it comes: as JSON when the response is the first,
// and every other time even so as a stream. It returns how it has ended.
func (v *modernServer) reply(w http.ResponseWriter, r *http.Request, wire *postWire, m envelope) string {
	streaming := false
	for {
		select {
		case text := <-wire.out:
			last := answers(shrink(text), string(m.ID))
			if last {
				v.mu.Lock()
				v.replies++
				streaming = streaming || v.replies%2 == 0 && !strings.Contains(text, `"error"`)
				v.mu.Unlock()
			}
			if last && !streaming {
				w.Header().Set("Content-Type", "application/json; charset=utf-8")
				w.WriteHeader(statusOf(text))
				io.WriteString(w, text)
				return "answered"
			}
			streaming = true
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, ": comment\n\ndata: %s\n\n", text)
			if err := http.NewResponseController(w).Flush(); err != nil {
				return "closed"
			}
			if last {
				return "answered"
			}
		case <-r.Context().Done():
			return "closed"
		case <-wire.crashed:
			panic(http.ErrAbortHandler)
		}
	}
}

// statusOf is the status of a reply that is one response (MI11, MI12).
func statusOf(text string) int {
	m, _ := open(shrink(text))
	var body struct{ Code int }
	if m.Error == nil || json.Unmarshal(m.Error, &body) != nil {
		return http.StatusOK
	}
	switch body.Code {
	case -32020, -32021, -32022:
		return http.StatusBadRequest
	case -32601:
		return http.StatusNotFound
	}
	return http.StatusOK
}
