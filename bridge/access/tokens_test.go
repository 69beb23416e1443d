package access

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/bridge/bridgetest"
)

func TestParseTokens(t *testing.T) {
	tests := []struct {
		name, text string
		names      string // space separated; "" means an error
		says       string
	}{
		{"one", "alice " + tokenA, "alice", ""},
		{"many", "alice " + tokenA + "\nbob\t \tBBBBBBBBBBBBBBBB\n", "alice bob", ""},
		{"semicolons", "alice " + tokenA + "; bob BBBBBBBBBBBBBBBB ;", "alice bob", ""},
		{"comments and blank lines", "# who\n\n  # may\r\nalice " + tokenA + "\r\n\t\r\n", "alice", ""},
		{"byte order mark", "\ufeffalice " + tokenA, "alice", ""},
		{"rotation", "alice " + tokenA + "\nalice " + tokenA2, "alice", ""},
		{"the same line twice", "alice " + tokenA + "\nalice " + tokenA, "alice", ""},
		{"16 characters", "a 0123456789abcdef", "a", ""},
		{"64 characters of name", strings.Repeat("n", 64) + " " + tokenA, strings.Repeat("n", 64), ""},

		{"nothing", "", "", "there is no token"},
		{"comments only", "# x\n;\n", "", "there is no token"},
		{"token only", "# x\n" + tokenA, "", "entry 2: a name and a token are expected"},
		{"three words", "alice is " + tokenA, "", "there are 3 words"},
		{"comment behind", "alice " + tokenA + " # mine", "", "there are 4 words"},
		{"colon", "alice:" + tokenA, "", "there are 1 words"},
		{"too short", "alice 0123456789abcde", "", "entry 1: the token, which comes second, has fewer than 16 characters; \"openssl rand -hex 32\""},
		{"swapped", tokenA[:40] + "/= alice", "", "the name, which comes first,"},
		{"name too long", strings.Repeat("n", 65) + " " + tokenA, "", "up to 64"},
		{"name of a certificate", "cert:alice " + tokenA, "", "the name, which comes first,"},
		{"not ASCII", "alice " + tokenA + "\u00e9", "", "visible ASCII"},
		{"control character", "alice " + tokenA + "\x00", "", "visible ASCII"},
		{"two names", "alice " + tokenA + "\nbob " + tokenA, "", "entry 2: this is the token of entry 1 again, under another name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tokens, err := ParseTokens(tt.text)
			switch {
			case tt.names == "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("error %v, want it to say %q", err, tt.says)
			case tt.names == "" && (strings.Contains(err.Error(), tokenA[:8]) || strings.Contains(err.Error(), "alice")):
				t.Errorf("the error shows what the text holds: %v", err)
			case tt.names != "" && err != nil:
				t.Error(err)
			case tt.names != "" && !slices.Equal(tokens.Names(), strings.Fields(tt.names)):
				t.Errorf("names %q", tokens.Names())
			}
		})
	}
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	bridgetest.Must(t, os.WriteFile(file, []byte(text), mode))
	if err := os.Chmod(file, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
}

func TestLoadTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	for text, says := range map[string]string{
		"# x\n\nalice " + tokenA[:9] + "\n": file + ":3: the token, which comes second, has fewer",
		"alice " + tokenA[:9] + " x":        file + ":1: a name and a token are expected",
		"":                                  file + ": there is no token",
		strings.Repeat("#\n", maxSecretFileSize/2) + "a " + tokenA: file + " is larger than 1 MiB",
		"\nalice " + tokenA + "\nbob " + tokenA + "\n":             file + ":3: this is the token of line 2 again, under another name",
	} {
		write(t, file, text, 0o600)
		_, err := LoadTokens(file)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), tokenA[:9]) {
			t.Errorf("error %v, want it to say %q and not to show the file", err, says)
		}
	}
	if _, err := LoadTokens(file + ".no"); err == nil || !os.IsNotExist(unwrap(err)) {
		t.Errorf("no file: %v", err)
	}
	if _, err := LoadTokens(filepath.Dir(file)); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: %v", err)
	}
}

func unwrap(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

// A file that every user may read is refused, and the error says what to do.
func TestTokensOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing there")
	}
	file := filepath.Join(t.TempDir(), "tokens")
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		write(t, file, "alice "+tokenA, mode)
		if _, err := LoadTokens(file); (err != nil) != refused || refused && (!strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "chmod o-r")) {
			t.Errorf("%o: %v", mode, err)
		}
	}
}

// TestReload: the new tokens count at once, a broken file changes nothing. A file that is gone, or has no
// token in it, takes all away (A11).
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write(t, file, "alice "+tokenA, 0o600)
	tokens, err := LoadTokens(file)
	bridgetest.Must(t, err)
	p := &Policy{Tokens: tokens}
	principal := func(token string) string {
		r, _, _ := enter(p, request("POST", "localhost", "X-API-Key", token))
		return Principal(r)
	}
	check := func(a, a2 string) {
		t.Helper()
		if principal(tokenA) != a || principal(tokenA2) != a2 {
			t.Errorf("principals %q and %q, want %q and %q", principal(tokenA), principal(tokenA2), a, a2)
		}
	}
	check("alice", "")
	write(t, file, "alice "+tokenA+"\nalice "+tokenA2, 0o600)
	bridgetest.Must(t, tokens.Reload())
	check("alice", "alice")
	for _, broken := range []string{"alice", "bob " + tokenA + "\nalice " + tokenA} {
		write(t, file, broken, 0o600)
		if err := tokens.Reload(); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%d bytes: error %v, want one that names the file", len(broken), err)
		}
		check("alice", "alice")
	}
	write(t, file, "alice "+tokenA2, 0o600)
	bridgetest.Must(t, tokens.Reload())
	check("", "alice")
	for _, none := range []string{"", "# alice " + tokenA2 + "\n", " \n\n"} {
		write(t, file, none, 0o600)
		if err := tokens.Reload(); err != nil || len(tokens.Names()) != 0 || tokens.IsFileGoneOrEmpty() != (none == "") {
			t.Errorf("%q: %v, and there are tokens of %v", none, err, tokens.Names())
		}
		check("", "")
		write(t, file, "alice "+tokenA2, 0o600)
		bridgetest.Must(t, tokens.Reload())
		check("", "alice")
	}
	bridgetest.Must(t, os.Remove(file))
	if !tokens.IsFileGoneOrEmpty() {
		t.Error("a file that is gone is not taken for one that may come back")
	}
	if err := tokens.Reload(); err != nil {
		t.Errorf("a file that is gone: %v", err)
	}
	check("", "")
	if _, err := LoadTokens(file); err == nil {
		t.Error("a file that is not there was loaded")
	}
	if err := mustParse(t, "alice "+tokenA).Reload(); err != nil {
		t.Errorf("tokens without a file: %v", err)
	}
}

// TestReloadWhileServing is for the race detector, and sees no request fail
// for a token that stays.
func TestReloadWhileServing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write(t, file, "alice "+tokenA, 0o600)
	tokens, err := LoadTokens(file)
	bridgetest.Must(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				if name := nameOf(tokens.lookup(tokenA)); name != "alice" {
					t.Errorf("name %q", name)
				}
			}
		})
	}
	for i := range 50 {
		next := file + ".new"
		write(t, next, fmt.Sprintf("b%d BBBBBBBBBBBBBBBB%d\nalice %s", i, i, tokenA), 0o600)
		bridgetest.Must(t, os.Rename(next, file))
		if err := tokens.Reload(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func FuzzParseTokens(f *testing.F) {
	f.Add("alice " + tokenA + "\nbob 0123456789abcdef;#x")
	f.Add("a b c\n\ufeff")
	f.Add("a sha256:" + strings.Repeat("0f", 32) + ";b 0123456789abcdef")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := ParseTokens(text)
		if err != nil {
			return
		}
		if len(tokens.Names()) == 0 {
			t.Error("no names and no error")
		}
		for line := range strings.FieldsFuncSeq(strings.TrimPrefix(text, "\ufeff"), func(r rune) bool { return r == '\n' || r == ';' }) {
			line = strings.Trim(line, " \t\r")
			if fields := strings.Fields(line); len(fields) == 2 && line[0] != '#' && !strings.HasPrefix(fields[1], "sha256:") {
				if got := nameOf(tokens.lookup(fields[1])); got != fields[0] {
					t.Errorf("the token of %q stands for %q", fields[0], got)
				}
			}
		}
	})
}

// nameOf takes the name of what lookup returns.
func nameOf(name string, _ [32]byte) string { return name }
