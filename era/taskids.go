package era

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"sync"
)

// TaskIDs binds the ids of a server's tasks to principals (A6): what Bind makes
// of an id only the same principal can come back with. It keeps nothing about
// tasks. It may be used by many goroutines; NewTaskIDs makes one.
type TaskIDs struct{ key func() []byte }

// keyRounds is how often the key's derivation hashes: who has an id and one of
// the secrets that the key is made of must not find out the others quickly.
const keyRounds = 100_000

// NewTaskIDs returns the TaskIDs of the server with this name. With the same
// secret, which no principal may know as a whole, ids stay valid when the bridge
// starts anew; nil is a random one. The key is made when it is first needed, which
// takes tens of milliseconds.
func NewTaskIDs(name string, secret []byte) *TaskIDs {
	return &TaskIDs{sync.OnceValue(func() []byte {
		if len(secret) == 0 {
			return []byte(rand.Text() + rand.Text())
		}
		key, err := pbkdf2.Key(sha256.New, string(secret), []byte("mcp-bridge task ids of "+name), keyRounds, sha256.Size)
		if err != nil { // only for lengths that FIPS 140 does not allow
			return []byte(rand.Text() + rand.Text())
		}
		return key
	})}
}

// tagSize is how many bytes of the HMAC a bound id has.
const tagSize = 16

func (t *TaskIDs) tag(principal, id string) string {
	mac := hmac.New(sha256.New, t.key())
	mac.Write([]byte(strconv.Itoa(len(principal)) + ":" + principal + id))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:tagSize])
}

// Bind returns an id of the server as principal gets it, the same one each time.
func (t *TaskIDs) Bind(principal, id string) string { return t.tag(principal, id) + "." + id }

// Unbind returns the id that text was made from; false: it was made for somebody
// else, or not by these TaskIDs.
func (t *TaskIDs) Unbind(principal, text string) (id string, ok bool) {
	tag, id, ok := strings.Cut(text, ".")
	return id, ok && hmac.Equal([]byte(tag), []byte(t.tag(principal, id)))
}
