package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	minTokenLength    = 16      // how many characters a token must have at least
	maxNameLength     = 64      // how many characters the name of a token may have at most
	maxSecretFileSize = 1 << 20 // how many bytes a file of secrets may have at most (ReadSecret)
)

// Tokens are the bearer tokens that a Policy accepts, each with the name of its
// principal. Several tokens may have the same name, so that a new token can replace an old
// one while both are valid. Only the SHA-256 sums of tokens are kept.
//
// All methods, also Reload, may be called concurrently. A Tokens need not be closed.
// LoadTokens and ParseTokens make one.
type Tokens struct {
	file      string                   // the file that the tokens are from; "": they are from no file
	readsOnce bool                     // file is a pipe, which can be read only once
	set       atomic.Pointer[tokenSet] // the tokens that are valid now

	mu             sync.Mutex                     // guards the fields below; held while set is replaced
	validityByName map[string]validity            // the validity of each valid name that has sent a request; nil: none has yet
	validityBySum  map[[sha256.Size]byte]validity // the validity of each valid token that has come with a request, by its SHA-256 sum; nil: none has yet
}

// tokenSet is the tokens that one reading of the file, or text, has given. It never changes.
type tokenSet struct {
	entries []tokenEntry // the tokens, each as its sum, in the order of the file
}

// tokenEntry is one token, as its sum, and its name.
type tokenEntry struct {
	sum  [sha256.Size]byte // the SHA-256 sum of the token
	name string            // the name of its principal
	line int               // the number of its line, for errors
}

// LoadTokens reads a file of tokens. Each line is a name and a token with white
// space between them. Empty lines and lines that begin with # are ignored.
//
// A name has at most 64 ASCII letters, digits and the characters -_.@+. A token has at
// least 16 visible ASCII characters. In its place may stand "sha256:" and the SHA-256 sum
// of the token in 64 hexadecimal digits. The same token under two names is an error, and so
// is a file without any token. Errors name the file and the line, but have no part of the
// line. A file that every user of this machine may read is an error, too (ReadSecret), now and at Reload.
func LoadTokens(file string) (*Tokens, error) {
	t := &Tokens{file: file, readsOnce: isPipe(file)}
	set, err := t.read()
	if err != nil {
		return nil, err
	}
	t.set.Store(set)
	return t, nil
}

// ParseTokens reads tokens from a text, such as the value of an environment variable. The
// text has lines as for LoadTokens, separated by line feeds or semicolons. Errors name the
// number of the line, for which empty lines are not counted.
func ParseTokens(text string) (*Tokens, error) {
	set, line, err := parseTokens(strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }), "entry")
	switch {
	case err != nil && line > 0:
		return nil, fmt.Errorf("entry %d: %w", line, err)
	case err != nil:
		return nil, err
	}
	t := new(Tokens)
	t.set.Store(set)
	return t, nil
}

// errNoToken is the error for a text without any token.
var errNoToken = errors.New("there is no token; a line is a name and a token")

// Reload reads the file again. The new tokens replace the old ones at once. If the file is
// gone, or has no tokens any more, no token is valid (A11), and nobody is let in until
// there are new ones. After an error, such as a mistake in a line, the old tokens stay. A
// session belongs to a name. So it goes on after its token was replaced by another of the
// same name, but connections that were opened with the old token end (TokenContext). Reload
// does nothing if the tokens are not from a file, or from a file that can be read only
// once, such as a pipe.
func (t *Tokens) Reload() error {
	if t.file == "" || t.readsOnce || isPipe(t.file) {
		return nil
	}
	set, err := t.read()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoToken):
		set = new(tokenSet)
	case err != nil:
		return err
	}
	t.replace(set)
	return nil
}

// isPipe reports whether the file with this name is a named pipe.
func isPipe(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// read reads the file, and returns its tokens; the error names the file and, for a mistake in a line, that line.
func (t *Tokens) read() (*tokenSet, error) {
	text, err := ReadSecret(t.file)
	if err != nil {
		return nil, fmt.Errorf("reading the tokens: %w", err)
	}
	set, line, err := parseTokens(strings.Split(text, "\n"), "line")
	switch {
	case err != nil && line > 0:
		return nil, fmt.Errorf("%s:%d: %w", t.file, line, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", t.file, err)
	}
	return set, nil
}

// IsFileGoneOrEmpty reports whether the file of the tokens is gone or empty; false if they are from no file, or from a pipe.
// A file is so for a moment while some programs write it, so a caller may want to wait a little before Reload.
func (t *Tokens) IsFileGoneOrEmpty() bool {
	if t.file == "" || t.readsOnce {
		return false
	}
	info, err := os.Stat(t.file)
	return errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() && info.Size() == 0
}

// Names returns the names that have tokens, sorted.
func (t *Tokens) Names() []string {
	var names []string
	for _, e := range t.set.Load().entries {
		names = append(names, e.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// DeriveSecret returns a secret that is made of all the tokens: whoever knows only some of the
// tokens cannot compute it. It stays the same after a restart with the same tokens, and
// changes with any of them. It is nil for a nil Tokens.
func (t *Tokens) DeriveSecret() []byte {
	if t == nil {
		return nil
	}
	var sums [][]byte
	for _, e := range t.set.Load().entries {
		sums = append(sums, e.sum[:])
	}
	slices.SortFunc(sums, bytes.Compare)
	all := sha256.Sum256(bytes.Join(sums, nil))
	return all[:]
}

// lookup returns the name of a token, "" if it is not valid, and its SHA-256 sum. The time that it takes does not
// depend on how much of a token is right.
func (t *Tokens) lookup(token string) (name string, sum [sha256.Size]byte) {
	var room [128]byte // so that tokens of the usual length need no allocation
	sum = sha256.Sum256(append(room[:0], token...))
	found := -1
	entries := t.set.Load().entries
	for i := range entries {
		equal := subtle.ConstantTimeCompare(sum[:], entries[i].sum[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return "", sum
	}
	return entries[found].name, sum
}

// ReadSecret returns the text of a file of secrets, which may have 1 MiB. It is an error, which says what to do, if
// every user of this machine may read the file; not on Windows, and not of what is no regular file, such as a pipe.
func ReadSecret(file string) (text string, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", fmt.Errorf("%s is a directory", file)
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil { // of the file that is read
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecretFileSize+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxSecretFileSize {
		return "", fmt.Errorf("%s is larger than 1 MiB", file)
	}
	if runtime.GOOS != "windows" && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		return "", fmt.Errorf("every user of this machine may read %s, and so come in: chmod o-r it", file)
	}
	return string(data), nil
}

// parseTokens reads lines of a file of tokens (LoadTokens). unit is what an error calls another line: "line" or "entry".
// bad is the number of the line that err is about; 0: err is about all of them.
func parseTokens(lines []string, unit string) (set *tokenSet, bad int, err error) {
	set = new(tokenSet)
	seen := make(map[[sha256.Size]byte]tokenEntry)
	for i, line := range lines {
		if i == 0 {
			line = strings.TrimPrefix(line, "\ufeff") // some editors write it at the beginning of a file
		}
		line = strings.Trim(line, " \t\r")
		if line == "" || line[0] == '#' {
			continue
		}
		e, err := parseToken(line)
		if err != nil {
			return nil, i + 1, err
		}
		e.line = i + 1
		if other, ok := seen[e.sum]; !ok {
			seen[e.sum] = e
			set.entries = append(set.entries, e)
		} else if other.name != e.name {
			return nil, i + 1, fmt.Errorf("this is the token of %s %d again, under another name; give each name tokens of its own", unit, other.line)
		}
	}
	if len(set.entries) == 0 {
		return nil, 0, errNoToken
	}
	return set, 0, nil
}

// parseToken reads one line of a file of tokens; the entry's line is not set.
func parseToken(line string) (tokenEntry, error) {
	fields := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(fields) != 2 {
		return tokenEntry{}, fmt.Errorf("a name and a token are expected, with a space between them; there are %d words", len(fields))
	}
	name, token := fields[0], fields[1]
	if digits, hashed := strings.CutPrefix(token, "sha256:"); hashed && isTokenName(name) {
		e := tokenEntry{name: name}
		if n, err := hex.Decode(e.sum[:], []byte(digits[:min(len(digits), 2*len(e.sum))])); err != nil || n != len(e.sum) || len(digits) != 2*n {
			return tokenEntry{}, errors.New("the sum of the token, which comes second, needs sha256: and 64 hexadecimal digits")
		}
		return e, nil
	}
	switch {
	case !isTokenName(name):
		return tokenEntry{}, fmt.Errorf("the name, which comes first, may have up to %d ASCII letters, digits and -_.@+", maxNameLength)
	case !isVisible(token):
		return tokenEntry{}, errors.New("the token has a character that is not visible ASCII, which no header can carry")
	case len(token) < minTokenLength:
		return tokenEntry{}, fmt.Errorf("the token, which comes second, has fewer than %d characters; \"openssl rand -hex 32\" makes a good one", minTokenLength)
	}
	return tokenEntry{sum: sha256.Sum256([]byte(token)), name: name}, nil
}

// isTokenName reports whether s may be the name of a token (LoadTokens).
func isTokenName(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("-_.@+", s[i]) < 0 {
			return false
		}
	}
	return s != "" && len(s) <= maxNameLength
}

// isVisible reports whether s has only visible ASCII characters.
func isVisible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
