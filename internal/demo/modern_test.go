package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
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
		c.send(modernCall(`1`, "tools/call", `"name":"elicit_url","arguments":{"message":"m","url":"https://example.com/"},`))
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

// ST11: after the cancellation of a subscription nothing comes for it, and its clock stands still.
func TestCancelledSubscriptionIsSilent(t *testing.T) {
	run(t, &Server{Clock: 10 * time.Millisecond}, func(c *client) {
		for _, id := range []string{`1`, `"1"`} {
			c.send(modernCall(id, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["demo://clock"]},`))
		}
		c.take()
		time.Sleep(15 * time.Millisecond)
		if got := c.take(); len(got) != 2 {
			t.Errorf("received %s, want one tick for each", got)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		time.Sleep(10 * time.Millisecond)
		c.expect(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"demo://clock","_meta":{"io.modelcontextprotocol/subscriptionId":"1"}}}`)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}}`)
		time.Sleep(time.Minute)
		c.expect()
	})
}

// So it is when a notification for all is on its way, and the one before it was not taken yet.
func TestCancelledWhileNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dial(t, &Server{})
		recv := func() string {
			m, err := bridgetest.Recv(t.Context(), c.conn)
			if err != nil {
				t.Fatal(err)
			}
			return string(m.Bytes())
		}
		for _, id := range []string{`1`, `2`, `3`} {
			c.send(modernCall(id, "subscriptions/listen", `"notifications":{"toolsListChanged":true},`))
			recv()
		}
		const buffered = 16 // messages that the pipe takes
		c.send(strings.Replace(modernCall(`4`, "tools/call", `"name":"count","arguments":{"n":15},`), `"_meta":{`, `"_meta":{"progressToken":1,`, 1))
		synctest.Wait()
		c.send(modernCall(`5`, "tools/call", `"name":"toggle",`))
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

// The conformance suite reads one page of every list, and takes the first tool with x-mcp-header.
func TestConformanceListsAreOnePage(t *testing.T) {
	var out bytes.Buffer
	input := ""
	for i, list := range []string{"tools", "prompts", "resources", "resources/templates"} {
		input += modernCall(fmt.Sprint(i), list+"/list", "") + "\n"
	}
	if err := ServeConformance(t.Context(), strings.NewReader(input), &out, nil); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if strings.Contains(got, "nextCursor") || strings.Count(got, "\n") != 4 {
		t.Errorf("the lists go on: %s", got)
	}
	for _, want := range []string{
		`"x-mcp-header":"Region"`, `"name":"json_schema_2020_12_tool"`, `"$anchor":"addressDef"`, `"name":"echo"`,
		`"name":"test_prompt_with_image"`, `"uri":"test://watched-resource"`, `"uriTemplate":"test://template/{id}/data"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s in the lists", want)
		}
	}
	if !json.Valid([]byte(schema2020)) || !json.Valid([]byte(defaultsForm)) || !json.Valid([]byte(enumsForm)) {
		t.Error("a schema is no JSON")
	}
}

// Nothing but what was signed is a requestState, whatever the bytes.
func FuzzState(f *testing.F) {
	fresh := newState("tools/call", []byte(`{"name":"elicit"}`))
	s := newSigner()
	good := s.sign(fresh)
	for _, seed := range []string{"", ".", "e30.", "e30.e30", good + "=", good + "A", strings.ReplaceAll(good, ".", ""), newSigner().sign(fresh)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, ok := s.open(text, fresh); ok && text != good {
			t.Errorf("%q is taken for a requestState", text)
		}
	})
	if _, ok := s.open(good, fresh); !ok {
		f.Error("our own requestState is refused")
	}
}
