package toolfilter

import (
	"context"
	"errors"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mcp-bridge/mcp-bridge/bridge"
	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestMain(m *testing.M) { bridgetest.CheckLeaks(m) }

func TestVisible(t *testing.T) {
	for _, c := range []struct {
		rules           Rules
		visible, hidden string // names, separated by spaces
	}{
		{Rules{}, "a delete_all /", ""},
		{Rules{Ignore: []string{"delete*"}}, "a undelete Delete_all", "delete delete_all delete/x/y"},
		{Rules{Allow: []string{"read_*", "list"}}, "read_ read_file read_a/b list", "list2 write_file Read_file read"},
		{Rules{Allow: []string{"read_*"}, Ignore: []string{"*secret*"}}, "read_file", "read_secret write secret"},
		{Rules{Allow: []string{"a"}, Ignore: []string{"a"}}, "", "a b"},
		{Rules{Ignore: []string{"?"}}, "ab", "a / é *"},
		{Rules{Ignore: []string{"[a-cx]?", "[^a-z]z"}}, "dz a aaa az! mz zz", "aa b/ xé 1z /z Az"},
		{Rules{Ignore: []string{`\*`, `[\]\-]`, `a.b`, `\[x]`, `(c)`}}, "x a_b c [x", "* ] - a.b [x] (c)"},
		{Rules{Ignore: []string{"[+-9]"}}, "a", "+ / 9 -"},
		{Rules{Ignore: []string{"*a*b*"}}, "ba b a", "ab xaxbx /a/b/ aab"},
	} {
		f, err := c.rules.compile()
		if err != nil {
			t.Errorf("%v: %v", c.rules, err)
			continue
		}
		for _, name := range strings.Fields(c.visible) {
			if !f.isVisibleName([]byte(name)) {
				t.Errorf("%v hides %q", c.rules, name)
			}
		}
		for _, name := range strings.Fields(c.hidden) {
			if f.isVisibleName([]byte(name)) {
				t.Errorf("%v shows %q", c.rules, name)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for pattern, want := range map[string]error{
		"": errEmpty, "\xff": errNotUTF8, `a\`: errEscape, "[": errUnclosedClass, "[a": errUnclosedClass, "x[a-": errUnclosedClass, "[]": errEmptyClass, "[]a]": errEmptyClass,
		"[^]": errEmptyClass, "[-a]": errOpenRange, "[a-]": errOpenRange, "[z-a]": errBackwardRange, `[\`: errEscape, `[a\`: errEscape, "[^": errUnclosedClass,
	} {
		for _, r := range []Rules{{Allow: []string{"fine", pattern}}, {Ignore: []string{pattern}}} {
			err := r.Validate()
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "the tool pattern ") {
				t.Errorf("%q: %v, want %v", pattern, err, want)
			}
			if _, dialErr := Wrap(noDialer{}, r).Dial(t.Context()); dialErr == nil || dialErr.Error() != err.Error() {
				t.Errorf("%q: Dial gives %v", pattern, dialErr)
			}
		}
	}
	if err := (Rules{Allow: []string{"*", "a[b-c]?"}, Ignore: []string{`\\`}}).Validate(); err != nil {
		t.Error(err)
	}
}

type noDialer struct{}

func (noDialer) Dial(context.Context) (bridge.Conn, error) {
	return nil, errors.New("no server")
}

// Without rules there is no filter that could cost anything.
func TestWrapWithoutRules(t *testing.T) {
	if d := Wrap(noDialer{}, Rules{Allow: []string{}}); d != (noDialer{}) {
		t.Errorf("got %v", d)
	}
	if _, err := Wrap(noDialer{}, Rules{Allow: []string{"a"}}).Dial(t.Context()); err == nil || err.Error() != "no server" {
		t.Errorf("Dial: %v", err)
	}
}

// A pattern means what it means to path.Match, as long as no '/' is about.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"*", "a*b*c", "?", "[a-c]", "[^a-c]x", `\*`, `[\]-a]`, "[]", "[", "a[", "[a-", "[-]", "[a-b-c]", "[!a]", "é*", "[^^]", "[[]", `\`, "**?"} {
		f.Add(s, "abc")
		f.Add(s, s)
	}
	f.Add("a*", "a\nb")
	f.Add("a?b", "a\nb")
	f.Fuzz(func(t *testing.T, text, name string) {
		if len(text) > 100 || len(name) > 100 || !utf8.ValidString(name) || strings.Contains(name, "/") {
			return
		}
		p, err := compilePattern(text)
		want, wantErr := path.Match(text, name)
		switch {
		case errors.Is(err, errEmpty), errors.Is(err, errNotUTF8), errors.Is(err, errBackwardRange): // ours are stricter
			return
		case (err == nil) != (wantErr == nil):
			t.Fatalf("%q: %v, but path.Match says %v", text, err, wantErr)
		case err == nil && matchesAny([]pattern{p}, []byte(name)) != want:
			t.Fatalf("%q and %q: path.Match says %v; translated to %s", text, name, want, p.re)
		}
	})
}
