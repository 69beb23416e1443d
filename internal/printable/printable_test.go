package printable

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const hostile = "a\x1b[31m\u202e\u009b\x7f\n\t\r\xff\U000e0041é\u2028"

func TestText(t *testing.T) {
	for _, test := range []struct{ name, got, want string }{
		{"one line", Text(hostile), `a\u001b[31m\u202e\u009b\u007f\n\t\r\xff\U000e0041é\u2028`},
		{"lines", string(AppendLines(nil, hostile)), `a\u001b[31m\u202e\u009b\u007f` + "\n\t" + `\u000d` + "\ufffd\U000e0041é" + `\u2028`},
		{"JSON", string(AppendJSON(nil, hostile)), `a\u001b[31m\u202e\u009b\u007f   \ufffd\udb40\udc41é\u2028`},
	} {
		if test.got != test.want {
			t.Errorf("%s: %s, want %s", test.name, test.got, test.want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""}, {"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aé", 2, "a"}, {"aé", 3, "aé"}, {"éé", 1, ""}, {"\xff\xff", 1, "\xff"}, {"\x80\x80", 1, "\x80"},
		{"a\x80\x80\x80\x80\x80\x80", 6, "a\x80\x80\x80\x80\x80"}, {"a\U0001F600", 4, "a"}, {"\U0001F600", 3, ""},
	} {
		if got := Clip(test.text, test.most); got != test.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", test.text, test.most, got, test.want)
		}
	}
}

// Whatever the text, what is shown is printable, and JSON stays the same value.
func FuzzText(f *testing.F) {
	f.Add(hostile)
	f.Add(`{"a":"` + hostile + `"}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range Text(text) {
			if !unicode.IsPrint(r) {
				t.Fatalf("Text(%q) has %q", text, r)
			}
		}
		for _, r := range string(AppendLines(nil, text)) {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Fatalf("AppendLines of %q has %q", text, r)
			}
		}
		shown := AppendJSON(nil, text)
		if !utf8.Valid(shown) || bytes.ContainsAny(shown, "\n\t\r\x1b") {
			t.Fatalf("AppendJSON of %q is %q", text, shown)
		}
		quoted, err := json.Marshal(strings.ToValidUTF8(text, "\ufffd"))
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(quoted, &before) != nil || json.Unmarshal(AppendJSON(nil, quoted), &after) != nil || before != after {
			t.Fatalf("%q became %q", before, after)
		}
	})
}
