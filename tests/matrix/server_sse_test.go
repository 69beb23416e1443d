package matrix

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// outlet is a stream that a handler writes and others fill.
type outlet struct {
	out  chan string
	done chan struct{} // closed when nobody writes it any more
}

func newOutlet() *outlet { return &outlet{make(chan string, 1000), make(chan struct{})} }

func (o *outlet) send(text string) error {
	select {
	case <-o.done:
		return errors.New("the stream has ended")
	default:
	}
	select {
	case o.out <- text:
		return nil
	case <-o.done:
		return errors.New("the stream has ended")
	}
}

// sseServer is a strict server of HTTP+SSE.
type sseServer struct {
	*server
	mu   sync.Mutex
	next int
	live map[string]*sseWire
}

// sseWire is one session.
type sseWire struct {
	*outlet
	s *session

	mu       sync.Mutex
	revision string
}

func (w *sseWire) send(_, text string) error {
	w.mu.Lock()
	for _, one := range elements(text) {
		noteRevision(one, &w.revision)
	}
	w.mu.Unlock()
	return w.outlet.send(text)
}

func (w *sseWire) crash() {}

// noteRevision takes the revision from the answer to initialize.
func noteRevision(text string, revision *string) {
	if *revision == "" {
		var c httpClient
		c.negotiated(text)
		*revision = c.revision
	}
}

func newSSEServer(t testing.TB) *server {
	v := &sseServer{server: newServer(), live: map[string]*sseWire{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /up/events", v.get)
	mux.HandleFunc("POST /up/post/{id}", v.post)
	addr := v.serveHTTP(t, mux)
	v.forget = func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		clear(v.live)
	}
	v.target = []string{"http://" + addr + "/up/events"}
	v.ends = []string{"the stream was closed"}
	return v.server
}

// get opens a stream, whose first event names the endpoint (SS1).
func (v *sseServer) get(w http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Accept"); !strings.Contains(got, "text/event-stream") {
		v.fault("GET with Accept: " + got)
	}
	wire := &sseWire{outlet: newOutlet(), s: v.newSession()}
	wire.s.wire = wire
	v.mu.Lock()
	v.next++
	id := fmt.Sprintf("s-%d", v.next)
	v.live[id] = wire
	v.mu.Unlock()
	defer func() {
		close(wire.done)
		v.mu.Lock()
		delete(v.live, id)
		v.mu.Unlock()
		wire.s.ended("the stream was closed")
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	fmt.Fprintf(w, ": hello\n\nevent: endpoint\ndata: post/%s?k=a%%26b\n\n", id)
	flush()
	for {
		select {
		case text := <-wire.out:
			fmt.Fprintf(w, "event: message\ndata: %s\n\n", text)
			if err := flush(); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}

// post takes a message.
func (v *sseServer) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		v.fault("POST: " + err.Error())
		return
	}
	v.mu.Lock()
	wire := v.live[r.PathValue("id")]
	v.mu.Unlock()
	if wire == nil || r.URL.RawQuery != "k=a%26b" {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	if got, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); got != "application/json" {
		wire.s.fault("POST with Content-Type: %s", got)
	}
	wire.mu.Lock()
	revision := wire.revision
	wire.mu.Unlock()
	if got := r.Header.Get("MCP-Protocol-Version"); revision >= "2025-06-18" && got != revision { // SS8
		wire.s.fault("POST with MCP-Protocol-Version: %q, want %s", got, revision)
	}
	if strings.HasPrefix(string(body), "{no") {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	wire.s.deliver(frame{text: string(body)})
	w.WriteHeader(http.StatusAccepted)
	io.WriteString(w, "Accepted")
}
