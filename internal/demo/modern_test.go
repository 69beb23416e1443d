package demo

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/era"
)

const metaModern = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`

// modernCall is a request of 2026-07-28; params are JSON members, with a comma at the end if there are any.
func modernCall(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + metaModern + `}}`
}

// A requestState is good for the process that gave it out: another one has another key.
func TestStateOfAnotherProcess(t *testing.T) {
	var state string
	run(t, &Server{}, func(c *client) {
		c.send(modernCall(`1`, "tools/call", `"name":"elicit",`))
		state = stateOf.FindStringSubmatch(strings.Join(c.take(), ""))[1]
	})
	run(t, &Server{}, func(c *client) {
		c.send(modernCall(`1`, "tools/call", `"name":"elicit","requestState":"`+state+`",`))
		c.expect(errorOf(`1`, `-32602`, "invalid or expired requestState"))
	})
}

// A retry may spell its arguments otherwise, as long as it means the same.
func TestRetrySpelledOtherwise(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.send(modernCall(`1`, "tools/call", `"name":"sample",`))
		if got := c.take(); !strings.Contains(got[0], "-32021") {
			t.Fatalf("received %s", got)
		}
		c.send(modernCall(`2`, "tools/call", `"name":"elicit","arguments":{"message":"\u0061"},`))
		state := stateOf.FindStringSubmatch(strings.Join(c.take(), ""))[1]
		c.send(modernCall(`3`, "tools/call", `"requestState":"`+state+`","inputResponses":{"form":{"action":"cancel"}}, "arguments" : {"message":"a"},"name":"elicit",`))
		if got := c.take(); !strings.Contains(got[0], `"text":"the user's answer: {\"action\":\"cancel\"}"`) {
			t.Errorf("received %s", got)
		}
	})
}

// MI23: what one request says of its client is forgotten with it.
func TestRequestsAreIndependent(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		c.send(modernCall(`1`, "tools/call", `"name":"elicit",`))
		c.take()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"elicit"}}`,
			`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"elicit","_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}}`,
			strings.Replace(modernCall(`4`, "tools/call", `"name":"elicit",`), `{"elicitation":{}}`, `{}`, 1))
		got := c.take()
		if len(got) != 3 {
			t.Fatalf("received %s", got)
		}
		for i, code := range []string{"-32600", "-32600", "-32021"} {
			if !strings.Contains(strings.Join(got, "\n"), fmt.Sprintf(`"id":%d,"error":{"code":%s`, i+2, code)) {
				t.Errorf("received %s, want %s for the request %d", got, code, i+2)
			}
		}
	})
}

// ST11: after the cancellation of a subscription nothing comes for it, and of what is left each has its own.
func TestCancelledSubscriptionIsSilent(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		for _, id := range []string{`1`, `"1"`} {
			c.send(modernCall(id, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["demo://item/1"]},`))
		}
		c.take()
		touch := modernCall(`2`, "tools/call", `"name":"notify","arguments":{"kind":"resource"},`)
		c.send(touch)
		if got := c.take(); len(got) != 3 {
			t.Errorf("received %s, want one notification for each, and the result", got)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		c.send(touch)
		if got, want := c.take()[0], `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"demo://item/1","_meta":{"io.modelcontextprotocol/subscriptionId":"1"}}}`; got != want {
			t.Errorf("received %s, want %s", got, want)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`)
		c.send(touch)
		if got := c.take(); len(got) != 1 || !strings.Contains(got[0], "not sent") {
			t.Errorf("received %s", got)
		}
	})
}

// So it is when a notification for all is on its way, and the one before it was not taken yet.
func TestCancelledWhileNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, &Server{})
		recv := func() string {
			m, err := bridgetest.Recv(t.Context(), c.conn)
			bridgetest.Must(t, err)
			return string(m.Bytes())
		}
		for _, id := range []string{`1`, `2`, `3`} {
			c.send(modernCall(id, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`))
			recv()
		}
		const buffered = 16 // messages that the pipe takes
		c.send(strings.Replace(modernCall(`4`, "tools/call", `"name":"slow","arguments":{"steps":15,"seconds":0},`), `"_meta":{`, `"_meta":{"progressToken":1,`, 1))
		synctest.Wait()
		c.send(modernCall(`5`, "tools/call", `"name":"notify","arguments":{"kind":"tools"},`))
		synctest.Wait() // the first notification is not taken
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		synctest.Wait()
		for range buffered {
			recv()
		}
		for _, id := range []string{`1`, `3`} {
			want := `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` + id + `}}}`
			if got := recv(); got != want {
				t.Errorf("received %s, want %s", got, want)
			}
		}
		c.conn.Close(nil)
		<-c.done
	})
}

func TestSubscriptionsAreBounded(t *testing.T) {
	run(t, &Server{}, func(c *client) {
		for i := range maxListens + 1 {
			c.send(modernCall(fmt.Sprint(i), "subscriptions/listen", `"notifications":{},`))
		}
		got := c.take()
		if want := errorOf(fmt.Sprint(maxListens), `-32603`, "more than 64 subscriptions open"); len(got) != maxListens+1 || got[maxListens] != want {
			t.Errorf("%d messages, at last %s", len(got), got[len(got)-1])
		}
	})
}

// Nothing but what was sealed is a requestState, whatever the bytes.
func FuzzState(f *testing.F) {
	face := func() *modernRequest {
		sealer, err := era.NewSealer()
		bridgetest.Must(f, err)
		return &modernRequest{session: &session{sealer: sealer}, binding: requestBinding("tools/call", []byte(`{"name":"elicit"}`))}
	}
	ours, other := face(), face()
	good := ours.seal()
	for _, seed := range []string{"", ".", "e30.", "e30.e30", good + "=", good + "A", other.seal()} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if ours.unseal(text) == nil && text != good {
			t.Errorf("%q is taken for a requestState", text)
		}
	})
	if err := ours.unseal(good); err != nil {
		f.Errorf("our own requestState is refused: %v", err)
	}
}
