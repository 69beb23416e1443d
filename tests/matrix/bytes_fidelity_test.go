package matrix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// spelled are ids that differ, though a careless reader takes some for others (J1).
var spelled = []string{
	`0`, `-1`, `1`, `"1"`, `9007199254740993`, `9007199254740992`, `"9007199254740993"`, `-9007199254740993`,
	`18446744073709551616`, `1e2`, `100`, `7.0`, `7`, `""`, `" "`, `"null"`, `"é👨‍👩‍👧‍👦"`, `"\u00e8\ud83d\ude00\/\"\\\u0000"`,
	`"` + strings.Repeat("long ", 204) + `"`, // all that an id may have (J15)
}

// stepIDs has calls of all ids in flight at once, answered in another order;
// then requests of the server.
func stepIDs(t *testing.T, k *bytesSession) {
	for _, id := range spelled {
		k.up(t, request(id, "tools/call", `{"name":"wait"}`))
	}
	for _, id := range slices.Backward(spelled) {
		k.down(t, id, response(id, `{"for":[`+id+`]}`))
	}
	id := k.id()
	k.up(t, request(id, "tools/call", `{"name":"ask"}`))
	for _, ask := range spelled {
		k.down(t, id, request(ask, "elicitation/create", `{"for":[`+ask+`]}`))
	}
	for _, ask := range slices.Backward(spelled) {
		k.up(t, response(ask, `{"action":"accept","for":[`+ask+`]}`))
	}
	k.down(t, id, response(id, `{}`))
}

// stepBytes: what the bridge does not understand it does not touch (J5).
func stepBytes(t *testing.T, k *bytesSession) {
	id := k.id()
	k.up(t, `{"params":`+tricky+`, "x-unknown" : [1.50],"method":"tools/call","id":`+id+` ,"jsonrpc":"2.0"}`)
	for i := range 3 {
		k.up(t, fmt.Sprintf(`{"method":"notifications/anything", "params" : {"n":%d,"t":%s},"jsonrpc":"2.0"}`, i, tricky))
		k.down(t, id, fmt.Sprintf(`{"jsonrpc":"2.0", "method":"notifications/message","params":{"n":%d,"data":%s} ,"z":0}`, i, tricky))
	}
	k.ask(t, id, `{"id":"b","method":"sampling/createMessage","params":`+tricky+`,"jsonrpc":"2.0","é":1}`,
		`{"result":`+tricky+`,"id":"b","jsonrpc":"2.0", "x":[ ]}`)
	k.down(t, id, `{"result":`+tricky+`,"extra":[ ],"id":`+id+`,"jsonrpc":"2.0"}`)
	id = k.id()
	k.call(t, id, `{"method":"prompts/get","id":`+id+`,"jsonrpc":"2.0"}`, response(id, `[1.0,null,"\u00e9"]`))
}

// stepUnknown: methods that nobody has heard of cross, and so do their errors.
func stepUnknown(t *testing.T, k *bytesSession) {
	id := k.id()
	k.call(t, id, request(id, "x/\\u0075nknown", tricky), failure(id, `{"code":-32601,"message":"Method not found: x/unknown"}`))
	k.up(t, note("x/notification", `[1.0,2]`))
	k.up(t, `{"jsonrpc":"2.0","method":"notifications/x"}`)
	k.down(t, "", note("x/notification", `[1.0,2]`))
	k.ask(t, "", request(`"x"`, "x/unknown", tricky), failure(`"x"`, `{"code":-32601,"message":"Method not found"}`))
}

// stepPing: both may ping, in a call and outside.
func stepPing(t *testing.T, k *bytesSession) {
	id := k.id()
	k.call(t, id, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`, response(id, `{}`))
	k.ask(t, "", `{"jsonrpc":"2.0","id":"p1","method":"ping"}`, response(`"p1"`, `{}`))
	id = k.id()
	k.up(t, request(id, "tools/call", `{}`))
	k.ask(t, id, `{"jsonrpc":"2.0","id":"p2","method":"ping"}`, response(`"p2"`, `{}`))
	k.down(t, id, response(id, `{}`))
}

// big is a JSON object of about n bytes that does not repeat itself.
func big(n int) string {
	var b strings.Builder
	b.WriteString(`{"data":"`)
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x é\\n", i*2654435761)
	}
	b.WriteString(`"}`)
	return b.String()
}

var mebibyte = big(1 << 20)

// stepBig: a mebibyte of everything, both ways.
func stepBig(t *testing.T, k *bytesSession) {
	id := k.id()
	k.up(t, request(id, "tools/call", mebibyte))
	k.up(t, note("notifications/x", mebibyte))
	k.down(t, id, note("notifications/message", mebibyte))
	k.ask(t, id, request(`"big"`, "sampling/createMessage", mebibyte), response(`"big"`, mebibyte))
	k.down(t, id, response(id, mebibyte))
	id = k.id()
	k.call(t, id, request(id, "tools/call", mebibyte), failure(id, `{"code":-32000,"message":"too much","data":`+mebibyte+`}`))
}

// stepErrors: errors of every kind cross with their data (LI27).
func stepErrors(t *testing.T, k *bytesSession) {
	for _, body := range []string{
		`{"code":-32602,"message":"Unknown tool: \u00e9","data":` + tricky + `}`,
		`{"data":null,"message":"","code":-32002}`,
		`{"code":-32042,"message":"URL elicitation","data":{"elicitations":[]}}`,
		`{"code":-32603,"message":"inner","data":"text"}`,
		`{"code":-32700,"message":"parse"}`, `{"code":-32600,"message":"invalid"}`, `{"code":-32001,"message":"not the session"}`,
		`{"code":0,"message":"zero","data":[1.0]}`, `{"code":404,"message":"gone"}`, `{"code":-1,"message":"no"}`,
	} {
		id := k.id()
		k.call(t, id, request(id, "tools/call", `{}`), failure(id, body))
	}
}

// stepConcurrent: 50 calls at once, answered in any order. Each has its own
// stream over Streamable HTTP, with what is about it and nothing else (B.2,
// B.4), the answer last.
func stepConcurrent(t *testing.T, k *bytesSession) {
	const calls = 50
	var ids []string
	asked := map[string]string{}
	for range calls {
		id := k.id()
		ids = append(ids, id)
		asked[id] = request(id, "tools/call", `{"name":"n`+id+`","_meta":{"progressToken":`+id+`}}`)
		k.c.say(t, asked[id])
	}
	for _, id := range ids {
		k.s.hear(t, anywhere, asked[id])
	}
	rand.Shuffle(calls, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	text := func(id string) (progress, line, ask string) {
		return note("notifications/progress", `{"progressToken":`+id+`,"progress":1}`),
			note("notifications/message", `{"level":"info","data":"`+id+`"}`),
			request(`"ask-`+id+`"`, "elicitation/create", `{"about":`+id+`}`)
	}
	for _, id := range ids {
		progress, line, ask := text(id)
		k.s.say(t, id, progress)
		k.s.say(t, id, line)
		k.s.say(t, id, ask)
	}
	for _, id := range ids {
		progress, line, ask := text(id)
		if f := k.c.hear(t, k.strict(id), progress); f.on != k.on(id) {
			t.Errorf("progress of %s came on the stream of %q", id, f.on)
		}
		k.c.hear(t, k.strict(id), line)
		k.c.hear(t, k.strict(id), ask)
	}
	for _, id := range ids {
		k.c.say(t, response(`"ask-`+id+`"`, `{"about":`+id+`}`))
	}
	rand.Shuffle(calls, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for _, id := range ids {
		k.s.hear(t, anywhere, response(`"ask-`+id+`"`, `{"about":`+id+`}`))
		k.s.say(t, id, response(id, `{"name":"n`+id+`"}`))
	}
	for _, id := range ids {
		if f := k.c.hear(t, k.strict(id), response(id, `{"name":"n`+id+`"}`)); f.on != k.on(id) {
			t.Errorf("the answer to %s came on the stream of %q", id, f.on)
		}
	}
}
