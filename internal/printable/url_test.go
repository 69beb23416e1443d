package printable

import (
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	for addr, want := range map[string]string{
		"":                                  "",
		"https://host/mcp":                  "https://host/mcp",
		"https://host/mcp?":                 "https://host/mcp?",
		"https://host/mcp?a=hush&b=&hush":   "https://host/mcp?a=...&...&...",
		"https://host/mcp?aHVzaA==":         "https://host/mcp?...",
		"https://host/mcp?a=hush?b=hush":    "https://host/mcp?a=...?b=...",
		"https://host/mcp?a=hush=hush;hush": "https://host/mcp?a=...",
		"https://host/mcp#token=hush&hush":  "https://host/mcp#token=...&...",
		"https://hush@host/mcp":             "https://...@host/mcp",
		"https://hush:hush@host:1/mcp?hush": "https://...@host:1/mcp?...",
		"https://hush@hush:hush@host/@org":  "https://...@host/@org",
		"http://me:hush/hush@host:1/@org/x": "http://...@host:1/@org/x",
		"http://me:1/@org/x":                "http://me:1/@org/x",
		"http://me:/@org/x":                 "http://me:/@org/x",
		"http://host/@org/x":                "http://host/@org/x",
		"http://[::1]:8080/@org":            "http://[::1]:8080/@org",
		"http://hush@[::1]:8080/@org":       "http://...@[::1]:8080/@org",
		"http://host/http://hush@other/":    "http://host/http://...@other/",
		"http://host:bad port%zz/?a=hush":   "http://host:bad port%zz/?a=...",
		"file:///a@b/c":                     "file:///a@b/c",
		"mailto:me@host":                    "mailto:me@host",
		"me@host":                           "me@host",
		"git+ssh://@host/":                  "git+ssh://@host/",
	} {
		if got := RedactURL(addr, "..."); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// No value of a query, and no user, is shown, whatever stands around them.
func FuzzURL(f *testing.F) {
	f.Add("https", "host/?a=b")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "\x00hush\x00"
		addrs := []string{before + "?a=" + secret + after, before + "?" + secret}
		if !strings.ContainsAny(before, "?#") {
			addrs = append(addrs, before+"://"+secret+"@"+after, before+"://me:"+secret+"/"+secret+"@"+after)
		}
		for _, addr := range addrs {
			if got := RedactURL(addr, "..."); strings.Contains(got, secret) {
				t.Errorf("%q: %q", addr, got)
			}
		}
	})
}
