package tests

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/tests/internal/harness"
)

// sentSpan is a span as the collector has got it.
type sentSpan struct {
	service, name, kind string
	trace, id, parent   string
	links               []string // the ids of spans
	session, errorType  string
}

// collect runs an OpenTelemetry collector, and returns the environment that names it.
func collect(t *testing.T) (spans <-chan sentSpan, env []string) {
	all := make(chan sentSpan, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		for _, of := range request.ResourceSpans {
			service := ""
			for _, a := range of.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, s := range of.ScopeSpans[0].Spans {
				one := sentSpan{service: service, name: s.Name, kind: s.Kind.String(), trace: hex.EncodeToString(s.TraceId),
					id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId)}
				for _, l := range s.Links {
					one.links = append(one.links, hex.EncodeToString(l.SpanId))
				}
				for _, a := range s.Attributes {
					switch a.Key {
					case "mcp.session.id":
						one.session = a.Value.GetStringValue()
					case "error.type":
						one.errorType = a.Value.GetStringValue()
					}
				}
				all <- one
			}
		}
	}))
	t.Cleanup(srv.Close)
	return all, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + srv.URL, "OTEL_BSP_SCHEDULE_DELAY=20"}
}

// pairOf waits for the two spans of a request.
func pairOf(t *testing.T, spans <-chan sentSpan, name string) (server, client sentSpan) {
	t.Helper()
	timeout := time.NewTimer(harness.Patience)
	defer timeout.Stop()
	for server.id == "" || client.id == "" {
		select {
		case s := <-spans:
			switch {
			case s.name != name:
			case s.kind == "SPAN_KIND_SERVER":
				server = s
			case s.kind == "SPAN_KIND_CLIENT":
				client = s
			}
		case <-timeout.C:
			t.Fatalf("no spans of %s", name)
		}
	}
	return server, client
}

const (
	theirTrace, theirSpan, httpSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "1111111111111111"
	theirParent                     = "00-" + theirTrace + "-" + theirSpan + "-01"
	httpParent                      = "00-" + theirTrace + "-" + httpSpan + "-01"
	tracedCall                      = `{"jsonrpc":"2.0","id":1,"method":"echo","params":{"_meta":{"traceparent":"` + theirParent + `"},"n":1.0}}`
	untracedCall                    = `{"jsonrpc":"2.0","id":2,"method":"echo","params":{"n":1.0}}`
)

// The bridge's spans join the trace of the client, and the server is told to join it below
// them: through serve and its HTTP, and through connect and its stdin.
func TestSpans(t *testing.T) {
	t.Parallel()
	// said returns the parents in the calls that the server has read.
	said := func(record string) (parents []string) {
		for line := range strings.Lines(harness.ReadFile(t, record)) {
			if strings.Contains(line, `"echo"`) {
				var m struct {
					Params struct {
						Meta struct{ Traceparent string } `json:"_meta"`
					}
				}
				bridgetest.Must(t, json.Unmarshal([]byte(line), &m))
				parents = append(parents, m.Params.Meta.Traceparent)
			}
		}
		return parents
	}
	check := func(t *testing.T, server, client sentSpan, parent string) {
		t.Helper()
		if server.service != "mcp-bridge" || server.trace != theirTrace || client.trace != theirTrace || server.parent != parent || client.parent != server.id {
			t.Errorf("want the trace %s below %s: %+v, %+v", theirTrace, parent, server, client)
		}
	}
	t.Run("serve", func(t *testing.T) {
		t.Parallel()
		spans, env := collect(t)
		record := filepath.Join(t.TempDir(), "stdin")
		c := serveArgv(t, env, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", childBin, "-record", record).open("2025-11-25")
		for _, call := range []string{tracedCall, untracedCall} {
			h := c.header()
			h.Set("Traceparent", httpParent)
			resp := c.do(t.Context(), http.MethodPost, call, h)
			_, err := io.Copy(io.Discard, resp.Body)
			bridgetest.Must(t, err)
			resp.Body.Close()
			server, client := pairOf(t, spans, "echo")
			parents := said(record)
			if call == tracedCall {
				check(t, server, client, theirSpan)
				if !slices.Equal(server.links, []string{httpSpan}) || server.session == "" || strings.Contains(c.id, server.session) {
					t.Errorf("%+v", server)
				}
			} else {
				check(t, server, client, httpSpan)
			}
			if want := "00-" + theirTrace + "-" + client.id + "-01"; parents[len(parents)-1] != want {
				t.Errorf("the server got %q, want %q", parents, want)
			}
		}
		c.background(`{"jsonrpc":"2.0","id":3,"method":"hang"}`)
		harness.WaitUntil(t, "the call to be there", func() bool { return strings.Contains(harness.ReadFile(t, record), `"hang"`) })
		if status := c.end(); status >= 300 {
			t.Errorf("status %d", status)
		}
		if server, client := pairOf(t, spans, "hang"); server.errorType != "session_lost" || client.errorType != "session_lost" {
			t.Errorf("%+v %+v", server, client)
		}
	})
	t.Run("connect", func(t *testing.T) {
		t.Parallel()
		spans, env := collect(t)
		record := filepath.Join(t.TempDir(), "stdin")
		p := start(t, env, bridgeBin, "connect", "--", childBin, "-record", record)
		p.send(initialize("2025-11-25"))
		p.line()
		p.send(tracedCall)
		p.line()
		p.Stdin.Close()
		server, client := pairOf(t, spans, "echo")
		check(t, server, client, theirSpan)
		if want := []string{"00-" + theirTrace + "-" + client.id + "-01"}; !slices.Equal(said(record), want) {
			t.Errorf("the server got %q, want %q", said(record), want)
		}
	})
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		for _, env := range [][]string{nil, {"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"},
			{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_TRACES_EXPORTER=none"}} {
			record := filepath.Join(t.TempDir(), "stdin")
			c := serveArgv(t, env, bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", childBin, "-record", record).open("2025-11-25")
			c.answer(tracedCall)
			if !strings.HasSuffix(harness.ReadFile(t, record), tracedCall+"\n") {
				t.Errorf("the server read %s", harness.ReadFile(t, record))
			}
		}
	})
}

// A collector that is not there is a line in the log, and keeps nobody waiting.
func TestSpansUnsent(t *testing.T) {
	t.Parallel()
	s := serveArgv(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY=20"},
		bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", childBin)
	c := s.open("2025-11-25")
	s.proc.waitLog(regexp.MustCompile(`spans could not be sent`))
	c.answer(untracedCall)
	c.end()
	s.proc.Stop(t)
	if n := strings.Count(s.proc.Log(), "spans could not be sent"); n != 1 {
		t.Errorf("%d lines", n)
	}
	s = serveArgv(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
		bridgeBin, "serve", "--listen", "127.0.0.1:0", "--", childBin)
	s.open("2025-11-25").answer(tracedCall)
	s.proc.waitLog(regexp.MustCompile(`no spans are sent.*http/protobuf`))
}
