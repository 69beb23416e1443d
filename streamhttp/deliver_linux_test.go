package streamhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/httpserve"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/streamhttp"
)

// legacySession is a client of a Handler whose server has the connections.
type legacySession struct {
	t       *testing.T
	h       *streamhttp.Handler
	srv     *httptest.Server
	version string
	id      string

	header string // is sent, too
}

func (s *legacySession) post(body string) (resp *http.Response, text string) {
	s.t.Helper()
	resp, err := s.do(s.t.Context(), body)
	if err != nil {
		s.t.Error(err)
		return &http.Response{}, ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Error(err)
	}
	return resp, string(b)
}

func (s *legacySession) do(ctx context.Context, body string) (*http.Response, error) {
	r, _ := http.NewRequestWithContext(ctx, "POST", s.srv.URL, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if s.header != "" {
		r.Header.Set(s.header, "1")
	}
	if s.id != "" {
		r.Header.Set("Mcp-Session-Id", s.id)
		r.Header.Set("Mcp-Protocol-Version", s.version)
	}
	return s.srv.Client().Do(r)
}

// newLegacySession opens a session with a Handler. server answers its requests.
func newLegacySession(t *testing.T, version string, server bridge.HandlerFunc, wrap func(http.Handler) http.Handler) *legacySession {
	s := newLegacySite(t, streamhttp.HandlerOptions{}, server, wrap)
	s.version = version
	s.initialize()
	s.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

func newLegacySite(t *testing.T, opts streamhttp.HandlerOptions, server bridge.HandlerFunc, wrap func(http.Handler) http.Handler) *legacySession {
	opts.CommitAfter = time.Minute
	h := streamhttp.NewHandler(server, opts)
	srv := httptest.NewUnstartedServer(wrap(h))
	srv.Config.ConnContext = httpserve.WithInlineReply
	srv.Start()
	t.Cleanup(func() { srv.Close(); h.Close() })
	srv.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 100
	return &legacySession{t: t, h: h, srv: srv, version: "2025-06-18"}
}

func (s *legacySession) initialize() {
	s.t.Helper()
	s.id = ""
	resp, text := s.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + s.version + `","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	if s.id = resp.Header.Get("Mcp-Session-Id"); s.id == "" {
		s.t.Fatalf("initialize: %s %s", resp.Status, text)
	}
}

// bare adds nothing to a Handler, and echo answers with a request's params.
func bare(h http.Handler) http.Handler       { return h }
func echo(m jsonrpc.Message) jsonrpc.Message { return jsonrpc.NewResult(m.ID(), m.Params()) }

const helloBack = `{"protocolVersion":%s,"capabilities":{},"serverInfo":{"name":"s","version":"1"}}`

// answering returns a server that answers each request with what answer returns.
func answering(answer func(m jsonrpc.Message) jsonrpc.Message) bridge.HandlerFunc {
	return func(ctx context.Context, client bridge.Conn) error {
		var wg sync.WaitGroup
		defer wg.Wait()
		for {
			m, err := bridgetest.Recv(ctx, client)
			switch {
			case err != nil:
				return nil
			case m.Method() == "initialize":
				hello := fmt.Appendf(nil, helloBack, m.Lookup("params", "protocolVersion"))
				client.TrySend(jsonrpc.NewResult(m.ID(), hello))
			case m.Kind() == jsonrpc.Request:
				wg.Go(func() {
					if answer := answer(m); !client.TrySend(answer) {
						_ = client.Send(ctx, answer)
					}
				})
			}
		}
	}
}

// An answer to a POST that waits is written by whoever has it: it needs no deadline.
func TestServerDelivers(t *testing.T) {
	if n := runtime.GOMAXPROCS(0); n < 2 { // then the POST never waits when the answer comes
		runtime.GOMAXPROCS(2)
		defer runtime.GOMAXPROCS(n)
	}
	set := make(chan int32, 1)
	s := newLegacySession(t, "2025-06-18", answering(echo), func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d := &deadlines{ResponseWriter: w}
			h.ServeHTTP(d, r)
			if r.Header.Get("X-Count") != "" {
				set <- d.set.Load()
			}
		})
	})
	s.header = "X-Count"
	delivered := 0
	for i := range 1000 { // for the POST may not have come to wait yet
		s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{}}`, i+1))
		if <-set == 0 {
			delivered++
		}
	}
	if delivered == 0 {
		t.Error("the POSTs have written all answers themselves")
	}
	for i := range 200 {
		s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{"x":"%s"}}`, i+1, strings.Repeat("x", 2048)))
		if <-set == 0 {
			t.Error("a long answer may have to wait for the client")
		}
	}
}

// What is more than an answer is left to the POST: the beginning of a session, which
// has an id, and a batch, which is an array also with one answer in it.
func TestServerDeliversAnswersOnly(t *testing.T) {
	s := newLegacySession(t, "2025-03-26", answering(echo), bare)
	for i := range 300 {
		_, text := s.post(fmt.Sprintf(`[{"jsonrpc":"2.0","id":%d,"method":"m","params":{}}]`, i+1))
		if want := fmt.Sprintf(`[{"jsonrpc":"2.0","id":%d,"result":{}}]`, i+1); text != want {
			t.Fatalf("%s, want %s", text, want)
		}
	}
	for range 300 {
		s.initialize()
	}
}

// Who has its answer has given its place back.
func TestServerDeliversStateless(t *testing.T) {
	s := newLegacySite(t, streamhttp.HandlerOptions{Stateless: true}, answering(echo), bare)
	for i := range 1000 {
		_, text := s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{}}`, i+1))
		if n := s.h.Sessions(); n != 0 {
			t.Fatalf("%d places taken after %s", n, text)
		}
	}
}

// Many calls of one session at a time, answered in any order: each gets its own
// answer, whoever writes it.
func TestServerDeliversMany(t *testing.T) {
	s := newLegacySession(t, "2025-06-18", answering(echo), bare)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 200 {
				params := fmt.Sprintf(`{"n":"%d.%d%s"}`, i, j, strings.Repeat("x", j%7*400))
				resp, text := s.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":%s}`, i*1000+j+1, params))
				if want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, i*1000+j+1, params); text != want || resp.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%s %s %.99s, want %.99s", resp.Status, resp.Header.Get("Content-Type"), text, want)
				}
			}
		})
	}
	wg.Wait()
}

// A client that hangs up while its answer comes gets it or does not; nobody writes
// to a reply that is over.
func TestServerDeliversToNobody(t *testing.T) {
	answered := make(chan struct{})
	s := newLegacySession(t, "2025-06-18", answering(func(m jsonrpc.Message) jsonrpc.Message {
		answered <- struct{}{}
		return echo(m)
	}), bare)
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-answered
			cancel()
		}()
		resp, err := s.do(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m","params":{}}`, i+1))
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		cancel()
	}
}
