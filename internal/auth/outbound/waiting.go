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

// reminderInterval is the time between two progress notifications to a client whose request waits for a sign-in.
const reminderInterval = 10 * time.Second

// ReportSignInProgress returns a SignInFunc that does what signIn does, and tells the client of the request that waits,
// every 10 seconds, what is waited for, if it has asked for progress (httpdial.WithProgress). store has the credential.
// For requests that the bridge makes by itself (httpdial.Unattended) nobody is asked to sign in: they fail. elicitor
// asks the client to show the address, and ends the wait if the person declines; nil: the client is not asked.
func ReportSignInProgress(signIn client.SignInFunc, store *tokenstore.Store, elicitor *SignInElicitor) client.SignInFunc {
	return func(ctx context.Context, c *client.Credential, need client.SignInRequired) error {
		if httpdial.IsUnattended(ctx) {
			return &need
		}
		ctx, end, refused := elicitor.beginWait(ctx, need.URL)
		defer end()
		if refused {
			need.Reason = "the person does not want to"
			return &need
		}
		elicitor.AskClient(c.Server(), need)
		err := signInWithReminders(ctx, signIn, store, c, need)
		if err == nil {
			elicitor.settlePrompt()
		}
		return err
	}
}

// signInWithReminders calls signIn, and tells the client of the request in ctx every 10 seconds what is waited for, if
// it has asked for progress.
func signInWithReminders(ctx context.Context, signIn client.SignInFunc, store *tokenstore.Store, c *client.Credential, need client.SignInRequired) error {
	tell := httpdial.ProgressOf(ctx)
	if tell == nil {
		return signIn(ctx, c, need)
	}
	var wg sync.WaitGroup
	over := make(chan struct{})
	wg.Go(func() {
		for httpdial.Pause(ctx, over, reminderInterval) {
			tell(signInWaitText(c, store, need))
		}
	})
	defer wg.Wait()
	defer close(over)
	return signIn(ctx, c, need)
}

// signInWaitText returns the progress text for a client whose request waits for a sign-in: the address where the
// person signs in, of the sign-in of c that store knows of, or else of need; if neither has one, c's server.
func signInWaitText(c *client.Credential, store *tokenstore.Store, need client.SignInRequired) string {
	url := need.URL
	if login, pending, err := store.PendingLogin(c.Key()); err == nil && pending {
		url = login.SignInURL
	}
	if url == "" {
		return "waiting for sign-in to " + redactURL(c.Server())
	}
	return "waiting for sign-in at " + printable.Text(url)
}
