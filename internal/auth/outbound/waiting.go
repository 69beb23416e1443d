package outbound

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth/client"
	"github.com/mcp-bridge/mcp-bridge/internal/auth/tokenstore"
	"github.com/mcp-bridge/mcp-bridge/internal/httpdial"
	"github.com/mcp-bridge/mcp-bridge/internal/printable"
)

// remindEvery is the time between two words to a client whose request waits for a sign-in.
const remindEvery = 10 * time.Second

// Telling returns signIn so that the client of a request that waits for it hears every 10 seconds what is waited
// for, where it has asked for the progress of its request (httpdial.WithTeller). store is the credential's. The goroutine
// that tells it ends before signIn's result is returned. For requests that the bridge makes by itself (httpdial.Unattended) nobody signs in:
// they fail with what is needed.
func Telling(signIn client.SignInFunc, store *tokenstore.Store) client.SignInFunc {
	return func(ctx context.Context, c *client.Credential, need client.Required) error {
		if httpdial.IsUnattended(ctx) {
			return &need
		}
		tell := httpdial.TellerOf(ctx)
		if tell == nil {
			return signIn(ctx, c, need)
		}
		var wg sync.WaitGroup
		over := make(chan struct{})
		wg.Go(func() {
			for httpdial.Pause(ctx, over, remindEvery) {
				tell(waitingFor(c, store, need))
			}
		})
		defer wg.Wait()
		defer close(over)
		return signIn(ctx, c, need)
	}
}

// waitingFor says where the person signs in.
func waitingFor(c *client.Credential, store *tokenstore.Store, need client.Required) string {
	url := need.URL
	if login, pending, err := store.PendingLogin(c.Key()); err == nil && pending {
		url = login.URL
	}
	if url == "" {
		return "waiting for sign-in to " + shown(c.Server())
	}
	return "waiting for sign-in at " + printable.Text(url)
}
