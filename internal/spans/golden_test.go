package spans

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/observe"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// kept are spans that were sent. The SDK's own clears them at Shutdown.
type kept struct{ tracetest.InMemoryExporter }

func (*kept) Shutdown(context.Context) error { return nil }

// told are the spans of a conversation.
type told struct {
	t     *testing.T
	spans *Spans
	out   *kept
}

func telling(t *testing.T, o *observe.Observer, content bool) *told {
	out := &kept{}
	all := &told{t, newSpans(newExporter(out, func(err error, _ int) { t.Error(err) }), resource.Empty(), content), out}
	unwatch := all.spans.Watch(o)
	t.Cleanup(unwatch)
	return all
}

// lines ends the spans and returns them: name, kind, attributes, status, events and links.
func (a *told) lines() (all []string) {
	a.t.Helper()
	a.spans.Close()
	if n := a.spans.openSpanCount.Load(); n != 0 || len(a.spans.openBySession) != 0 {
		a.t.Errorf("%d spans of %d sessions are left", n, len(a.spans.openBySession))
	}
	for _, s := range a.out.GetSpans() {
		all = append(all, describe(s))
	}
	return all
}

func describe(s tracetest.SpanStub) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s [%s]", s.Name, s.SpanKind)
	for _, a := range s.Attributes {
		fmt.Fprintf(&b, " %s=%s", a.Key, a.Value.String())
	}
	if s.Status.Description != "" {
		fmt.Fprintf(&b, " (%s)", s.Status.Description)
	}
	for _, e := range s.Events {
		fmt.Fprintf(&b, " +%s", e.Name)
		for _, a := range e.Attributes {
			fmt.Fprintf(&b, " %s=%s", a.Key, a.Value.String())
		}
	}
	return b.String()
}

// wants compares the spans, in the order in which they have ended.
func (a *told) wants(want ...string) {
	a.t.Helper()
	if got := a.lines(); !slices.Equal(got, want) {
		a.t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

type talk struct {
	client, server *bridgetest.Peer
	end            func(error)
}

// talking runs a session whose both ends are observed, and initializes it before spans are made.
func talking(t *testing.T, o *observe.Observer, opts bridge.PumpOptions) talk {
	client, server := bridgetest.NewPeer(t, 20), bridgetest.NewPeer(t, 20)
	h := o.Serve("files", "http", bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
		s := observe.SessionOf(ctx)
		s.SetServerTransport("stdio")
		up := s.Conn(server, observe.Upstream)
		defer up.Close(nil)
		return bridge.Pump(ctx, c, up, opts)
	}))
	done := make(chan struct{})
	go func() { defer close(done); _ = h.ServeConn(t.Context(), client) }()
	client.Says(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"clientInfo":{"name":"c","version":"1"}}}`)
	server.Says(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	<-server.Out
	<-client.Out
	return talk{client, server, func(err error) {
		server.End <- err
		<-done
	}}
}

const (
	down = " mcp_bridge.server=files mcp.session.id=s1 mcp.protocol.version=2025-11-25 network.transport=tcp network.protocol.name=http"
	up   = " mcp_bridge.server=files mcp.session.id=s1 mcp.protocol.version=2025-11-25 network.transport=pipe"
)

// pair returns the two spans of a request of which all but the ends is equal.
func pair(name, method, id, more, end string) []string {
	return []string{
		name + " [client] mcp.method.name=" + method + " jsonrpc.request.id=" + id + up + more + end,
		name + " [server] mcp.method.name=" + method + " jsonrpc.request.id=" + id + down + more + end,
	}
}

// Each kind of request has its attributes, and each end its error.type.
func TestGolden(t *testing.T) {
	const tool, doTool = " gen_ai.operation.name=execute_tool gen_ai.tool.name=add", `"method":"tools/call","params":{"name":"add","arguments":{"key":"s3cret"}}`
	for _, c := range []struct {
		name, request, answer string
		want                  []string
	}{
		{"tool", doTool, `"result":{"content":[]}`, pair("tools/call add", "tools/call", "7", tool, "")},
		{"prompt", `"method":"prompts/get","params":{"name":"greet"}`, `"result":{}`, pair("prompts/get greet", "prompts/get", "7", " gen_ai.prompt.name=greet", "")},
		{"resource", `"method":"resources/read","params":{"uri":"https://me:pw@x.example/a?key=s3cret&b"}`, `"result":{}`,
			pair("resources/read", "resources/read", "7", " mcp.resource.uri=https://REDACTED@x.example/a?key=REDACTED&REDACTED", "")},
		{"list", `"method":"tools/list"`, `"result":{}`, pair("tools/list", "tools/list", "7", "", "")},
		{"error", doTool, `"error":{"code":-32602,"message":"no such tool"}`,
			pair("tools/call add", "tools/call", "7", tool, " rpc.response.status_code=-32602 error.type=-32602 (no such tool)")},
		{"tool error", doTool, `"result":{"isError":true}`, pair("tools/call add", "tools/call", "7", tool, " error.type=tool_error")},
		{"timeout", doTool, "", []string{
			"tools/call add [client] mcp.method.name=tools/call jsonrpc.request.id=7" + up + tool + " error.type=timeout (the server did not answer within 1m0s) +notifications/cancelled",
			"tools/call add [server] mcp.method.name=tools/call jsonrpc.request.id=7" + down + tool + " rpc.response.status_code=-32603 error.type=timeout (the server did not answer within 1m0s)",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o observe.Observer
				talk := talking(t, &o, bridge.PumpOptions{RequestTimeout: time.Minute})
				all := telling(t, &o, false)
				talk.client.Says(`{"jsonrpc":"2.0","id":7,%s}`, c.request)
				if c.answer != "" {
					talk.server.Says(`{"jsonrpc":"2.0","id":7,%s}`, c.answer)
				} else {
					time.Sleep(2 * time.Minute)
					synctest.Wait()
				}
				all.wants(c.want...)
				talk.end(io.EOF)
			})
		})
	}
}

// A call whose server goes away, and one that its client withdraws, have spans that end.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		talk := talking(t, &o, bridge.PumpOptions{})
		all := telling(t, &o, false)
		talk.client.Says(`{"jsonrpc":"2.0","id":"a","method":"prompts/list"}`)
		talk.client.Says(`{"jsonrpc":"2.0","id":"b","method":"tools/list"}`)
		talk.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"b","reason":"private"}}`)
		talk.server.Says(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		talk.end(errors.New("crashed"))
		all.wants(slices.Concat(
			pair("tools/list", "tools/list", "b", "", " error.type=cancelled +notifications/cancelled"),
			[]string{"prompts/list [client] mcp.method.name=prompts/list jsonrpc.request.id=a" + up + " error.type=session_lost (crashed)",
				"prompts/list [server] mcp.method.name=prompts/list jsonrpc.request.id=a" + down + " rpc.response.status_code=-32603 error.type=session_lost (crashed)",
				"roots/list [client] mcp.method.name=roots/list jsonrpc.request.id=1" + down + " error.type=session_lost",
				"roots/list [server] mcp.method.name=roots/list jsonrpc.request.id=1" + up + " error.type=session_lost"})...)
	})
}

// Progress and log lines are events; contents are told only where that was asked for.
func TestEvents(t *testing.T) {
	for _, content := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var o observe.Observer
			talk := talking(t, &o, bridge.PumpOptions{})
			all := telling(t, &o, content)
			talk.client.Says(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1},"_meta":{"progressToken":"p"}}}`)
			talk.server.Says(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2,"message":"half"}}`)
			talk.server.Says(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":{"k":1}}}`)
			talk.server.Says(`{"jsonrpc":"2.0","id":7,"result":{"content":[]}}`)
			more, end := " gen_ai.operation.name=execute_tool gen_ai.tool.name=add", " +notifications/progress mcp.progress=1 mcp.progress.total=2 +notifications/message mcp.log.level=info"
			if content {
				more += ` gen_ai.tool.call.arguments={"a":1} gen_ai.tool.call.result={"content":[]}`
				end = " +notifications/progress mcp.progress=1 mcp.progress.total=2 mcp.progress.message=half +notifications/message mcp.log.level=info" + ` mcp.log.data={"k":1}`
			}
			all.wants(pair("tools/call add", "tools/call", "7", more, end)...)
			talk.end(io.EOF)
		})
	}
}

// The server gets the CLIENT span for a parent, below the SERVER span, which is below the
// client's own; a trace that is not sampled stays what it is.
func TestContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		talk := talking(t, &o, bridge.PumpOptions{})
		all := telling(t, &o, false)
		const theirs, unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
		// say has somebody ask something, and returns the request as the other one gets it.
		say := func(from, to *bridgetest.Peer, meta string) *jsonrpc.Message {
			from.Says(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1.0%s}}`, meta)
			m := <-to.Out
			to.Says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			<-from.Out
			return &m
		}
		for _, way := range [][2]*bridgetest.Peer{{talk.client, talk.server}, {talk.server, talk.client}} {
			all.out.Reset()
			m := say(way[0], way[1], `,"_meta":{"k":[1, 2],"traceparent":"`+theirs+`","tracestate":"v=\u0031","baggage":"b=1"}`)
			bridgetest.Must(t, all.spans.provider.ForceFlush(t.Context()))
			got := all.out.GetSpans()
			client, server := got[0], got[1]
			if server.Parent.SpanID().String() != "00f067aa0ba902b7" || client.Parent.SpanID() != server.SpanContext.SpanID() ||
				client.SpanContext.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" {
				t.Errorf("server span below %v, client span below %v", server.Parent.SpanID(), client.Parent.SpanID())
			}
			want := `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1.0,"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-` +
				client.SpanContext.SpanID().String() + `-01","tracestate":"v=1","k":[1, 2],"baggage":"b=1"}}}`
			if string(m.Bytes()) != want {
				t.Errorf("sent\n%s\nwant\n%s", m.Bytes(), want)
			}
			all.out.Reset()
			const quiet = `,"_meta":{"traceparent":"` + unsampled + `"}`
			if m := say(way[0], way[1], quiet); !strings.Contains(string(m.Bytes()), quiet) {
				t.Errorf("sent %s", m.Bytes())
			}
			bridgetest.Must(t, all.spans.provider.ForceFlush(t.Context()))
			if n := len(all.out.GetSpans()); n != 0 {
				t.Errorf("%d spans of a trace that is not sampled", n)
			}
		}
		say(talk.client, talk.server, `,"_meta":{"traceparent":"nonsense","tracestate":"v=1"}`)
		if got := all.lines(); len(got) != 2 {
			t.Errorf("%q", got)
		}
		talk.end(io.EOF)
	})
}

// What the sampler does not want is told to the server as well, so that it begins no trace.
func TestSampledOut(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		talk := talking(t, &o, bridge.PumpOptions{})
		all := telling(t, &o, false)
		talk.client.Says(`{"jsonrpc":"2.0","id":1,"method":"x"}`)
		if parent := remoteParentOf(new(<-talk.server.Out)); !parent.IsValid() || parent.IsSampled() {
			t.Error("the server gets", parent)
		}
		talk.client.Says(`{"jsonrpc":"2.0","id":2,"method":"x","params":{"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}}`)
		if parent := remoteParentOf(new(<-talk.server.Out)); parent.IsSampled() || parent.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Error("the server gets", parent)
		}
		all.wants()
		talk.end(io.EOF)
	})
}

// A log message is no event of a call that is sampled while it may be about another one, also where a third was cancelled and is
// answered late.
func TestLogOfAnother(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		talk := talking(t, &o, bridge.PumpOptions{})
		all := telling(t, &o, false)
		talk.client.Says(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}}`)
		talk.server.Says(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"of 1"}}`)
		talk.client.Says(`{"jsonrpc":"2.0","id":2,"method":"x"}`)
		talk.client.Says(`{"jsonrpc":"2.0","id":3,"method":"x"}`)
		talk.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		talk.server.Says(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		talk.server.Says(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"of 3"}}`)
		talk.server.Says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		all.wants(pair("x", "x", "1", "", " +notifications/message mcp.log.level=info")...)
		talk.end(io.EOF)
	})
}

// The second round of a call that wants input links to the first one.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observe.Observer
		talk := talking(t, &o, bridge.PumpOptions{})
		all := telling(t, &o, false)
		talk.client.Says(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
		talk.server.Says(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","requestState":"s"}}`)
		for id := 2; id <= 3; id++ {
			talk.client.Says(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"a","requestState":"s"}}`, id)
			talk.server.Says(`{"jsonrpc":"2.0","id":%d,"result":{"resultType":"input_required","requestState":"s"}}`, id)
		}
		all.lines()
		got := all.out.GetSpans()
		for i, s := range got {
			switch {
			case i < 2 && len(s.Links) != 0:
				t.Error("the first round has links")
			case i >= 2 && (len(s.Links) != 1 || s.Links[0].SpanContext.TraceID() != got[0].SpanContext.TraceID()):
				t.Errorf("a later round has the links %v", s.Links)
			}
		}
		talk.end(io.EOF)
	})
}

// A collector that does not answer is waited for at most a second at the end; its errors are
// told once in a while.
func TestStuckCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var warnings []string
		out := newExporter(stuck{}, func(err error, n int) { warnings = append(warnings, fmt.Sprint(n, " ", err)) })
		s := newSpans(out, resource.Empty(), false)
		for range 3 {
			out.reportFailure(errors.New("refused\nsecond line"))
		}
		time.Sleep(warningInterval)
		_, one := s.tracer.Start(t.Context(), "x")
		one.End()
		began := time.Now()
		s.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("closed after %v", took)
		}
		if want := []string{"1 refused", "3 the collector took too long at the end"}; !slices.Equal(warnings, want) {
			t.Errorf("warnings %q", warnings)
		}
	})
}

// stuck is a collector that takes its time.
type stuck struct{}

func (stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	<-ctx.Done()
	return ctx.Err()
}

func (stuck) Shutdown(context.Context) error { return nil }
