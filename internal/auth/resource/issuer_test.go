package resource

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-bridge/mcp-bridge/internal/auth"
)

// A blackHole is a RoundTripper that answers nothing: each request lasts as long as its ctx. It counts them.
type blackHole struct{ requests atomic.Int32 }

func (b *blackHole) RoundTrip(r *http.Request) (*http.Response, error) {
	b.requests.Add(1)
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// newSilentIssuer returns an issuer that answers nothing. It is closed with the test.
func newSilentIssuer(t *testing.T) (*issuer, *blackHole) {
	b := new(blackHole)
	i := newIssuer(Issuer{URL: "https://as.test"}, &auth.EndpointCaller{HTTP: &http.Client{Transport: b}, Now: time.Now})
	t.Cleanup(i.close)
	return i, b
}

// TestSilentIssuer: an issuer that answers nothing is waited for as long as one attempt to get its metadata lasts, although the
// next one is due by then, and no longer than the request. Requests that come meanwhile wait for the same attempt.
func TestSilentIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i, b := newSilentIssuer(t)
		attempt := 30 * time.Second * time.Duration(len(auth.ServerMetadataURLs("", i.URL)))
		began := time.Now()
		var wg sync.WaitGroup
		for _, lasts := range []time.Duration{time.Second, 2 * time.Second, time.Hour, time.Hour} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				_, err := i.keySet(ctx)
				if waited := time.Since(began); !auth.Is(err, auth.Unavailable) || waited != min(lasts, attempt) {
					t.Errorf("with %v: %v after %v", lasts, err, waited)
				}
			})
		}
		wg.Wait()
		if n := b.requests.Load(); time.Duration(n)*30*time.Second != attempt {
			t.Errorf("%d requests", n)
		}
	})
}

// TestCloseIssuer: close ends the attempt in progress, and those who wait for it are told at once. No other one begins.
func TestCloseIssuer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i, b := newSilentIssuer(t)
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := i.keySet(t.Context()); !auth.Is(err, auth.Unavailable) {
				t.Error(err)
			}
		})
		synctest.Wait()
		i.close()
		wg.Wait()
		time.Sleep(time.Minute)
		if _, err := i.keySet(t.Context()); !auth.Is(err, auth.Unavailable) || b.requests.Load() != 1 || time.Since(began) != time.Minute {
			t.Errorf("%v, %d requests, after %v", err, b.requests.Load(), time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		i, b := newSilentIssuer(t)
		i.close()
		if _, err := i.keySet(t.Context()); !auth.Is(err, auth.Unavailable) || b.requests.Load() != 0 {
			t.Errorf("never asked: %v, %d requests", err, b.requests.Load())
		}
	})
}
