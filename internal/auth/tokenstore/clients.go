package tokenstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// A Registration is one client that was registered at an issuer. It is a value: who has it may change it, and
// one goroutine at a time may use it.
type Registration struct {
	ClientID        string    `json:"clientID"`                // the id that the issuer has given
	RedirectURIs    []string  `json:"redirectURIs,omitempty"`  // the redirect URIs that the client was registered with
	AuthMethod      string    `json:"authMethod,omitempty"`    // how the client authenticates at the token endpoint; "": as the server's metadata says
	RegisteredAt    time.Time `json:"registered,omitzero"`     // when the client was registered; zero: a sign-in with it has failed since
	SecretExpiresAt time.Time `json:"expires,omitzero"`        // when ClientSecret ends; zero: never
	LastUsed        time.Time `json:"proven,omitzero"`         // when a sign-in with it last succeeded; zero: never, or the last one failed
	ManagementURL   string    `json:"managementURL,omitempty"` // where the registration can be changed and deleted; "": nowhere

	ClientSecret    Secret `json:"-"` // the client's secret; zero: a public client
	ManagementToken Secret `json:"-"` // the access token for ManagementURL; zero: there is none
}

// secretsByName returns the fields of type Secret, for pack and unpack, by the names that they have in the file.
func (r *Registration) secretsByName() map[string]*Secret {
	return map[string]*Secret{"clientSecret": &r.ClientSecret, "managementToken": &r.ManagementToken}
}

// storedRegistrations is the content of the file with the registrations at one issuer.
type storedRegistrations struct {
	Issuer        string         `json:"issuer"`        // the issuer whose registrations they are
	Registrations []packedStruct `json:"registrations"` // each one is a packed Registration
}

// checkContent implements generationChecker: it returns an error if a registration cannot be read.
func (c *storedRegistrations) checkContent(Generation) error {
	_, err := c.unpackRegistrations()
	return err
}

// unpackRegistrations returns the registrations in the file's content.
func (c *storedRegistrations) unpackRegistrations() ([]Registration, error) {
	var all []Registration
	for _, b := range c.Registrations {
		var r Registration
		if err := b.unpack(&r, r.secretsByName()); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// Registrations returns the registrations at an issuer, whose name is taken as spelled; none is no error. It
// waits as [Store.Load] does.
func (s *Store) Registrations(ctx context.Context, issuer string) ([]Registration, error) {
	c, _, err := readWithoutLock[storedRegistrations](ctx, s, storeFile{clientFolder, issuerFileName(issuer)})
	if err != nil {
		return nil, err
	}
	return c.unpackRegistrations()
}

// UpdateRegistrations takes the lock of an issuer, reads its registrations, calls
// work, stores what work returns in their place, and releases the lock. It waits for the
// lock as long as ctx. work may register a client over the network. If work
// returns an error, that is returned and nothing is stored; if it returns no
// registration, the file is deleted. [ErrBroken]: the file cannot be understood, and
// work was not called.
func (s *Store) UpdateRegistrations(ctx context.Context, issuer string, work func([]Registration) ([]Registration, error)) error {
	f := storeFile{clientFolder, issuerFileName(issuer)}
	unlock, err := s.lock(ctx, f.folder, f.stem+lockSuffix)
	if err != nil {
		return err
	}
	defer unlock()
	old, g, err := readOrSetAside[storedRegistrations](s, f)
	if err != nil {
		return err
	}
	path := s.filePath(f.folder, f.fileName())
	all, err := old.unpackRegistrations()
	if err != nil {
		return err
	}
	if all, err = work(all); err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.Join(removeFile(path), removeFile(path+tempSuffix))
	}
	next := storedRegistrations{Issuer: issuer}
	for _, r := range all {
		b, err := pack(r, r.secretsByName())
		if err != nil {
			return withPath(err, path)
		}
		next.Registrations = append(next.Registrations, b)
	}
	return s.writeFile(f, g.next(), next)
}

// Metadata is documents about a server and its issuer that all processes share: what was fetched, and what
// was noted. It is a value, as a Credential is.
type Metadata struct {
	Expires   time.Time                  `json:"expires,omitzero"`    // when what was fetched is out of date, as the caller set it; the store does not look at it
	Documents map[string]json.RawMessage `json:"documents,omitempty"` // the documents, by a name that the caller chooses
}

// Metadata returns the documents stored under key; none is no error. As
// [Store.Load], it waits for the lock only if a broken file is to be set aside.
func (s *Store) Metadata(ctx context.Context, key Key) (Metadata, error) {
	if _, err := ParseKey(string(key)); err != nil {
		return Metadata{}, err
	}
	m, _, err := readWithoutLock[Metadata](ctx, s, storeFile{metadataFolder, string(key)})
	return m, err
}

// UpdateMetadata takes the lock of the documents stored under key (not that of the credential), reads them,
// calls change, stores what change has made of them, and releases the lock. It waits for the lock as long as
// ctx. If change reports that it has changed nothing, or returns an error, nothing is stored. A broken file is set
// aside, and change gets no documents.
func (s *Store) UpdateMetadata(ctx context.Context, key Key, change func(*Metadata) (changed bool, err error)) error {
	if _, err := ParseKey(string(key)); err != nil {
		return err
	}
	f := storeFile{metadataFolder, string(key)}
	unlock, err := s.lock(ctx, f.folder, f.stem+lockSuffix)
	if err != nil {
		return err
	}
	defer unlock()
	m, g, err := readOrSetAside[Metadata](s, f)
	if err != nil && !errors.Is(err, ErrBroken) {
		return err
	}
	if e := (*Error)(nil); errors.As(err, &e) && e.MovedTo == "" {
		return err // a broken file is kept
	}
	if changed, err := change(&m); err != nil || !changed {
		return err
	}
	return s.writeFile(f, g.next(), m)
}
