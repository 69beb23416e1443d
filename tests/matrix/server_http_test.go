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
	"time"

	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// httpServer is a strict server of Streamable HTTP.
type httpServer struct {
	*server
	mu   sync.Mutex
	next int
	live map[string]*httpWire
}

// httpWire is one session.
type httpWire struct {
	v  *httpServer
	s  *session
	id string

	mu        sync.Mutex
	revision  string
	streams   map[string]*outlet // by request; "" is the standalone one
	changed   chan struct{}      // closed and replaced with streams
	cancelled map[string]bool    // requests
	beginning string             // the id of an initialize that is being answered
	over      chan struct{}      // closed by DELETE
	replies   int
	events    int
}

func newHTTPServer(t testing.TB) *server {
	v := &httpServer{server: newServer(), live: map[string]*httpWire{}}
	addr := v.serveHTTP(t, v)
	v.forget = func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, w := range v.live {
			w.s.ended("the server's own end")
		}
		clear(v.live)
	}
	v.target = []string{"http://" + addr + "/up/mcp?x=%2F"}
	v.ends = []string{"DELETE"}
	return v.server
}

// send puts a text on the stream of a request, or on the standalone one.
func (w *httpWire) send(on, text string) error {
	if m, err := open(text); err == nil && m.isResponse() {
		on = string(m.ID)
		w.mu.Lock()
		noteRevision(text, &w.revision)
		w.mu.Unlock()
	}
	timeout := time.After(harness.Patience)
	for {
		w.mu.Lock()
		o, changed := w.streams[on], w.changed
		w.mu.Unlock()
		if o != nil {
			return o.send(text)
		}
		if on != "" {
			return fmt.Errorf("there is no stream of request %s", on)
		}
		select {
		case <-changed:
		case <-timeout:
			return fmt.Errorf("the client opens no standalone stream")
		}
	}
}

func (w *httpWire) crash() {}

func (w *httpWire) open(on string) *outlet {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := newOutlet()
	w.streams[on] = o
	close(w.changed)
	w.changed = make(chan struct{})
	return o
}

// shut takes a stream back, and reports whether its reader may have gone.
func (w *httpWire) shut(on string, o *outlet) (may bool) {
	w.v.mu.Lock()
	live := w.v.live[w.id] != nil
	w.v.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	close(o.done)
	if w.streams[on] == o {
		delete(w.streams, on)
	}
	// A restart also cuts off an initialize that has come in while it began.
	return !live || w.cancelled[on] || on == w.beginning
}

func (v *httpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.RequestURI() != "/up/mcp?x=%2F" {
		v.fault(r.Method + " " + r.URL.RequestURI())
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		v.fault("reading a body: " + err.Error())
		return
	}
	text := string(body)
	if m, err := open(text); err == nil && m.Method == "initialize" {
		v.initialize(w, r, text, m)
		return
	} else if err == nil && m.Method == "server/discover" && r.Header.Get("Mcp-Session-Id") == "" {
		// As the SDKs' servers with sessions do.
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`)
		return
	}
	v.mu.Lock()
	s := v.live[r.Header.Get("Mcp-Session-Id")]
	v.mu.Unlock()
	if s == nil {
		if r.Header.Get("Mcp-Session-Id") == "" {
			v.fault(r.Method + " without a session id: " + clip(text))
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`)
		return
	}
	s.version(r)
	switch r.Method {
	case http.MethodPost:
		s.post(w, r, text)
	case http.MethodGet:
		s.get(w, r)
	case http.MethodDelete:
		v.mu.Lock()
		delete(v.live, s.id)
		v.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
		close(s.over)
		s.s.ended("DELETE")
	default:
		s.s.fault("method %s", r.Method)
	}
}

// version: LE4.
func (w *httpWire) version(r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := r.Header.Get("MCP-Protocol-Version"); got != w.revision && (w.revision >= "2025-06-18" || got != "") {
		w.s.fault("%s with MCP-Protocol-Version: %q, want %s", r.Method, got, w.revision)
	}
}

// posted checks the headers of a POST (LE1).
func (w *httpWire) posted(r *http.Request) {
	accept := r.Header.Get("Accept")
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" || !strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream") {
		w.s.fault("POST with Accept: %q and Content-Type: %q", accept, kind)
	}
}

// initialize makes a session (LE3).
func (v *httpServer) initialize(w http.ResponseWriter, r *http.Request, text string, m envelope) {
	if got := r.Header.Get("Mcp-Session-Id"); r.Method != http.MethodPost || got != "" {
		v.fault("initialize by " + r.Method + " with session id " + got)
	}
	wire := &httpWire{v: v, s: v.newSession(), streams: map[string]*outlet{}, changed: make(chan struct{}), cancelled: map[string]bool{}, beginning: string(m.ID), over: make(chan struct{})}
	wire.s.wire = wire
	v.mu.Lock()
	v.next++
	wire.id = fmt.Sprintf("session-of-upstream-%d-!~", v.next)
	v.live[wire.id] = wire
	v.mu.Unlock()
	w.Header().Set("Mcp-Session-Id", wire.id)
	wire.posted(r)
	wire.exchange(w, r, text, string(m.ID))
	wire.mu.Lock()
	wire.beginning = ""
	wire.mu.Unlock()
	if r.Context().Err() != nil { // by a restart: nobody knows of the session
		v.mu.Lock()
		delete(v.live, wire.id)
		v.mu.Unlock()
		wire.s.ended("the server's own end")
	}
}

func (w *httpWire) post(rw http.ResponseWriter, r *http.Request, text string) {
	w.posted(r)
	m, err := open(text)
	if err != nil {
		w.s.fault("POST of %s: %v", clip(text), err)
	}
	if m.isRequest() {
		w.exchange(rw, r, text, string(m.ID))
		return
	}
	if m.Method == "notifications/cancelled" {
		var p struct{ RequestID json.RawMessage }
		if json.Unmarshal(m.Params, &p) == nil {
			w.mu.Lock()
			w.cancelled[string(p.RequestID)] = true
			w.mu.Unlock()
		}
	}
	w.s.deliver(frame{text: text})
	rw.WriteHeader(http.StatusAccepted)
}

// exchange answers one request: as JSON when nothing precedes the answer, and
// every other time even so as a stream.
func (w *httpWire) exchange(rw http.ResponseWriter, r *http.Request, text, id string) {
	o := w.open(id)
	w.s.deliver(frame{text: text})
	gone := func() {
		if !w.shut(id, o) {
			w.s.fault("the client has left request %s without its answer", id)
		}
	}
	streaming := false
	for {
		select {
		case text := <-o.out:
			last := answers(text, id)
			if last {
				w.mu.Lock()
				w.replies++
				streaming = streaming || w.replies%2 == 0
				w.mu.Unlock()
			}
			if !streaming && last {
				rw.Header().Set("Content-Type", "application/json; charset=utf-8")
				io.WriteString(rw, text)
				w.shut(id, o)
				return
			}
			if err := w.event(rw, text); err != nil {
				gone()
				return
			}
			streaming = true
			if last {
				w.shut(id, o)
				return
			}
		case <-r.Context().Done():
			gone()
			return
		case <-w.over:
			w.shut(id, o)
			return
		}
	}
}

// answers reports whether a text has the response to a request in it.
func answers(text, id string) bool {
	for _, one := range elements(text) {
		if m, _ := open(one); m.isResponse() && string(m.ID) == id {
			return true
		}
	}
	return false
}

// get is the standalone stream (LE9).
func (w *httpWire) get(rw http.ResponseWriter, r *http.Request) {
	if got := r.Header.Get("Accept"); !strings.Contains(got, "text/event-stream") || r.Header.Get("Last-Event-ID") != "" {
		w.s.fault("GET with Accept: %q and Last-Event-ID: %q", got, r.Header.Get("Last-Event-ID"))
	}
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.WriteHeader(http.StatusOK)
	if err := w.event(rw, ""); err != nil {
		return
	}
	o := w.open("")
	defer w.shut("", o) // who leaves it may come back
	for {
		select {
		case text := <-o.out:
			if err := w.event(rw, text); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-w.over:
			return
		}
	}
}

// event writes one event, with an id from 2025-11-25 on. An empty one is the
// first of its stream, which comes by itself before another.
func (w *httpWire) event(rw http.ResponseWriter, text string) error {
	w.mu.Lock()
	w.events++
	n, modern := w.events, w.revision >= "2025-11-25"
	w.mu.Unlock()
	rw.Header().Set("Content-Type", "text/event-stream")
	switch {
	case modern && text == "":
		fmt.Fprintf(rw, "id: e-%d\nretry: 50\ndata:\n\n", n)
	case modern:
		fmt.Fprintf(rw, "id: e-%d\ndata: %s\n\n", n, text)
	case text == "":
		io.WriteString(rw, ": hello\n\n")
	default:
		fmt.Fprintf(rw, "event: message\ndata: %s\n\n", text)
	}
	return http.NewResponseController(rw).Flush()
}
