package toolfilter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

func hiding(t testing.TB, patterns ...string) *filter {
	t.Helper()
	f, err := Rules{Ignore: patterns}.compile()
	bridgetest.Must(t, err)
	return f
}

func parse(t testing.TB, text string) jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// J5: what is hidden is cut out, and every other byte stays.
func TestPrune(t *testing.T) {
	f := hiding(t, "h*")
	for in, want := range map[string]string{
		`{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"x"}`: ``,
		`{"tools":[]}`:                   ``,
		`{"tools":null}`:                 ``,
		`{}`:                             ``,
		`{"x":{"tools":[{"name":"h"}]}}`: ``,
		`{"tools":[{"name":"h"}],"nextCursor":"c"}`:          `{"tools":[],"nextCursor":"c"}`,
		`{"tools":[ {"name":"h"} , {"name":"h2"} ]}`:         `{"tools":[]}`,
		`{"tools":[{"name":"h"},{"name":"a"},{"name":"b"}]}`: `{"tools":[{"name":"a"},{"name":"b"}]}`,
		`{"tools":[{"name":"a"},{"name":"h"},{"name":"b"}]}`: `{"tools":[{"name":"a"},{"name":"b"}]}`,
		`{"tools":[{"name":"a"},{"name":"b"},{"name":"h"}]}`: `{"tools":[{"name":"a"},{"name":"b"}]}`,
		"{ \"_meta\" : {\"n\":9007199254740993} ,\"tools\" : [\n  {\"name\":\"h\", \"x\":[1,{}]},\n  { \"name\" : \"a\", \"f\":1.0 } ,\n  {\"name\":\"h\"},\n  {\"name\":\"b\"}\n] , \"nextCursor\":\"h\" }": "{ \"_meta\" : {\"n\":9007199254740993} ,\"tools\" : [\n  { \"name\" : \"a\", \"f\":1.0 },\n  {\"name\":\"b\"}\n] , \"nextCursor\":\"h\" }",
		// Names are compared decoded.
		`{"tools":[{"n\u0061me":"\u0068idden"},{"name":"\u0061"}]}`: `{"tools":[{"name":"\u0061"}]}`,
		// What cannot be understood is hidden.
		`{"tools":[1,"a",null,[{"name":"a"}],{"title":"a"},{"name":7},{"Name":"a"},{"name":"a"}]}`: `{"tools":[{"name":"a"}]}`,
		`{"tools":{"name":"a"}}`: `{"tools":[]}`,
		`{"tools":"h"}`:          `{"tools":[]}`,
		// Whichever of several names counts, it is no hidden one.
		`{"tools":[{"name":"a","name":"h"},{"name":"h","name":"a"},{"name":"a","NAME":"h"},{"name":"a","name":"b"}]}`: `{"tools":[{"name":"a","name":"b"}]}`,
		`{"tools":[{"name":"h"}],"tools":[{"name":"a"}]}`:                                                             `{"tools":[],"tools":[{"name":"a"}]}`,
		`{"tools":[{"name":"a"}],"t\u006fols":[{"name":"h"}],"Tools":[{"name":"h"}]}`:                                 `{"tools":[{"name":"a"}],"t\u006fols":[],"Tools":[]}`,
	} {
		m := parse(t, `{"jsonrpc":"2.0","id":1, "result": `+in+` }`).WithRelated(jsonrpc.IntID(1))
		got := f.hideInAnswer(m)
		if want == "" {
			want = in
		}
		if string(got.Bytes()) != `{"jsonrpc":"2.0","id":1, "result": `+want+` }` || got.Related() != jsonrpc.IntID(1) {
			t.Errorf("%s\n became %s\n   want %s", in, got.Result(), want)
		}
	}
}

// An answer that readers could understand differently is withheld.
func TestListWithheld(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{},"Result":{"tools":[{"name":"h"}]}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},"RESULT":{"tools":[{"name":"h"}]}}`,
		`{"jsonrpc":"2.0","id":1,"result":[{"tools":[{"name":"h"}]}]}`,
		`{"jsonrpc":"2.0","id":1,"result":"h"}`,
	} {
		got := hiding(t, "h").hideInAnswer(parse(t, text).WithRelated(jsonrpc.IntID(1)))
		if !got.IsError() || got.ID() != jsonrpc.IntID(1) || got.Related() != jsonrpc.IntID(1) || !strings.Contains(string(got.Bytes()), "withheld") {
			t.Errorf("%s became %s", text, got.Bytes())
		}
	}
	failed := parse(t, `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"h"}}`)
	if got := hiding(t, "h").hideInAnswer(failed); !bytes.Equal(got.Bytes(), failed.Bytes()) {
		t.Errorf("an error became %s", got.Bytes())
	}
}

// Which answers count as lists: never too few.
func TestLists(t *testing.T) {
	one, wide := jsonrpc.IntID(1), parseID(t, "1.0")
	var l openLists
	if l.mayAnswerList(one) {
		t.Error("an answer to nothing counts")
	}
	l.noteSent(one)
	if l.mayAnswerList(jsonrpc.StringID("1")) || !l.mayAnswerList(wide) || !l.mayAnswerList(one) {
		t.Error("an id that is open does not count in every spelling")
	}
	if l.mayAnswerList(one) {
		t.Error("an id counts after its answer")
	}
	// A late answer to a cancelled request may meet a new one of the same id.
	l.noteSent(one)
	l.noteCancelled(one)
	l.noteCancelled(jsonrpc.IntID(2))
	if l.mayAnswerList(jsonrpc.IntID(2)) {
		t.Error("a cancellation of nothing counts")
	}
	for range 3 {
		if !l.mayAnswerList(one) {
			t.Error("a cancelled request does not stay")
		}
		l.noteSent(one) // its id is used again
	}
	for i := range int64(maxOpenLists) {
		l.noteSent(jsonrpc.IntID(10 + i))
	}
	if len(l.openIDs) > maxOpenLists || !l.mayAnswerList(jsonrpc.StringID("any")) {
		t.Errorf("%d are open", len(l.openIDs))
	}
	var long openLists
	long.noteSent(jsonrpc.StringID(strings.Repeat("x", maxListIDBytes)))
	if len(long.openIDs) > 0 || !long.mayAnswerList(one) {
		t.Error("a long id is kept, or forgotten")
	}
}

func parseID(t *testing.T, text string) jsonrpc.ID {
	t.Helper()
	id, ok := jsonrpc.ParseID([]byte(text))
	if !ok {
		t.Fatal(text)
	}
	return id
}

// Whatever a server answers to tools/list, no reader finds a hidden tool in it;
// what is shown was there, byte for byte, and nothing else is gone.
func FuzzList(f *testing.F) {
	for _, s := range []string{
		`[]`, `[{"name":"a"}]`, `[ {"name":"h"} , {"name":"a"} ]`, `[{"name":"a"},{"name":"h"},1]`, `[{"name":"a","name":"h"}]`, `[{"Name":"h","name":"a"}]`,
		`null`, `{}`, `"h"`, `[[{"name":"h"}]]`, `[{"n\u0061me":"\u0068"}]`, `[{"name":"hh"},{"name":"a","x":[{"name":"h"}]}]`,
	} {
		f.Add(`{"tools":` + s + `,"nextCursor":"c"}`)
		f.Add(`{"tools":[{"name":"a"}], "tools" : ` + s + ` }`)
		f.Add(`{"Tools":` + s + `,"\u0054ools":` + s + `,"toolſ":` + s + `}`)
		f.Add(s)
	}
	hide := hiding(f, "h*")
	f.Fuzz(func(t *testing.T, result string) {
		if !json.Valid([]byte(result)) || !utf8.ValidString(result) {
			return
		}
		m := parse(t, `{"jsonrpc":"2.0","id":1,"result":`+result+`}`)
		got := hide.hideInAnswer(m)
		if fresh := parse(t, string(got.Bytes())); !bytes.Equal(fresh.Result(), got.Result()) || got.ID() != m.ID() {
			t.Fatalf("the index of %s is wrong", got.Bytes())
		}
		if got.IsError() {
			if m.Result()[0] == '{' {
				t.Fatalf("%s is withheld", result)
			}
			return
		}
		// A reader that takes no notice of case, and takes the last of equal keys.
		var page struct{ Tools json.RawMessage }
		bridgetest.Must(t, json.Unmarshal(got.Result(), &page))
		var tools []struct{ Name string }
		if err := json.Unmarshal(page.Tools, &tools); err != nil && page.Tools != nil {
			t.Fatalf("%s became %s: %v", result, got.Result(), err)
		}
		for _, tool := range tools {
			if strings.HasPrefix(tool.Name, "h") || tool.Name == "" && !hide.isVisibleName(nil) {
				t.Fatalf("%s became %s", result, got.Result())
			}
		}
		checkSame(t, m.Result(), got.Result())
		if again := hide.hideInAnswer(got); !bytes.Equal(again.Bytes(), got.Bytes()) {
			t.Fatalf("%s became %s and then %s", result, got.Result(), again.Result())
		}
	})
}

// checkSame compares all members but the lists of tools, and wants each list
// to be the visible part of what it was.
func checkSame(t *testing.T, before, after []byte) {
	t.Helper()
	var was, is []jsonrpc.Member
	for m := range jsonrpc.Members(before) {
		was = append(was, m)
	}
	for m := range jsonrpc.Members(after) {
		is = append(is, m)
	}
	if len(was) != len(is) {
		t.Fatalf("%s became %s", before, after)
	}
	endWas, endIs := 0, 0
	for i := range was {
		if was[i].Key != is[i].Key || !bytes.Equal(before[endWas:was[i].At], after[endIs:is[i].At]) {
			t.Fatalf("%s became %s", before, after)
		}
		endWas, endIs = was[i].At+len(was[i].Value), is[i].At+len(is[i].Value)
		if !strings.EqualFold(was[i].Key, "tools") {
			if !bytes.Equal(was[i].Value, is[i].Value) {
				t.Fatalf("%s: %s became %s", was[i].Key, was[i].Value, is[i].Value)
			}
			continue
		}
		left := is[i].Value
		for _, e := range jsonrpc.Elements(left) {
			if !bytes.Contains(was[i].Value, e) {
				t.Fatalf("%s is made up", e)
			}
		}
		kept := 0
		for range jsonrpc.Elements(left) {
			kept++
		}
		for _, e := range jsonrpc.Elements(was[i].Value) {
			if visibleToAll(e) {
				kept--
			}
		}
		if kept != 0 {
			t.Fatalf("%s became %s", was[i].Value, left)
		}
	}
	if !bytes.Equal(before[endWas:], after[endIs:]) {
		t.Fatalf("%s became %s", before, after)
	}
}

// visibleToAll says of a tool, in another way than the filter, whether it has
// a name and none that begins with h.
func visibleToAll(tool []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(tool))
	if first, err := dec.Token(); err != nil || first != json.Delim('{') {
		return false
	}
	named := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			panic(err)
		}
		var value any
		if err := dec.Decode(&value); err != nil {
			value = fmt.Sprint("number out of range: ", err)
			if !strings.EqualFold(key.(string), "name") {
				continue
			}
			return false
		}
		if strings.EqualFold(key.(string), "name") {
			name, ok := value.(string)
			if !ok || strings.HasPrefix(name, "h") {
				return false
			}
			named = named || key == "name"
		}
	}
	return named
}
