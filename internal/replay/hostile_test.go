package replay

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/trace"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
	"github.com/mcp-bridge/mcp-bridge/tests/hostile"
)

// A file of hostile lines is a recording, or it is refused with a reason that can be printed.
func TestHostileFiles(t *testing.T) {
	const count, some = 10_000, 100
	all := hostile.TraceLines(2, count)
	loaded := 0
	for i := 0; i < count; i += some {
		lines := all[i : i+some]
		for _, o := range []LoadOptions{{}, {Hop: trace.Upstream, AllowRedacted: true}, {Session: "s1", AllowRedacted: true}} {
			rec, err := Load(bytes.NewReader(hostile.JoinLines(lines)), o)
			switch {
			case err != nil && (hostile.CheckTerminalSafe([]byte(err.Error())) != nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "line ") && !strings.Contains(err.Error(), "no messages") && !strings.Contains(err.Error(), "nothing but pings")):
				t.Fatalf("lines %d: %v", i, err)
			case err == nil:
				loaded++
			}
			for j := 0; err == nil && j < len(rec.Faults); j++ {
				bridgetest.Must(t, hostile.CheckTerminalSafe([]byte(rec.Faults[j])))
			}
		}
		// Without what ends the loading, the rest is used, and what is wrong with a line is told.
		var good []hostile.Line
		for _, l := range lines {
			if l.Defect != "version" && !bytes.Contains(l.Text, []byte(`"cut":`)) && bytes.Contains(l.Text, []byte(`"msg":`)) {
				good = append(good, l)
			}
		}
		if rec, err := Load(bytes.NewReader(hostile.JoinLines(good)), LoadOptions{AllowRedacted: true}); err == nil {
			loaded++
			if len(rec.Faults) == 0 || !strings.HasPrefix(rec.Faults[0], "line ") {
				t.Errorf("lines %d: the faults are %q", i, rec.Faults)
			}
		}
	}
	if loaded < 20 {
		t.Errorf("%d recordings were loaded", loaded)
	}
}

// A hostile recording is said to a server, and is one. Nothing of it is obeyed by a terminal, and no time that it
// names is waited for, beyond a bound.
func TestHostileReplay(t *testing.T) {
	const count, some = 600, 100
	all := hostile.Messages(3, count)
	for i := 0; i < count; i += some {
		synctest.Test(t, func(t *testing.T) {
			rec := conversation(t, all[i:i+some])
			began := time.Now()
			for _, h := range []bridge.Handler{server(), NewFake(rec), babbler(all[i : i+some])} {
				with(t, h, func(conn bridge.Conn) {
					report, err := Play(t.Context(), conn, rec, PlayOptions{})
					var out bytes.Buffer
					if err == nil {
						bridgetest.Must(t, report.Write(&out))
					} else {
						fmt.Fprintf(&out, "%v", err)
					}
					bridgetest.Must(t, hostile.CheckTerminalSafe(out.Bytes()))
				})
			}
			if took := time.Since(began); took > 3*some*(maxBelievedDuration+DefaultWait) {
				t.Errorf("it took %v", took)
			}
			fake := NewFake(rec)
			with(t, fake, func(conn bridge.Conn) { _, _ = Play(t.Context(), conn, conversation(t, all[:some]), PlayOptions{}) })
			u := fake.Usage()
			for _, text := range append(u.Misses, u.Unasked...) {
				bridgetest.Must(t, hostile.CheckTerminalSafe([]byte(text)))
			}
		})
	}
}

// conversation is a recording of messages, whose times and numbers are made up.
func conversation(t *testing.T, messages [][]byte) *Recording {
	t.Helper()
	var file []byte
	for i, m := range messages {
		dir := trace.ToServer
		if i%3 == 2 {
			dir = trace.ToClient
		}
		at := time.Date([]int{2026, 1, 9999, 1970}[i%4], 1, 1, 0, 0, i, 0, time.UTC)
		file = trace.Append(file, &trace.Record{Seq: []uint64{uint64(i), 7, 1<<64 - 1}[i%11/5], Time: at, Kind: trace.Request, Server: "\x1b[2J", Session: "s1",
			Hop: trace.Downstream, Dir: dir, Body: trace.Body{Text: m}})
	}
	rec, err := Load(bytes.NewReader(file), LoadOptions{})
	bridgetest.Must(t, err)
	if len(rec.messages) < len(messages)/2 {
		t.Fatalf("%d messages were taken: %q", len(rec.messages), rec.Faults)
	}
	return rec
}

// babbler is a server that says messages whatever it is asked.
func babbler(messages [][]byte) bridge.Handler {
	return bridge.HandlerFunc(func(ctx context.Context, client bridge.Conn) error {
		n := 0
		return client.Receive(ctx, bridgetest.SinkFunc(func(ctx context.Context, m jsonrpc.Message) error {
			for range 3 {
				said, err := jsonrpc.Parse(messages[n%len(messages)])
				if n++; err != nil {
					continue
				}
				if said.Kind() == jsonrpc.Response && m.Kind() == jsonrpc.Request {
					said = said.WithID(m.ID())
				}
				if err := client.Send(ctx, said); err != nil {
					return err
				}
			}
			return nil
		}))
	})
}

// A server that asks without end is not answered without end.
func TestEndlessServer(t *testing.T) {
	for name, request := range map[string]string{"pings": `{"jsonrpc":"2.0","id":7,"method":"ping"}`, "requests": `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec, err := Load(strings.NewReader(simple), LoadOptions{})
				bridgetest.Must(t, err)
				h := babbler([][]byte{[]byte(request)})
				with(t, h, func(conn bridge.Conn) {
					report, err := Play(t.Context(), conn, rec, PlayOptions{})
					bridgetest.Must(t, err)
					if n := len(report.Unanswered); len(report.Differences) == 0 || n > maxExtraMessages {
						t.Errorf("%+v and %d questions", report.Differences, n)
					}
				})
			})
		})
	}
}

// A notification with the method of a recorded request is none that the client's recorded answer is for.
func TestNotificationInPlaceOfRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, err := Load(strings.NewReader(lines("s1", `> {"jsonrpc":"2.0","id":1,"method":"a"}`, `< {"jsonrpc":"2.0","id":9,"method":"roots/list"}`,
			`> {"jsonrpc":"2.0","id":9,"result":{}}`, `< {"jsonrpc":"2.0","id":1,"result":{}}`)), LoadOptions{})
		bridgetest.Must(t, err)
		with(t, babbler([][]byte{[]byte(`{"jsonrpc":"2.0","method":"roots/list"}`), []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)}), func(conn bridge.Conn) {
			report, err := Play(t.Context(), conn, rec, PlayOptions{})
			bridgetest.Must(t, err)
			if text := text(t, report); !strings.Contains(text, "roots/list has not come") || !strings.Contains(text, "roots/list is new") {
				t.Error(text)
			}
		})
	})
}

// A message with millions of values inside is compared as it is spelled: decoded, it would need fifty times its size.
func TestHuge(t *testing.T) {
	huge := func(end string) string { return "[" + strings.Repeat("0,", maxDecodedValues+1) + end + "]" }
	text := func(meta, end string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"traceparent":"` + meta + `"},"a":` + huge(end) + `}}`
	}
	one, same, other := bridgetest.Parse(text("1", "1")), bridgetest.Parse(text("2", "1")), bridgetest.Parse(text("1", "2"))
	if _, decoded := paramsOf(&one).(map[string]any); decoded || matchKey(&one) != matchKey(&same) || matchKey(&one) == matchKey(&other) {
		t.Errorf("decoded: %v, same: %v, other: %v", decoded, matchKey(&one) == matchKey(&same), matchKey(&one) != matchKey(&other))
	}
	var found []string
	findChanges(&path{}, paramsOf(&one), paramsOf(&other), func(c change) bool { found = append(found, c.String()); return true })
	if len(found) != 1 || len(found[0]) > 1000 {
		t.Errorf("%.2000q", found)
	}
}
