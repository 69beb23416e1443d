package harness

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/authtest"
)

// Whatever a bridge writes that is no message for its client is kept until all tests have run: its log, traces and
// recordings, what commands print. Then it is searched for the secrets of the run: what the authorization
// servers of authtest have issued or were given, and what bridges were given in files, headers and variables. Main
// fails if there is one.

// keptTexts is what was written, and what must not be in it.
var keptTexts struct {
	mu    sync.Mutex      // guards the fields below
	texts []keptText      // what was written
	given map[string]bool // secrets that bridges were given
}

// A keptText is what was written to one place. It is in a file, as there may be much of it.
type keptText struct {
	what, file string // what it is, for people, and the path of the file that has it
}

// Keep keeps a text that a program has written, to be searched for secrets when all tests have run. what says, for people, what it is.
// Without Main it does nothing.
func Keep(what, text string) {
	if keptIn == "" {
		return
	}
	file := filepath.Join(keptIn, rand.Text())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		panic(err)
	}
	keepFile(what, file)
}

// keepFile notes a file that is searched for secrets once all tests have run. what says, for people, what is in it.
func keepFile(what, file string) {
	keptTexts.mu.Lock()
	defer keptTexts.mu.Unlock()
	keptTexts.texts = append(keptTexts.texts, keptText{what, file})
}

// leastSecret is how many bytes a secret has at least to be looked for: what is shorter is found where it is not meant.
const leastSecret = 16

// give notes secrets that a bridge was given.
func give(secrets ...string) {
	keptTexts.mu.Lock()
	defer keptTexts.mu.Unlock()
	if keptTexts.given == nil {
		keptTexts.given = map[string]bool{}
	}
	for _, s := range secrets {
		keptTexts.given[s] = true
	}
}

var (
	// secretFiles are the flags that name files with secrets.
	secretFiles = []string{"--token-file", "--inspect-token-file", "--client-secret-file", "--assertion-file", "--id-token-file", "--auth-key",
		"--idp-client-secret-file", "--introspect-secret-file", "--header-file", "--tls-key", "--client-key"}
	secretVariables = []string{"MCP_BRIDGE_CLIENT_SECRET", "MCP_BRIDGE_TOKENS"} // the variables that have a secret
	writtenFiles    = []string{"--trace", "--record", "--log-file"}             // the flags that name files which a bridge writes
)

// keptIn is the folder for what bridges have written, traces that no test has asked for among it; "": Main does not run.
var keptIn string

// credentialKeys matches the keys that a configuration file may have credentials in, or name files of them.
var credentialKeys = regexp.MustCompile(`"(?:auth|headers|headerFile)"\s*:`)

// hasCredentials reports whether a bridge with this command line and environment takes or sends credentials.
func hasCredentials(argv, env []string) bool {
	has := func(all []string, words ...string) bool {
		return slices.ContainsFunc(all, func(s string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(s, w) })
		})
	}
	for _, file := range configFiles(argv) {
		if text, _ := os.ReadFile(file); credentialKeys.Match(text) {
			return true
		}
	}
	return has(env, "MCP_BRIDGE_AUTH_DIR", "MCP_BRIDGE_CLIENT_SECRET", "MCP_BRIDGE_TOKENS") ||
		has(argv, "--auth", "--oidc-", "--introspect-", "--token-file", "--client-secret-file", "--assertion-file", "--id-token-file", "--header", "-H")
}

// configFiles returns the configuration files that a command line names.
func configFiles(argv []string) []string {
	files := flagValues(argv, []string{"--config"})
	for _, arg := range argv {
		if !strings.HasPrefix(arg, "-") && (strings.HasSuffix(arg, ".json") || strings.HasSuffix(arg, ".jsonc")) {
			files = append(files, arg)
		}
	}
	return files
}

// flagValues returns the values of the flags with these names in a command line, up to "--".
func flagValues(argv []string, names []string) (values []string) {
	for i, arg := range argv {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			return values
		case !slices.Contains(names, name):
		case joined:
			values = append(values, value)
		case i+1 < len(argv):
			values = append(values, argv[i+1])
		}
	}
	return values
}

// givenTo notes the secrets that a program is given by its command line, the files that this names, and the variables env.
func givenTo(argv, env []string) {
	for _, file := range flagValues(argv, secretFiles) {
		give(words(string(readRegular(file)))...)
	}
	for _, header := range flagValues(argv, []string{"--header", "-H"}) {
		_, value, _ := strings.Cut(header, ":")
		giveValue(value, env)
	}
	for _, file := range configFiles(argv) {
		var config any
		if json.Unmarshal(readRegular(file), &config) == nil { // others have mistakes, or comments
			giveConfigured(config, filepath.Dir(file), env)
		}
	}
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); slices.Contains(secretVariables, name) {
			give(words(value)...)
			give(words(strings.ReplaceAll(value, ";", "\n"))...) // as tokens may be separated
		}
	}
}

// readRegular returns what is in a file; nil: it cannot be read, or is none that can be read more than once, such as a pipe.
func readRegular(file string) []byte {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	text, _ := os.ReadFile(file)
	return text
}

// giveValue notes a secret, and each of its words, as there may be one before it, as in "Bearer TOKEN". Variables in value, such as
// ${NAME}, have the values that env says.
func giveValue(value string, env []string) {
	value = strings.TrimSpace(expand(value, env))
	give(append(words(value), value)...)
}

// giveConfigured notes the secrets in part, a decoded part of a configuration file, and in files that it names. dir is the folder of the
// configuration file. What is no object has none.
func giveConfigured(part any, dir string, env []string) {
	all, _ := part.(map[string]any)
	for key, value := range all {
		text, isText := value.(string)
		headers, _ := value.(map[string]any)
		switch {
		case key == "headers":
			for _, header := range headers {
				text, _ := header.(string)
				giveValue(text, env)
			}
		case isText && slices.Contains([]string{"clientSecret", "idpClientSecret"}, key):
			giveValue(text, env)
		case isText && (key == "key" || strings.HasSuffix(key, "File") && key != "envFile"):
			if text = expand(text, env); !filepath.IsAbs(text) {
				text = filepath.Join(dir, text)
			}
			give(words(string(readRegular(text)))...)
		default:
			giveConfigured(value, dir, env)
		}
	}
}

// variable matches a variable in a value of a configuration file or a flag: ${NAME} or ${env:NAME}.
var variable = regexp.MustCompile(`\$\{(?:env:)?(\w+)\}`)

// expand puts the values of variables into a text: those of env, or else the tests' own.
func expand(text string, env []string) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		name := variable.FindStringSubmatch(found)[1]
		for _, v := range slices.Backward(env) {
			if n, value, _ := strings.Cut(v, "="); n == name {
				return value
			}
		}
		return os.Getenv(name)
	})
}

// words returns the words of a text, such as a file of tokens, that may be secrets: all but hashes ("sha256:...").
func words(text string) []string {
	return slices.DeleteFunc(strings.Fields(text), func(w string) bool { return strings.HasPrefix(w, "sha256:") })
}

// keepFiles keeps what a program with this command line, which has ended, has written into files.
func keepFiles(argv []string) {
	for _, file := range written(argv) {
		what := fmt.Sprintf("%s of %q", file, argv)
		if filepath.Dir(file) == keptIn {
			keepFile(what, file)
		} else if text, err := os.ReadFile(file); err == nil { // it may be gone in the end
			Keep(what, string(text))
		}
	}
}

// written returns the files that a program with this command line has written: also the older ones of a trace that was full, NAME.1 and
// so on.
func written(argv []string) (files []string) {
	names := flagValues(argv, writtenFiles)
	if i := slices.Index(argv, "record"); i == 1 && len(argv) > 2 {
		names = append(names, argv[2])
	}
	for _, name := range names {
		older, _ := filepath.Glob(name + ".[0-9]*")
		files = append(append(files, name), older...)
	}
	return slices.DeleteFunc(files, func(file string) bool {
		info, err := os.Stat(file)
		return err != nil || !info.Mode().IsRegular()
	})
}

// A searcher has the forms in which secrets may be written, by how they begin.
type searcher struct {
	begins [1 << 16]bool       // whether a form begins with these two bytes, the first of which is the higher one
	by     map[string][]string // the forms, by their first prefixLength bytes
}

// prefixLength is how many bytes at the beginning of a form it is looked up by.
const prefixLength = 12

// forms returns how a secret may be written, also as a part of a text that is encoded as a whole, such as ID:SECRET.
func forms(secret string) (all []string) {
	quoted, _ := json.Marshal(secret)
	all = []string{secret, strings.Trim(string(quoted), `"`)}
	if parts := strings.Split(secret, "."); len(parts) == 3 { // a signed token: its header is no secret
		all = append(all, parts[1:]...)
	}
	escaped := url.QueryEscape(secret)
	if all = append(all, encoded(secret)...); escaped != secret {
		all = append(append(all, escaped), encoded(escaped)...)
	}
	return all
}

// encoded returns a text in hexadecimal and base64, each of whose characters depends on the text alone.
func encoded(text string) []string {
	digits := hex.EncodeToString([]byte(text))
	all := []string{digits, strings.ToUpper(digits)}
	for skip := range min(3, len(text)) { // how many bytes of it are encoded together with what stands before it
		whole := text[skip : len(text)-(len(text)-skip)%3]
		all = append(all, base64.StdEncoding.EncodeToString([]byte(whole)), base64.URLEncoding.EncodeToString([]byte(whole)))
	}
	return all
}

// newSearcher returns a searcher for these secrets. Forms that are shorter than leastSecret are left out.
func newSearcher(secrets []string) *searcher {
	s := &searcher{by: map[string][]string{}}
	seen := map[string]bool{}
	for _, secret := range secrets {
		for _, form := range forms(secret) {
			if len(form) >= leastSecret && !seen[form] {
				seen[form] = true
				s.by[form[:prefixLength]] = append(s.by[form[:prefixLength]], form)
				s.begins[int(form[0])<<8|int(form[1])] = true
			}
		}
	}
	return s
}

// in returns where the first form in a text begins, and how long it is; -1: there is none.
func (s *searcher) in(text []byte) (at, length int) {
	for i := 0; i+leastSecret <= len(text); i++ {
		if !s.begins[int(text[i])<<8|int(text[i+1])] {
			continue
		}
		for _, form := range s.by[string(text[i:i+prefixLength])] {
			if bytes.HasPrefix(text[i:], []byte(form)) {
				return i, len(form)
			}
		}
	}
	return -1, 0
}

// search looks for the secrets of the run in all that was kept (keptTexts). Each of faults names a text that has a secret, and what stands
// before the first one, or a text that cannot be read.
func search() (faults []string) {
	keptTexts.mu.Lock()
	defer keptTexts.mu.Unlock()
	secrets := authtest.Secrets()
	for secret := range keptTexts.given {
		secrets = append(secrets, secret)
	}
	s, bytes := newSearcher(secrets), 0
	for _, k := range keptTexts.texts {
		text, err := os.ReadFile(k.file)
		if err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", k.what, err))
		}
		bytes += len(text)
		if at, length := s.in(text); at >= 0 {
			faults = append(faults, fmt.Sprintf("%s has a secret: ...%s[%d bytes]", k.what, text[max(0, at-300):at], length))
		}
	}
	fmt.Fprintf(os.Stderr, "searched %d bytes of %d texts for %d secrets\n", bytes, len(keptTexts.texts), len(secrets))
	return faults
}
