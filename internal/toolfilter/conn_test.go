package toolfilter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

type dialFunc func(ctx context.Context) (bridge.Conn, error)

func (f dialFunc) Dial(ctx context.Context) (bridge.Conn, error) { return f(ctx) }

// dial returns a filtered Conn, and the server it leads to.
func dial(t testing.TB, r Rules) (c, server bridge.Conn) {
	t.Helper()
	near, far := bridge.Pipe()
	conn, err := Wrap(dialFunc(func(context.Context) (bridge.Conn, error) { return near, nil }), r).Dial(t.Context())
	bridgetest.Must(t, err)
	t.Cleanup(func() { conn.Close(nil); far.Close(nil) })
	return conn, far
}

func send(t *testing.T, c bridge.Conn, text string) {
	t.Helper()
	if err := c.Send(t.Context(), parse(t, text)); err != nil {
		t.Fatalf("Send of %s: %v", text, err)
	}
}

func want(t *testing.T, c bridge.Conn, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if m, err := bridgetest.Recv(ctx, c); err != nil || string(m.Bytes()) != text {
		t.Fatalf("received %s, %v; want %s", m.Bytes(), err, text)
	}
}

// A name of more than 4 KiB is matched with no pattern, as that would take the longer the more patterns
// there are: such a tool is neither called nor listed.
func TestLongName(t *testing.T) {
	c, server := dial(t, Rules{Ignore: []string{"*h*i*d*", "x?*y*z"}})
	call := func(name string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `"}}`
	}
	fits := strings.Repeat("a", 4<<10)
	for _, name := range []string{fits + "a", strings.Repeat(`\u0061`, 4<<10+1), strings.Repeat("a", 1<<20)} {
		send(t, c, call(name))
		want(t, c, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"the name of the tool is longer than 4096 bytes, which is the limit"}}`)
	}
	send(t, c, call(fits))
	want(t, server, call(fits))
	send(t, c, list)
	want(t, server, list)
	send(t, server, `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"`+fits+`a"},{"name":"a"}],"nextCursor":"n"}}`)
	want(t, c, pruned)
}

func TestContract(t *testing.T) {
	bridgetest.TestConn(t, func(t *testing.T) (bridge.Conn, bridge.Conn, func()) {
		c, server := dial(t, Rules{Ignore: []string{"x"}})
		return c, server, nil
	}, bridgetest.Options{InBubble: true})
}

const (
	list   = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	page   = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"h"},{"name":"a"}],"nextCursor":"n"}}`
	pruned = `{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a"}],"nextCursor":"n"}}`
)

// Every page is filtered, and nothing but lists is.
func TestListing(t *testing.T) {
	c, server := dial(t, Rules{Ignore: []string{"h"}})
	for range 2 { // the id is free again
		send(t, c, list)
		want(t, server, list)
		send(t, server, page)
		want(t, c, pruned)
	}
	for _, method := range []string{"tools/call", "resources/list", "x"} {
		ask := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"name":"a"}}`
		send(t, c, ask)
		want(t, server, ask)
		send(t, server, page)
		want(t, c, page)
	}
	// The server spells the id in another way; two lists at once.
	send(t, c, `{"jsonrpc":"2.0","id":"\u0061","method":"t\u006fols/list","params":{"cursor":"n"}}`)
	send(t, c, list)
	send(t, server, `{"jsonrpc":"2.0","id":"a","result":{"tools":[{"name":"h"}],"nextCursor":"n"}}`)
	want(t, c, `{"jsonrpc":"2.0","id":"a","result":{"tools":[],"nextCursor":"n"}}`)
	send(t, server, page)
	want(t, c, pruned)
	// Cancelled, and answered all the same when the id asks for something else.
	send(t, c, list)
	send(t, c, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	send(t, c, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	send(t, server, page)
	want(t, c, pruned)
	send(t, server, page)
	want(t, c, pruned)
}

// A hidden tool is unknown, however it is called, and the server never hears of it.
func TestCalling(t *testing.T) {
	c, server := dial(t, Rules{Allow: []string{"a*", "h*"}, Ignore: []string{"h*"}})
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":"i","method":"tools/call","params":` + params + `}`
	}
	for _, params := range []string{
		`{"name":"h"}`,
		`{"name":"h","arguments":{"name":"a"}}`,
		`{"arguments":{},"name":"\u0068idden"}`,
		`{"n\u0061me":"h"}`,
		`{"name":"h","task":{"ttl":1000},"_meta":{"progressToken":1}}`,
		`{"name":"a","name":"h"}`,
		`{"name":"h","name":"a"}`,
		`{"name":"a","Name":"h"}`,
		`{"NAME":"h"}`,
		`{"name":"b"}`,
		`{"name":""}`,
		`{"name":"A"}`,
	} {
		send(t, c, call(params))
		m, err := bridgetest.Recv(t.Context(), c)
		text, _ := jsonrpc.Text(m.Lookup("error", "message"))
		if err != nil || m.ID() != jsonrpc.StringID("i") || string(m.Lookup("error", "code")) != "-32602" || !strings.HasPrefix(text, "Unknown tool: ") {
			t.Errorf("%s was answered %s, %v", params, m.Bytes(), err)
		}
	}
	for _, params := range []string{`{}`, `{"name":1}`, `{"name":["h"]}`, `{"name":null}`, `["h"]`, `{"Name":"a"}`, `null`} {
		send(t, c, call(params))
		if m, err := bridgetest.Recv(t.Context(), c); err != nil || string(m.Lookup("error", "code")) != "-32602" {
			t.Errorf("%s was answered %s, %v", params, m.Bytes(), err)
		}
	}
	// Keys that some readers take for those of the envelope.
	for text, code := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call","params":{"name":"h"}}`:            "-32600",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"Params":{"name":"h"}}`:      "-32600",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"param\u017f":{"name":"h"}}`: "-32600",
		`{"jsonrpc":"2.0","id":1,"\u0049D":2,"method":"tools/list"}`:                                      "-32600",
	} {
		send(t, c, text)
		if m, err := bridgetest.Recv(t.Context(), c); err != nil || m.ID() != jsonrpc.IntID(1) || string(m.Lookup("error", "code")) != code {
			t.Errorf("%s was answered %s, %v", text, m.Bytes(), err)
		}
	}
	for _, text := range []string{
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"h"}}`,
		`{"jsonrpc":"2.0","method":"x","Method":"tools/call","Id":1,"params":{"name":"h"}}`,
		`{"jsonrpc":"2.0","error":{"code":1,"message":""},"Method":"tools/call","params":{"name":"h"}}`,
	} {
		if err := c.Send(t.Context(), parse(t, text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
	send(t, c, `{"jsonrpc":"2.0","id":7,"result":{},"Method":"tools/call","Params":{"name":"h"}}`)
	if m, err := bridgetest.Recv(t.Context(), server); err != nil || !m.IsError() || m.ID() != jsonrpc.IntID(7) || strings.Contains(string(m.Bytes()), `"h"`) {
		t.Errorf("the server received %s, %v", m.Bytes(), err)
	}
	long := strings.Repeat("é", 1<<20)
	send(t, c, call(`{"name":"`+long+`"}`))
	if m, err := bridgetest.Recv(t.Context(), c); err != nil || len(m.Bytes()) > 1000 || !m.IsError() {
		t.Errorf("a long name was answered with %d bytes, %v", len(m.Bytes()), err)
	}
	// The first thing that reaches the server is what may.
	allowed := call(` { "arguments":{"name":"h"}, "name" : "\u0061", "n":1.0 } `)
	send(t, c, allowed)
	want(t, server, allowed)
}

// The filter's answer comes although the server says nothing, and Pump closes
// its books with it.
func TestAnswerWhileServerIsSilent(t *testing.T) {
	c, server := dial(t, Rules{Ignore: []string{"h"}})
	client, far := bridge.Pipe()
	var dropped []string
	var wg sync.WaitGroup
	wg.Go(func() {
		err := bridge.Pump(t.Context(), far, c, bridge.PumpOptions{Dropped: func(m jsonrpc.Message, reason string) {
			dropped = append(dropped, m.Method()+": "+reason)
		}})
		if err != nil {
			t.Errorf("Pump: %v", err)
		}
	})
	for i := range 50 { // more than fit into the queue
		send(t, client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"h"}}`, i))
		want(t, client, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"Unknown tool: h"}}`, i))
	}
	send(t, client, `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"h"}}`)
	send(t, client, `{"jsonrpc":"2.0","id":0,"method":"ping"}`)
	want(t, server, `{"jsonrpc":"2.0","id":0,"method":"ping"}`)
	send(t, server, `{"jsonrpc":"2.0","id":0,"result":{}}`)
	want(t, client, `{"jsonrpc":"2.0","id":0,"result":{}}`)
	client.Close(nil)
	wg.Wait()
	if len(dropped) != 1 || !strings.HasPrefix(dropped[0], "tools/call: ") {
		t.Errorf("Pump was told of %q", dropped)
	}
}

// A client that calls and does not read waits; the end of the ctx, and Close, end that.
func TestAnswersWait(t *testing.T) {
	for _, end := range []string{"ctx", "Close"} {
		c, _ := dial(t, Rules{Ignore: []string{"h"}})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		result := make(chan error)
		go func() {
			for {
				if err := c.Send(ctx, parse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"h"}}`)); err != nil {
					result <- err
					return
				}
			}
		}()
		if end == "ctx" {
			cancel()
			if err := <-result; !errors.Is(err, context.Canceled) {
				t.Errorf("Send: %v", err)
			}
			continue
		}
		c.Close(nil)
		if err := <-result; err != io.ErrClosedPipe {
			t.Errorf("Send: %v", err)
		}
	}
}

// What the server has said, and the filter's own answers, come before its end.
func TestEnd(t *testing.T) {
	c, server := dial(t, Rules{Ignore: []string{"h"}})
	send(t, server, page)
	send(t, c, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"h"}}`)
	server.Close(nil)
	var got []string
	for {
		m, err := bridgetest.Recv(t.Context(), c)
		if err == io.EOF {
			break
		}
		bridgetest.Must(t, err)
		got = append(got, m.ID().String())
	}
	if len(got) != 2 {
		t.Errorf("received answers to %q", got)
	}
	if _, err := bridgetest.Recv(t.Context(), c); err != io.EOF {
		t.Errorf("Recv = %v", err)
	}
}

// badEnd is a Conn that does not close well.
type badEnd struct{ bridge.Conn }

func (badEnd) Close(error) error { return errors.New("closed badly") }

// Close returns the server's error each time.
func TestCloseError(t *testing.T) {
	near, _ := bridge.Pipe()
	c := hiding(t, "h").wrapServer(badEnd{near})
	for range 2 {
		if err := c.Close(nil); err == nil || err.Error() != "closed badly" {
			t.Errorf("Close: %v", err)
		}
	}
}

// Whatever a client sends: if a reader that takes no notice of case finds a
// call of a hidden tool in it, the server has not seen it.
func FuzzCall(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"h"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","NAME":"h"}}`,
		`{"jsonrpc":"2.0","method":"x","Method":"tools/call","params":{"name":"a"},"Params":{"name":"h"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"name":"h"}}}`,
		`{"jsonrpc":"2.0","id":1,"\u006Dethod":"tools\/call","paramſ":{"name":"h"},"result":{"name":"h"}}`,
	} {
		f.Add([]byte(s))
	}
	hide := hiding(f, "h*")
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := jsonrpc.Parse(raw)
		if err != nil {
			return
		}
		if hide.checkClientMessage(&m, m.Method()) != nil {
			return
		}
		if method, name := asRead(m.Bytes()); method == "tools/call" && strings.HasPrefix(name, "h") {
			t.Fatalf("%s calls %s", m.Bytes(), name)
		}
	})
}

// asRead returns what a server finds in a message that takes no notice of case
// and lets the last of several keys count, as encoding/json does.
func asRead(raw []byte) (method, name string) {
	var envelope struct {
		Method json.RawMessage
		Params json.RawMessage
	}
	if json.Unmarshal(raw, &envelope) != nil || json.Unmarshal(envelope.Method, &method) != nil {
		return "", ""
	}
	var params struct{ Name json.RawMessage }
	if json.Unmarshal(envelope.Params, &params) != nil || json.Unmarshal(params.Name, &name) != nil {
		return method, ""
	}
	return method, name
}
