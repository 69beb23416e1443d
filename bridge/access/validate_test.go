package access

import (
	"strings"
	"testing"
)

func TestValidateOrigins(t *testing.T) {
	tests := []struct{ entry, says string }{
		{"*", ""},
		{"https://app.example", ""},
		{"https://app.example:8443", ""},
		{"http://10.0.0.7:3000", ""},
		{"http://[fd00::1]:3000", ""},
		{"https://*.app.example", ""},
		{"https://*.app.example:8443", ""},
		{"http://app.example:443", ""},
		{"vscode-webview://abc", ""},

		{"", "write an origin such as"},
		{"null", "every page can have it"},
		{"app.example", "the scheme is missing"},
		{"*.app.example", "the scheme is missing"},
		{"https://app.example/", `write "https://app.example"`},
		{"https://app.example:8443/x?y", `write "https://app.example:8443"`},
		{"https://app.example:443", `write "https://app.example"`},
		{"http://app.example:80", `write "http://app.example"`},
		{"https://*.app.example:443", `write "https://*.app.example"`},
		{"https://*", `write "*"`},
		{"https://app.example:*", "port"},
		{"https://app.*", "first labels"},
		{"https://a*.example", "first labels"},
		{"https://*.*.example", "first labels"},
		{"http://*.0.1", "first labels"},
		{"https://", "no origin"},
		{"https://b\u00fccher.example", "xn--"},
		{"https://app.example ", "without spaces"},
		{"https://a.example,https://b.example", "more than one origin"},
	}
	for _, tt := range tests {
		p := &Policy{AllowOrigins: []string{"https://good.example", tt.entry}}
		checkProblem(t, p, "allowed origin 2", tt.entry, tt.says)
	}
}

func TestValidateHosts(t *testing.T) {
	tests := []struct{ entry, says string }{
		{"*", ""},
		{"mcp.example.com", ""},
		{"*.example.com", ""},
		{"10.0.0.7", ""},
		{"[fd00::1]", ""},
		{"", "no host"},
		{"mcp.example.com:8080", `write "mcp.example.com"`},
		{"mcp.example.com.", `write "mcp.example.com"`},
		{"https://mcp.example.com", "no scheme"},
		{"fd00::1", "in brackets"},
		{"mcp.*", "first labels"},
		{"a b", "no host"},
	}
	for _, tt := range tests {
		checkProblem(t, &Policy{AllowHosts: []string{tt.entry}}, "allowed host 1", tt.entry, tt.says)
	}
}

func checkProblem(t *testing.T, p *Policy, where, entry, says string) {
	t.Helper()
	err := p.Validate()
	switch {
	case says == "" && err != nil:
		t.Errorf("%q: %v", entry, err)
	case says != "" && err == nil:
		t.Errorf("%q: no error", entry)
	case says != "" && (!strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), where)):
		t.Errorf("%q: %v; want it to say %q and %q", entry, err, where, says)
	}
}

func TestValidateKeepsPasswords(t *testing.T) {
	p := &Policy{AllowOrigins: []string{"https://user:secret@app.example"}}
	if err := p.Validate(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error is %v", err)
	}
}
