package outbound

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
)

// A talk is a conversation of a client with what lies behind an Asker.
type talk struct {
	*Asker
	client *bridgetest.Peer
	behind bridge.Conn // to the client
	server *bridgetest.Peer
}

// talking runs f in a bubble.
func talking(t *testing.T, f func(*testing.T, *talk)) {
	synctest.Test(t, func(t *testing.T) {
		x := &talk{Asker: new(Asker), client: bridgetest.NewPeer(t, 10), server: bridgetest.NewPeer(t, 10)}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		h := x.Handler(bridge.HandlerFunc(func(ctx context.Context, c bridge.Conn) error {
			x.behind = c
			return c.Receive(ctx, x.server)
		}))
		go func() {
			defer close(ended)
			_ = h.ServeConn(ctx, x.client)
		}()
		synctest.Wait()
		f(t, x)
		cancel()
		<-ended
	})
}

// answers has the client get a message from behind.
func (x *talk) answers(text string) {
	if err := x.behind.Send(context.Background(), bridgetest.Parse(text)); err != nil {
		panic(err)
	}
}

const (
	caps    = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"url":{}}}`
	call    = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"a",` + caps + `}}}`
	retry   = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","inputResponses":{"sign-in":{"action":"ACTION"}},"requestState":"STATE","_meta":{"progressToken":"b",` + caps + `}}}`
	again   = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"b",` + caps + `}}}`
	result  = `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
	missing = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m","data":{"reason":"authorization_required"}}}`
)

var need = client.Required{URL: "https://as.example/a?b=c", Reason: "why", UserCode: "AB-CD"}

// asks shows the client an address, and returns the retry that says what the person has done.
func (x *talk) asks(t *testing.T, action string) string {
	t.Helper()
	x.client.Says(call)
	x.server.Gets(call)
	x.Ask("https://h/mcp?key=canary", need)
	m := <-x.client.Out
	text := string(m.Bytes())
	want := `{"resultType":"input_required","inputRequests":{"sign-in":{"method":"elicitation/create","params":{"mode":"url","message":"Sign in to https://h/mcp, with the code AB-CD: why","url":"https://as.example/a?b=c"}}},"requestState":`
	state := regexp.MustCompile(`"requestState":"([^"]+)"`).FindStringSubmatch(text)
	if m.ID().String() != "1" || state == nil || !strings.Contains(text, want) {
		t.Fatalf("asked was %s", text)
	}
	x.Ask("https://h/mcp", need) // once is enough
	x.client.Gets()
	return strings.NewReplacer("ACTION", action, "STATE", state[1]).Replace(retry)
}

// The outcome of a call that was answered with a question is for its retry, whichever comes first. What the server says of
// its progress meanwhile is for the retry, too.
func TestRetry(t *testing.T) {
	const progressOf = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"TOKEN","progress":1}}`
	outcome := strings.Replace(result, `"id":1`, `"id":2`, 1)
	for name, f := range map[string]func(*talk, string){
		"first the retry": func(x *talk, retry string) {
			x.answers(strings.Replace(progressOf, "TOKEN", "a", 1))
			x.client.Says("%s", retry)
			x.answers(strings.Replace(progressOf, "TOKEN", "a", 1))
			x.answers(result)
			x.client.Gets(strings.Replace(progressOf, "TOKEN", "b", 1), outcome)
			x.server.Gets()
		},
		"first the outcome": func(x *talk, retry string) {
			x.answers(result)
			x.client.Gets()
			x.client.Says("%s", retry)
			x.client.Gets(outcome)
			x.server.Gets()
		},
		"too late": func(x *talk, retry string) {
			x.answers(missing)
			x.client.Says("%s", retry)
			x.client.Gets()
			x.server.Gets(again)
			x.answers(outcome)
			x.client.Gets(outcome)
		},
		"the retry is cancelled": func(x *talk, retry string) {
			x.client.Says("%s", retry)
			x.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
			x.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		},
		"the call is cancelled": func(x *talk, retry string) {
			x.client.Says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
			x.server.Gets() // it has its answer
			x.client.Says("%s", retry)
			x.answers(result)
			x.client.Gets(outcome)
		},
		"a state of somebody else": func(x *talk, _ string) {
			x.client.Says("%s", retry)
			x.server.Gets(retry)
		},
	} {
		t.Run(name, func(t *testing.T) { talking(t, func(t *testing.T, x *talk) { f(x, x.asks(t, "accept")) }) })
	}
}

// Who does not want to sign in is not kept waiting, and neither is who asks afterwards.
func TestDeclined(t *testing.T) {
	talking(t, func(t *testing.T, x *talk) {
		retry := x.asks(t, "decline")
		ctx, end := x.wait(t.Context())
		defer end()
		x.client.Says("%s", retry)
		x.server.Gets(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		x.client.Gets(`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the person has not wanted to sign in","data":{"reason":"authorization_required","status":401}}}`)
		if context.Cause(ctx) != client.ErrWaited || !x.isRefused(need.URL) || x.isRefused("https://as.example/other") {
			t.Errorf("the wait has ended: %v, refused: %v", context.Cause(ctx), x.isRefused(need.URL))
		}
	})
}

// A call that is answered meanwhile, or whose client cannot show addresses, is not asked; the next one is.
func TestAskedLater(t *testing.T) {
	talking(t, func(t *testing.T, x *talk) {
		x.client.Says(call)
		x.answers(result)
		x.client.Gets(result)
		x.Ask("https://h/mcp", need)
		x.client.Says("%s", strings.ReplaceAll(call, `"url":{}`, ``))
		x.Ask("https://h/mcp", need)
		x.client.Gets()
		x.client.Says(call)
		x.Ask("https://h/mcp", need)
		if m := <-x.client.Out; m.ID().String() != "1" {
			t.Errorf("asked was %s", m.Bytes())
		}
	})
}

// A cancellation that names no request goes to the server as it came, and ends no call.
func TestCancelledNothing(t *testing.T) {
	for _, params := range []string{``, `,"params":{}`, `,"params":[]`, `,"params":null`, `,"params":{"requestId":null}`, `,"params":{"requestId":{}}`, `,"params":{"requestId":1.5}`} {
		note := `{"jsonrpc":"2.0","method":"notifications/cancelled"` + params + `}`
		t.Run(note, func(t *testing.T) {
			talking(t, func(t *testing.T, x *talk) {
				x.client.Says(call)
				x.client.Says("%s", note)
				x.server.Gets(call, note)
				x.answers(result)
				x.client.Gets(result)
			})
			talking(t, func(t *testing.T, x *talk) { // while its question is open
				retry := x.asks(t, "accept")
				x.client.Says("%s", note)
				x.server.Gets(note)
				x.client.Says("%s", retry)
				x.answers(result)
				x.client.Gets(strings.Replace(result, `"id":1`, `"id":2`, 1))
			})
		})
	}
}
