package client

import (
	"context"
	"encoding/json"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// A site is what is known of a server and its authorization server.
type site struct {
	Resource auth.ResourceMetadata `json:"resource"`
	Server   auth.ServerMetadata   `json:"server"`
	Assumed  bool                  `json:"assumed,omitempty"` // see auth.ServerMetadata
	Origin   bool                  `json:"origin,omitempty"`  // there is no metadata of the resource: revision 2025-03-26
}

// siteDocument is the name of the site among the stored documents.
const siteDocument = "site"

// storedSite returns the site as it is stored, however old; nil: there is none.
func (c *Credential) storedSite(ctx context.Context) (*site, error) {
	m, err := c.o.Store.Metadata(ctx, c.key)
	if err != nil || m.Documents[siteDocument] == nil {
		return nil, err
	}
	s := &site{}
	if err := json.Unmarshal(m.Documents[siteDocument], s); err != nil {
		return nil, nil // of another version: as good as none
	}
	s.Server.Assumed = s.Assumed
	return s, nil
}
