package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

var _ bridge.Handler = (*Server)(nil)

// C.6: the revision asked for is the one answered, if it is known.
func TestRevisions(t *testing.T) {
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", "nonsense": "2025-11-25",
	} {
		if got := negotiate(asked); got != want {
			t.Errorf("asked for %s, answered %s, want %s", asked, got, want)
		}
	}
}

// J1, J2: an id comes back as it was spelled.
func TestIDsAreEchoedAsSpelled(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		for _, id := range []string{`1`, `"1"`, `9007199254740993`, `-5`, `"caf\u00e9\/"`, `"café/"`, `""`} {
			c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
			c.expect(`{"jsonrpc":"2.0","id":` + id + `,"result":{}}`)
		}
	})
}

// J5: what "echo" was sent comes back byte for byte.
func TestEchoIsExact(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.open()
		for _, s := range []string{
			`"plain"`, `"\u0061\/\u00e9"`, `"<&>"`, `"\ud800 alone"`, "\"a \u2028 b\u00a0c\"", `"👨‍👩‍👧"`, `""`, `"\"\\\b\f\n\r\t"`,
		} {
			c.send(callTool(`1`, "echo", `{"message":`+s+`}`))
			c.expect(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":` + s + `}],"structuredContent":{"message":` + s + `}}}`)
		}
		for _, v := range []string{`9007199254740993`, `1.0`, `1e400`, `-0`, `null`, `{"b":1,"a":{"b":2}}`} {
			c.send(callTool(`1`, "echo", `{"message":"m","value":`+v+`}`))
			c.expect(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"m"}],"structuredContent":{"message":"m","value":` + v + `}}}`)
		}
	})
}

// J3: an id that is in use is refused, and the call that uses it goes on.
func TestIDInUse(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.open()
		c.send(callTool(`7`, "slow", `{"steps":1,"seconds":1}`), callTool(`7`, "fail", `{}`), `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		inUse := errorOf(`7`, `-32600`, "a request with this id is in progress")
		c.expect(inUse, inUse)
		time.Sleep(time.Second)
		c.expect(textOf(`7`, "done: 1 steps in 1 seconds"))
		c.send(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		c.expect(`{"jsonrpc":"2.0","id":7,"result":{}}`)
	})
}

// J13: all progress arrives, in order, before the result, however slow the reader.
func TestProgressIsCompleteAndInOrder(t *testing.T) {
	const n = 1000
	run(t, &Server{}, func(c *client) {
		c.open()
		c.send(callWithToken(`1`, `"tok\u00e9n"`, "slow", fmt.Sprintf(`{"steps":%d,"seconds":0}`, n)))
		got := c.take()
		if len(got) != n+1 {
			t.Fatalf("%d messages, want %d", len(got), n+1)
		}
		for i, m := range got[:n] {
			want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"tok\u00e9n","progress":%d,"total":%d,"message":"step %[1]d of %d done"}}`, i+1, n)
			if m != want {
				t.Fatalf("message %d is %s, want %s", i, m, want)
			}
		}
		if want := textOf(`1`, "done: 1000 steps in 0 seconds"); got[n] != want {
			t.Errorf("at last %s, want %s", got[n], want)
		}
	})
}

// J12: after a cancellation nothing more is sent for the request; a late or wrong one is ignored.
func TestCancel(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.open()
		c.send(callWithToken(`"a"`, `1`, "slow", `{"steps":10,"seconds":10}`), callWithToken(`"b"`, `2`, "slow", `{"steps":1,"seconds":2}`))
		time.Sleep(1500 * time.Millisecond)
		if got := c.take(); len(got) != 1 || !strings.Contains(got[0], `"progressToken":1,"progress":1`) {
			t.Fatalf("before the cancellation: %s", got)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"unknown"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
		time.Sleep(time.Minute)
		c.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1,"total":1,"message":"step 1 of 1 done"}}`,
			textOf(`"b"`, "done: 1 steps in 2 seconds"))
	})
}

// Calls run side by side: a slow one does not hold up others.
func TestCallsAreConcurrentAndBounded(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.open()
		for i := range maxCalls {
			c.send(callTool(fmt.Sprint(i), "slow", `{"steps":1,"seconds":1}`))
		}
		c.expect()
		c.send(callTool(`"one more"`, "slow", `{}`), `{"jsonrpc":"2.0","id":"p","method":"ping"}`)
		c.expect(errorOf(`"one more"`, `-32603`, "more than 256 calls in progress"), `{"jsonrpc":"2.0","id":"p","result":{}}`)
		time.Sleep(time.Second)
		if got := c.take(); len(got) != maxCalls {
			t.Errorf("%d answers after one second, want %d", len(got), maxCalls)
		}
		c.send(callTool(`"again"`, "fail", `{}`))
		c.expect(errorTextOf(`"again"`, "this tool always fails"))
	})
}

// Before 2025-11-25 arguments that do not fit are a protocol error.
func TestBadArgumentsBefore20251125(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.initialize("2025-06-18", "{}")
		for args, message := range map[string]string{
			`{}`:                            "argument message is missing",
			`{"message":5}`:                 "argument message must be a string",
			`{"message":null}`:              "argument message must be a string",
			`{"message":"m","Message":"m"}`: `there is no argument \"Message\"; there is: message, value`,
		} {
			c.send(callTool(`1`, "echo", args))
			c.expect(errorOf(`1`, `-32602`, message))
		}
		for _, bad := range [][3]string{
			{"log", `{"level":"loud"}`, "argument level must be one of " + strings.Join(era.LogLevels, ", ")},
			{"slow", `{"steps":1.5}`, "argument steps must be an integer"},
			{"add", `{"a":"1","b":2}`, "argument a must be a number"},
			{"fail", `[]`, "arguments must be of another type than array"},
		} {
			c.send(callTool(`2`, bad[0], bad[1]))
			c.expect(errorOf(`2`, `-32602`, bad[2]))
		}
	})
}

func TestParamsThatCannotBeRead(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.open()
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[1]}`,
			callTool(`2`, "echo", `{"message":"m","value":`+strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)+`}`))
		c.expect(errorOf(`1`, `-32602`, "params must be an object, not array"),
			errorOf(`2`, `-32602`, "params cannot be read; they may be nested too deeply"))
	})
}

// A form needs the capability elicitation, or its part form if it has parts.
func TestElicitationCapability(t *testing.T) {
	for caps, want := range map[string]bool{
		`{}`:                                       false,
		`{"elicitation":{}}`:                       true,
		`{"elicitation":{"form":{}}}`:              true,
		`{"elicitation":{"url":{}}}`:               false,
		`{"elicitation":{"form":{},"url":{}}}`:     true,
		`{"sampling":{},"roots":{},"tasks":{}}`:    false,
		`{"experimental":{"elicitation":{"a":1}}}`: false,
	} {
		run(t, &Server{Drain: time.Millisecond}, func(c *client) {
			c.initialize(latestLegacy, caps)
			c.send(callTool(`1`, "elicit", `{}`))
			if asked := strings.Contains(strings.Join(c.take(), ""), `"method":"elicitation/create"`); asked != want {
				t.Errorf("capabilities %s: asked is %v, want %v", caps, asked, want)
			}
		})
	}
}

// Answers go to the call that asked, in whatever order they come; others are dropped.
func TestAnswersOutOfOrder(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.initialize(latestLegacy, `{"roots":{}}`)
		c.send(callTool(`"a"`, "roots", `{}`))
		c.expect(`{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{}}`)
		c.send(callTool(`"b"`, "roots", `{}`))
		c.expect(`{"jsonrpc":"2.0","id":2,"method":"roots/list","params":{}}`)
		c.send(`{"jsonrpc":"2.0","id":"1","result":{"roots":["not asked"]}}`, `{"jsonrpc":"2.0","id":3,"result":{}}`)
		c.expect()
		c.send(`{"jsonrpc":"2.0","id":2,"result":{"roots":["b"]}}`)
		c.expect(textOf(`"b"`, `the client's roots: {"roots":["b"]}`))
		c.send(`{"jsonrpc":"2.0","id":1,"result":{"roots":["a"]}}`, `{"jsonrpc":"2.0","id":1,"result":{"roots":["twice"]}}`)
		c.expect(textOf(`"a"`, `the client's roots: {"roots":["a"]}`))
	})
}

// J8: a client that does not answer is not waited for forever, and is told.
func TestAskTimesOut(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.initialize(latestLegacy, `{"sampling":{}}`)
		c.send(callTool(`1`, "sample", `{}`))
		c.take()
		time.Sleep(askTimeout)
		c.expect(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"the client did not answer in time"}}`,
			errorTextOf(`1`, "the client did not answer in time"))
	})
}

func TestCrashWithoutAProcess(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.open()
		c.send(callTool(`1`, "crash", `{}`))
		c.expect(errorTextOf(`1`, "not here: this server has no process of its own"))
	})
}

// ST8: what was asked before the end of input is answered after it; what waits for the client
// fails at once.
func TestEndOfInputDrains(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.initialize(latestLegacy, `{"roots":{}}`)
		c.send(callTool(`1`, "slow", `{"steps":1,"seconds":0.9}`), callTool(`2`, "roots", `{}`))
		if got := c.take(); len(got) != 1 {
			t.Fatalf("received %s", got)
		}
		start := time.Now()
		c.end.stop()
		c.expect(errorTextOf(`2`, errClientGone.Error()))
		if err := <-c.done; err != nil {
			t.Errorf("ServeConn: %v", err)
		}
		c.expect(textOf(`1`, "done: 1 steps in 0.9 seconds"))
		if d := time.Since(start); d != 900*time.Millisecond {
			t.Errorf("ended after %v", d)
		}
	})
}

// A call that takes longer than Drain does not keep the process alive.
func TestEndOfInputIsBounded(t *testing.T) {
	run(t, &Server{Drain: 3 * time.Second}, func(c *client) {
		c.open()
		c.send(callTool(`1`, "slow", `{"seconds":3600}`))
		c.expect()
		start := time.Now()
		c.end.stop()
		if err := <-c.done; err != nil {
			t.Errorf("ServeConn: %v", err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

// A client that reads nothing can hold up a session, and still it ends: by its end of input, or by ctx.
func TestStuckClient(t *testing.T) {
	for _, how := range []string{"end of input", "ctx"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := bridge.Pipe()
				eof, stop := context.WithCancel(t.Context())
				ctx, cancel := context.WithCancelCause(t.Context())
				done := make(chan error, 1)
				go func() {
					done <- (&Server{}).ServeConn(ctx, &halfClose{b, eof, stop})
				}()
				c := &client{t: t, conn: a}
				c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`,
					callWithToken(`2`, `2`, "slow", `{"steps":1000,"seconds":0}`))
				time.Sleep(time.Second)
				want := errors.New("told to stop")
				if how == "ctx" {
					cancel(want)
				} else {
					want = nil
					stop()
				}
				if err := <-done; err != want {
					t.Errorf("ServeConn: %v, want %v", err, want)
				}
				cancel(nil)
				stop()
			})
		})
	}
}

// A client that can no longer be written to ends the session with that error.
func TestSendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := bridge.Pipe()
		broken := errors.New("broken pipe")
		done := make(chan error, 1)
		go func() { done <- (&Server{}).ServeConn(t.Context(), &noSend{b, broken}) }()
		bridgetest.Must(t, a.Send(t.Context(), jsonrpc.NewRequest(jsonrpc.IntID(1), "ping", nil)))
		if err := <-done; !errors.Is(err, broken) {
			t.Errorf("ServeConn: %v, want %v", err, broken)
		}
	})
}

type noSend struct {
	bridge.Conn
	err error
}

func (n *noSend) Send(context.Context, jsonrpc.Message) error { return n.err }

func TestSessionsShareNothing(t *testing.T) {
	srv := &Server{}
	run(t, srv, func(c *client) {
		c.open()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"emergency"}}`)
		c.take()
	})
	run(t, srv, func(c *client) {
		c.open()
		c.send(callTool(`2`, "log", `{"message":"m"}`))
		c.expect(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"demo","data":"m"}}`, textOf(`2`, "sent"))
	})
}

// Following nextCursor shows every entry once, on two pages at least where there are many.
func TestPages(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.open()
		for _, list := range []struct {
			method, key string
			pages, all  int
		}{
			{"tools/list", "tools", 2, len(allTools())},
			{"resources/list", "resources", 2, 1 + listedItems},
			{"resources/templates/list", "resourceTemplates", 1, 1},
			{"prompts/list", "prompts", 1, len(allPrompts())},
		} {
			seen, pages, params := map[string]bool{}, 0, `{}`
			for params != "" {
				c.send(`{"jsonrpc":"2.0","id":1,"method":"` + list.method + `","params":` + params + `}`)
				var m struct{ Result map[string]json.RawMessage }
				bridgetest.Must(t, json.Unmarshal([]byte(c.take()[0]), &m))
				var entries []struct{ Name string }
				bridgetest.Must(t, json.Unmarshal(m.Result[list.key], &entries))
				for _, e := range entries {
					if seen[e.Name] {
						t.Errorf("%s: %s twice", list.method, e.Name)
					}
					seen[e.Name] = true
				}
				pages++
				params = ""
				if next := m.Result["nextCursor"]; next != nil {
					params = `{"cursor":` + string(next) + `}`
				}
			}
			if pages != list.pages || len(seen) != list.all {
				t.Errorf("%s: %d entries on %d pages, want %d on %d", list.method, len(seen), pages, list.all, list.pages)
			}
		}
	})
}

// People read the descriptions in an inspector: there is one for everything.
func TestEverythingIsDescribed(t *testing.T) {
	for _, tool := range allTools() {
		if tool.Title == "" || len(tool.Description) < 20 || tool.Input == nil || tool.Run == nil {
			t.Errorf("tool %s lacks a title, a description or a schema", tool.Name)
		}
		for _, of := range []any{tool.Input, tool.Output} {
			s, ok := of.(*schema)
			if !ok {
				continue
			}
			for name, p := range s.Properties {
				if p.Description == "" {
					t.Errorf("tool %s: property %s has no description", tool.Name, name)
				}
				if raw, err := json.Marshal(p.Default); p.Default != nil && (err != nil || p.checkArgument(raw) != nil) {
					t.Errorf("tool %s: the default of %s does not fit its schema", tool.Name, name)
				}
			}
		}
	}
	for _, r := range allResources() {
		if found := (&Server{}).resource(r.URI); r.URI != "" && found != r {
			t.Errorf("resource %s cannot be read", r.URI)
		}
	}
}
