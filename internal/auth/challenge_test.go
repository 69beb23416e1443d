package auth

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseChallenges(t *testing.T) {
	t.Parallel()
	bearer := func(params ...Param) Challenge { return Challenge{Scheme: "Bearer", Params: params} }
	for _, test := range []struct {
		name  string
		lines []string
		want  []Challenge
	}{
		{"none", nil, nil},
		{"scheme alone", []string{"Bearer"}, []Challenge{bearer()}},
		{"parameters", []string{`Bearer realm="a b", scope="x y",error=invalid_token`},
			[]Challenge{bearer(Param{"realm", "a b"}, Param{"scope", "x y"}, Param{"error", "invalid_token"})}},
		{"escapes", []string{`Bearer realm="a \"b\" \\ c, d=e"`}, []Challenge{bearer(Param{"realm", `a "b" \ c, d=e`})}},
		{"several in a line", []string{`Basic realm="x", Bearer scope="a", DPoP algs="ES256 PS256"`}, []Challenge{
			{Scheme: "Basic", Params: []Param{{"realm", "x"}}}, bearer(Param{"scope", "a"}), {Scheme: "DPoP", Params: []Param{{"algs", "ES256 PS256"}}}}},
		{"several lines", []string{"Negotiate", `Bearer scope="a"`}, []Challenge{{Scheme: "Negotiate"}, bearer(Param{"scope", "a"})}},
		{"token68", []string{"Negotiate YII+/=, Bearer, NTLM abc"}, []Challenge{{Scheme: "Negotiate", Token68: "YII+/="}, bearer(), {Scheme: "NTLM", Token68: "abc"}}},
		{"empty elements and spaces", []string{" ,, Bearer  a = b , , c=\"d\" ,"}, []Challenge{bearer(Param{"a", "b"}, Param{"c", "d"})}},
		{"URL without quotes", []string{"Bearer resource_metadata=https://h/.well-known/oauth-protected-resource?x=1, scope=a"},
			[]Challenge{bearer(Param{"resource_metadata", "https://h/.well-known/oauth-protected-resource?x=1"}, Param{"scope", "a"})}},
		{"empty value", []string{`Bearer scope=""`}, []Challenge{bearer(Param{"scope", ""})}},
	} {
		got, err := ParseChallenges(test.lines)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v, %v", test.name, got, err)
		}
	}
}

func TestParseChallengesNamesThePlace(t *testing.T) {
	t.Parallel()
	many := func(n int, s string) string { return strings.Repeat(s, n) }
	for _, test := range []struct {
		name         string
		lines        []string
		line, offset int
		left         int // challenges that can be read
	}{
		{"unbalanced quotes", []string{"Basic", `Bearer realm="a`}, 2, 13, 1},
		{"escape at the end", []string{`Bearer realm="a\`}, 1, 13, 0},
		{"no value", []string{"Bearer a=b, realm=, x=y"}, 1, 18, 0},
		{"two values", []string{`Bearer realm="a" "b"`}, 1, 17, 0},
		{"control character", []string{"Bearer realm=\"a\x01\""}, 1, 15, 0},
		{"no scheme", []string{`Basic, "x"`}, 1, 7, 1},
		{"parameter twice", []string{`Bearer scope="a", Scope="b"`, "Basic"}, 1, 0, 1},
		{"too long", []string{"Basic", `Bearer realm="` + many(17<<10, "x") + `"`}, 2, 0, 1},
		{"too many parameters", []string{"Bearer " + many(80, "a=b,")}, 1, 7 + 65*4 - 1, 0},
		{"too many challenges", []string{many(40, "Basic,")}, 1, 0, 32},
	} {
		got, err := ParseChallenges(test.lines)
		fault, ok := errors.AsType[*ChallengeError](err)
		if !ok || fault.LineNumber != test.line || fault.Offset != test.offset || len(got) != test.left {
			t.Errorf("%s: %v, %d challenges left", test.name, err, len(got))
		}
	}
}

func TestDemand(t *testing.T) {
	t.Parallel()
	read := func(lines ...string) Demand {
		c, err := ParseChallenges(lines)
		if err != nil {
			t.Fatal(err)
		}
		return DemandOf(c)
	}
	got := read(`Basic realm="x", resource_metadata="https://basic"`, `bearer scope="a b  a", error="insufficient_scope", error_description="more"`, `DPoP algs="ES256", resource_metadata="https://m"`)
	want := Demand{AcceptsBearer: true, AcceptsDPoP: true, ResourceMetadata: "https://m", Scopes: []string{"a", "b"}, ErrorCode: "insufficient_scope", ErrorDescription: "more", DPoPAlgs: []string{"ES256"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v", got)
	}
	var lines []string
	for _, c := range want.Challenges() {
		lines = append(lines, c.String())
	}
	if got := read(lines...); !reflect.DeepEqual(got, want) {
		t.Errorf("written and read again: %+v from %q", got, lines)
	}
	if got := read(`MAC resource_metadata="https://m"`); got.ResourceMetadata != "https://m" || got.AcceptsBearer {
		t.Errorf("of an unknown scheme: %+v", got)
	}
}

func TestChallengeIsOneLine(t *testing.T) {
	t.Parallel()
	c := Challenge{Scheme: "Bearer", Params: []Param{{"error_description", "a \"b\" \\ \r\nSet-Cookie: x=y ü"}}}
	if got, want := c.String(), `Bearer error_description="a \"b\" \\ ??Set-Cookie: x=y ?"`; got != want {
		t.Errorf("got %s", got)
	}
}

func FuzzParseChallenges(f *testing.F) {
	f.Add(`Bearer realm="a \"b\"", scope=x, Negotiate YII=`, "Basic")
	f.Add(`Bearer realm="a`, `DPoP algs="ES256",,`)
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := ParseChallenges([]string{a, b})
		if len(got) > maxChallenges {
			t.Fatalf("%d challenges", len(got))
		}
		if fault, ok := errors.AsType[*ChallengeError](err); err != nil && (!ok || fault.LineNumber < 1 || fault.LineNumber > 2 || fault.Offset < 0 || fault.Offset > len(a)+len(b)) {
			t.Fatalf("error %v", err)
		}
		for _, c := range got {
			text := c.String()
			if len(text) > maxChallengeBytes {
				continue // escapes made it longer
			}
			again, err := ParseChallenges([]string{text})
			if err != nil || len(again) != 1 || again[0].String() != text {
				t.Fatalf("%q is written as %q and read as %+v, %v", a, text, again, err)
			}
		}
		DemandOf(got)
	})
}
