package tokenstore

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// A Credential is what signing in at one server has brought. Of its fields only RefreshToken means something
// to the store. It is a value: who has it may change it, and one goroutine at a time may use it.
type Credential struct {
	Server  string `json:"server,omitempty"`  // URL of the MCP server, for people
	Profile string `json:"profile,omitempty"` // Identity.Profile, for people
	Account string `json:"account,omitempty"` // who has signed in, for people; "": not known, as after each sign-in with package client

	Issuer             string `json:"issuer,omitempty"`             // the authorization server that issued the tokens
	TokenEndpoint      string `json:"tokenEndpoint,omitempty"`      // the endpoint of the Issuer where the token is renewed
	RevocationEndpoint string `json:"revocationEndpoint,omitempty"` // the endpoint of the Issuer where tokens are revoked; "": there is none
	ClientID           string `json:"clientID,omitempty"`           // the client id: that of a [Registration] at Issuer, or a given one
	Resource           string `json:"resource,omitempty"`           // the "resource" parameter that was sent; "": none

	TokenType       string    `json:"tokenType,omitempty"` // the scheme to send AccessToken with, as the issuer spelled it
	IssuedAt        time.Time `json:"issued,omitzero"`     // when AccessToken came, by our clock
	ExpiresAt       time.Time `json:"expires,omitzero"`    // when AccessToken ends; zero: nobody said
	RequestedScopes []string  `json:"asked,omitempty"`     // the scopes that were asked for
	GrantedScopes   []string  `json:"granted,omitempty"`   // the scopes that the issuer has named; nil: it has named none
	LastProblem     string    `json:"problem,omitempty"`   // what went wrong last, for people, no secret; "": nothing, which is all that package client stores
	IsMachine       bool      `json:"machine,omitempty"`   // it was got without a person, and the next AccessToken needs none

	AccessToken  Secret `json:"-"` // the access token; zero: there is none
	RefreshToken Secret `json:"-"` // the refresh token; zero: there is none, or it was spent
	IDToken      Secret `json:"-"` // the id token of OpenID Connect; zero: there is none
	DPoPKey      Secret `json:"-"` // private key of the DPoP proofs that AccessToken needs; zero: it needs none
}

// secretsByName returns the fields of type Secret, for pack and unpack, by the names that they have in the file.
func (c *Credential) secretsByName() map[string]*Secret {
	return map[string]*Secret{"access": &c.AccessToken, "refresh": &c.RefreshToken, "id": &c.IDToken, "dpopKey": &c.DPoPKey}
}

// A packedStruct is a struct with fields of type Secret in the form in which it stands in a file.
type packedStruct struct {
	ValueJSON json.RawMessage           `json:"value"`             // the struct as JSON, without the secrets
	Secrets   map[string]revealedSecret `json:"secrets,omitempty"` // the secrets that are not empty, by secretsByName
}

// A revealedSecret is a Secret whose text is written when JSON encodes it: it is for files only.
type revealedSecret struct{ Secret }

// MarshalText returns the text of the secret itself.
func (s revealedSecret) MarshalText() ([]byte, error) { return []byte(s.Reveal()), nil }

// UnmarshalText takes text as the secret.
func (s *revealedSecret) UnmarshalText(text []byte) error {
	s.Secret = NewSecret(string(text))
	return nil
}

// pack returns value in the form in which it stands in a file. secrets are its fields of type Secret, as its
// secretsByName returns them. ErrInput: it cannot be encoded.
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

// unpack is the inverse of pack: it fills value and secrets. ErrBroken: the JSON does not fit value.
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
	Key Key // the key under which the credential is stored
	// Generation is that of Credential; 0: there is no credential. It does not change with the rest of the file.
	Generation Generation
	Credential Credential // what is stored; the zero value: nothing is
	// RateLimitedAt is when there were too many token requests: none is allowed until ForgetTokenRequests. zero: there were
	// not too many.
	RateLimitedAt time.Time
}

// storedCredential is the content of the file of one credential.
type storedCredential struct {
	Credential         *packedStruct `json:"credential,omitempty"` // a packed Credential; nil: there is none
	RequestTimes       []time.Time   `json:"requests,omitempty"`   // when token requests were sent, up to a minute before the last one; the oldest first
	RateLimitedAt      time.Time     `json:"braked,omitzero"`      // when there were too many token requests: none is allowed until ForgetTokenRequests; zero: there were not too many
	SpentRefreshHashes []string      `json:"spent,omitempty"`      // spentHash of refresh tokens that must not be sent any more, the oldest first
}

// checkContent implements generationChecker: it returns an error if the credential cannot be read, or g is 0
// with a credential or not 0 without.
func (c *storedCredential) checkContent(g Generation) error {
	_, err := c.toEntry("", g)
	return err
}

// toEntry returns the content as the Entry that callers get. ErrBroken: it cannot be read.
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
