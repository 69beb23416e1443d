package remote

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/access"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/internal/doctor"
	"github.com/mcp-bridge/mcp-bridge/internal/hub"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// held is a body that gives nothing before its end.
type held struct {
	io.ReadCloser
	all *strings.Reader
}

func (h *held) Read(b []byte) (int, error) {
	if h.all == nil {
		text, err := io.ReadAll(h.ReadCloser)
		if err != nil {
			return 0, err
		}
		h.all = strings.NewReader(string(text))
	}
	return h.all.Read(b)
}

// holding is the bridge behind a proxy that holds event streams back.
func holding(t *testing.T) http.Handler {
	return proxy(t, func(r *http.Response) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), typeSSE) {
			r.Body = &held{ReadCloser: r.Body}
		}
	})
}

// unflushed holds back headers as well.
func unflushed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(struct{ http.ResponseWriter }{w}, r) })
}

// TestHeldBack: H11, of all kinds of streams. nginx does so, too: see the tests in the
// folder tests.
func TestHeldBack(t *testing.T) {
	for _, c := range []struct {
		name string
		site func(t *testing.T) site
	}{
		{"GET", func(t *testing.T) site { return at(t, "/mcp", unflushed(only(holding(t)))) }},
		{"subscriptions/listen", func(t *testing.T) site {
			h := holding(t)
			return at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					respond(w, 405, "text/plain", "")
					return
				}
				h.ServeHTTP(w, r)
			}))
		}},
		{"HTTP+SSE", func(t *testing.T) site { return at(t, "/sse", holding(t)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wantFinding(t, c.site(t), "H11", doctor.Error, c.name[:3])
		})
	}
}

// TestHeldBackInDoubt: H11 is found where the time of the first check was cut short, because
// other checks took so long; and where only that one was too slow, nothing is said.
func TestHeldBackInDoubt(t *testing.T) {
	const discovered = `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprint("held=", held), func(t *testing.T) {
			t.Parallel()
			short := cutShort{t.Context(), make(chan struct{})}
			var subscriptions atomic.Int32
			s := at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				m, _ := jsonrpc.Parse(body)
				id := m.ID().String()
				if r.Header.Get(headerMethod) == "server/discover" {
					respond(w, 200, typeJSON, fmt.Sprintf(discovered, id))
					return
				}
				first := subscriptions.Add(1) == 1
				if first {
					close(short.done)
				}
				if first || held {
					<-r.Context().Done()
					return
				}
				respond(w, 200, typeSSE, `data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}`+"\n\n")
			}))
			p, m, report := modernProber(t, s)
			m.checkSubscription(short)
			p.runRechecks(t.Context())
			if report.HasFinding("H11") != held {
				t.Errorf("H11 found: %v, want %v", !held, held)
			}
		})
	}
}

// cutShort is a context whose deadline passes when done is closed.
type cutShort struct {
	context.Context
	done chan struct{}
}

func (c cutShort) Done() <-chan struct{} { return c.done }

func (c cutShort) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestCallOfOneEvent: what is counted is in the singular where there is one.
func TestCallOfOneEvent(t *testing.T) {
	t.Parallel()
	s := called(t, "/mcp", "echo", func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		m, _ := jsonrpc.Parse(body)
		return respond(w, 200, typeSSE, `data: {"jsonrpc":"2.0","id":`+m.ID().String()+`,"result":{"content":[]}}`+"\n\n")
	})
	singular := func(_ *doctor.Report, text string) bool { return strings.Contains(text, ", with 1 event\n") }
	if ok, _, text := diagnoseUntil(t, s, singular); !ok {
		t.Error(text)
	}
}

// TestPatienceAfterCall: that of --slow is for the call alone.
func TestPatienceAfterCall(t *testing.T) {
	t.Parallel()
	s := at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, _ := jsonrpc.Parse(body)
		respond(w, 200, typeJSON, `{"jsonrpc":"2.0","id":`+m.ID().String()+`,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}`)
	}))
	s.opts.RunSlowChecks, s.opts.ToolToCall = true, "echo"
	p, m, _ := modernProber(t, s)
	commonChecks{p, m}.checkToolCall(t.Context())
	if p.ReplyTimeout != answerTimeout {
		t.Errorf("the checks after the call wait for %v, want %v", p.ReplyTimeout, answerTimeout)
	}
}

// cutting closes connections on which nothing has come from the client for a while.
func cutting(t *testing.T, h http.Handler, after time.Duration) site {
	t.Helper()
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { front.Close() })
	back := serve(t, h).Listener.Addr().String()
	go func() {
		for {
			c, err := front.Accept()
			if err != nil {
				return
			}
			go pipeUntilQuiet(c, back, after)
		}
	}()
	return site{url: "http://" + front.Addr().String() + "/mcp"}
}

func pipeUntilQuiet(c net.Conn, to string, after time.Duration) {
	defer c.Close()
	b, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer b.Close()
	end := time.AfterFunc(after, func() { c.Close(); b.Close() })
	defer end.Stop()
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(c, b); c.Close() }()
	in := bufio.NewReader(c)
	for {
		buf := make([]byte, 32<<10)
		n, err := in.Read(buf)
		if err != nil {
			break
		}
		end.Reset(after)
		if _, err := b.Write(buf[:n]); err != nil {
			break
		}
	}
	b.Close()
	<-done
}

// TestIdleCut: H12, with sessions, without, and over HTTP+SSE.
func TestIdleCut(t *testing.T) {
	const after = 2500 * time.Millisecond
	eras := func(e era.Eras) http.Handler {
		return newBridge(t, access.Policy{}, func(s *hub.Spec) { s.Clients = e })
	}
	for name, h := range map[string]http.Handler{"/mcp": eras(era.OnlyLegacy), "/mcp#modern": eras(era.OnlyModern), "/sse": eras(era.Auto)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := cutting(t, h, after)
			s.url = strings.Replace(s.url, "/mcp", name, 1)
			s.opts.RunSlowChecks, s.opts.quietStreamWait = true, 2*after
			wantFinding(t, s, "H12", doctor.Warning, "s, to a minute or more. A comment every 15 seconds, as mcp-bridge serve sends, comes too late.")
			s = cutting(t, h, time.Hour)
			s.url = strings.Replace(s.url, "/mcp", name, 1)
			s.opts.RunSlowChecks, s.opts.quietStreamWait = true, after
			open := func(r *doctor.Report, _ string) bool {
				return isHealthy(r) && slices.Contains(r.Facts(), doctor.Fact{Name: "quiet stream", Value: "open for " + after.String()})
			}
			if ok, _, text := diagnoseUntil(t, s, open); !ok {
				t.Errorf("a stream that stays open:\n%s", text)
			}
		})
	}
}

// TestIdleStreamEndsSoon: a stream that the server ends at once, or that is lost at once, is not said to stay open.
func TestIdleStreamEndsSoon(t *testing.T) {
	for _, isLost := range []bool{false, true} {
		s := at(t, "/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			respond(w, 200, typeSSE, ": hello\n\n")
			if isLost {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}))
		report := doctor.NewReport(s.url)
		p, err := newProber(s.url, s.opts, report)
		bridgetest.Must(t, err)
		t.Cleanup(func() { p.Close() })
		p.checkIdleStream(t.Context(), foundProtocols{legacy: &session{prober: p}})
		if fact := p.facts["quiet stream"]; !strings.HasPrefix(fact, "ended after ") || len(report.Findings()) > 0 {
			t.Errorf("lost: %v; the fact is %q, and the findings are %v", isLost, fact, report.Findings())
		}
	}
}

// TestSilentServer: H1, and the doctor ends in time.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	began := time.Now()
	wantFinding(t, silent(t), "H1", doctor.Error, "did not come")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the doctor took %v", took)
	}
}

// TestCancelled: the doctor ends when it is told to, and says so.
func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := silent(t)
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := Diagnose(ctx, s.url, s.opts, doctor.NewReport(s.url)); err == nil {
		t.Error("a diagnosis that was cancelled ends without an error")
	}
}

// modernProber returns the prober of a server that speaks 2026-07-28, and where it reports to.
func modernProber(t *testing.T, s site) (*prober, *modernServer, *doctor.Report) {
	t.Helper()
	report := doctor.NewReport(s.url)
	p, err := newProber(s.url, s.opts, report)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	p.ReplyTimeout = answerTimeout
	m := p.modernServerOf(p.discover(t.Context()))
	if m == nil {
		t.Fatal("the server was not recognized")
	}
	return p, m, report
}
