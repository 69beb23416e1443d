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

// A Key names a credential in the store: 32 hexadecimal digits, with which the names of its files begin. It
// is no secret, does not change, and may be used by any goroutine.
type Key string

// ParseKey returns text as a Key. ErrInput: it is not 32 hexadecimal digits in lower case.
func ParseKey(text string) (Key, error) {
	if _, err := hex.DecodeString(text); err != nil || len(text) != 2*keyBytes || strings.ToLower(text) != text {
		return "", &Error{Kind: ErrInput, Detail: "a key has 32 hexadecimal digits"}
	}
	return Key(text), nil
}

// keyBytes is how many bytes of a hash a Key, a file's name and a spentHash have.
const keyBytes = 16

// An Identity is what tells a credential from all others: what is known of a server without asking it. Key
// may be called by any goroutine while no field is changed.
type Identity struct {
	Server   string // the server's URL, in any spelling that [CanonicalURL] takes
	Profile  string // tells several accounts at one server apart; "": the usual one
	Resource string // the resource that the user asks for, as spelled; "": the one that the server publishes
	// ClientID says where the client id comes from, for example a given one or the URL of a metadata document;
	// "": registration as the server offers it.
	ClientID string
	Params   map[string][]string // what the user adds to the authorization request, by name
}

// Key returns the name of the credential with this Identity. It is the same in every version of this program. The error is that
// of [CanonicalURL].
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

// issuerFileName returns the stem of the file with the registrations at an issuer, whose name is taken as
// spelled.
func issuerFileName(issuer string) string {
	return newNameHash("mcp-bridge issuer 1", issuer).hexName()
}

// A fileNameHash is a hash of texts that becomes a Key or a file's name. Each text is preceded by its length,
// so that ("ab", "c") and ("a", "bc") have different names.
type fileNameHash struct{ hash.Hash }

// newNameHash returns the hash of these texts.
func newNameHash(texts ...string) fileNameHash {
	h := fileNameHash{sha256.New()}
	h.add(texts...)
	return h
}

// add adds texts to the hash.
func (h fileNameHash) add(texts ...string) {
	for _, text := range texts {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
		_, _ = h.Write([]byte(text))
	}
}

// hexName returns the first keyBytes of the hash in hexadecimal.
func (h fileNameHash) hexName() string { return hex.EncodeToString(h.Sum(nil)[:keyBytes]) }

// defaultPorts are the default ports of the schemes that a server's URL may have.
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
