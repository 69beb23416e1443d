package jsonrpc

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// The scanner accepts and refuses the same bytes as encoding/json, in a string and between
// tokens, at each of the 8 and of the 32 places that it looks at together.
func TestEveryByte(t *testing.T) {
	for b := range 256 {
		for pad := 28; pad < 72; pad++ {
			text := `{"x":"` + strings.Repeat("a !b", 20)[:pad] + "é" + string([]byte{byte(b)}) + strings.Repeat("b", 80-pad) + `"}`
			want := json.Valid([]byte(text)) && utf8.ValidString(text)
			if got := parseError(t, text).Code != CodeParseError; got != want {
				t.Errorf("%q: valid is %v, want %v", text, got, want)
			}
		}
		for pad := range 18 {
			for _, text := range []string{
				`{"x":"` + strings.Repeat("a", pad) + string([]byte{byte(b)}) + strings.Repeat("b", 17-pad) + `"}`,
				`{"x":"` + strings.Repeat("é", pad) + `\` + string([]byte{byte(b)}) + `0061"}`,
				`{"x":"\u` + ("00e9" + "00E9")[pad%5:][:3] + string([]byte{byte(b)}) + `"}`,
				`{"x":[` + strings.Repeat(" ", pad) + string([]byte{byte(b)}) + strings.Repeat("\n", 17-pad) + `]}`,
			} {
				want := json.Valid([]byte(text)) && utf8.ValidString(text)
				if got := parseError(t, text).Code != CodeParseError; got != want {
					t.Errorf("%q: valid is %v, want %v", text, got, want)
				}
			}
		}
	}
}

// The grammar of numbers and literals (RFC 8259, sections 3 and 6).
func TestScalars(t *testing.T) {
	for _, a := range []string{"", "-", "+", "--"} {
		for _, b := range []string{"", "0", "00", "1", "01", "10", "9223372036854775808", "true", "nulL", "null", "fals", "false", "Infinity"} {
			for _, c := range []string{"", ".", ".0", ".05", "."} {
				for _, d := range []string{"", "e", "E5", "e-05", "E+", "e+0", "e1.5", "x"} {
					text := `[` + a + b + c + d + `]`
					if got := parseError(t, text).Code != CodeParseError; got != json.Valid([]byte(text)) {
						t.Errorf("%s: valid is %v", text, got)
					}
				}
			}
		}
	}
}

func TestScanRefuses(t *testing.T) {
	for _, text := range []string{
		`[[}]`, `[{]]`, `{"a":[}}`, `{"a":{]}`, `[[1}]`, `[{"a":1]]`, `[{"a":[1}}]`, `{"a":[{]}`,
		"[\"\xff\\n abcdefgh\"]", "[\"abc\xe2\x82\\u0041\"]", "[\"\\u0041\xff\"]", "{\"a\xff\\n\":1}",
		`["` + "\xf4\x90\x80\x80" + `"]`, `["` + "\xf0\x9f\x98" + `"]`, `[1 /* no comments */]`, `['a']`, `{a:1}`, `[1,,2]`, `{"a":1,,"b":2}`, `{"a"::1}`,
	} {
		if e := parseError(t, text); e.Code != CodeParseError {
			t.Errorf("%q: %v", text, e)
		}
	}
}
