package sseclient

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
)

// A request whose POST has set out was taken, also when ctx ends before the POST is
// answered, as it does when the client's connection is cut. Its cancellation follows it.
func TestSendCutInPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		u := f.dial(Options{})
		u.initializes("2024-11-05")
		release := make(chan struct{})
		f.set(func() {
			f.onPOST = func(_ http.ResponseWriter, _ *http.Request, m string) bool {
				if m == callText {
					<-release
				}
				return false
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		sent := make(chan error, 1)
		go func() { sent <- u.Send(ctx, msg(callText)) }()
		f.wantPost(callText)
		cancel()
		if err := <-sent; err != nil {
			t.Errorf("Send = %v for a message that the server has", err)
		}
		const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
		go func() { sent <- u.Send(t.Context(), msg(cancelled)) }()
		synctest.Wait()
		close(release)
		if err := <-sent; err != nil {
			t.Errorf("Send of the cancellation = %v", err)
		}
		f.wantPost(cancelled)
	})
}
