package era

import "testing"

func TestProjectCapabilities(t *testing.T) {
	for _, test := range []struct{ name, modern, legacy string }{
		{"nothing", `{}`, `{}`},
		{"not even an object", `null`, `{}`},
		{"absent", ``, `{}`},
		{"listChanged needs a connection", `{"roots":{"listChanged":true}}`, `{"roots":{}}`},
		{"sampling", `{"sampling":{"tools":{"x":1},"y":2}}`, `{"sampling":{"tools":{}}}`},
		{"one order", `{"sampling":{"tools":{},"context":{}},"roots":{}}`, `{"roots":{},"sampling":{"context":{},"tools":{}}}`},
		{"forms are what {} means", `{"elicitation":{"form":{"a":1}}}`, `{"elicitation":{}}`},
		{"forms", `{"elicitation":{}}`, `{"elicitation":{}}`},
		{"URLs", `{"elicitation":{"url":{}}}`, `{"elicitation":{"url":{}}}`},
		{"both", `{"elicitation":{"url":{},"form":{}}}`, `{"elicitation":{"form":{},"url":{}}}`},
		{"no objects", `{"roots":true,"sampling":null,"elicitation":[]}`, `{}`},
		{"tasks mean something else (C.5)", `{"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`, `{}`},
		{"other extensions", `{"extensions":{"z/a":{ "q" : [1.0, "\u0061"] },"io.modelcontextprotocol/tasks":{},"a/b":{}},"experimental":{"x":{}}}`,
			`{"experimental":{"x":{}},"extensions":{"a/b":{},"z/a":{"q":[1.0,"a"]}}}`},
		{"of equal keys the last", `{"roots":1,"roots":{}}`, `{"roots":{}}`},
	} {
		if got := string(ProjectCapabilities([]byte(test.modern))); got != test.legacy {
			t.Errorf("%s: %s is %s, not %s", test.name, test.modern, got, test.legacy)
		}
	}
}

// What is projected already stays: it may be both a key and what is declared.
func TestProjectCapabilitiesTwice(t *testing.T) {
	for _, caps := range []string{`{}`, `{"elicitation":{"form":{},"url":{}},"extensions":{"b":{"y":{},"x":{}},"a":{}},"roots":{},"sampling":{"tools":{}}}`} {
		once := string(ProjectCapabilities([]byte(caps)))
		if twice := string(ProjectCapabilities([]byte(once))); twice != once {
			t.Errorf("%s is %s", once, twice)
		}
	}
}

func TestCanonical(t *testing.T) {
	for _, test := range []struct{ raw, want string }{
		{` { "b" : 1 , "a" : [ 1.0 , 2e3 , null ] } `[1:], `{"a":[1.0,2e3,null],"b":1}`},
		{`{"\u0061":"\u000a\/"}`, `{"a":"\n/"}`},
		{`{"a":1,"a":2}`, `{"a":2}`},
		{`[]`, `[]`},
		{`"x"`, `"x"`},
	} {
		if got := string(appendCanonical(nil, []byte(test.raw), canonicalDepth)); got != test.want {
			t.Errorf("%s is %s, not %s", test.raw, got, test.want)
		}
	}
}
