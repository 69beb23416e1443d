package tokenstore

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// A Credential is what signing in at one server has brought. The store gives
// the fields no meaning but Refresh. It is a value: who has it may change it, and one
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

	TokenType       string    `json:"tokenType,omitempty"` // of Access, as the issuer spelled it
	Issued          time.Time `json:"issued,omitzero"`     // when Access came
	Expires         time.Time `json:"expires,omitzero"`    // when Access ends; zero: nobody said
	RequestedScopes []string  `json:"asked,omitempty"`     // scopes
	GrantedScopes   []string  `json:"granted,omitempty"`   // scopes
	Problem         string    `json:"problem,omitempty"`   // what went wrong last, for people; no secret
	Machine         bool      `json:"machine,omitempty"`   // no person has signed in, and none is needed for the next Access

	Access  Secret `json:"-"` // access token
	Refresh Secret `json:"-"` // refresh token
	ID      Secret `json:"-"` // id token
	DPoPKey Secret `json:"-"` // private key of the proofs that Access asks for
}

// secrets returns the fields that are written as secrets, by the name they have in the file.
func (c *Credential) secrets() map[string]*Secret {
	return map[string]*Secret{"access": &c.Access, "refresh": &c.Refresh, "id": &c.ID, "dpopKey": &c.DPoPKey}
}

// A packed is how a struct with secrets stands in a file: what JSON encodes of it, and the secrets.
type packed struct {
	Value   json.RawMessage          `json:"value"`
	Secrets map[string]writtenSecret `json:"secrets,omitempty"`
}

// A writtenSecret is a Secret that JSON encodes: it is for files only.
type writtenSecret struct{ Secret }

func (s writtenSecret) MarshalText() ([]byte, error) { return []byte(s.Reveal()), nil }

func (s *writtenSecret) UnmarshalText(text []byte) error {
	s.Secret = NewSecret(string(text))
	return nil
}

// pack returns value, whose secrets these are, as it stands in a file.
func pack(value any, secrets map[string]*Secret) (packed, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return packed{}, &Error{Kind: ErrInput, Detail: "it cannot be written as JSON"}
	}
	b := packed{Value: encoded, Secrets: map[string]writtenSecret{}}
	for name, s := range secrets {
		if !utf8.ValidString(s.Reveal()) {
			return packed{}, &Error{Kind: ErrInput, Detail: "a secret is no valid UTF-8"}
		}
		if !s.IsZero() {
			b.Secrets[name] = writtenSecret{*s}
		}
	}
	return b, nil
}

// unpack is the inverse of pack.
func (b packed) unpack(value any, secrets map[string]*Secret) error {
	if json.Unmarshal(b.Value, value) != nil {
		return brokenError("its content has not the fields of its kind")
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
	// RateLimited is when there were too many token requests; zero: there were not.
	RateLimited time.Time
}

// storedCredential is the content of a credential's file.
type storedCredential struct {
	Credential   *packed     `json:"credential,omitempty"`
	Requests     []time.Time `json:"requests,omitempty"` // token requests within a minute, the oldest first
	RateLimited  time.Time   `json:"braked,omitzero"`
	SpentRefresh []string    `json:"spent,omitempty"` // hashes of refresh tokens, the oldest first
}

func (c *storedCredential) check(g Generation) error {
	_, err := c.entry("", g)
	return err
}

// entry returns the content as it is given out.
func (c *storedCredential) entry(key Key, g Generation) (Entry, error) {
	e := Entry{Key: key, Generation: g, RateLimited: c.RateLimited}
	if (c.Credential == nil) != (g == 0) {
		return Entry{Key: key}, brokenError("its generation does not fit its content")
	}
	if c.Credential == nil {
		return e, nil
	}
	return e, c.Credential.unpack(&e.Credential, e.Credential.secrets())
}
