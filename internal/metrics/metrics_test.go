package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/metrics"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
)

// scrape returns what Prometheus would get.
func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// wants looks for whole lines.
func wants(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			var have []string
			for l := range strings.Lines(text) {
				if strings.HasPrefix(l, name) {
					have = append(have, l)
				}
			}
			t.Errorf("%s is missing; there are\n%s", line, strings.Join(have, ""))
		}
	}
}

// session runs a conversation whose both ends are observed.
func session(t *testing.T, o *observe.Observer) (client, server *bridgetest.Peer, end func(error)) {
	client, server = bridgetest.NewPeer(t, 10), bridgetest.NewPeer(t, 10)
	h := o.Serve("files", "http", bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		s := observe.SessionOf(ctx)
		s.SetServerTransport("stdio")
		return bridge.Pump(ctx, c, s.Conn(server, observe.Upstream), bridge.PumpOptions{})
	}))
	done := make(chan error, 1)
	go func() { done <- h.ServeConn(t.Context(), client) }()
	client.Says(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"c","version":"1"}}}`)
	server.Says(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	return client, server, func(err error) {
		server.End <- err
		<-done
	}
}

// call makes a call that takes a while.
func call(client, server *bridgetest.Peer, id int, tool, answer string) {
	client.Says(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`, id, tool)
	time.Sleep(150 * time.Millisecond)
	server.Says(`{"jsonrpc":"2.0","id":%d,%s}`, id, answer)
	for len(client.Out) > 0 {
		<-client.Out
	}
	for len(server.Out) > 0 {
		<-server.Out
	}
}

// Calls are timed at both ends, with how they ended; messages and sessions are counted.
func TestConversation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		m := metrics.New(metrics.Options{ToolLabels: true, Servers: func() []metrics.Server {
			return []metrics.Server{{Name: "files", Ready: true, CallsInFlight: 3, OldestCallAge: time.Minute}}
		}})
		defer m.Watch(&o)()
		client, server, end := session(t, &o)
		call(client, server, 1, "add", `"result":{}`)
		call(client, server, 2, "add", `"result":{"isError":true}`)
		call(client, server, 3, "add", `"error":{"code":-32602,"message":"m"}`)
		call(client, server, 4, "add", `"error":{"code":-12345,"message":"m"}`)
		labels := func(fault, transport string) string {
			return fmt.Sprintf(`error_type=%q,gen_ai_tool_name="add",mcp_method_name="tools/call",mcp_protocol_version="2025-11-25",network_transport=%q,server="files"`, fault, transport)
		}
		text := scrape(t, m)
		for _, fault := range []string{"", "tool_error", "-32602", "_other"} {
			wants(t, text,
				"mcp_server_operation_duration_seconds_sum{"+labels(fault, "tcp")+"} 0.15",
				"mcp_client_operation_duration_seconds_count{"+labels(fault, "pipe")+"} 1")
		}
		wants(t, text, `mcp_bridge_sessions{era="legacy",server="files",transport="http"} 1`,
			`mcp_bridge_messages_total{dir="c2s",hop="down",kind="request",server="files"} 5`,
			`mcp_bridge_messages_total{dir="s2c",hop="up",kind="response",server="files"} 5`,
			`mcp_bridge_server_ready{server="files"} 1`, `mcp_bridge_calls_in_flight{server="files"} 3`,
			`mcp_bridge_oldest_call_seconds{server="files"} 60`)
		end(errors.New("crashed"))
		wants(t, scrape(t, m), `mcp_bridge_sessions{era="legacy",server="files",transport="http"} 0`,
			`mcp_bridge_sessions_ended_total{reason="error"} 1`, `mcp_server_session_duration_seconds_count 1`)
	})
}

// A hostile client adds no label, whatever it calls its methods, tools and versions.
func TestLabelsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		m := metrics.New(metrics.Options{ToolLabels: true})
		defer m.Watch(&o)()
		client, server, end := session(t, &o)
		for i := range 1000 {
			client.Says(`{"jsonrpc":"2.0","id":%d,"method":"x/%d","params":{}}`, i+1, i)
			server.Says(`{"jsonrpc":"2.0","id":%d,"error":{"code":%d,"message":"no"}}`, i+1, i)
			call(client, server, 5000+i, fmt.Sprint("tool", i), `"result":{}`)
		}
		end(io.EOF)
		if n := strings.Count(scrape(t, m), "mcp_server_operation_duration_seconds_count"); n > 210 {
			t.Errorf("%d series", n)
		}
	})
}

// Events are counted, and processes that run are there.
func TestEvents(t *testing.T) {
	var o observe.Observer
	m := metrics.New(metrics.Options{})
	defer m.Watch(&o)()
	cmd := exec.Command("go", "version") // any program; it need not end soon
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	for _, e := range []observe.Event{
		observe.ProcessStarted{Server: "files", PID: cmd.Process.Pid},
		observe.ProcessStarted{Server: "files", PID: 1 << 30},
		observe.ProcessStopping{Server: "files", PID: 1 << 30, Step: "SIGTERM"},
		observe.ProcessEnded{Server: "files", PID: 1 << 30, StopRequested: true, Lasted: time.Second},
		observe.Refused{Rule: "LI4", Status: 406}, observe.Dropped{Server: "files"},
		observe.Stderr{Server: "files"}, observe.Noise{Server: "files"}, observe.Note{Code: "C9"},
		observe.Stream{Server: "files", Hop: observe.Downstream, Action: "opened"}, observe.Stream{Server: "files", Hop: observe.Downstream, Action: "closed"},
		observe.Stream{Server: "files", Hop: observe.Downstream, Action: "resumed"},
	} {
		o.Event(e)
	}
	text := scrape(t, m)
	wants(t, text, `mcp_bridge_child_starts_total{server="files"} 2`, `mcp_bridge_child_stop_steps_total{server="files",step="SIGTERM"} 1`,
		`mcp_bridge_child_exits_total{how="stopped",server="files"} 1`, `mcp_bridge_refused_total{rule="LI4",status="406"} 1`,
		`mcp_bridge_dropped_total{server="files"} 1`, `mcp_bridge_stderr_lines_total{server="files"} 1`,
		`mcp_bridge_noise_lines_total{server="files"} 1`, `mcp_bridge_notes_total{code="C9"} 1`,
		`mcp_bridge_streams{server="files"} 1`, `mcp_bridge_stream_resumes_total 1`, `mcp_bridge_children{server="files"} 1`)
	if runtime.GOOS == "linux" && !strings.Contains(text, `mcp_bridge_child_cpu_seconds{server="files"}`) {
		t.Error("no CPU time of the process")
	}
}

// What promtool check metrics would complain about.
func TestLint(t *testing.T) {
	var o observe.Observer
	m := metrics.New(metrics.Options{Servers: func() []metrics.Server { return []metrics.Server{{Name: "x"}} }})
	defer m.Watch(&o)()
	o.Event(observe.ProcessStarted{Server: "x", PID: 1})
	o.Event(observe.Refused{Rule: "LI4", Status: 406})
	problems, err := promlint.New(strings.NewReader(scrape(t, m))).Lint()
	for _, p := range problems {
		t.Error(p.Metric, p.Text)
	}
	if err != nil {
		t.Error(err)
	}
}
