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

// reminderInterval is the time between two words to a client whose request waits for a sign-in.
const reminderInterval = 10 * time.Second

// ReportSignInProgress returns signIn so that the client of a request that waits for it hears every 10 seconds what is waited
// for, where it has asked for the progress of its request (httpdial.WithProgress). store is the credential's. The goroutine
// that tells it ends before signIn's result is returned. For requests that the bridge makes by itself (httpdial.Unattended) nobody signs in:
// they fail with what is needed. elicitor asks the client where another process signs in already; nil: nobody is asked.
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

// signInWithReminders is signIn, with a word to the client every 10 seconds.
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

// signInWaitText says where the person signs in.
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
