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

// State is what the bridge must know of a call that it has answered with input_required,
// when the client retries it: which parked call the retry goes on with, or that it starts
// the call again (Replay). The client gets the State as requestState, and returns it with
// its retry. It is sealed: the client can neither read nor change it.
type State struct {
	Unit      string    // the shared server that has the call, as legacyserver.Options.Unit
	ServerRun string    // which start of the shared server has the call, as legacyserver.Options.ServerRun; with Replay it does not matter
	CallID    string    // names the parked call; with Replay, how many URLs the user was sent to, in digits
	Round     int       // how often the call was parked; with Replay, how often it was answered with URLs
	Principal string    // the principal whose call it is: the retry must be of the same; "": nobody has authenticated
	Method    string    // the method of the call: the retry must have the same
	Digest    string    // the digest of the call's params: the retry must have the same
	Expires   time.Time // from then on the State is not valid any more
	Replay    bool      // no call is parked: the retry starts the call again
}

// A Sealer encrypts States, with AES-256-GCM and a key of its own. It is safe for
// concurrent use.
type Sealer struct {
	aead cipher.AEAD // encrypts with the Sealer's key
}

// The first byte of a sealed text, inside its base64. A nonce and the encrypted text follow.
const (
	sealedState = 1 // the text is of Seal, for Open
	sealedBound = 2 // the text is of Bind, for Unbind
)

// maxSealedText is the longest text, in bytes, that Open looks at. Seal never returns a longer
// one.
const maxSealedText = 16 << 10

// errForeignState is the error of Open and Unbind for a text that they cannot accept.
var errForeignState = errors.New("not a state of this bridge")

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

// Seal returns state as text for requestState. Each call returns another text.
func (s *Sealer) Seal(state State) string {
	plain, err := json.Marshal(state)
	if err != nil {
		panic("era: cannot write a state: " + err.Error()) // only for a year that no clock shows
	}
	return s.seal(sealedState, plain)
}

// seal returns plain encrypted, as base64. kind is sealedState or sealedBound.
func (s *Sealer) seal(kind byte, plain []byte) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal([]byte{kind}, nil, plain, []byte{kind}))
}

// open returns what seal was given. It fails for a text of another kind, or of another Sealer.
func (s *Sealer) open(kind byte, text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") { // which the decoder skips
		return nil, errForeignState
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) == 0 || raw[0] != kind {
		return nil, errForeignState
	}
	plain, err := s.aead.Open(nil, nil, raw[1:], raw[:1])
	if err != nil {
		return nil, errForeignState
	}
	return plain, nil
}

// Open returns the State in text. An error means that Seal of this Sealer has not made the
// text. The caller must check whether the State is still valid (Expires) and belongs to the
// request.
func (s *Sealer) Open(text string) (State, error) {
	if len(text) > maxSealedText {
		return State{}, errForeignState
	}
	plain, err := s.open(sealedState, text)
	if err != nil {
		return State{}, err
	}
	var state State
	if err := json.Unmarshal(plain, &state); err != nil {
		return State{}, errForeignState
	}
	return state, nil
}

// RequestStateOf returns params.requestState of a request; ok is false if it is absent or
// not a string.
func RequestStateOf(m jsonrpc.Message) (text string, ok bool) {
	return jsonrpc.Text(m.Lookup("params", "requestState"))
}

// Bind returns the requestState of a modern server as text that only this
// principal can use (A6). The server itself does not know principals.
func (s *Sealer) Bind(principal, state string) string {
	plain := strconv.AppendInt(nil, int64(len(principal)), 10)
	plain = append(append(append(plain, ':'), principal...), state...)
	return s.seal(sealedBound, plain)
}

// Unbind returns the requestState in text. An error means that text was made for
// another principal, or not by Bind of this Sealer.
func (s *Sealer) Unbind(principal, text string) (string, error) {
	plain, err := s.open(sealedBound, text)
	if err != nil {
		return "", err
	}
	state, ok := strings.CutPrefix(string(plain), strconv.Itoa(len(principal))+":"+principal)
	if !ok {
		return "", errForeignState
	}
	return state, nil
}
