package access

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// onlyBob lets in who says that he is Bob.
type onlyBob struct{}

func (onlyBob) Authenticate(h http.Header, r *http.Request) (*http.Request, *Refusal) {
	if r.Header.Get("Authorization") != "Bob" {
		h.Set("WWW-Authenticate", "Bob")
		return r, &Refusal{Status: http.StatusUnauthorized, Rule: "A2", Reason: "you are not Bob"}
	}
	return r.WithContext(Sender{Name: "bob"}.Context(r.Context())), nil
}

func (onlyBob) Authorize(http.Header, *http.Request, ...jsonrpc.Message) *Refusal { return nil }

func (onlyBob) Forbidden(*http.Request, jsonrpc.Message) (jsonrpc.Message, bool) {
	return jsonrpc.Message{}, false
}

// TestAuthenticator shows that an Authenticator comes after Host, Origin and preflights, and in the
// place of tokens.
func TestAuthenticator(t *testing.T) {
	t.Parallel()
	tokens, err := ParseTokens("alice " + tokenA)
	if err != nil {
		t.Fatal(err)
	}
	p := &Policy{Authenticator: onlyBob{}, Tokens: tokens, Loopback: true}
	for _, test := range []struct {
		name, method, host, authorization, origin string
		status                                    int // 0: it is let in
	}{
		{"bob", "GET", "localhost", "Bob", "", 0},
		{"a token", "GET", "localhost", "Bearer " + tokenA, "", 401},
		{"other host", "GET", "evil.example", "Bob", "", 403},
		{"other origin", "GET", "localhost", "", "https://evil.example", 403},
		{"preflight", "OPTIONS", "localhost", "", "http://localhost", 204},
	} {
		r := httptest.NewRequest(test.method, "http://"+test.host+"/mcp", nil)
		r.Header.Set("Authorization", test.authorization)
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
			r.Header.Set("Access-Control-Request-Method", "POST")
		}
		w := httptest.NewRecorder()
		known, no := p.Enter(w, r)
		switch {
		case test.status == 204 && known == nil && no == nil && w.Code == 204:
		case test.status == 0 && no == nil && Principal(known) == "bob" && TokenContext(known).Done() == nil:
		case no != nil && no.Status == test.status && (w.Header().Get("WWW-Authenticate") == "Bob") == (test.status == 401):
		default:
			t.Errorf("%s: %v, %v, %v", test.name, known, no, w.Header())
		}
	}
}

func TestHashedTokens(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte(tokenA))
	digits := hex.EncodeToString(sum[:])
	for text, ok := range map[string]bool{
		"a sha256:" + digits: true, "a sha256:" + strings.ToUpper(digits): true,
		"a sha256:" + digits[1:]: false, "a sha256:" + digits + "0": false, "a sha256:" + digits[1:] + "g": false, "a sha256:": false,
	} {
		tokens, err := ParseTokens(text)
		if (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
		if ok {
			if s, found := tokens.Sender(tokenA); !found || s.Name != "a" {
				t.Errorf("%q: the token is not known", text)
			}
			if _, found := tokens.Sender(digits); found {
				t.Errorf("%q: the sum is taken for the token", text)
			}
		} else if strings.Contains(err.Error(), digits[2:20]) {
			t.Errorf("the error shows the sum: %v", err)
		}
	}
	if _, err := ParseTokens("a " + tokenA + "\nb sha256:" + digits); err == nil {
		t.Error("one token has two names")
	}
}

func TestOwnTokens(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such modes")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("a "+tokenA), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := LoadTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := tokens.Reload(); err == nil {
		t.Error("a file that all may read is loaded again")
	}
	if _, err := LoadTokens(file); err == nil {
		t.Error("a file that all may read is loaded")
	}
}
