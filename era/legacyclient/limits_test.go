package legacyclient

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/era"
	"github.com/mcp-bridge/mcp-bridge/era/internal/eratest"
)

// silent fails the test if more has come of the last line than was told.
func silent(t *testing.T, p *eratest.Transcript) {
	t.Helper()
	if err := p.CheckSilent(); err != nil {
		t.Fatal(err)
	}
}

// ME8: after ten rounds of input it is enough.
func TestRounds(t *testing.T) {
	p := newTranscript()
	p.MustPlay(t, `session 2025-11-25 {"elicitation":{}} {"tools":{}}`)
	p.MustPlay(t, `c-> {"id":"k","method":"tools/call","params":{"name":"t"}}`)
	p.MustPlay(t, `->s {"id":2,"method":"tools/call","params":{"_meta":{$logs},"name":"t"}}`)
	asks := `"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}}}}`
	for round := 1; round <= 10; round++ {
		p.MustPlay(t, fmt.Sprintf(`s-> {"id":%d,`, round+1)+asks)
		p.MustPlay(t, fmt.Sprintf(`->c("k") {"id":%d,"method":"elicitation/create","params":{}}`, round))
		p.MustPlay(t, fmt.Sprintf(`c-> {"id":%d,"result":{"action":"decline"}}`, round))
		p.MustPlay(t, fmt.Sprintf(`->s {"id":%d,"method":"tools/call","params":{"inputResponses":{"q":{"action":"decline"}},"_meta":{$logs},"name":"t"}}`, round+2))
	}
	p.MustPlay(t, `s-> {"id":12,`+asks)
	p.MustPlay(t, `->c {"id":"k","error":{"code":-32603,"message":"the server asks for input again and again","data":{"reason":"rounds_exceeded"}}}`)
	silent(t, p)
}

// What a client sends while initialize waits for the server is kept, but not without end.
func TestQueue(t *testing.T) {
	p := newTranscript()
	p.MustPlay(t, `c-> {"id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	p.MustPlay(t, `->s {"id":1,"method":"server/discover","params":{"_meta":{$meta}}}`)
	long := strings.Repeat("x", maxQueuedBytes/4-100)
	for i := range 4 {
		p.MustPlay(t, fmt.Sprintf(`c-> {"id":%d,"method":"tools/call","params":{"x":"%s"}}`, i, long))
	}
	p.MustPlay(t, `c-> {"id":4,"method":"tools/call","params":{"x":"`+long[:1000]+`"}}`)
	p.MustPlay(t, `->c {"id":4,"error":{"code":-32603,"message":"too many requests before the answer to initialize","data":{"reason":"busy"}}}`)
	p.MustPlay(t, `c-> {"method":"notifications/acme","params":{"x":"`+long[:1000]+`"}}`)
	p.MustPlay(t, `dropped too many messages before the answer to initialize`)
	// A cancelled one makes room.
	p.MustPlay(t, `c-> {"method":"notifications/cancelled","params":{"requestId":0}}`)
	p.MustPlay(t, `c-> {"id":4,"method":"tools/call","params":{"x":"`+long[:1000]+`"}}`)
	silent(t, p)
}

// C.2: references within a wrapped schema lead where they led.
func TestWrapSchema(t *testing.T) {
	for _, c := range []struct{ what, schema, result string }{
		{"pointers move", `{"$ref":"#/$defs/a"}`, `{"$ref":"#/properties/result/$defs/a"}`},
		{"so does the root", `{"items":{"$ref":"#"}}`, `{"items":{"$ref":"#/properties/result"}}`},
		{"spelled with escapes", `{"$ref":"\u0023\/a"}`, `{"$ref":"#/properties/result/a"}`},
		{"names and other documents stay", `{"anyOf":[{"$ref":"#a"},{"$ref":"b.json#/c"},{"$dynamicRef":"#d"}]}`, ""},
		{"dynamic pointers move", `{"$dynamicRef":"#/a"}`, `{"$dynamicRef":"#/properties/result/a"}`},
		{"data stays", `{"const":{"$ref":"#"},"enum":[{"$ref":"#"}],"default":{"$ref":"#"},"examples":[{"$ref":"#"}]}`, ""},
		{"a property of that name is none", `{"properties":{"const":{"$ref":"#"},"$ref":{"type":"null"}}}`,
			`{"properties":{"const":{"$ref":"#/properties/result"},"$ref":{"type":"null"}}}`},
		{"what has an $id keeps its own", `{"items":{"$id":"x","$ref":"#/a"},"not":{"$ref":"#/a"}}`,
			`{"items":{"$id":"x","$ref":"#/a"},"not":{"$ref":"#/properties/result/a"}}`},
		{"a fragment is no $id", `{"$id":"#x","$ref":"#/a"}`, `{"$id":"#x","$ref":"#/properties/result/a"}`},
		{"a property $id is none", `{"properties":{"$id":{"$ref":"#"}}}`, `{"properties":{"$id":{"$ref":"#/properties/result"}}}`},
		{"a root $id keeps all", `{"$id":"urn:x","$ref":"#/a"}`, ""},
		{"bytes stay", "{ \"minimum\" : 1.0 ,\"pattern\":\"\\u0061\" }", ""},
	} {
		want := c.result
		if want == "" {
			want = c.schema
		}
		want = `{"type":"object","properties":{"result":` + want + `},"required":["result"]}`
		if got := string(wrapSchema([]byte(c.schema))); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.what, got, want)
		}
	}

	deep := strings.Repeat(`{"not":`, 10_000) + `{"$ref":"#"}` + strings.Repeat("}", 10_000)
	if got := string(wrapSchema([]byte(deep))); !strings.Contains(got, deep) {
		t.Error("what is nested too deep does not stay as it is")
	}
}

// What a client subscribes to is named in each new listen, and so has bounds.
func TestSubscriptions(t *testing.T) {
	tooMany := `"error":{"code":-32603,"message":"too many subscriptions to resources","data":{"reason":"busy"}}}`
	subscribe := func(id int, uri string) string {
		return fmt.Sprintf(`c-> {"id":%d,"method":"resources/subscribe","params":{"uri":"%s"}}`, id, uri)
	}
	for name, fill := range map[string]func(p *eratest.Transcript) (n int){
		"many": func(p *eratest.Transcript) int {
			for i := range era.MaxResources {
				p.MustPlay(t, subscribe(i, fmt.Sprintf("x:%d", i)))
			}
			return era.MaxResources
		},
		"long": func(p *eratest.Transcript) int {
			for i := range 4 {
				p.MustPlay(t, subscribe(i, strings.Repeat(strconv.Itoa(i), maxURIBytes/4)))
			}
			return 4
		},
		"one again and again": func(p *eratest.Transcript) int {
			for i := range era.MaxResources {
				p.MustPlay(t, subscribe(i, "x:0"))
			}
			return era.MaxResources
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTranscript()
			p.MustPlay(t, `session 2025-11-25 {} {"resources":{"subscribe":true}}`)
			n := fill(p)
			p.MustPlay(t, subscribe(n, "x:y"))
			p.MustPlay(t, fmt.Sprintf(`->c {"id":%d,`, n)+tooMany)
			// One that is taken back makes room.
			p.MustPlay(t, `c-> {"method":"notifications/cancelled","params":{"requestId":0}}`)
			p.MustPlay(t, subscribe(n, "x:y"))
			silent(t, p)
		})
	}
}
