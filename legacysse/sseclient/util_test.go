package sseclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// The tests of the client run in synctest bubbles, against a server that
// misbehaves as the test wants.

const note = `{"jsonrpc":"2.0","method":"n"}`

// fake is an HTTP+SSE server played by the test. Each GET becomes a stream,
// each POST is answered 202, unless the functions say otherwise.
type fake struct {
	t   *testing.T
	net *bridgetest.Network
	rt  *http.Transport

	mu      sync.Mutex
	onGET   func(w http.ResponseWriter, r *http.Request) bool           // true: it has answered
	onPOST  func(w http.ResponseWriter, r *http.Request, m string) bool // true: it has answered
	first   func(n int) string                                          // what the stream begins with
	streams []*fakeStream
	posts   []post
	asked   int // requests, whatever they were
}

type post struct {
	text   string
	path   string
	header http.Header
}

type fakeStream struct {
	out    chan string // raw text
	header http.Header
	over   chan struct{} // the client or the test has ended it
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, net: bridgetest.NewNetwork()}
	f.first = func(n int) string { return fmt.Sprintf("event: endpoint\ndata: /message?s=%d\n\n", n) }
	srv := &http.Server{Handler: f}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(f.net)
	}()
	f.rt = &http.Transport{DialContext: f.net.Dial, DisableCompression: true}
	t.Cleanup(func() {
		srv.Close()
		f.rt.CloseIdleConnections()
		<-done
		time.Sleep(time.Second) // net/http lingers on connections that it breaks off
	})
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked++
	onGET, onPOST := f.onGET, f.onPOST
	f.mu.Unlock()
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		f.mu.Lock()
		f.posts = append(f.posts, post{string(body), r.URL.RequestURI(), r.Header})
		f.mu.Unlock()
		if onPOST == nil || !onPOST(w, r, string(body)) {
			w.WriteHeader(http.StatusAccepted)
		}
		return
	}
	if onGET != nil && onGET(w, r) {
		return
	}
	s := &fakeStream{out: make(chan string, 100), header: r.Header, over: make(chan struct{})}
	defer close(s.over)
	f.mu.Lock()
	first := f.first(len(f.streams))
	f.streams = append(f.streams, s)
	f.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, first)
	w.(http.Flusher).Flush()
	for {
		select {
		case text, ok := <-s.out:
			if !ok {
				return
			}
			_, _ = io.WriteString(w, text)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// stream returns the newest stream, of which there must be n by now.
func (f *fake) stream(n int) *fakeStream {
	f.t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.streams) != n {
		f.t.Fatalf("%d streams were opened, want %d", len(f.streams), n)
	}
	return f.streams[n-1]
}

func (s *fakeStream) say(texts ...string) {
	for _, text := range texts {
		s.out <- "event: message\ndata: " + text + "\n\n"
	}
	synctest.Wait()
}

func (s *fakeStream) end() {
	close(s.out)
	synctest.Wait()
}

// posted returns the next POST, which must be there by now.
func (f *fake) posted() post {
	f.t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.posts) == 0 {
		f.t.Fatal("nothing was posted")
	}
	p := f.posts[0]
	f.posts = f.posts[1:]
	return p
}

func (f *fake) wantPost(text string) {
	f.t.Helper()
	if p := f.posted(); p.text != text {
		f.t.Errorf("posted %s, want %s", p.text, text)
	}
}

func (f *fake) wantNoPost() {
	f.t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.posts) > 0 {
		f.t.Errorf("posted %s, want nothing", f.posts[0].text)
	}
}

// user is the local client, played by the test.
type user struct {
	bridge.Conn
	t   *testing.T
	f   *fake
	log *bytes.Buffer
}

func (f *fake) dial(opts Options) *user {
	f.t.Helper()
	return f.dialURL("http://127.0.0.1/sse", opts)
}

func (f *fake) dialURL(url string, opts Options) *user {
	f.t.Helper()
	opts.Transport = f.rt
	u := &user{t: f.t, f: f, log: new(bytes.Buffer)}
	opts.Logger = hclog.New(&hclog.LoggerOptions{Output: u.log, Level: hclog.Debug})
	conn, err := (&Client{URL: url, Options: opts}).Dial(f.t.Context())
	bridgetest.Must(f.t, err)
	u.Conn = conn
	f.t.Cleanup(func() { conn.Close(nil) })
	return u
}

// sends sends messages, and goes on at once where Send waits.
func (u *user) sends(texts ...string) {
	u.t.Helper()
	for _, text := range texts {
		done := make(chan error, 1)
		go func() { done <- u.Send(context.Background(), msg(text)) }()
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				u.t.Errorf("Send: %v", err)
			}
		default:
		}
	}
}

// gets receives the next message, which must be there by now.
func (u *user) gets() jsonrpc.Message {
	u.t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	m, err := bridgetest.Recv(ctx, u)
	if err != nil {
		u.t.Fatalf("Recv: %v", err)
	}
	return m
}

func (u *user) getsText(texts ...string) {
	u.t.Helper()
	for _, text := range texts {
		if got := string(new(u.gets()).Bytes()); got != text {
			u.t.Errorf("the client got %s, want %s", got, text)
		}
	}
}

func (u *user) getsNothing() {
	u.t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, u); !errors.Is(err, context.DeadlineExceeded) {
		u.t.Errorf("the client got %s, %v; want nothing", m.Bytes(), err)
	}
}

// getsError wants an error response with this id and data.reason, and returns it.
func (u *user) getsError(id, reason string) jsonrpc.Message {
	u.t.Helper()
	m := u.gets()
	if !m.IsError() || m.ID().String() != id || string(m.Lookup("error", "data", "reason")) != `"`+reason+`"` || string(m.Lookup("error", "code")) != "-32603" {
		u.t.Errorf("the client got %s, want an error for %s with reason %s", m.Bytes(), id, reason)
	}
	return m
}

// initializes has the session begun, in this version.
func (u *user) initializes(version string) *fakeStream {
	u.t.Helper()
	u.sends(initializeText)
	s := u.f.stream(1)
	u.f.wantPost(initializeText)
	answer := `{"jsonrpc":"2.0","id":0,"result":` + string(initializeResult(version)) + `}`
	s.say(answer)
	u.getsText(answer)
	u.sends(initializedText)
	u.f.wantPost(initializedText)
	return s
}

// reinitialized answers the bridge's own initialize on the stream s.
func (u *user) reinitialized(s *fakeStream) {
	u.t.Helper()
	p := u.f.posted()
	m := msg(p.text)
	if want := strings.Replace(initializeText, `"id":0`, `"id":`+m.ID().String(), 1); p.text != want {
		u.t.Errorf("posted %s, want %s", p.text, want)
	}
	s.say(`{"jsonrpc":"2.0","id":` + m.ID().String() + `,"result":` + string(initializeResult("2024-11-05")) + `}`)
	u.f.wantPost(initializedText)
}
