package legacyserver

import "testing"

func TestProjectCapabilities(t *testing.T) {
	for _, test := range []struct{ name, modern, legacy string }{
		{"nothing", `{}`, `{}`},
		{"not even an object", `null`, `{}`},
		{"absent", ``, `{}`},
		{"listChanged needs a connection", `{"roots":{"listChanged":true,"x":1}}`, `{"roots":{"x":1}}`},
		{"sampling", `{"sampling":{"y":2.0,"tools":{"x":1}}}`, `{"sampling":{"tools":{"x":1},"y":2.0}}`},
		{"no objects in sampling", `{"sampling":{"tools":true,"context":[]}}`, `{"sampling":{}}`},
		{"one order", `{"sampling":{"tools":{},"context":{}},"roots":{}}`, `{"roots":{},"sampling":{"context":{},"tools":{}}}`},
		{"forms are what {} means", `{"elicitation":{"form":{}}}`, `{"elicitation":{}}`},
		{"what is said of forms", `{"elicitation":{"form":{ "applyDefaults" : true }}}`, `{"elicitation":{"form":{"applyDefaults":true}}}`},
		{"what is said of both", `{"elicitation":{"url":{"a":1e2},"form":{"applyDefaults":true},"x":[1]}}`, `{"elicitation":{"form":{"applyDefaults":true},"url":{"a":1e2},"x":[1]}}`},
		{"what nobody knows yet", `{"x":{"b":1,"a":{}},"y":true}`, `{"x":{"a":{},"b":1}}`},
		{"forms", `{"elicitation":{}}`, `{"elicitation":{}}`},
		{"URLs", `{"elicitation":{"url":{}}}`, `{"elicitation":{"url":{}}}`},
		{"both", `{"elicitation":{"url":{},"form":{}}}`, `{"elicitation":{"form":{},"url":{}}}`},
		{"no objects", `{"roots":true,"sampling":null,"elicitation":[]}`, `{}`},
		{"tasks mean something else (C.5)", `{"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`, `{}`},
		{"other extensions", `{"extensions":{"z/a":{ "q" : [1.0, "\u0061"] },"io.modelcontextprotocol/tasks":{},"a/b":{}},"experimental":{"x":{}}}`,
			`{"experimental":{"x":{}},"extensions":{"a/b":{},"z/a":{"q":[1.0,"a"]}}}`},
		{"of equal keys the last", `{"roots":1,"roots":{}}`, `{"roots":{}}`},
		{"of equal keys the last, within", `{"sampling":{"tools":{},"tools":1}}`, `{"sampling":{}}`},
	} {
		if got := string(ProjectCapabilities([]byte(test.modern))); got != test.legacy {
			t.Errorf("%s: %s is %s, not %s", test.name, test.modern, got, test.legacy)
		}
	}
}

// What is projected already stays: it may be both a key and what is declared.
func TestProjectCapabilitiesTwice(t *testing.T) {
	for _, caps := range []string{`{}`, `{"elicitation":{"form":{"applyDefaults":true}},"x":{}}`, `{"elicitation":{"form":{},"url":{}},"extensions":{"b":{"y":{},"x":{}},"a":{}},"roots":{},"sampling":{"tools":{}}}`} {
		once := string(ProjectCapabilities([]byte(caps)))
		if twice := string(ProjectCapabilities([]byte(once))); twice != once {
			t.Errorf("%s is %s", once, twice)
		}
	}
}
