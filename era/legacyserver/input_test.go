package legacyserver

import "testing"

// C.4.4: an answer has the shape of what was asked for.
func TestIsAnswer(t *testing.T) {
	for _, test := range []struct {
		method, result string
		want           bool
	}{
		{"elicitation/create", `{"action":"accept","content":{}}`, true},
		{"elicitation/create", `{"action":"decline"}`, true},
		{"elicitation/create", `{"action":"cancel","content":null,"x":1}`, true},
		{"elicitation/create", `{"action":"yes"}`, false},
		{"elicitation/create", `{"action":true}`, false},
		{"elicitation/create", `{"action":"accept","content":[]}`, false},
		{"elicitation/create", `{}`, false},
		{"elicitation/create", `"accept"`, false},
		{"sampling/createMessage", `{"role":"assistant","model":"m","content":{"type":"text","text":""}}`, true},
		{"sampling/createMessage", `{"role":"assistant","model":"m","content":[]}`, true},
		{"sampling/createMessage", `{"role":"assistant","model":"m","content":"text"}`, false},
		{"sampling/createMessage", `{"role":"assistant","content":{}}`, false},
		{"sampling/createMessage", `{"model":"m","content":{}}`, false},
		{"roots/list", `{"roots":[]}`, true},
		{"roots/list", `{"roots":{}}`, false},
		{"roots/list", `[]`, false},
		{"ping", `{}`, false},
	} {
		if got := isValidAnswer(test.method, []byte(test.result)); got != test.want {
			t.Errorf("%s %s: %t", test.method, test.result, got)
		}
	}
}

// C.4.3: what a client must have declared for an input request.
func TestMissingCapability(t *testing.T) {
	for _, test := range []struct{ caps, method, params, missing string }{
		{`{}`, "roots/list", ``, `{"roots":{}}`},
		{`{"roots":{}}`, "roots/list", ``, ``},
		{``, "sampling/createMessage", `{}`, `{"sampling":{}}`},
		{`{"sampling":{}}`, "sampling/createMessage", `{}`, ``},
		{`{"sampling":{}}`, "sampling/createMessage", `{"toolChoice":{}}`, `{"sampling":{"tools":{}}}`},
		{`{"sampling":{"tools":{}}}`, "sampling/createMessage", `{"tools":[],"toolChoice":{}}`, ``},
		{`{}`, "elicitation/create", `{}`, `{"elicitation":{"form":{}}}`},
		{`{"elicitation":{}}`, "elicitation/create", `{"mode":"form"}`, ``},
		{`{"elicitation":{}}`, "elicitation/create", `{"mode":"url"}`, `{"elicitation":{"url":{}}}`},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{"mode":"url"}`, ``},
		{`{"elicitation":{"url":{}}}`, "elicitation/create", `{}`, `{"elicitation":{"form":{}}}`},
		{`{"elicitation":{"url":{},"form":{}}}`, "elicitation/create", `{}`, ``},
	} {
		if got := string(missingCapability([]byte(test.caps), test.method, []byte(test.params))); got != test.missing {
			t.Errorf("%s, %s %s: missing %s", test.caps, test.method, test.params, got)
		}
	}
}
