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

// TaskIDs binds the ids of a server's tasks to principals (A6): only the principal
// for whom Bind was called can use the id that Bind returns. TaskIDs keeps no list
// of tasks and is safe for concurrent use. NewTaskIDs makes one.
type TaskIDs struct {
	key func() []byte // returns the key of the HMAC; it is derived at the first call
}

// keyRounds is how many rounds of PBKDF2 derive the key from the secret. A principal knows an id and a
// part of the secret, and must not find the rest by trying.
const keyRounds = 100_000

// NewTaskIDs returns the TaskIDs of the server with this name. With the same
// secret, ids stay valid after a restart of the bridge; no principal may know the
// whole secret. A nil or empty secret is replaced by a random one. The key is derived at
// its first use, which takes tens of milliseconds.
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

// tagSize is to how many bytes the HMAC in a bound id is cut.
const tagSize = 16

// tag returns the first part of a bound id: an HMAC, in base64, that only the bridge can compute.
func (t *TaskIDs) tag(principal, id string) string {
	mac := hmac.New(sha256.New, t.key())
	mac.Write([]byte(strconv.Itoa(len(principal)) + ":" + principal + id))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:tagSize])
}

// Bind returns an id of the server for this principal. The same id gives the same
// text each time.
func (t *TaskIDs) Bind(principal, id string) string { return t.tag(principal, id) + "." + id }

// Unbind returns the id in text. False: the text was made for another principal,
// or by other TaskIDs.
func (t *TaskIDs) Unbind(principal, text string) (id string, ok bool) {
	tag, id, ok := strings.Cut(text, ".")
	return id, ok && hmac.Equal([]byte(tag), []byte(t.tag(principal, id)))
}
