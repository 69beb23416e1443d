package demo

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// stateLife is how long a requestState is good for.
const stateLife = 10 * time.Minute

// state is what a requestState holds: everything that is known of a request
// whose client was asked for something. The client can read it but not change
// it, and use it for this request only. It may use it twice: nothing here is
// done more than once for being asked twice.
type state struct {
	Method  string                     `json:"method"`
	Digest  []byte                     `json:"digest"` // of the params, less what may differ in a retry
	Expires int64                      `json:"expires"`
	Round   int                        `json:"round"`
	Waiting []string                   `json:"waiting"` // what the next round is to bring
	Answers map[string]json.RawMessage `json:"answers"`
}

// newState is the state of a request that comes for the first time.
func newState(method string, params []byte) state {
	return state{Method: method, Digest: digest(params), Answers: map[string]json.RawMessage{}}
}

func (st *state) waits(key string) bool { return slices.Contains(st.Waiting, key) }

func (st *state) answer(key string, answer json.RawMessage) { st.Answers[key] = answer }

// digest tells params apart that mean different things, however they are spelled.
func digest(params []byte) []byte {
	params = jsonrpc.Without(params, "_meta", "inputResponses", "requestState")
	var v any
	dec := json.NewDecoder(bytes.NewReader(params))
	dec.UseNumber()
	if dec.Decode(&v) == nil {
		params, _ = json.Marshal(v) // with the keys in order
	}
	sum := sha256.Sum256(params)
	return sum[:]
}

// signer makes requestStates, and takes none but its own. Its key dies with
// the process, so another process refuses them.
type signer struct{ key []byte }

func newSigner() signer {
	key := make([]byte, 32)
	rand.Read(key) // never fails
	return signer{key}
}

func (s signer) mac(payload []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write(payload)
	return h.Sum(nil)
}

// sign returns the requestState for the round after this one.
func (s signer) sign(st state) string {
	st.Round++
	st.Expires = time.Now().Add(stateLife).Unix()
	payload, _ := json.Marshal(st) // the answers were read as JSON
	enc := base64.RawURLEncoding
	return enc.EncodeToString(payload) + "." + enc.EncodeToString(s.mac(payload))
}

// open returns the state in a requestState if it was signed here, lives, and is
// for the request whose first state is fresh.
func (s signer) open(text string, fresh state) (state, bool) {
	payload, mac, _ := strings.Cut(text, ".")
	enc := base64.RawURLEncoding.Strict()
	p, err1 := enc.DecodeString(payload)
	m, err2 := enc.DecodeString(mac)
	var st state
	if err1 != nil || err2 != nil || !hmac.Equal(m, s.mac(p)) || json.Unmarshal(p, &st) != nil {
		return state{}, false
	}
	good := time.Now().Unix() < st.Expires && st.Method == fresh.Method && bytes.Equal(st.Digest, fresh.Digest)
	return st, good
}
