package matrix

import (
	"fmt"
	"strings"
	"testing"
)

// tricky is a value that a bridge which decodes and encodes does not keep:
// numbers that no float64 or int64 holds, a number's spelling, the order of
// keys and a key that comes twice, escapes and their absence, spaces, a ZWJ
// emoji, a no-break space, characters that encoders like to escape.
const tricky = `{"z":1,"a":9007199254740993,"f":1.0,"e":1e400,"m":-0,"x":1E+2, "sp" :  [ 1 ,2 ] ,` +
	`"esc":"\u00e9\/\ud83d\ude00\u0000\b","raw":"é/😀","zwj":"👨‍👩‍👧‍👦","nbsp":" ` + "\u00a0" + `","html":"<&>",` +
	"\"ls\":\"\u2028\u2029\u0085\u007f\",\"dup\":1,\"dup\":2,\"A\":1,\"id\":7,\"method\":\"x\",\"\":null,\"deep\":[[[[{}]]]]}"

// stepInitialize opens the main session: what the two sides say crosses to the byte.
func stepInitialize(t *testing.T, w *world) string {
	k := w.openBytes(t, revision)
	k.settle(t)
	w.bytes = k
	return ""
}

// stepPages lists 100 tools on pages of 20, with a cursor that says nothing to anybody but the server.
func stepPages(t *testing.T, k *bytesSession) {
	cursor := ""
	for page := range 5 {
		id, params := k.id(), `{}`
		if cursor != "" {
			params = `{"cursor":` + cursor + `}`
		}
		cursor = fmt.Sprintf(`"p/%d?\u00e9é\u0000=="`, page)
		var tools []string
		for i := range 20 {
			tools = append(tools, fmt.Sprintf(`{"name":"t%d","inputSchema":{"type":"object","properties":{"b":{},"a":{"minimum":1.0}}}}`, page*20+i))
		}
		result := `{"tools":[` + strings.Join(tools, ", ") + `],"nextCursor":` + cursor + `}`
		if page == 4 {
			result = `{"tools":[]}`
		}
		k.call(t, id, request(id, "tools/list", params), response(id, result))
	}
	for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
		id := k.id()
		k.call(t, id, request(id, method, `{"cursor":""}`), response(id, `{"nextCursor":null}`))
	}
}

// stepProgress: it comes in order, before the answer, with the token as it was
// spelled.
func stepProgress(t *testing.T, k *bytesSession) {
	for i, token := range []string{`"t"`, `7`, `0`, `""`, `9007199254740993`, `"7"`, `"\u0061"`} {
		id := k.id()
		k.up(t, request(id, "tools/call", `{"_meta":{"progressToken":`+token+`},"name":"slow"}`))
		progress := func(n int) string {
			return note("notifications/progress", fmt.Sprintf(`{"progress":%d.0,"total":5,"progressToken":%s,"message":"%d"}`, n, token, i))
		}
		for n := range 5 {
			k.s.say(t, id, progress(n+1))
		}
		k.s.say(t, id, response(id, `{"content":[]}`))
		for n := range 5 {
			k.c.hear(t, k.on(id), progress(n+1))
		}
		k.c.hear(t, k.on(id), response(id, `{"content":[]}`))
	}
}

// strayTokens are those of progress that belongs to no request in progress; null
// and fractions are no tokens.
var strayTokens = []string{`"progressToken":null,`, `"progressToken":"nobody's",`, `"progressToken":99,`, `"progressToken":1.5,`, `"progressToken":{},`, ``}

// stepStray: progress that nobody has asked for goes no further, from neither side
// (J13). A request may say that it wants none.
func stepStray(t *testing.T, k *bytesSession) {
	id := k.id()
	k.up(t, request(id, "tools/call", `{"_meta":{"progressToken":null},"name":"slow"}`))
	for _, token := range strayTokens {
		stray := note("notifications/progress", `{`+token+`"progress":1}`)
		k.s.say(t, id, stray)
		k.c.say(t, stray)
	}
	k.down(t, id, response(id, `{"content":[]}`))
}

// stepLog: log lines in the course of a call and outside of any.
func stepLog(t *testing.T, k *bytesSession) {
	line := func(level, data string) string {
		return note("notifications/message", fmt.Sprintf(`{"level":%q,"logger":"m","data":%s}`, level, data))
	}
	for _, level := range []string{"debug", "emergency"} {
		id := k.id()
		k.call(t, id, request(id, "logging/setLevel", `{"level":"`+level+`"}`), response(id, `{}`))
		k.down(t, "", line(level, `"outside"`))
		id = k.id()
		k.up(t, request(id, "tools/call", `{"name":"log"}`))
		for i := range 5 {
			k.down(t, id, line(level, fmt.Sprintf(`{"within":%d,"t":%s}`, i, tricky)))
		}
		k.down(t, id, response(id, `{}`))
		k.down(t, "", line(level, `"outside again"`))
	}
}

// stepElicit: the server asks the user in the course of a call, who accepts,
// declines and cancels.
func stepElicit(t *testing.T, k *bytesSession) {
	id := k.id()
	k.up(t, request(id, "tools/call", `{"name":"elicit"}`))
	for i, result := range []string{`{"action":"accept","content":{"b":1.0,"a":"\u00e9"}}`, `{"action":"decline"}`, `{"action":"cancel"}`} {
		ask := fmt.Sprintf(`"e-%s-%d"`, id, i)
		k.ask(t, id, request(ask, "elicitation/create", `{"message":"who?","requestedSchema":{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"string"}}}}`), response(ask, result))
	}
	k.down(t, id, response(id, `{"content":[]}`))
}

// stepSample: the server asks the model, and the user may refuse. Its ids are
// numbers here, and those of the client's own calls.
func stepSample(t *testing.T, k *bytesSession) {
	id := k.id()
	k.up(t, request(id, "tools/call", `{"name":"sample"}`))
	sample := func(ask string) string {
		return request(ask, "sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":100}`)
	}
	k.ask(t, id, sample(id), response(id, `{"role":"assistant","content":{"type":"text","text":"\u0048i"},"model":"m","n":1.0}`))
	k.ask(t, id, sample("-3"), failure("-3", `{"code":-1,"message":"User rejected sampling request","data":{"z":1,"a":1.0}}`))
	k.ask(t, id, sample("-9007199254740995"), response("-9007199254740995", tricky))
	k.down(t, id, response(id, `{"content":[]}`))
}

// stepRoots: in the course of a call, and outside of any.
func stepRoots(t *testing.T, k *bytesSession) {
	id := k.id()
	k.up(t, request(id, "tools/call", `{"name":"roots"}`))
	k.ask(t, id, request(`"r\/1"`, "roots/list", `{}`), response(`"r\/1"`, `{"roots":[{"uri":"file:\/\/\/a","name":"a"}]}`))
	k.down(t, id, response(id, `{}`))
	k.ask(t, "", `{"method":"roots/list","id":"\r","jsonrpc":"2.0"}`, response(`"\r"`, `{"roots":[]}`))
	k.up(t, note("notifications/roots/list_changed", `{}`))
	k.ask(t, "", request(`"r2"`, "roots/list", `{}`), failure(`"r2"`, `{"code":-32601,"message":"no roots"}`))
}

// stepSubscribe: updates come while somebody has subscribed.
func stepSubscribe(t *testing.T, k *bytesSession) {
	uri := `{"uri":"file:\/\/\/\u00e9?a=b&c"}`
	updated := note("notifications/resources/updated", uri)
	id := k.id()
	k.call(t, id, request(id, "resources/subscribe", uri), response(id, `{}`))
	for range 3 {
		k.down(t, "", updated)
	}
	id = k.id()
	k.call(t, id, request(id, "resources/read", uri), response(id, `{"contents":[{"uri":"file:///é","text":""}]}`))
	k.down(t, "", updated)
	id = k.id()
	k.call(t, id, request(id, "resources/unsubscribe", uri), response(id, `{}`))
}

// stepChanged: the lists change, and the client fetches one at once.
func stepChanged(t *testing.T, k *bytesSession) {
	for _, what := range []string{"tools", "prompts", "resources"} {
		k.down(t, "", note("notifications/"+what+"/list_changed", `{}`))
		k.down(t, "", `{"method":"notifications/`+what+`/list_changed","jsonrpc":"2.0"}`)
		id := k.id()
		k.call(t, id, request(id, what+"/list", `{}`), response(id, `{"`+what+`":[]}`))
	}
}

// stepCancel: the server hears which call is cancelled; its answer then goes
// nowhere, and the other call does not notice (J12). So too the other way round.
func stepCancel(t *testing.T, k *bytesSession) {
	first, second := k.id(), k.id()
	for _, id := range []string{first, second} {
		k.up(t, request(id, "tools/call", `{"name":"slow","_meta":{"progressToken":"p`+id+`"}}`))
	}
	progress := func(id string, n int) string {
		return note("notifications/progress", fmt.Sprintf(`{"progressToken":"p%s","progress":%d}`, id, n))
	}
	k.down(t, first, progress(first, 1))
	k.down(t, second, progress(second, 1))
	k.c.giveUp(first)
	k.up(t, note("notifications/cancelled", `{"reason":"\u00e9","requestId":`+first+`}`))
	_ = k.s.wire.send(first, response(first, `{"late":true}`)) // it may not be possible any more
	k.down(t, second, progress(second, 2))
	k.s.say(t, second, request(`"c`+second+`"`, "sampling/createMessage", `{}`))
	k.c.hear(t, k.on(second), request(`"c`+second+`"`, "sampling/createMessage", `{}`))
	k.s.giveUp(`"c` + second + `"`)
	k.down(t, second, note("notifications/cancelled", `{"requestId":"c`+second+`"}`))
	k.c.say(t, response(`"c`+second+`"`, `{"late":true}`))
	k.down(t, second, response(second, `{}`))
}

// stepLate: progress that comes after the answer, or after the cancellation,
// of its call goes nowhere (J12, J13).
func stepLate(t *testing.T, k *bytesSession) {
	answered, cancelled := k.id(), k.id()
	progress := func(id string, n int) string {
		return note("notifications/progress", fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, id, n))
	}
	for _, id := range []string{answered, cancelled} {
		k.up(t, request(id, "tools/call", `{"name":"slow","_meta":{"progressToken":`+id+`}}`))
		k.down(t, id, progress(id, 1))
	}
	k.down(t, answered, response(answered, `{}`))
	k.c.giveUp(cancelled)
	k.up(t, note("notifications/cancelled", `{"requestId":`+cancelled+`}`))
	k.s.say(t, "", progress(answered, 2)) // settle sees to it that nothing comes
	k.s.say(t, "", progress(cancelled, 2))
}
