package tokenstore

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// A Credential is what signing in at one server has brought. The store gives
// the fields no meaning but RefreshToken. It is a value: who has it may change it, and one
// goroutine at a time may use it.
type Credential struct {
	Server  string `json:"server,omitempty"`  // URL, for people
	Profile string `json:"profile,omitempty"` // for people
	Account string `json:"account,omitempty"` // who has signed in, for people

	Issuer             string `json:"issuer,omitempty"`
	TokenEndpoint      string `json:"tokenEndpoint,omitempty"`
	RevocationEndpoint string `json:"revocationEndpoint,omitempty"`
	ClientID           string `json:"clientID,omitempty"` // of a [Registration] at Issuer, or a given one
	Resource           string `json:"resource,omitempty"` // as it was sent

	TokenType       string    `json:"tokenType,omitempty"` // of AccessToken, as the issuer spelled it
	IssuedAt        time.Time `json:"issued,omitzero"`     // when AccessToken came
	ExpiresAt       time.Time `json:"expires,omitzero"`    // when AccessToken ends; zero: nobody said
	RequestedScopes []string  `json:"asked,omitempty"`     // the scopes that were asked for
	GrantedScopes   []string  `json:"granted,omitempty"`   // the scopes that the issuer has named; nil: it has named none
	LastProblem     string    `json:"problem,omitempty"`   // what went wrong last, for people; no secret
	IsMachine       bool      `json:"machine,omitempty"`   // no person has signed in, and none is needed for the next AccessToken

	AccessToken  Secret `json:"-"`
	RefreshToken Secret `json:"-"`
	IDToken      Secret `json:"-"`
	DPoPKey      Secret `json:"-"` // private key of the proofs that AccessToken asks for
}

// secretsByName returns the fields that are written as secrets, by the name they have in the file.
func (c *Credential) secretsByName() map[string]*Secret {
	return map[string]*Secret{"access": &c.AccessToken, "refresh": &c.RefreshToken, "id": &c.IDToken, "dpopKey": &c.DPoPKey}
}

// A packedStruct is how a struct with secrets stands in a file: what JSON encodes of it, and the secrets.
type packedStruct struct {
	ValueJSON json.RawMessage           `json:"value"`
	Secrets   map[string]revealedSecret `json:"secrets,omitempty"`
}

// A revealedSecret is a Secret that JSON encodes: it is for files only.
type revealedSecret struct{ Secret }

func (s revealedSecret) MarshalText() ([]byte, error) { return []byte(s.Reveal()), nil }

func (s *revealedSecret) UnmarshalText(text []byte) error {
	s.Secret = NewSecret(string(text))
	return nil
}

// pack returns value, whose secrets these are, as it stands in a file.
func pack(value any, secrets map[string]*Secret) (packedStruct, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return packedStruct{}, &Error{Kind: ErrInput, Detail: "it cannot be written as JSON"}
	}
	b := packedStruct{ValueJSON: encoded, Secrets: map[string]revealedSecret{}}
	for name, s := range secrets {
		if !utf8.ValidString(s.Reveal()) {
			return packedStruct{}, &Error{Kind: ErrInput, Detail: "a secret is no valid UTF-8"}
		}
		if !s.IsZero() {
			b.Secrets[name] = revealedSecret{*s}
		}
	}
	return b, nil
}

// unpack is the inverse of pack.
func (b packedStruct) unpack(value any, secrets map[string]*Secret) error {
	if json.Unmarshal(b.ValueJSON, value) != nil {
		return newBrokenError("its content has not the fields of its kind")
	}
	for name, s := range secrets {
		*s = b.Secrets[name].Secret
	}
	return nil
}

// An Entry is what is stored under a key. It is a value, as a Credential is.
type Entry struct {
	Key Key
	// Generation is that of Credential; 0: there is none. It does not count
	// what else is in the file.
	Generation Generation
	Credential Credential
	// RateLimitedAt is when there were too many token requests; zero: there were not.
	RateLimitedAt time.Time
}

// storedCredential is the content of a credential's file.
type storedCredential struct {
	Credential         *packedStruct `json:"credential,omitempty"`
	RequestTimes       []time.Time   `json:"requests,omitempty"` // token requests within a minute, the oldest first
	RateLimitedAt      time.Time     `json:"braked,omitzero"`
	SpentRefreshHashes []string      `json:"spent,omitempty"` // hashes of refresh tokens, the oldest first
}

func (c *storedCredential) checkContent(g Generation) error {
	_, err := c.toEntry("", g)
	return err
}

// toEntry returns the content as it is given out.
func (c *storedCredential) toEntry(key Key, g Generation) (Entry, error) {
	e := Entry{Key: key, Generation: g, RateLimitedAt: c.RateLimitedAt}
	if (c.Credential == nil) != (g == 0) {
		return Entry{Key: key}, newBrokenError("its generation does not fit its content")
	}
	if c.Credential == nil {
		return e, nil
	}
	return e, c.Credential.unpack(&e.Credential, e.Credential.secretsByName())
}
