package tokenstore

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// A Key names a credential: 32 hexadecimal digits, which are also the name of
// its files. It is no secret, does not change, and may be used by any goroutine.
type Key string

// ParseKey returns text as a Key if it is one.
func ParseKey(text string) (Key, error) {
	if _, err := hex.DecodeString(text); err != nil || len(text) != 2*keyBytes || strings.ToLower(text) != text {
		return "", &Error{Kind: ErrInput, Detail: "a key has 32 hexadecimal digits"}
	}
	return Key(text), nil
}

// keyBytes is how many bytes of the hash a name has.
const keyBytes = 16

// An Identity is what makes credentials different ones: all that is known of a
// server without asking it. Key may be called by any goroutine while no field
// is changed.
type Identity struct {
	Server   string // its URL, in any spelling that [CanonicalURL] takes
	Profile  string // tells several accounts at one server apart; "": the usual one
	Resource string // the resource that the user asks for instead of the published one, as spelled; "": that one
	// ClientID is where the client id comes from, for example a given one or
	// the URL of a metadata document; "": registration as the server offers it.
	ClientID string
	Params   map[string][]string // what the user adds to the authorization request, in order by name
}

// Key returns the name of the credential. It is the same in every version of
// this program.
func (i Identity) Key() (Key, error) {
	server, err := CanonicalURL(i.Server)
	if err != nil {
		return "", err
	}
	h := newNameHash("mcp-bridge credential 1", server, i.Profile, i.Resource, i.ClientID)
	for _, name := range slices.Sorted(maps.Keys(i.Params)) {
		for _, value := range i.Params[name] {
			h.add(name, value)
		}
	}
	return Key(h.hexName()), nil
}

// issuerFileName returns the name of the file for an issuer, which is taken as spelled.
func issuerFileName(issuer string) string {
	return newNameHash("mcp-bridge issuer 1", issuer).hexName()
}

// A fileNameHash makes a name of texts. Each text is preceded by its length, so
// that ("ab", "c") and ("a", "bc") have different names.
type fileNameHash struct{ hash.Hash }

func newNameHash(texts ...string) fileNameHash {
	h := fileNameHash{sha256.New()}
	h.add(texts...)
	return h
}

func (h fileNameHash) add(texts ...string) {
	for _, text := range texts {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		_, _ = h.Write([]byte(text))
	}
}

func (h fileNameHash) hexName() string { return hex.EncodeToString(h.Sum(nil)[:keyBytes]) }

// defaultPorts of the schemes that a server may have.
var defaultPorts = map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443"}

// CanonicalURL returns the one spelling of a server's URL that its key is made
// of: scheme and host in lower case, no default port, "/" for an empty path. All
// else stays as it is, the slash at the end and the query too. A fragment, a
// user and a scheme that is not of HTTP or WebSocket are refused. The error
// does not have the URL in its text.
func CanonicalURL(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", &Error{Kind: ErrInput, Detail: "the server's URL has a syntax error"}
	}
	scheme := strings.ToLower(u.Scheme)
	port, known := defaultPorts[scheme]
	switch {
	case !known || u.Hostname() == "":
		return "", &Error{Kind: ErrInput, Detail: "a server's URL begins with http://, https://, ws:// or wss:// and has a host"}
	case u.User != nil:
		return "", &Error{Kind: ErrInput, Detail: "a server's URL with a user in it has no stored credential"}
	case strings.Contains(raw, "#"):
		return "", &Error{Kind: ErrInput, Detail: "a server's URL has no fragment"}
	}
	host := strings.ToLower(u.Host)
	host = strings.TrimSuffix(strings.TrimSuffix(host, ":"+port), ":")
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return scheme + "://" + host + path, nil
}
