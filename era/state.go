package era

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-bridge/mcp-bridge/jsonrpc"
)

// State is what the bridge wants back with the retry of a call that it has
// answered input_required. It travels through the client as requestState,
// sealed: the client can neither read nor change it (2026-07-28, multi
// round-trip requests).
type State struct {
	Unit       string    // who has the call, as legacyserver.Options.Unit
	Instance   string    // which started server of the unit
	Call       string    // the parked call; with Replay: nothing is kept, it counts what was asked
	Generation int       // which of the call's rounds
	Principal  string    // who may come back with it
	Method     string    // of the call
	Digest     string    // of the call's params
	Expires    time.Time // when it is worth nothing any more
	Replay     bool      // the retry starts the call anew, nothing waits for it
}

// Sealer makes States into text that only it can read: AES-256-GCM with a key
// of its own. It may be used by many goroutines.
type Sealer struct{ aead cipher.AEAD }

// sealed begins every sealed state, and bound what Bind makes: the kind and
// version of what follows, a nonce and the encrypted text.
const (
	sealed = 1
	bound  = 2
)

// maxState bounds what Open looks at; no State that a client gets is as long.
const maxState = 16 << 10

var errState = errors.New("not a state of this bridge")

// NewSealer returns a Sealer with a new random key.
func NewSealer() (*Sealer, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("key for states: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key for states: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("key for states: %w", err)
	}
	return &Sealer{aead}, nil
}

// Seal returns s as text for requestState. Two calls return different texts.
func (s *Sealer) Seal(state State) string {
	plain, err := json.Marshal(state)
	if err != nil {
		panic("era: cannot write a state: " + err.Error()) // only for a year that no clock shows
	}
	return s.seal(sealed, plain)
}

func (s *Sealer) seal(kind byte, plain []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal([]byte{kind}, nil, plain, []byte{kind}))
}

func (s *Sealer) open(kind byte, text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") { // which the decoder skips
		return nil, errState
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) == 0 || raw[0] != kind {
		return nil, errState
	}
	plain, err := s.aead.Open(nil, nil, raw[1:], raw[:1])
	if err != nil {
		return nil, errState
	}
	return plain, nil
}

// Open returns the State that text was made from. An error says that text is
// none of this Sealer's, and nothing else; whether the State still holds is for
// the caller to see.
func (s *Sealer) Open(text string) (State, error) {
	if len(text) > maxState {
		return State{}, errState
	}
	plain, err := s.open(sealed, text)
	if err != nil {
		return State{}, err
	}
	var state State
	if err := json.Unmarshal(plain, &state); err != nil {
		return State{}, errState
	}
	return state, nil
}

// StateOf returns params.requestState of a request; ok is false when there is
// none that is a string.
func StateOf(m jsonrpc.Message) (text string, ok bool) {
	return jsonrpc.Text(m.Lookup("params", "requestState"))
}

// Bind returns a modern server's own requestState as text that only principal
// can come back with (A6): the server knows nothing of principals.
func (s *Sealer) Bind(principal, state string) string {
	plain := strconv.AppendInt(nil, int64(len(principal)), 10)
	plain = append(append(append(plain, ':'), principal...), state...)
	return s.seal(bound, plain)
}

// Unbind returns the requestState that text was made from. The error says that
// it was made for somebody else, or not by this Sealer.
func (s *Sealer) Unbind(principal, text string) (string, error) {
	plain, err := s.open(bound, text)
	if err != nil {
		return "", err
	}
	state, ok := strings.CutPrefix(string(plain), strconv.Itoa(len(principal))+":"+principal)
	if !ok {
		return "", errState
	}
	return state, nil
}
